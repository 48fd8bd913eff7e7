"""A Swap: eager answers from the first call, the plan takes over when it is proven, and gives way when it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from swapping import NAME, QUICK, Faulty, Serving, Tracing, X, plan_of, registered
from torch import nn

from compilot.engines import registry
from compilot.errors import InputError
from compilot.serve import Swap, SwapState
from compilot.serve.sentinel import read_events
from compilot.serve.trial import MUTATES

Make = Callable[..., Serving]


def test_eager_then_shadow_then_canary_then_live(serving: Make, model: nn.Module, engine: Faulty) -> None:
    served = serving(model)
    served.brought()
    served.ask(100)
    assert served.swap.state is SwapState.LIVE
    assert served.swap.live()
    states = [event.state for event in served.events]
    assert states == ["loading", "proving", "shadow", "canary", "canary", "live"]
    assert served.wrong == 0
    stats = served.swap.stats()
    assert stats.calls == 100 == stats.fast + stats.eager
    assert stats.fast > 50
    assert stats.mismatches == 0
    assert stats.swaps == {"live": 1}
    assert engine.loads == 1


def test_eager_answers_every_call_until_the_plan_is_there(serving: Make, model: nn.Module) -> None:
    served = serving(model, None)  # it waits for a first call, and then for the child that nobody lets start
    assert served.swap.ready()
    assert not served.swap.live()
    served.ask(5)
    assert served.wrong == 0
    assert served.swap.stats().eager == 5


def test_it_is_decided_by_the_number_of_the_call_alone(model: nn.Module, engine: Faulty, serving: Make) -> None:
    found = []
    for _ in range(2):
        served = serving(model)
        served.brought()
        served.ask(200)
        found.append([(event.state, event.call) for event in served.events])
    assert found[0] == found[1]
    live = next(call for state, call in found[0] if state is SwapState.LIVE)
    # shadow: calls 0 2 4 6; canary at a quarter: 8 12 16 20; then 21 22 23 24
    assert live == 25


def test_shares_are_upper_limits(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=0.01, shadow_calls=3, canary=(1.0,), canary_calls=1)
    served.brought()
    served.ask(150)
    assert next(engine.calls) == 2  # calls 0 and 100
    served.ask(51)
    assert served.swap.state is SwapState.CANARY


def test_one_call_a_second_is_compared_whatever_the_share(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=1e-6, shadow_calls=3, canary=(1.0,), canary_calls=1)
    served.brought()
    served.ask(50)
    compared = served.swap.stats().compared
    assert compared == 1
    served.swap._tick()  # what the thread does each second: nothing was compared since
    served.swap._tick()
    served.ask(1)
    assert served.swap.stats().compared >= compared + 1


def test_live_calls_stay_compared(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=0.1)
    served.until(SwapState.LIVE)
    before = served.swap.stats().compared
    served.ask(100)
    assert served.swap.stats().compared == pytest.approx(before + 10, abs=2)


def test_a_candidate_that_is_wrong_on_every_call_never_answers(model: nn.Module, engine: Faulty, serving: Make) -> None:
    engine.fault = lambda number, answer: answer + 1
    served = serving(model)
    served.brought()
    served.ask(50)
    assert served.wrong == 0
    assert served.swap.state is SwapState.ROLLED_BACK
    assert "its answer is not eager's: output has a relative RMSE of " in served.swap.reason
    assert served.swap.stats().fast == 0


@pytest.mark.parametrize("first", range(0, 20, 4))
def test_wrong_on_one_call_in_twenty_is_rolled_back_before_an_answer_goes_out(
    model: nn.Module, engine: Faulty, serving: Make, first: int
) -> None:
    engine.fault = lambda number, answer: answer * 2 if number % 20 == first else answer
    served = serving(model, shadow_calls=8, canary_calls=8)
    served.brought()
    served.ask(200)
    assert served.swap.state is SwapState.ROLLED_BACK
    assert served.wrong <= 1
    assert "not eager's" in served.reasons


def test_a_slower_one_is_rolled_back_after_two_hundred_pairs(model: nn.Module, engine: Faulty, serving: Make) -> None:
    def slow(number: int, answer: torch.Tensor) -> torch.Tensor:
        time.sleep(0.0003)
        return answer

    engine.fault = slow
    served = serving(model, shadow=1.0, shadow_calls=20, canary=(1.0,), canary_calls=20, margin=0.05)
    served.brought()
    served.ask(100)
    assert served.swap.state is SwapState.LIVE  # speed never delays it
    served.ask(300)
    assert served.swap.state is SwapState.ROLLED_BACK
    assert "slower than eager: p50" in served.swap.reason
    assert "over 200 pairs" in served.swap.reason
    assert served.wrong == 0


@pytest.mark.filterwarnings("ignore:the compiled model failed")
@pytest.mark.parametrize("at", [0, 6, 10, 1000])
def test_one_engine_error_rolls_back_and_eager_answers_that_call(
    model: nn.Module, engine: Faulty, serving: Make, at: int
) -> None:
    def raising(number: int, answer: torch.Tensor) -> torch.Tensor:
        if number == at:
            raise RuntimeError("device lost")
        return answer

    engine.fault = raising
    served = serving(model, shadow=0.3)
    served.brought()
    served.ask(2000)
    assert served.wrong == 0
    assert served.swap.state is SwapState.ROLLED_BACK
    assert "engine failed: RuntimeError: device lost" in served.swap.reason
    assert served.swap.stats().failures == 1


def test_an_error_of_the_caller_is_the_callers(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=1.0)
    served.until(SwapState.LIVE)
    for _ in range(10):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), torch.no_grad():
            served.swap(torch.randn(2, 5))
    assert served.swap.state is SwapState.LIVE


def test_a_model_that_changes_its_inputs_is_left_to_eager(engine: Faulty, serving: Make) -> None:
    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1) * 2

    model = Counting().eval()
    served = serving(model, plan_of(model))
    served.brought()
    x = torch.zeros(2, 3)
    with torch.no_grad():
        answers = [float(served.swap(x)[0, 0]) for _ in range(5)]
    assert answers == [2, 4, 6, 8, 10]  # each call ran once
    assert MUTATES in served.swap.reason


def test_a_model_with_random_answers_is_left_to_eager(engine: Faulty, serving: Make) -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    model = Noisy().eval()
    served = serving(model, None)
    served.ask(1)
    served.swap.promote(plan_of(model))
    served.when_no_call(lambda: "eager's own answers to one call differ" in served.swap.reason)
    assert served.swap.state is SwapState.EAGER


def test_a_plan_that_would_be_traced_is_not(model: nn.Module, serving: Make, child: Any) -> None:
    tracing = registered(Tracing(), "tracing")
    served = serving(model, plan_of(model, engine="tracing"))
    try:
        served.when(lambda: bool(child.jobs))
    finally:
        registry.unregister("tracing")
    assert child.jobs[0].twins
    assert [one.label for one in child.jobs[0].candidates] == ["tracing"]
    assert tracing.loads == 0


def test_allow_trace_traces_before_the_first_request_and_never_after(model: nn.Module, serving: Make) -> None:
    tracing = registered(Tracing(), "tracing")
    served = serving(model, plan_of(model, engine="tracing"), allow_trace=True)
    try:
        with torch.no_grad():
            served.swap.warm([X])
        served.brought()
        assert tracing.loads == 1
        trial = served.swap._rolling
        assert trial is not None
        assert trial.traced
        assert all(link.sealed for link in trial.links)
        served.ask(1)
        assert not served.swap._bringer._may_trace()
    finally:
        registry.unregister("tracing")


def test_a_plan_that_keeps_eager_says_so(model: nn.Module, serving: Make) -> None:
    import msgspec

    served = serving(model, msgspec.structs.replace(plan_of(model), entries=(), because="nothing is faster"))
    assert served.swap.wait(30) is SwapState.EAGER
    assert "keeps the model eager: nothing is faster" in served.swap.reason
    served.ask(3)
    assert served.wrong == 0


def test_a_stale_plan_is_named_and_eager_goes_on(model: nn.Module, engine: Faulty, serving: Make) -> None:
    other = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).eval()
    served = serving(model, plan_of(other))
    assert served.swap.wait(30) is SwapState.EAGER
    assert "out of date" in served.swap.reason
    served.ask(3)
    assert served.wrong == 0


def test_require_fast_is_ready_with_the_plan(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, require_fast=True)
    assert not served.swap.ready()
    served.until(SwapState.LIVE)
    assert served.swap.ready()


def test_rollback_by_hand(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    served.swap.rollback("too many complaints")
    assert served.swap.state is SwapState.ROLLED_BACK
    assert served.swap.reason == "rolled back: too many complaints"
    before = next(engine.calls)
    served.ask(10)
    assert next(engine.calls) == before + 1


def test_a_new_plan_is_the_canary_of_the_live_one(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    served.swap.promote(plan_of(model, label="second"))
    served.when(lambda: served.swap.state is SwapState.CANARY)
    assert served.swap.live()  # the first one goes on
    served.when(lambda: served.swap.state is SwapState.LIVE)
    assert served.swap.stats().plan == "second"
    assert served.wrong == 0
    assert served.swap.stats().swaps == {"live": 2}


def live_with_another_on_its_way(model: nn.Module, serving: Make) -> Serving:
    """Live, and a second plan, of an engine of its own, is in its shadow."""
    registered(Faulty(), "second")
    served = serving(model, shadow=0.1)
    served.until(SwapState.LIVE)
    shadow, *canary = served.swap._stages
    served.swap._stages = (shadow._replace(calls=10_000), *canary)
    served.swap.promote(plan_of(model, engine="second"))
    served.until(SwapState.SHADOW)
    return served


def test_the_live_plan_stays_compared_while_another_one_is_tried(
    model: nn.Module, engine: Faulty, serving: Make
) -> None:
    served = live_with_another_on_its_way(model, serving)
    try:
        first = served.swap._live
        assert first is not None
        before = first.compared
        served.ask(100)
        assert 8 <= first.compared - before <= 12  # its share, a tenth
        engine.fault = lambda number, answer: answer + 1
        with torch.no_grad():
            for _ in range(30):  # those that nobody compared may be wrong until one is
                served.swap(X)
        assert served.swap._live is None
        assert "rolled back: its answer is not eager's" in served.reasons
        assert served.swap.state is SwapState.SHADOW  # the second one goes on, and eager answers
        served.ask(50)
        assert served.wrong == 0
    finally:
        registry.unregister("second")


def test_at_another_thread_count_the_live_plan_does_not_answer_while_another_one_is_tried(
    model: nn.Module, engine: Faulty, serving: Make
) -> None:
    served = live_with_another_on_its_way(model, serving)
    try:
        torch.set_num_threads(torch.get_num_threads() + 1)
        before = next(engine.calls)
        served.ask(50)
        assert next(engine.calls) == before + 1
    finally:
        registry.unregister("second")


def test_a_wrong_new_plan_leaves_the_live_one_in_place(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    served.swap._kept.begin_anew = lambda: None  # type: ignore[method-assign]  # else a kept call may refuse it before
    worse = registered(Faulty(), "worse")
    worse.fault = lambda number, answer: answer - 1
    try:
        served.swap.promote(plan_of(model, engine="worse"))
        served.when(lambda: "goes on" in served.reasons)
        served.ask(50)
    finally:
        registry.unregister("worse")
    assert served.swap.state is SwapState.LIVE
    assert served.swap.stats().plan == NAME
    assert served.wrong == 0
    assert "its answer is not eager's" in served.reasons


def test_a_live_server_builds_anew_when_it_is_asked_to(
    model: nn.Module, engine: Faulty, serving: Make, child: Any
) -> None:
    served = serving(model, shadow=0.1)
    served.until(SwapState.LIVE)
    served.swap.promote(None)
    served.when(lambda: bool(child.jobs))  # with a call that was kept since
    assert served.swap.state is SwapState.LIVE
    served.swap.rollback("by hand")
    served.swap.promote(plan_of(model, label="second"))
    assert served.swap.state is SwapState.ROLLED_BACK
    served.ask(3)
    assert served.wrong == 0


def test_events_are_lines_of_the_log(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    assert served.swap.log is not None
    assert served.events == read_events(served.swap.log)
    assert served.swap.log.stat().st_mode & 0o077 == 0


def test_a_log_that_cannot_be_written_disturbs_nothing(
    model: nn.Module, engine: Faulty, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    served = Serving(model, plan_of(model), tmp_path / "file" / "events.jsonl")
    served.until(SwapState.LIVE)
    served.swap.close()
    assert "events cannot be written" in caplog.text
    assert served.wrong == 0


def test_closed_it_is_eager(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    served.swap.close()
    assert served.swap.state is SwapState.CLOSED
    served.ask(3)
    assert served.wrong == 0
    served.swap._under_way(SwapState.PROVING, "what was being loaded comes late")
    assert served.swap.state is SwapState.CLOSED
    assert not served.swap.ready()
    with pytest.raises(InputError, match="closed"):
        served.swap.promote(plan_of(model))


def test_wait_returns_when_it_is_settled(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=1.0)
    assert served.swap.wait(0.01) is not SwapState.LIVE
    asking = threading.Thread(target=served.until, args=(SwapState.LIVE,))
    asking.start()
    assert served.swap.wait(30) is SwapState.LIVE
    asking.join()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shadow": 0.0}, "shadow is a share"),
        ({"shadow": 1.5}, "shadow is a share"),
        ({"canary": (0.5, 2.0)}, "canary is a share"),
        ({"shadow_calls": 0}, "shadow_calls is a number"),
        ({"canary_calls": -1}, "canary_calls is a number"),
    ],
)
def test_options_that_make_no_sense_are_refused(model: nn.Module, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Swap(model, None, bounds=QUICK, **options)  # type: ignore[arg-type]


def test_of_users_calls_at_most_eight_are_kept_and_none_after_it_is_live(
    model: nn.Module, engine: Faulty, serving: Make
) -> None:
    served = serving(model, None)
    for rows in range(1, 20):
        served.ask(1, torch.randn(rows, 3))
    assert len(served.swap._kept.all()) == 8
    served.swap.close()
    assert served.swap._kept.all() == []
    live = serving(model)
    live.until(SwapState.LIVE)
    assert live.swap._kept.all() == []


def test_what_goes_to_the_child_is_like_the_calls_and_none_of_them() -> None:
    from compilot._tree import Call, call_leaves
    from compilot.serve.keeping import KeptCalls, form_of

    call = Call((torch.randn(4, 5) + 7, {"ids": torch.tensor([[3, 9, 4]]), "mask": torch.tensor([True, False])}), {})
    kept = KeptCalls()
    kept.offer(call)
    example = kept.example()
    assert example is not None
    assert form_of(example.call) == form_of(call)
    values, made = ([leaf.value for leaf in call_leaves(one)] for one in (call, example.call))
    assert not torch.equal(values[0], made[0])
    assert float(made[0].mean()) == pytest.approx(7, abs=1.5)
    assert int(made[1].min()) >= 3
    assert int(made[1].max()) <= 9
    given = Call((torch.ones(4, 5),), {})
    kept.offer(given, given=True)
    assert torch.equal(kept.example().call.args[0], given.args[0])  # type: ignore[union-attr]


def test_many_threads_lose_no_answer_and_load_once(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow_calls=50, canary_calls=50)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            served.ask(200)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert served.wrong == 0
    stats = served.swap.stats()
    assert stats.calls == 32 * 200
    assert engine.loads == 1


def test_swaps_under_load_give_no_wrong_answer(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, shadow=1.0, shadow_calls=1, canary=(1.0,), canary_calls=1)
    stop = threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                served.ask(20)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            before = served.swap.stats().swaps.get("live", 0)
            served.swap.promote(plan_of(model))
            end = time.monotonic() + 30
            while served.swap.stats().swaps.get("live", 0) <= before:
                assert time.monotonic() < end
                time.sleep(0.001)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert served.wrong == 0
    assert served.swap.stats().swaps["live"] >= 20
