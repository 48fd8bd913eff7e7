"""Plans that are wrong, slow or fail, under load; and a thousand swaps. The engine is one that fails as it is told to.

In: the number of a run. Out: a Run. The shares and counts are Swap's own defaults, unless a case says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from compilot.engines import registry
from compilot.serve import SwapEvent, SwapState
from serving_load import NAME, Faulty, Load, Missed, Run, inputs, judged, net, own_cache, plan_of, registered

NOT_EAGERS = "not eager's"
SWAPS = 1000
NO_MATTER = 1e9  # as margin: the engine is eager with some Python around it, and so it is a little slower


def with_engine(
    fault: Callable[[Faulty], None] | None,
    body: Callable[[Load, Faulty], SwapEvent | None],
    *,
    most_wrong: int = 0,
    **options: Any,
) -> Run:
    """A Swap around a plan of the faulty engine."""
    engine = registered(Faulty())
    if fault is not None:
        fault(engine)
    try:
        with own_cache() as folder:
            model = net()
            load = Load(model, plan_of(model, inputs()[0]), folder, **options)
            return judged(load, lambda one: body(one, engine), most_wrong=most_wrong)
    finally:
        registry.unregister(NAME)


def wrong_always(number: int) -> Run:
    """Wrong on every call; in each second run only once it is proven, so that shadow has to find it."""

    def wrong(engine: Faulty) -> None:
        engine.fault = lambda _, answer: answer + 1

    def body(load: Load, engine: Faulty) -> SwapEvent:
        if number % 2:
            load.until(lambda: load.swap.state is SwapState.SHADOW, "it is not proven")
            wrong(engine)
            found = load.until_event(NOT_EAGERS)
        else:
            found = load.until_event("a kept call is answered wrongly")
        load.goes_on()
        if answered := load.swap.stats().fast:
            raise Missed(f"it answered {answered} users")
        return found

    return with_engine(None if number % 2 else wrong, body)


def wrong_sometimes(number: int) -> Run:
    """Wrong on 1 call in 20: by its number, or, in each second run, by what was sent."""

    def fault(engine: Faulty) -> None:
        sent = inputs()[number % len(inputs())]
        with torch.inference_mode():
            odd = net()(sent)

        def by_number(call: int, answer: torch.Tensor) -> torch.Tensor:
            return answer * 2 if call % 20 == 2 * number % 20 else answer

        def by_value(_: int, answer: torch.Tensor) -> torch.Tensor:  # 1 of 16 inputs
            return answer * 2 if torch.allclose(answer, odd, atol=1e-5) else answer

        engine.fault = by_value if number % 2 else by_number

    def body(load: Load, engine: Faulty) -> SwapEvent:
        return load.until_event("rolled back: ")  # for a kept call, or for one that was compared

    return with_engine(fault, body, most_wrong=1)


def slower(number: int) -> Run:
    """Slower than eager by milliseconds."""

    def fault(engine: Faulty) -> None:
        def late(_: int, answer: torch.Tensor) -> torch.Tensor:
            time.sleep(0.01)
            return answer

        engine.fault = late

    return with_engine(fault, lambda load, engine: load.until_event("slower than eager: p50"))


def raises(number: int) -> Run:
    """Raises at its 1,000th call; that call is answered by eager."""

    def fault(engine: Faulty) -> None:
        def failing(call: int, answer: torch.Tensor) -> torch.Tensor:
            if call == 999:
                raise RuntimeError("device lost")
            return answer

        engine.fault = failing

    words = "engine failed: RuntimeError: device lost"
    return with_engine(fault, lambda load, engine: load.until_event(words), margin=NO_MATTER)


def swaps(number: int) -> Run:
    """1,000 plans one after the other, each as the canary of the one before it."""

    def body(load: Load, engine: Faulty) -> None:
        plan = plan_of(load.model, inputs()[0])

        def lives() -> int:
            return load.swap.counters().swaps.get("live", 0)

        load.until(lambda: lives() == 1, "the first plan is not live")
        for count in range(2, SWAPS + 1):
            load.swap.promote(plan)
            load.until(lambda count=count: lives() >= count, f"swap {count}")
        if engine.loads != SWAPS:
            raise Missed(f"{engine.loads} loads for {SWAPS} swaps")

    return with_engine(None, body, shadow=1.0, shadow_calls=1, canary=(1.0,), canary_calls=1, margin=NO_MATTER)
