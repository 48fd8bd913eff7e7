"""What a graph break costs: every run of a shared graph counts, calls that compile do not, and nothing is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

from compilot._torch.dynamo_events import CompileEvent, FunctionPart
from compilot.diagnose import examination, trusted
from compilot.diagnose.examination import Examination
from compilot.diagnose.graphs import costs
from compilot.diagnose.graphs.costs import Ending
from compilot.diagnose.graphs.watching import GraphRun, Watch, counting
from compilot.workload import Workload

OUTER, INNER, LATER = ("m.py", 3), ("m.py", 8), ("m.py", 11)


def begun(function: str, place: Any = None) -> Ending:
    return Ending(FunctionPart(function, resumed=False), place)


def resumed(function: str, place: Any = None) -> Ending:
    return Ending(FunctionPart(function, resumed=True), place)


def spent(endings: list[Ending], given_up: tuple[Ending, ...] = ()) -> dict[Any, float]:
    """Graphs that run for a second each, the first at 10: before, between and after them 10, 1, 2, 3, ... seconds."""
    runs, now = [], 10.0
    for index in range(len(endings)):
        runs.append(GraphRun(index, now, now + 1))
        now += 2 + index
    return costs.outside(0.0, now, runs, endings.__getitem__, given_up)


GIVEN_UP = (begun("model", OUTER),)


def test_time_between_graphs_belongs_to_the_break_that_ended_the_earlier_one() -> None:
    assert spent([begun("f", OUTER), resumed("f", INNER), resumed("f")]) == {OUTER: 1.0, INNER: 2.0}


def test_time_before_any_graph_belongs_to_functions_that_were_given_up() -> None:
    assert spent([], given_up=(*GIVEN_UP, begun("helper", INNER))) == {OUTER: 5.0, INNER: 5.0}


def test_a_break_is_closed_when_the_rest_of_its_function_has_run() -> None:
    """A model that was given up calls a block with a break, then one without: the second gap is not the block's."""
    assert spent([begun("block", INNER), resumed("block"), begun("head")], GIVEN_UP) == {
        OUTER: 10.0 + 2.0 + 3.0,
        INNER: 1.0,
    }


def test_a_break_stays_open_while_other_functions_run_within_it() -> None:
    assert spent([begun("f", OUTER), begun("helper"), resumed("f")]) == {OUTER: 1.0 + 2.0}


def test_a_break_within_a_called_function_breaks_its_caller_too() -> None:
    """The caller stops at the same line; what lies between the two rests is that line's doing as well."""
    parts = [begun("caller", INNER), begun("called", INNER), resumed("called"), resumed("caller"), begun("head")]
    assert spent(parts) == {INNER: 1.0 + 2.0 + 3.0}


def test_a_rest_without_a_graph_ends_where_its_function_begins_anew_or_its_caller_goes_on() -> None:
    again = [begun("block", INNER), begun("block", INNER), resumed("block"), begun("head")]
    assert spent(again, GIVEN_UP) == {OUTER: 10.0 + 3.0 + 4.0, INNER: 1.0 + 2.0}
    around = [begun("caller", OUTER), begun("block", INNER), resumed("caller"), begun("head")]
    assert spent(around) == {OUTER: 1.0, INNER: 2.0}


def test_a_break_that_gave_up_the_rest_of_a_function_shares_the_time_after_the_first_break() -> None:
    """Packing ends a graph, and the recurrent layer after it makes the rest eager."""
    assert spent([begun("f", OUTER)], given_up=(resumed("f", INNER),)) == {OUTER: 0.5, INNER: 0.5}
    assert spent([begun("g")], given_up=(resumed("f", INNER),)) == {INNER: 10.0 + 1.0}
    assert spent([begun("f", OUTER), resumed("f", LATER)], given_up=(resumed("f", INNER),)) == {
        OUTER: 1.0,
        LATER: 1.0,
        INNER: 1.0,
    }


def test_every_run_of_a_graph_is_shown_and_nothing_is_kept() -> None:
    watch = Watch(nn.Identity())
    run = watch.backend(fx.symbolic_trace(lambda x: (x + 1,)), [])
    shown: list[tuple[int, int]] = []
    watch.handing(lambda: (run(torch.ones(2)), run(torch.ones(2))), lambda *handed: shown.append(_sized(*handed)))
    run(torch.ones(2))
    assert shown == [(0, 2), (0, 2)]
    assert not any(isinstance(value, torch.Tensor) for value in _inside(vars(watch)))


def _sized(graph: int, tensors: list[torch.Tensor]) -> tuple[int, int]:
    return graph, tensors[0].numel()


def _inside(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [value, *(deep for part in parts for deep in _inside(part))]


class Lines(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + 1  # three times
            if max(  # three times as well, however often Python comes back to this line
                x.min() > 100,
                x.max() > 100,
            ):
                x = x - 1
        return x


def test_a_statement_of_several_lines_is_passed_once_each_time() -> None:
    text = Path(__file__).read_text().splitlines()
    first = next(number for number, line in enumerate(text, 1) if line.endswith("# three times"))
    places = [(__file__, first + below) for below in range(3)]
    model = Lines()
    with counting(places, model) as passed:
        model(torch.ones(2))
    assert [passed[place] for place in places] == [["", "", ""]] * 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y.relu()


def test_blocks_that_share_a_graph_pay_for_it_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "copying_s", lambda tensors: 1.0)
    torch.compiler.reset()
    examination = Examination(Workload(nn.Sequential(*(Block() for _ in range(3))), (torch.ones(2, 4),)))
    examination.capture()
    examination.weigh()
    (found,) = examination.report().breaks
    assert (found.per_call, found.fusion_s) == (3, 3.0)


class Restless(nn.Module):
    """A break; what follows it is compiled again in three of the calls that are timed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.kind = 0, ""

    @torch.compiler.disable
    def advance(self) -> None:
        self.calls += 1
        self.kind = "x" * min(max(self.calls - 3, 0), 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        self.advance()
        return y + len(self.kind)


def _weighed() -> Examination:
    torch.compiler.reset()
    examination = Examination(Workload(Restless(), (torch.ones(2, 4),)))
    examination.capture()
    examination.weigh()
    return examination


def test_compiling_again_is_not_charged_to_a_break() -> None:
    examination = _weighed()
    compiles = [event.wall_s for _, event in examination.heard if isinstance(event, CompileEvent)]
    assert len(compiles) == 2 + 3
    (seconds,) = examination.outside_s.values()
    assert seconds < min(compiles)
    (again,) = examination.report().recompiles
    assert (again.name, again.count) == ("self.kind", 3)


def test_what_a_break_costs_stays_open_where_every_call_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "MOST_TRIES", 2)
    report = _weighed().report()
    assert report.breaks[0].outside_s is None
    assert report.breaks[0].fusion_s is None  # a part of the cost is not the cost
    assert trusted.NEVER_WARM in report.notes


class Picky(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 8).sin()


def test_a_call_that_fails_in_the_drive_leaves_the_report_incomplete_and_no_finding() -> None:
    torch.compiler.reset()
    examination = Examination(Workload(Picky(), examples=[(torch.ones(16),), (torch.ones(3),)]))
    examination.capture()
    examination.drive()
    report = examination.report()
    (unseen,) = report.unseen
    assert unseen.startswith("example 2 failed: RuntimeError: shape '[2, 8]' is invalid")
    assert unseen not in report.notes
    assert len(report.graphs) == 1
    assert (report.recompiles, report.breaks) == ((), ())  # the failure is the call's, not the compiler's
