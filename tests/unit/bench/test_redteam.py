"""The red team's judge sees wrong numbers and lets honest ones pass; its models are the same in every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import redteam
import redteam_judge as judge
from redteam_models import OPS, Program, Step, make

BENCH = Path(redteam.__file__).parent


def program(name: str, kind: str = "f") -> Program:
    """One operation on one input."""
    return Program(kind, [Step(name, (0,) * len(OPS[name].takes), 0)], (1,), "one").eval()


@pytest.mark.parametrize("number", range(40))
def test_eager_is_never_wrong(number: int) -> None:
    model, inputs = make(number)
    answer = model(*inputs)
    assert judge.fault(model, inputs, answer, answer) == ""


def test_another_order_of_a_sum_is_not_wrong() -> None:
    model, x = program("sum"), torch.randn(3, 8)
    other = x.flip(-1).cumsum(-1)[:, -1:].expand(3, 8)
    assert judge.fault(model, (x,), model(x), other) == ""


def test_a_floor_of_a_number_that_is_nearly_whole_may_go_either_way() -> None:
    model = Program("f", [Step("mod_three", (0,), 0), Step("floor", (1,), 0)], (2,), "one").eval()
    x = torch.full((3, 8), 2.0)
    assert judge.fault(model, (x,), model(x), torch.ones(3, 8)) == ""
    assert "wrong" in judge.fault(model, (x,), model(x), torch.zeros(3, 8))


@pytest.mark.parametrize(
    ("name", "x", "answer"),
    [
        ("log1p", 1e-6, 1.05e-6),  # a few percent of a small result
        ("erfc", 5.0, 0.0),
        ("sigmoid", -19.0, 0.0),
        ("relu", 1.0, float("nan")),
        ("neg", 1.0, -1.001),
    ],
)
def test_wrong_floats_are_seen(name: str, x: float, answer: float) -> None:
    model, given = program(name), torch.full((3, 8), x)
    assert "24 of 24" in judge.fault(model, (given,), model(given), torch.full((3, 8), answer))


def test_a_single_wrong_value_is_seen() -> None:
    model, x = program("tanh"), torch.randn(3, 8)
    wrong = model(x).clone()
    wrong[1, 3] += 0.01
    assert "1 of 24" in judge.fault(model, (x,), model(x), wrong)


def test_integers_must_be_equal() -> None:
    model, x = program("int_halved", "i"), torch.full((3, 8), -7)
    assert "such as -3 for -4" in judge.fault(model, (x,), model(x), torch.full((3, 8), -3))


def test_a_missing_nan_is_seen() -> None:
    model, x = program("log_softmax"), torch.full((3, 8), float("-inf"))
    assert "wrong" in judge.fault(model, (x,), model(x), torch.zeros(3, 8))


def test_another_shape_or_container_is_seen() -> None:
    model, x = program("relu"), torch.randn(3, 8)
    assert "(8, 3)" in judge.fault(model, (x,), model(x), model(x).T)
    assert "tuple" in judge.fault(model, (x,), model(x), (model(x),))


def test_the_models_use_every_operation_and_are_the_same_in_every_process() -> None:
    texts = [make(number)[0].text() for number in range(400)]
    assert {step.name for number in range(400) for step in make(number)[0].steps} == set(OPS)
    code = "from redteam_models import make; print(make(7)[0].text()); print(make(7)[1][0].sum().item())"
    run = subprocess.run([sys.executable, "-c", code], cwd=BENCH, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [texts[7], str(make(7)[1][0].sum().item())]


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"model": 0, "engine": "aoti", "state": "passed"}\n{"model": 1, "eng')
    assert redteam.read(journal) == [{"model": 0, "engine": "aoti", "state": "passed"}]


def attacked(monkeypatch: pytest.MonkeyPatch, out: Path, code: str, *more: str) -> list[tuple[int, str]]:
    """What a run asks its worker, with this digest of the code; the worker finds nothing wrong."""
    asked: list[tuple[int, str]] = []

    def ask(self: redteam.Worker, wanted: dict[str, Any]) -> dict[str, Any]:
        asked.append((wanted["model"], wanted["engine"]))
        return {"state": "passed", "calls": 1, "fast": 1}

    monkeypatch.setattr(redteam.Worker, "ask", ask)
    monkeypatch.setattr(redteam, "code_digest", lambda: code)
    monkeypatch.setattr(sys, "argv", ["redteam.py", "--models", "2", "--engines", "openvino", "--out", str(out), *more])
    assert redteam.main() == 0
    return asked


def test_rows_of_other_code_are_judged_again_unless_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [(0, "openvino"), (1, "openvino")]
    assert attacked(monkeypatch, tmp_path, "first") == both
    assert attacked(monkeypatch, tmp_path, "first") == []
    assert attacked(monkeypatch, tmp_path, "second", "--keep-old") == []
    assert (
        "2 pairs of model and engine passed the gate; 0 findings; 2 rows are of other code" in capsys.readouterr().out
    )
    assert attacked(monkeypatch, tmp_path, "second") == both
    assert (
        "2 pairs of model and engine passed the gate; 0 findings; 0 rows are of other code" in capsys.readouterr().out
    )
    assert [row["code"] for row in redteam.read(tmp_path / "journal.jsonl")] == ["first"] * 2 + ["second"] * 2


def test_the_digest_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("__init__.py", "sub/one.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(redteam.compilot, "__file__", str(tmp_path / "__init__.py"))
    before = redteam.code_digest()
    assert redteam.code_digest() == before
    (tmp_path / "sub" / "one.py").write_text("x = 2\n")
    changed = redteam.code_digest()
    (tmp_path / "sub" / "one.py").rename(tmp_path / "sub" / "two.py")
    assert len({before, changed, redteam.code_digest()}) == 3


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        ({"state": "passed", "faults": []}, False),
        ({"state": "wrong", "reason": "refused by the gate"}, False),
        ({"state": "infeasible", "reason": "by name"}, False),
        ({"state": "passed", "faults": ["usual: 1 of 24 values wrong"]}, True),
        ({"state": "crashed", "reason": "the process ended with -6"}, True),
        ({"state": "broken", "reason": "KeyError"}, True),
    ],
)
def test_what_counts_as_a_finding(row: dict[str, object], finding: bool, capsys: pytest.CaptureFixture[str]) -> None:
    full = {"model": 0, "engine": "aoti", **row}
    assert redteam.is_finding(full) is finding
    assert redteam.summary([full], "now") == int(finding)
    assert f"{int(finding)} findings" in capsys.readouterr().out
