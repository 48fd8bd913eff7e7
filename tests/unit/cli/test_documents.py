"""What README and docs/ tell users to type works: the Python of each page runs from top to bottom, every command and
option exists.

Tuning and loading a bundle take too long here and are run by the integration tests: in their place stand functions
with their very signatures that return records of their very types, so that a wrong name, keyword or field still fails.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import torch
import typer
from pages import PAGES, ROOT, SHELL, Block, blocks_of, lines_of
from sample_records import returned_by, sample
from torch import nn
from torch.utils.data import TensorDataset

import compilot
from compilot._tree import Call
from compilot.artifacts.planfile import save_plan
from compilot.cli.main import app
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Evidence,
    Fingerprint,
    MemoryFormat,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard

BLOCKS = [block for page in PAGES for block in blocks_of(page.read_text(), page.name)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PLAN_FILES = re.compile(r'"((?:compilot-runs/[^"]+|run)/plan\.json)"')
MOST_NOT_RUN = 0.25  # of all blocks of Python


def name_of(block: Block) -> str:
    return block.name


# ---- Python ----------------------------------------------------------------------------------------------------------


SLOW = {  # what takes long, or needs what is not here: a store, a run, a bundle
    compilot: [
        *("tune", "results", "write_report", "charts", "bench", "examine", "check_fixes", "environment", "why_cold"),
        *("pack", "verify", "push", "pull", "history", "show", "compare", "reproduce", "status", "ui"),
        *("check", "baseline"),
    ],
    compilot.store: ["ls", "rm", "gc"],
    compilot.cache: ["ls", "verify", "prune"],
    compilot.fleet: ["run"],
}


class Net(nn.Sequential):
    """The model that the pages speak of."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.GELU())


def written_plan(names: dict[str, Any], path: Path) -> None:
    """A plan as `compilot tune` leaves it, for the engine that builds nothing, the page's model and its inputs."""
    model, call = names["model"], Call((), names["inputs"]) if "inputs" in names else Call((names["x"],), {})
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    settings = Settings(memory_format=MemoryFormat.CHANNELS_LAST)
    entry = PlanEntry(
        guard=guard,
        candidate=Candidate(settings=settings, label="eager channels_last", rationale=""),
        evidence=Evidence(),
        sentence="fast",
    )
    plan = Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Net"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="it is small",
        entries=(entry,),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_plan(plan, path)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What a page takes for granted; functions that are too slow here keep their signature and what they return."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPILOT_CONFIG", str(tmp_path / "config"))  # keys are really made and trusted
    monkeypatch.syspath_prepend(str(tmp_path))
    model, x = Net().eval(), torch.randn(4, 8)
    names: dict[str, Any] = {
        "compilot": compilot,
        "torch": torch,
        "DataLoader": torch.utils.data.DataLoader,
        "Net": Net,
        "model": model,
        "x": x,
        "example": x,
        "args": (x,),
        "kwargs": {},
        "plan": sample(compilot.Plan),
        "dataset": TensorDataset(torch.randn(64, 8)),
    }

    def shipped(*_: Any, **__: Any) -> nn.Module:
        """The model of the page, where it has one."""
        return names["factory"]()[0] if "factory" in names else names["model"]

    real = compilot.compile
    for place, functions in SLOW.items():
        for name in functions:
            function = getattr(place, name)
            monkeypatch.setattr(place, name, create_autospec(function, return_value=returned_by(function)))
    monkeypatch.setattr(compilot, "load", create_autospec(compilot.load, side_effect=shipped))
    bundled = create_autospec(real, side_effect=shipped)
    monkeypatch.setattr(
        compilot, "compile", lambda *args, **kw: (bundled if ".cpbundle" in str(args[1]) else real)(*args, **kw)
    )
    yield names
    for file in tmp_path.glob("*.py"):  # the next page may have another file of that name
        sys.modules.pop(file.stem, None)


