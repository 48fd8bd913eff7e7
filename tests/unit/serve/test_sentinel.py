"""After the swap: what the plan does not have is counted, named and answered by eager; what recurs is adopted."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from swapping import Faulty, Serving, Tracing, X, plan_of, registered
from torch import nn
from typer.testing import CliRunner

from compilot.cli.main import app
from compilot.engines import registry
from compilot.errors import InputError
from compilot.serve import SwapState, sentinel_report
from compilot.serve.bringing import SEALED
from compilot.serve.events import EventLog
from compilot.serve.records import BuildResult, EventKind
from compilot.serve.sentinel import MOST_KINDS, RECURS, Sentinel, read_events
from compilot.serve.standing import Standing
from compilot.serve.swap import PROVEN_THREADS, RECURRING_THREADS
from compilot.serve.watching import Ran, Spent

Make = Callable[..., Serving]


def live(serving: Make, model: nn.Module, **options: Any) -> Serving:
    served = serving(model, **options)
    served.until(SwapState.LIVE)
    return served


def test_new_sizes_are_counted_by_size_and_answered_by_eager(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = live(serving, model, adopt=False)
    before = next(engine.calls)
    for rows, count in ((5, 7), (9, 3)):
        served.ask(count, torch.randn(rows, 3))
    assert served.wrong == 0
    assert served.swap.stats().fallbacks == {
        "shape of args[0]: 5x3, plan has 2x3": 7,
        "shape of args[0]: 9x3, plan has 2x3": 3,
    }
    assert next(engine.calls) == before + 1


def test_gradients_are_named(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = live(serving, model)
    with torch.enable_grad():
        assert served.swap(X).requires_grad
    assert served.swap.stats().fallbacks == {"gradients enabled": 1}


def test_another_thread_count_is_eagers_until_it_is_proven(model: nn.Module, engine: Faulty, serving: Make) -> None:
    torch.set_num_threads(2)
    served = live(serving, model, shadow=0.001)
    assert served.swap.stats().threads == (2,)
    torch.set_num_threads(1)
    before = next(engine.calls)
    served.ask(RECURRING_THREADS)
    assert next(engine.calls) == before + 1
    reason = "thread count 1, the plan is proven at 2"
    assert served.swap.stats().fallbacks == {reason: RECURRING_THREADS}
    served.ask(PROVEN_THREADS)
    assert served.swap.stats().threads == (1, 2)
    assert [event.reason for event in served.events if event.kind is EventKind.ADOPTED] == [
        "thread count 1 is proven, too"
    ]
    served.ask(20)
    assert served.swap.stats().fallbacks == {reason: RECURRING_THREADS + PROVEN_THREADS}
    assert served.wrong == 0


def test_a_wrong_answer_at_another_thread_count_rolls_back_and_goes_to_nobody(
    model: nn.Module, engine: Faulty, serving: Make
) -> None:
    torch.set_num_threads(2)
    served = live(serving, model, shadow=0.001)
    engine.fault = lambda number, answer: answer + (torch.get_num_threads() == 1)
    torch.set_num_threads(1)
    served.ask(RECURRING_THREADS + 5)
    assert served.wrong == 0
    assert served.swap.state is SwapState.ROLLED_BACK


def test_nothing_is_compiled_in_a_request_also_where_tracing_was_allowed(model: nn.Module, serving: Make) -> None:
    tracing = registered(Tracing(), "tracing")
    served = serving(model, plan_of(model, engine="tracing"), allow_trace=True)
    try:
        with torch.no_grad():
            served.swap.warm([X])
        served.brought()
        served.until(SwapState.LIVE)
        assert tracing.loads == 1
        with torch.inference_mode():  # another kind of call: torch.compile would build a second program
            right = model(X)
            for _ in range(5):
                assert torch.allclose(served.swap(X), right)
        stats = served.swap.stats()
        assert stats.fallbacks == {SEALED: 5}
        assert stats.recompiles == 0
        torch.set_num_threads(torch.get_num_threads() % 2 + 1)
        served.ask(RECURRING_THREADS + PROVEN_THREADS + 5)
        assert sum(served.swap.stats().fallbacks.values()) == RECURRING_THREADS + PROVEN_THREADS + 10
    finally:
        registry.unregister("tracing")


def test_what_recurs_is_built_and_added_as_an_entry(
    model: nn.Module, engine: Faulty, serving: Make, child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compilot.serve import bringing
    from compilot.serve.bringing import Made, _Started

    built = BuildResult(ok=True, digest="d", label="faulty")

    def build(job: Any) -> Ran:
        Path(job.out).write_bytes(b"bundle")
        return Ran(built, Spent(1.0, 1.0, 1))

    child.act = build
    plans = {"first": plan_of(model), "other": plan_of(model, torch.zeros(6, 3))}

    def started(self: Any, made: Made) -> _Started:
        plan = plans["other" if made.digest else "first"]
        parts = bringing.parts_of(plan, [None])
        return _Started(bringing.attach_parts(model, parts), plan, "", parts)

    monkeypatch.setattr(bringing.Bringer, "_started", started)
    monkeypatch.setattr(bringing, "is_bundle", lambda path: True)
    monkeypatch.setattr(bringing.Bringer, "_without_compiler", lambda self, made: made)
    served = serving(model, "first.cpbundle")
    served.until(SwapState.LIVE)
    other = torch.randn(6, 3)
    served.ask(RECURS, other)
    served.when(lambda: EventKind.ADOPTED in [event.kind for event in served.events], x=other)
    assert "built for calls that recur: args[0] [6, 3]" in served.reasons
    assert child.jobs[0].candidates[0].label == "faulty"
    served.when(lambda: served.swap.stats().swaps["live"] == 2, x=other)
    missed = sum(served.swap.stats().fallbacks.values())
    served.ask(10, other)
    served.ask(10)
    assert sum(served.swap.stats().fallbacks.values()) == missed
    assert served.wrong == 0


def test_kinds_are_bounded() -> None:
    from compilot._tree import Call

    sentinel = Sentinel()
    for rows in range(1, MOST_KINDS + 50):
        sentinel.missed("shape", Call((torch.empty(rows),), {}), adoptable=True)
    found = sentinel.news()
    assert found is not None
    assert len(found) == MOST_KINDS + 1
    assert sum(one.calls for one in found) == MOST_KINDS + 49
    assert sentinel.news() is None


def test_the_report_says_what_traffic_asked_for(
    model: nn.Module, engine: Faulty, serving: Make, tmp_path: Path
) -> None:
    served = live(serving, model, adopt=False)
    served.ask(30)
    served.ask(12, torch.randn(5, 3))
    served.swap.rollback("enough")
    served.swap.close()
    assert served.swap.log is not None
    found = sentinel_report(served.swap.log)
    assert found.processes == 1
    assert found.missed_calls == 12
    assert found.calls >= 42
    [one] = found.missed
    assert one.sizes == {"args[0]": (5, 3)}
    assert found.rolled_back == ("rolled back: enough",)
    said = CliRunner().invoke(app, ["sentinel", "report", str(served.swap.log)])
    assert said.exit_code == 0, said.output
    assert "eager answered 12 of" in said.output
    assert "shape of args[0]: 5x3, plan has 2x3" in said.output
    assert "rolled back: enough" in said.output
    printed = CliRunner().invoke(app, ["sentinel", "report", str(served.swap.log), "--json"])
    assert json.loads(printed.output)["missed"][0]["calls"] == 12


def test_a_log_without_missed_calls_and_one_with_a_torn_end(
    model: nn.Module, engine: Faulty, serving: Make, tmp_path: Path
) -> None:
    served = live(serving, model)
    served.swap.close()
    assert served.swap.log is not None
    torn = tmp_path / "torn.jsonl"
    shutil.copy(served.swap.log, torn)
    with torn.open("ab") as file:
        file.write(b'{"schema": 1, "at"')
    said = CliRunner().invoke(app, ["sentinel", "report", str(torn)])
    assert "every call after the swap was answered by the plan" in said.output
    with torn.open("ab") as file:  # what came after it
        file.write(b"\n" + served.swap.log.read_bytes())
    assert sentinel_report(torn).processes == 1
    assert len(read_events(torn)) == 2 * len(read_events(served.swap.log))


def test_a_line_that_a_full_disk_cut_off_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path / "events.jsonl", None)
    real, short = os.write, iter([10])
    monkeypatch.setattr("compilot.serve.events.os.write", lambda fd, data: real(fd, data[: next(short, len(data))]))
    standing = Standing(log, itertools.count())
    standing.tell(EventKind.WARNING, "cut off")
    standing.tell(EventKind.WARNING, "whole")
    log.flush(30)
    assert [event.reason for event in read_events(tmp_path / "events.jsonl")] == ["whole"]


def test_logs_of_several_starts_are_added_up_where_every_start_has_the_same_pid(
    model: nn.Module, engine: Faulty, serving: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, whose server is process 1 each time."""
    log = tmp_path / "all.jsonl"
    for name in ("first", "second"):
        monkeypatch.setattr("compilot.serve.standing._names", itertools.count(1))
        served = live(serving, model)
        served.ask(3, torch.zeros(5, 3))
        served.swap.close()
        assert served.swap.log is not None
        with log.open("ab") as file:
            file.write(served.swap.log.read_bytes())
        served.swap.log.rename(tmp_path / name)
    assert sentinel_report(log).missed_calls == 6


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no event log"):
        sentinel_report(tmp_path / "none.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(InputError, match="none of its 2 lines is an event"):
        sentinel_report(other)
