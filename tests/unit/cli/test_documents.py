"""What README and docs/ tell users to type works: every block of Python runs, every command and option exists.

Tuning and loading a bundle take too long here and are run by the integration tests: in their place stand functions
with their very signatures, so that a wrong name or keyword still fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import create_autospec

import pytest
import torch
import typer
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

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLAN_FILES = re.compile(r'"(compilot-runs/[^"]+\.json)"')


class Block(NamedTuple):
    """A block of code in a page."""

    page: str
    line: int
    language: str
    text: str


def blocks_of(text: str, page: str = "page.md") -> Iterator[Block]:
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(page, text[: found.start()].count("\n") + 1, found[1], found[2])


BLOCKS = [block for page in PAGES for block in blocks_of(page.read_text(), page.name)]
PYTHON = [block for block in BLOCKS if block.language == "python"]


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


# ---- Python ----------------------------------------------------------------------------------------------------------


class Net(nn.Sequential):
    """The model that the pages speak of."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.GELU())


def written_plan(model: nn.Module, x: torch.Tensor, path: Path) -> None:
    """A plan as `compilot tune` leaves it, for the engine that builds nothing."""
    guard = make_guard(model, Call((x,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
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
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a page takes for granted; functions that are too slow here keep their signature."""
    monkeypatch.chdir(tmp_path)
    model, x = Net().eval(), torch.randn(4, 8)
    real = compilot.compile
    monkeypatch.setattr(compilot, "tune", create_autospec(compilot.tune))
    monkeypatch.setattr(compilot, "load", create_autospec(compilot.load, return_value=model))
    bundled = create_autospec(real, return_value=model)
    monkeypatch.setattr(
        compilot, "compile", lambda *args, **kw: (bundled if ".cpbundle" in str(args[1]) else real)(*args, **kw)
    )
    return {
        "compilot": compilot,
        "torch": torch,
        "DataLoader": torch.utils.data.DataLoader,
        "Net": Net,
        "model": model,
        "x": x,
        "example": x,
        "args": (x,),
        "kwargs": {},
        "dataset": TensorDataset(torch.randn(64, 8)),
    }


def run(block: Block, names: dict[str, Any], folder: Path) -> None:
    """Lines that only say what may be returned are put into a function; a factory is called."""
    for name in PLAN_FILES.findall(block.text):
        written_plan(names["model"], names["x"], folder / name)
    text = block.text
    if text.startswith("return "):
        names = names | {"kwargs": {}}
        for line in text.splitlines():
            exec(f"def factory():\n    {line.replace('input_ids', 'input')}\n", names)
            names["factory"]()
        return
    exec(compile(text, name_of(block), "exec"), names)
    if "factory" in names:
        names["factory"]()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has cores
@pytest.mark.parametrize("block", PYTHON, ids=name_of)
def test_a_block_of_python_runs(block: Block, names: dict[str, Any], tmp_path: Path) -> None:
    run(block, names, tmp_path)
    if "fast.stats()" in block.text:  # it was served by the plan, as the page says
        assert names["fast"].stats().fast == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("compilot.tune(model, (x,), bugdet='5m')", TypeError),
        ("compilot.load('model.cpbundle', no_such=1)", TypeError),
        ("compilot.compile(model, 'model.cpbundle', no_such=1)", TypeError),
        ("compilot.compiled(model)", AttributeError),
        ("return compilot.Workload(model, args, dynamics={})", TypeError),
        ("def factory():\n    return compilot.Workload(model, (example,), loaders=3)\n", TypeError),
    ],
)
def test_a_wrong_block_would_be_found(names: dict[str, Any], tmp_path: Path, text: str, error: type[Exception]) -> None:
    [block] = blocks_of(f"# Page\n\n```python\n{text}\n```\n")
    with pytest.raises(error):
        run(block, names, tmp_path)


def test_the_pages_have_blocks_at_all() -> None:
    assert {block.page for block in PYTHON} >= {"README.md", "bundles.md", "tune.md"}
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
    lines = [line for block in blocks_of(text) if not block.language for line in block.text.splitlines()]
    pieces = re.findall(r"`(compilot [^`\n]+)`", text)
    return [*(line.strip().removeprefix("$ ") for line in lines if re.match(r"\s*(\$ )?compilot ", line)), *pieces]


def unknown(command: str) -> list[str]:
    """The words of a command line that the program does not know."""
    words = command.partition("  #")[0].split()[1:]
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