def run(block: Block, names: dict[str, Any], folder: Path) -> None:
    """Lines that only say what may be returned are put into a function; a named file is written and imported."""
    for name in PLAN_FILES.findall(block.text):
        written_plan(names, folder / name)
    if block.text.startswith("return "):
        for line in block.text.splitlines():
            exec(f"def factory():\n    {line.replace('input_ids', 'input')}\n", names)
            names.pop("factory")()
    elif file := re.match(r"# (\w+)\.py\n", block.text):
        (folder / f"{file[1]}.py").write_text(block.text)
        names.update(vars(importlib.import_module(file[1])))
    else:
        exec(compile(block.text, block.name, "exec"), names)
    if "factory" in names:
        names["factory"]()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has cores
@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, names: dict[str, Any], tmp_path: Path) -> None:
    if "huggingface" in page:
        pytest.importorskip("transformers")
    for block in PYTHON:
        if block.page != page or block.not_run:
            continue
        run(block, names, tmp_path)
        if "fast.stats()" in block.text:  # it was served by the plan, as the page says
            assert names["fast"].stats().fast == 1, block.name


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = [block for block in PYTHON if block.not_run]
    assert len(left_out) <= MOST_NOT_RUN * len(PYTHON), [(block.name, block.not_run) for block in left_out]
    marks = sum(page.read_text().count("<!-- not run") for page in PAGES)
    assert marks == len(left_out)  # a mark stands on the line before a block of Python, with a reason


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("compilot.tune(model, (x,), bugdet='5m')", TypeError),
        ("compilot.load('model.cpbundle', no_such=1)", TypeError),
        ("compilot.bench(model, args, plan='plan.json')", TypeError),
        ("compilot.store.ls()", TypeError),
        ("compilot.compile(model, 'model.cpbundle', no_such=1)", TypeError),
        ("compilot.compiled(model)", AttributeError),
        ("compilot.environment().no_such_field", AttributeError),
        ("compilot.environment().machine.no_such_field", AttributeError),
        ("[engine.fine for engine in compilot.environment().engines.values()]", AttributeError),
        ("[row['no_such_column'] for row in compilot.results(plan).rows]", KeyError),
        ("for cause in compilot.why_cold('run').causes:\n    cause.no_such_field", AttributeError),
        ("compilot.results(plan).verdict.no_such_field", AttributeError),  # also where it may be None
        ("compilot.store.ls('folder').entries[0].no_such_field", AttributeError),
        ("compilot.tune(model, (x,)).no_such_field", AttributeError),
        ("compilot.keys.new('a').no_such_field", AttributeError),
        ("compilot.keys.new('a')\ncompilot.keys.new('a')", compilot.KeyProblem),  # a key is never overwritten
        ("return compilot.Workload(model, args, dynamics={})", TypeError),
        ("def factory():\n    return compilot.Workload(model, (example,), loaders=3)\n", TypeError),
    ],
)
def test_a_wrong_block_would_be_found(names: dict[str, Any], tmp_path: Path, text: str, error: type[Exception]) -> None:
    [block] = blocks_of(f"# Page\n\n```python\n{text}\n```\n")
    with pytest.raises(error):
        run(block, names, tmp_path)


@pytest.mark.parametrize(
    "field",
    [
        *('row["speedup"]', "measured.sentences", "finding.where", "now).gone", "machine.cpu_model", "toolchain.works"),
        *("engine.ok", "cause.advice", "key.public", "bundle.standalone", "checked.differences", "pulled.unproven"),
        *("entry.sha256", "entry.label for", "entry.why", "key.key_id"),
    ],
)
def test_a_wrong_field_in_the_page_of_the_api_would_be_found(names: dict[str, Any], tmp_path: Path, field: str) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    assert field in text
    wrong = re.sub(r"(\w+)(\W*| for)$", r"no_such_\1\2", field)
    with pytest.raises((AttributeError, KeyError), match="no_such_"):  # noqa: PT012  # whichever block it is in
        for block in blocks_of(text.replace(field, wrong), "api.md"):
            if block.language == "python" and not block.not_run:
                run(block, names, tmp_path)


def test_the_pages_have_blocks_at_all() -> None:
    assert {block.page for block in PYTHON} >= {"README.md", "api.md", "bundles.md", "tune.md"}
    assert len(PYTHON) == sum(page.read_text().count("```python\n") for page in PAGES)
    assert len(commands_of(PAGES[0].read_text())) >= 2


