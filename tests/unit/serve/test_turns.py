"""Who comes when: callbacks beside the calls, plans one after the other, and what ends while it is under way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry
from swapping import LIMIT_S, QUICK, Faulty, Serving, plan_of, registered
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.serve import Metrics, Swap, SwapEvent, SwapState, asgi, summary
from compilot.serve.keeping import KeptCall
from compilot.serve.manager import Wanted
from compilot.serve.records import EventKind
from compilot.serve.sentinel import RECURS, Sentinel

Make = Callable[..., Serving]


@pytest.mark.parametrize("act", ["rollback", "promote", "close"])
def test_on_event_may_use_the_swap(model: nn.Module, engine: Faulty, serving: Make, act: str) -> None:
    found: list[SwapState] = []
    acts: dict[str, Callable[[Swap], None]] = {
        "rollback": lambda swap: swap.rollback("by the callback"),
        "promote": lambda swap: swap.promote(plan_of(model, label="second")),
        "close": lambda swap: swap.close(),
    }

    def on_event(event: SwapEvent) -> None:
        found.append(event.state)
        if event.state is SwapState.LIVE and found.count(SwapState.LIVE) == 1:
            thread = threading.Thread(target=acts[act], args=(served.swap,), daemon=True)  # as a helper of the callback
            thread.start()
            thread.join(LIMIT_S)
            found.append(SwapState.EAGER if thread.is_alive() else event.state)

    served = serving(model, on_event=on_event)
    ends = {"rollback": SwapState.ROLLED_BACK, "promote": SwapState.LIVE, "close": SwapState.CLOSED}
    second = {"promote": lambda: served.swap.stats().plan == "second" and served.swap.state is SwapState.LIVE}
    served.when(second.get(act, lambda: served.swap.state is ends[act]))
    served.swap._log.flush(LIMIT_S)
    assert SwapState.EAGER not in found
    assert served.wrong == 0


def test_on_event_that_sleeps_keeps_no_call_waiting(model: nn.Module, engine: Faulty, serving: Make) -> None:
    go_on = threading.Event()
    told: list[SwapState] = []

    def on_event(event: SwapEvent) -> None:
        go_on.wait(LIMIT_S)
        told.append(event.state)

    served = serving(model, on_event=on_event)
    served.until(SwapState.LIVE)
    assert told == []
    go_on.set()
    served.swap.close()  # passes on what waits
    assert told == ["loading", "proving", "shadow", "canary", "canary", "live", "closed"]


def test_wait_returns_after_a_promotion_that_failed_and_nothing_is_kept(
    model: nn.Module, engine: Faulty, serving: Make
) -> None:
    served = serving(model, shadow=0.1)
    served.until(SwapState.LIVE)
    served.swap.promote(plan_of(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).eval()))
    served.ask(20)
    assert served.swap.wait(LIMIT_S) is SwapState.LIVE
    assert served.swap._standing.settled
    assert served.swap._kept.all() == []
    assert "the new plan is not used" in served.reasons


def test_a_promotion_that_is_rolled_back_counts_as_such(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    worse = registered(Faulty(), "worse")
    try:
        served.swap.promote(plan_of(model, engine="worse"))
        served.when(lambda: served.swap.state is SwapState.CANARY)
        worse.fault = lambda number, answer: answer - 1
        served.when(lambda: "goes on" in served.reasons)
    finally:
        registry.unregister("worse")
    assert served.swap.stats().swaps == {"live": 1, "rolled-back": 1}
    assert served.swap._kept.all() == []
    assert served.swap._standing.settled


def test_a_plan_on_its_way_is_not_replaced_by_the_next(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.brought()
    first = served.swap._rolling
    served.swap.promote(plan_of(model, label="second"))
    time.sleep(0.5)  # more than the manager's longest nap
    assert served.swap._rolling is first
    assert served.swap.state is SwapState.SHADOW
    served.when(lambda: served.swap.stats().plan == "second" and served.swap.state is SwapState.LIVE)
    assert served.swap.stats().swaps == {"live": 2}
    assert served.swap.wait(LIMIT_S) is SwapState.LIVE


def test_a_plan_that_takes_no_call_gives_way_to_the_next(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, plan_of(model, torch.zeros(7, 3), label="odd"))
    served.brought()
    served.swap.promote(plan_of(model, label="second"))
    served.when(lambda: served.swap.state is SwapState.LIVE)
    assert served.swap.stats().plan == "second"
    assert "rolled back: it takes none of the calls" in served.reasons


def test_a_rollback_ends_what_is_being_brought(
    model: nn.Module, engine: Faulty, serving: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    load = Faulty.load

    def slow(self: Faulty, request: Any) -> Any:
        reached.set()
        go_on.wait(LIMIT_S)
        return load(self, request)

    monkeypatch.setattr(Faulty, "load", slow)
    served = serving(model)
    assert reached.wait(LIMIT_S)
    served.swap.rollback("not today")
    assert served.swap.state is SwapState.ROLLED_BACK
    assert served.swap.wait(LIMIT_S) is SwapState.ROLLED_BACK
    go_on.set()
    served.when(lambda: "it was rolled back before it was there" in served.reasons)
    served.ask(50)
    assert served.swap.state is SwapState.ROLLED_BACK
    assert "rolled back: not today" in served.reasons
    served.swap.promote(plan_of(model))  # what comes later is not meant
    served.until(SwapState.LIVE)


@pytest.mark.parametrize("asked", [0, 1], ids=["it waits for a first call", "its build fails again and again"])
def test_a_plan_does_not_wait_behind_one_that_does_not_come(
    model: nn.Module, engine: Faulty, serving: Make, asked: int
) -> None:
    served = serving(model, None, bounds=QUICK._replace(retry_s=600.0, longest_retry_s=600.0))
    served.ask(asked)
    served.when_no_call(lambda: served.swap.state is SwapState.BUILDING or "tried again in 600 s" in served.swap.reason)
    served.swap.promote(plan_of(model))
    served.until(SwapState.LIVE)
    assert "another plan is wanted in its place" in served.reasons


def test_a_plan_that_is_wrong_on_a_kept_call_is_rolled_back(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, None)
    served.ask(4)
    engine.fault = lambda number, answer: answer + 1
    served.swap.promote(plan_of(model))
    assert served.swap.wait(LIMIT_S) is SwapState.ROLLED_BACK
    assert served.swap.reason.startswith("rolled back: a kept call is answered wrongly")
    assert served.swap.stats().swaps == {"rolled-back": 1}
    served.ask(10)
    assert served.wrong == 0


def test_a_new_plan_that_is_wrong_on_a_kept_call_leaves_the_live_one(
    model: nn.Module, engine: Faulty, serving: Make
) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    worse = registered(Faulty(), "worse")
    worse.fault = lambda number, answer: answer - 1
    try:
        served.swap.promote(plan_of(model))  # keeps calls again; the second waits for it
        served.swap.promote(plan_of(model, engine="worse"))
        served.when(lambda: "the plan before it goes on" in served.reasons)
    finally:
        registry.unregister("worse")
    assert served.swap.state is SwapState.LIVE
    assert served.wrong == 0


def test_what_recurs_is_wanted_again_after_a_new_plan_and_after_a_failure() -> None:
    sentinel, call = Sentinel(), Call((torch.ones(3, 9),), {})

    def wanted_after(count: int) -> list[int]:
        return [n for n in range(1, count + 1) if sentinel.missed("shape", call, adoptable=True)]

    assert wanted_after(3 * RECURS) == [RECURS]
    sentinel.begin_anew()
    assert wanted_after(RECURS) == [RECURS]
    example = sentinel.next_wanted()
    assert isinstance(example, KeptCall)
    sentinel.not_built(example)
    assert wanted_after(4 * RECURS) == [4 * RECURS]


def test_a_failed_adoption_is_told_to_the_sentinel(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    example = KeptCall(Call((torch.ones(3, 9),), {}), grad=False)
    told: list[KeptCall] = []
    served.swap.sentinel.not_built = told.append  # type: ignore[method-assign]
    served.swap._stays("no engine passed", Wanted(more=example))
    assert told == [example]
    assert EventKind.WARNING in [event.kind for event in served.events]


def test_a_tick_does_not_ask_for_the_memory(
    model: nn.Module, engine: Faulty, serving: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(summary, "pss_bytes", lambda: asked.append(1) or 7)
    served = serving(model, None)
    metrics = Metrics(served.swap, CollectorRegistry())
    served.swap._tick()
    metrics.text()
    assert asked == []
    assert served.swap.stats().pss_bytes == 7


def test_a_scrape_is_answered_beside_the_loop(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, None)
    metrics = Metrics(served.swap, CollectorRegistry())
    threads: list[int] = []
    text = metrics.text
    metrics.text = lambda: threads.append(threading.get_ident()) or text()  # type: ignore[method-assign]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/metrics", "method": "GET"}
    asyncio.run(asgi(served.swap, metrics)(scope, send, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 200
    assert threads != [threading.get_ident()]


def test_a_callback_that_raises_ends_neither_ticks_nor_close(
    model: nn.Module, engine: Faulty, serving: Make, caplog: pytest.LogCaptureFixture
) -> None:
    served = serving(model, None)
    ticks: list[int] = []

    def bad() -> None:
        raise ValueError("no")

    served.swap.at_each_tick(bad)
    served.swap.at_each_tick(lambda: ticks.append(1))
    served.when(lambda: len(ticks) >= 2)
    served.swap.close()
    assert not any(thread.is_alive() for thread in served.swap._manager._threads)
    assert "a callback of at_each_tick failed: ValueError: no" in caplog.text


def test_after_a_fork_with_a_plan_both_threads_are_there_again(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=0.5)
    served.until(SwapState.LIVE)
    swap = served.swap
    metrics = Metrics(swap, CollectorRegistry())
    parents, trial = swap._manager, swap._live
    assert trial is not None
    owners = (swap.sentinel, swap.durations, trial.pairs, metrics)
    before = [one._lock for one in owners]
    swap.after_fork()  # as in the child; its parent's threads are not there
    metrics.after_fork()
    assert all(one._lock is not lock for one, lock in zip(owners, before, strict=True))
    stop = parents._stop
    served.ask(4)
    assert swap._manager is not parents
    assert all(thread.is_alive() for thread in swap._manager._threads)
    assert swap.live()
    swap.promote(plan_of(model, label="second"))
    served.when(lambda: swap.stats().plan == "second" and swap.state is SwapState.LIVE)
    stop.set()
    parents.join(LIMIT_S)
