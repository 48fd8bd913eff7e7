"""Manifests: what is asked for, and what is wrong with the line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compilot.errors import InputError, ManifestError
from compilot.fleet.manifest import MachineLine, Manifest, deadline_of, read_manifest
from compilot.fleet.places import line_of
from compilot.records import DynamicDim, Objective, Precision

START = datetime(2026, 11, 17, 20, 0, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text("raise SystemExit('nobody opens a model to read a manifest')\n")
    (tmp_path / "sizes.jsonl").write_text("x:0=3\n")
    return tmp_path


def read(folder: Path, text: str) -> Manifest:
    (folder / "fleet.toml").write_text(text)
    return read_manifest(folder / "fleet.toml")


WHOLE = """
[defaults]
budget = "10m"
priority = 1

[machines]
big = { labels = { pool = "big" } }
edge = { cpu = "Cortex", cores = 4 }

[models]
resnet = { target = "models.py:resnet" }

[models.bert]
target = "pack.age:bert"
dynamic = ["input_ids:1=8..128", "batch=1..8"]
trace = "sizes.jsonl"
budget = "90s"
engines = "inductor, onnxruntime"
precision = ["bf16"]
objective = "p99"
priority = 5
deadline = 2026-11-18T06:00:00Z
machines = "big"

[models.late]
target = "models.py:late"
deadline = "2h30m"
"""


def test_a_manifest_says_what_is_wanted(folder: Path) -> None:
    asked = read(folder, WHOLE)
    resnet, bert, late = asked.lines
    assert asked.folder == folder
    assert asked.machines == {
        "big": MachineLine(labels={"pool": "big"}),
        "edge": MachineLine(cpu="Cortex", cores=4),
    }
    assert (resnet.name, resnet.target, resnet.options.budget_s, resnet.given.priority) == (
        "resnet",
        "models.py:resnet",
        600.0,
        1,
    )
    assert resnet.machines == ()
    assert bert.options.budget_s == 90.0
    assert bert.options.engines == ("inductor", "onnxruntime")
    assert bert.options.allow_precision == (Precision.BF16,)
    assert bert.options.goal.objective is Objective.P99
    assert bert.dynamic[0] == DynamicDim(input="input_ids", dim=1, min=8, max=128)
    assert bert.trace == folder / "sizes.jsonl"
    assert (bert.given.priority, bert.machines) == (5, ("big",))
    assert deadline_of(bert, START) == datetime(2026, 11, 18, 6, tzinfo=UTC)
    assert deadline_of(late, START) == START + timedelta(hours=2.5)
    assert deadline_of(resnet, START) is None


LINE = '[models]\nnet = {{ target = "models.py:net", {} }}\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[models]\nnet = {", r"fleet.toml is not TOML: .*(line 2|end of document)"),
        ("[modles]\n", r"fleet.toml line 1: modles: unknown table; did you mean 'models'\?"),
        ("[defaults]\nbudget = '1m'\n", r"fleet.toml has no \[models\]; add a line"),
        ("[models]\nnet = 3\n", "line 2: models.net: must be a table"),
        ("[models]\n\nnet = { budget = '1m' }\n", "line 3: models.net: has no target"),
        (
            "[models.net]\ntaget = 'models.py:net'\n",
            r"line 2: models.net.taget: unknown field; did you mean 'target'\?",
        ),
        ("[models.net]\ntarget = 'models.py'\n", "line 2: models.net.target: 'models.py' names no factory"),
        ("[models.net]\ntarget = 'modles.py:a'\n", r"no file 'modles.py'; did you mean 'models.py'\?"),
        (LINE.format("priority = 'high'"), "line 2: models.net.priority: must be a whole number; it is text"),
        (LINE.format("budget = 'soon'"), "models.net.budget: 'soon' is not a duration; write 90s"),
        (LINE.format("engines = 'onxruntime'"), r"models.net.engines: unknown engine .*did you mean 'onnxruntime'\?"),
        (LINE.format("precision = 'int8'"), r"models.net.precision: .*did you mean 'int8-dynamic'\?"),
        (LINE.format("tolerance = 0.1"), "models.net.tolerance: a tolerance is for lower precisions only"),
        (LINE.format("objective = 'lateny'"), r"models.net.objective: .*did you mean 'latency'\?"),
        (LINE.format("preset = 'fleat'"), r"models.net.preset: .*did you mean 'fleet'\?"),
        (LINE.format("dynamic = 'x'"), "models.net.dynamic: cannot read the dynamic dimension 'x'"),
        (LINE.format("trace = 'none.jsonl'"), "models.net.trace: there is no file 'none.jsonl'"),
        (LINE.format("deadline = 'soon'"), "models.net.deadline: 'soon' is not a duration"),
        (LINE.format("deadline = 2026-11-18T06:00:00"), "models.net.deadline: has no time zone"),
        (
            LINE.format("machines = 'bog'") + "[machines]\nbig = { cores = 2 }\n",
            r"unknown machine; did you mean 'big'\?",
        ),
        ("[machines]\nbig = {}\n" + LINE.format(""), "line 2: machines.big: says nothing; give labels"),
        ("[machines]\nbig = { cores = 'two' }\n", "line 2: machines.big.cores: must be a whole number"),
        ("[machines]\nbig = { labels = { pool = 3 } }\n", "line 2: machines.big.labels: must be text"),
        ("[defaults]\ntarget = 'a:b'\n", "line 2: defaults.target: every model has a target of its own"),
        ("[defaults]\nbudgte = '1m'\n", r"line 2: defaults.budgte: unknown field; did you mean 'budget'\?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_field(folder: Path, text: str, sentence: str) -> None:
    with pytest.raises(ManifestError, match=sentence) as refused:
        read(folder, text.replace(",  }", " }"))
    assert isinstance(refused.value, InputError)
    assert "\n" not in str(refused.value)


def test_files_that_are_no_manifest_say_so(folder: Path) -> None:
    with pytest.raises(ManifestError, match=r"cannot read .*none.toml: No such file"):
        read_manifest(folder / "none.toml")
    (folder / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ManifestError, match="is not UTF-8 text"):
        read_manifest(folder / "latin.toml")
    (folder / "large.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ManifestError, match="too many for a manifest"):
        read_manifest(folder / "large.toml")


def test_places_are_found() -> None:
    text = '[a]\n\nb.c = 1\n"d e" = { f = 2 }\n[g.h]\ni = 3\n'
    assert [line_of(text, path) for path in (["a"], ["a", "b", "c"], ["a", "d e", "f"], ["g", "h", "i"])] == [
        1,
        3,
        4,
        6,
    ]
    assert line_of(text, ["z"]) == 1