# ---- links -----------------------------------------------------------------------------------------------------------


def anchors_of(page: Path) -> set[str]:
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKS = [(page, *link) for page in PAGES for link in re.findall(r"\]\(([\w./-]*\.md)?(#[\w-]+)?\)", page.read_text())]


@pytest.mark.parametrize(("page", "target", "anchor"), LINKS, ids=lambda one: getattr(one, "name", one))
def test_links_between_pages_lead_to_a_page_and_a_heading(page: Path, target: str, anchor: str) -> None:
    there = page.parent / target if target else page
    assert there.is_file()
    assert not anchor or anchor.removeprefix("#") in anchors_of(there)


def test_the_rule_of_trust_has_a_heading_that_other_pages_lead_to() -> None:
    rule = "#whom-a-plans-folder-may-belong-to"
    assert {page.name for page, _, anchor in LINKS if anchor == rule} >= {"bench.md", "bundles.md"}


# ---- commands --------------------------------------------------------------------------------------------------------


def commands_of(text: str) -> list[str]:
    """Lines of blocks and quoted pieces of sentences that begin with the name of the program."""
    return [*lines_of(text, "compilot"), *re.findall(r"`(compilot [^`\n]+)`", text)]


def unknown(command: str) -> list[str]:
    """The words of a command line that the program does not know."""
    words = command.split()[1:]
    at: Any = typer.main.get_command(app)
    while hasattr(at, "commands") and words and not words[0].startswith("-"):
        either = words[0].split("/")  # "cache ls/prune/verify"
        if strangers := [word for word in either if word not in at.commands]:
            return strangers
        at, words = at.commands[either[0]], words[1:]
    known = {option for parameter in at.params for option in (*parameter.opts, *parameter.secondary_opts)}
    asked = re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(words))
    return [option for option in asked if option not in known | {"--help"}]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_of_a_page_exists(page: Path) -> None:
    found = commands_of(page.read_text())
    assert {command: words for command in found if (words := unknown(command))} == {}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("compilot tune a.py:f --budget 5m", []),
        ("compilot tune a.py:f --bugdet 5m", ["--bugdet"]),
        ("compilot tuna a.py:f", ["tuna"]),
        ("compilot keys newer", ["newer"]),
        ("compilot cache ls/prone/verify", ["prone"]),
        ("compilot cache prune [--no-such-thing]", ["--no-such-thing"]),
    ],
)
def test_a_wrong_command_would_be_found(command: str, words: list[str]) -> None:
    assert unknown(command) == words


def test_targets_of_make_and_extras_that_pages_name_exist() -> None:
    makefile, extras = (ROOT / "Makefile").read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = [page.read_text() for page in (*PAGES, ROOT / "CONTRIBUTING.md")]
    targets = {line.split()[1] for text in pages for line in lines_of(text, "make")}
    assert {"demo", "test", "quick", "check", "docs", "dist"} <= targets
    assert {target for target in targets if f"\n{target}: " not in makefile} == set()
    groups = [names for text in pages for names in re.findall(r"(?:compilot|\.)\[([\w,-]+)\]'", text)]
    asked = {name for group in groups for name in group.split(",")}
    assert "all" in asked
    assert asked <= set(extras["optional-dependencies"])


def test_blocks_of_commands_have_a_language_that_is_read() -> None:
    strange = [
        block.name for block in BLOCKS if block.language not in (*SHELL, "python", "text", "toml", "yaml", "dockerfile")
    ]
    assert strange == []


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, ROOT / "examples/quickstart.ipynb"], ids=lambda page: page.name)
def test_what_is_public_is_called_by_its_public_name(page: Path) -> None:
    text = page.read_text()
    inner = re.findall(r"compilot\.(?:errors|report|progress|records)\.(\w+)", text)
    inner += re.findall(r"from compilot\.(?:errors|report|progress|records) import (\w+)", text)
    assert [name for name in inner if name in compilot.__all__ or name == "read_run"] == []
