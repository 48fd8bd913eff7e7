"""The pytest fixture `compilot`: what fails, what is skipped and what it says. The doctor and the races are fakes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot.engines.eager.build import EAGER
from compilot.records import Comparison, Finding, Outcome, ProcessSamples, Race
from compilot.testing.asserting import Asserting

pytest_plugins = ["pytester"]


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def asserting() -> Asserting:
    def fail(text: str) -> None:
        raise Failed(text)

    def skip(text: str) -> None:
        raise Skipped(text)

    return Asserting(fail=fail, skip=skip)


def examined(monkeypatch: pytest.MonkeyPatch, *findings: Finding, unseen: tuple[str, ...] = ()) -> None:
    report = SimpleNamespace(findings=findings, unseen=unseen, label="Net")
    monkeypatch.setattr("compilot.api.examining.examine", lambda *given, **options: report)


BREAK = Finding(
    kind="graph-break", where="net.py:7", explanation="a value is read", advice="use torch.where", snippet="x.item()"
)


def test_breaks_and_recompiles_fail_with_line_and_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    examined(monkeypatch, BREAK)
    with pytest.raises(Failed) as failed:
        asserting().no_graph_breaks(nn.ReLU(), torch.ones(2))
    assert str(failed.value) == (
        "Net has 1 graph break:\n  net.py:7: a value is read\n    x.item()\n    fix: use torch.where"
    )
    asserting().no_recompiles(nn.ReLU(), [torch.ones(2)])  # another kind of finding
    examined(monkeypatch, Finding(kind="recompile-limit", where="", explanation="too often", advice="mark it"))
    with pytest.raises(Failed, match="1 recompile:"):
        asserting().no_recompiles(nn.ReLU(), [torch.ones(2), torch.ones(3)])
    examined(monkeypatch, unseen=("the drive did not finish",))
    with pytest.raises(Skipped, match="did not see everything"):
        asserting().no_graph_breaks(nn.ReLU(), torch.ones(2))


def test_numbers_are_compared_here() -> None:
    model, x = nn.Linear(4, 4).eval(), torch.randn(3, 4)
    asserting().same_numbers(model, lambda y: model(y), x)
    asserting().same_numbers(model, lambda y: model(y) * 1.0001, x, tolerance=1e-3)
    with pytest.raises(Failed, match="the answers differ"):
        asserting().same_numbers(model, lambda y: model(y) * 1.0001, x)
    with pytest.raises(Failed, match=r"was \(3, 4\)"):
        asserting().same_numbers(model, lambda y: model(y)[:2], x, tolerance=1.0)


def answered(first: Any, second: Any, tolerance: float | None) -> None:
    asserting().same_numbers(lambda: first, lambda: second, tolerance=tolerance)


ONES, IDS = torch.ones(8), torch.arange(8)
HOLE = torch.where(IDS == 3, torch.nan, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((ONES, ONES), (ONES * 1.001, -ONES), r"relative error 2\.0e\+00 > 1\.0e-02 at output\[1\]"),
        (ONES, HOLE, "1 of 8 values are NaN, eager has 0"),
        (ONES, torch.where(IDS == 3, torch.inf, 1.0), "NaN or Inf in other places"),
        ((ONES, IDS), (ONES, IDS + 1), r"8 of 8 int64 values differ .*output\[1\]"),
        ((ONES, IDS > 3), (ONES, IDS > 4), "1 of 8 bool values differ"),
        (7, 8, "differ"),  # Python's own numbers, too
        ({"scores": ONES}, {"scores": ONES, "more": ONES}, "is new"),
        (torch.zeros(8), ONES * 1e-6, "relative error inf"),  # nothing is small beside zeros
        (ONES, ONES * 1.02, "relative error"),
    ],
)
def test_what_is_wrong_at_a_tolerance(first: Any, second: Any, said: str) -> None:
    with pytest.raises(Failed, match=said):
        answered(first, second, 0.01)


def test_a_tolerance_is_the_limit_of_every_output() -> None:
    for tolerance in (0.01, 0.002):
        answered((ONES, IDS, 7, HOLE), (ONES * 1.001, IDS, 7, HOLE * 1.0015), tolerance)
    for first, second in ((ONES, ONES * 1.0001), (ONES, ONES + 1e-6), (7, 8)):
        with pytest.raises(Failed):
            answered(first, second, 1e-8)
    answered(ONES, ONES + 1e-6, None)  # that passes by the usual limits: a stricter tolerance counts
    answered((ONES, 7, 10**30), (ONES, 7, 10**30), 0.0)


def raced(
    monkeypatch: pytest.MonkeyPatch, *intervals: tuple[float, float], outcome: Outcome = Outcome.FASTER
) -> list[int]:
    left, asked = list(intervals), []

    def race(self: Asserting, *given: Any) -> Comparison:
        low, high = left.pop(0)
        asked.append(1)
        return Comparison(
            candidate_id="a",
            baseline_id="b",
            ratio=(low + high) / 2,
            low=low,
            high=high,
            outcome=outcome,
            margin=0.01,
            mde=0.02,
            aa_noise=0.0,
            processes=3,
            pairs=40,
        )

    monkeypatch.setattr(Asserting, "_raced", race)
    return asked


def test_faster_needs_the_whole_interval_and_a_failure_two_races(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = raced(monkeypatch, (1.3, 1.5))
    asserting().faster_than("plan.json", "eager", at_least=1.2)
    assert len(asked) == 1
    raced(monkeypatch, (1.0, 1.1), (1.0, 1.15))
    with pytest.raises(Failed, match=r"not 1\.2x as fast as torch\.compile: 1\.05\dx .*, and again"):
        asserting().faster_than("plan.json", "compile", at_least=1.2)
    asked = raced(monkeypatch, (1.0, 1.1), (1.25, 1.4))  # it did not come back
    asserting().faster_than("plan.json", at_least=1.2)
    assert len(asked) == 2
    raced(monkeypatch, (1.1, 1.3))
    with pytest.raises(Skipped, match="inconclusive"):
        asserting().faster_than("plan.json", at_least=1.2)


def test_an_undecided_race_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for interval in ((1.0, 1.0), (2.0, 2.0), (0.5, 0.5)):
        raced(monkeypatch, interval, outcome=Outcome.UNDECIDED)
        with pytest.raises(Skipped, match="too few pairs"):
            asserting().faster_than("plan.json", at_least=1.0)


def test_answers_without_tensors_are_a_skip() -> None:
    with pytest.raises(Skipped, match="no tensors"):
        asserting().same_numbers(lambda x: "a", lambda x: "b", torch.ones(2))


ROUNDS = ProcessSamples(rounds=tuple((0.02, 0.02, 0.01 + 0.0001 * (n % 3)) for n in range(20)))


def benched(monkeypatch: pytest.MonkeyPatch, races: list[Race], *rows: Any) -> None:
    measured = SimpleNamespace(run_dir="run", rows=rows)
    monkeypatch.setattr("compilot.api.benching.bench", lambda *given, **options: measured)
    monkeypatch.setattr("compilot.report.read_run", lambda place: SimpleNamespace(races=races))


def test_the_race_that_holds_both_counts(monkeypatch: pytest.MonkeyPatch, small_run: Any) -> None:
    mine, eager = small_run.plan.entries[0].candidate.id, EAGER.id
    whole = Race(arms=(eager, eager, mine), with_aa=True, processes=(ROUNDS,) * 3, purpose="bench")
    later = Race(arms=(eager, eager, "another"), with_aa=True, processes=(ROUNDS,) * 3, purpose="bench")
    benched(monkeypatch, [whole, later])
    asserting().faster_than(small_run.plan, model="m.py:net", at_least=1.5)
    both = Race(arms=(eager, "plain", mine), with_aa=False, processes=(ROUNDS,) * 3, purpose="bench")
    rows = [{"id": one, "state": "ok", "candidate": one, "note": ""} for one in (eager, "plain", mine)]
    benched(monkeypatch, [whole, both, later], *rows)
    asserting().faster_than(small_run.plan, "compile", model="m.py:net", at_least=1.5)


def test_a_plan_that_fails_is_a_failure_with_its_reason(monkeypatch: pytest.MonkeyPatch, small_run: Any) -> None:
    mine = small_run.plan.entries[0].candidate.id
    alone = Race(arms=(EAGER.id, EAGER.id), with_aa=True, processes=(ROUNDS,) * 3, purpose="bench")
    row = {"id": mine, "state": "wrong", "candidate": "frozen", "note": "differs in seed 1"}
    benched(monkeypatch, [alone], row)
    with pytest.raises(Failed, match="frozen could not be measured: differs in seed 1"):
        asserting().faster_than(small_run.plan, model="m.py:net")
    row["state"] = "ok"
    with pytest.raises(Skipped, match="never timed beside each other"):
        asserting().faster_than(small_run.plan, model="m.py:net")


def test_a_plan_of_a_trace_is_refused(small_run: Any) -> None:
    entry = small_run.plan.entries[0]
    for entries in ((entry, entry), (msgspec.structs.replace(entry, module="layers.0"),)):
        with pytest.raises(Failed, match="programs for several sizes or parts"):
            asserting().faster_than(msgspec.structs.replace(small_run.plan, entries=entries), model="m.py:net")


USES = """
import torch
def test_numbers(compilot):
    compilot.same_numbers(torch.relu, torch.relu, torch.randn(3))
def test_other_numbers(compilot):
    compilot.same_numbers(torch.relu, torch.sigmoid, torch.randn(3))
"""
PLUGIN = "compilot.testing.pytest_plugin"
ALONE = ("-p", "no:xdist", "-p", "no:cacheprovider")


def loaded() -> tuple[str, ...]:
    """The plugin comes by its entry point, where the environment has that; else it is named."""
    from importlib.metadata import entry_points

    return () if any(one.value == PLUGIN for one in entry_points(group="pytest11")) else ("-p", PLUGIN)


def test_the_fixture_passes_fails_and_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES)
    done = pytester.runpytest_inprocess(*loaded(), *ALONE)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["the answers differ: *"])
    pytester.runpytest_inprocess(*loaded(), *ALONE, "--compilot-off").assert_outcomes(skipped=2)


def test_under_xdist_it_is_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(compilot):\n    assert False\ndef test_other():\n    assert True\n")
    done = pytester.runpytest_subprocess(*loaded(), "-n", "2", "-rs")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["*run these tests without -n*"])
