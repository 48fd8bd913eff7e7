"""An engine that begins to fail while it serves: eager answers, and after a few failures the engine is left alone.

A class that uses this has fixtures `fresh` (a Fast over Sink that no other test uses) and, where the engine takes
declared dimensions, `fresh_ranged` (the same over the tiny BERT), and a context `failing(fast)` in which the real
engine raises at every call: each engine's own native error, not one of ours.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hostile import assert_equal, close, outcome, sink

from compilot._tree import Call
from compilot.errors import CompilotWarning
from compilot.runtime.fast import Fast
from compilot.runtime.gate import MAX_FAILURES
from compilot.testing import contract_models as models

FAILED, OFF, UNPREPARED = "engine failed: ", f"engine switched off after {MAX_FAILURES} failures", "could not prepare"
INSTEAD = "the compiled model failed and eager answered instead"
CALLS = 8


def counted(fast: Fast, part: str) -> int:
    return sum(n for reason, n in fast.stats().fallbacks.items() if part in reason)


@contextlib.contextmanager
def exchanged(fast: Fast, name: str, other: Callable[[Any], Any]) -> Iterator[list[int]]:
    """The native function of this name in the engine's generated code, called in another way; yields its calls."""
    names = type(fast)._compilot_core.loaded.call.__globals__  # type: ignore[attr-defined]
    real, tries = names[name], list[int]()
    broken = other(real)

    def call(*args: Any) -> Any:
        tries.append(1)
        return broken(*args)

    names[name] = call
    try:
        yield tries
    finally:
        names[name] = real


@contextlib.contextmanager
def watched(fast: Fast) -> Iterator[list[int]]:
    """Every call that reaches an engine without generated code of its own; yields one entry per call."""
    core, tries = type(fast)._compilot_core, list[int]()
    loaded, run = core.loaded, core._gate.run  # type: ignore[attr-defined]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            tries.append(1)
            return real(*args, **kwargs)

        return call

    core.loaded = loaded._replace(prepare=counted(loaded.prepare))  # type: ignore[attr-defined]
    core._gate.run = core._gate.hot["_call"] = counted(run)  # type: ignore[attr-defined]
    try:
        yield tries
    finally:
        core.loaded = loaded  # type: ignore[attr-defined]
        core._gate.run = core._gate.hot["_call"] = run  # type: ignore[attr-defined]


class Failing:
    """How an engine is made to fail."""

    failing: Any  # a context: the engine raises; yields a list that grows with every try

    @contextlib.contextmanager
    def broken(self, fast: Fast) -> Iterator[list[int]]:
        """The engine fails meanwhile, which is said once."""
        with self.failing(fast) as tries, pytest.warns(CompilotWarning) as said:
            yield tries
        assert [str(one.message).startswith(INSTEAD) for one in said] == [True]


class FailingCalls(Failing):
    """Tests of one engine that fails from some call on."""

    @pytest.mark.parametrize("warmed", [True, False], ids=["after calls", "from the first call on"])
    def test_an_engine_that_begins_to_fail_is_switched_off(self, fresh: Fast, warmed: bool) -> None:
        model = fresh._compilot_plain
        for seed in range(3 if warmed else 0):
            close(fresh, model, sink(seed))
        before = fresh.stats()
        with self.broken(fresh) as tries:
            for seed in range(CALLS):
                assert_equal(outcome(fresh, sink(seed)), outcome(model, sink(seed)))
        after = fresh.stats()
        assert (after.fast, after.calls) == (before.fast, before.calls + CALLS)
        if warmed:
            assert (counted(fresh, FAILED), counted(fresh, OFF)) == (MAX_FAILURES, CALLS - MAX_FAILURES)
            assert len(tries) == MAX_FAILURES
        else:  # what could not be prepared is not tried again: no storm of compiles
            assert (counted(fresh, FAILED), counted(fresh, UNPREPARED)) == (1, CALLS - 1)
            assert len(tries) == 1

    def test_what_was_switched_off_stays_off_until_it_is_loaded_anew(self, fresh: Fast) -> None:
        model = fresh._compilot_plain
        close(fresh, model, sink(1))
        with self.broken(fresh):
            for _ in range(MAX_FAILURES):
                outcome(fresh, sink(1))
        before = fresh.stats()
        for seed in range(3):  # the engine is whole again
            assert_equal(outcome(fresh, sink(seed)), outcome(model, sink(seed)))
        assert (fresh.stats().fast, fresh.stats().compiles) == (before.fast, before.compiles)
        assert counted(fresh, OFF) == 3
        fresh.refresh()
        for seed in range(2):
            close(fresh, model, sink(seed))

    def test_fewer_failures_do_not_switch_it_off(self, fresh: Fast) -> None:
        model = fresh._compilot_plain
        close(fresh, model, sink(1))
        with self.broken(fresh):
            for _ in range(MAX_FAILURES - 1):
                assert_equal(outcome(fresh, sink(2)), outcome(model, sink(2)))
        close(fresh, model, sink(3))

    def test_it_fails_under_several_threads(self, fresh: Fast) -> None:
        model, kept = fresh._compilot_plain, dict[int, list[Any]]()
        close(fresh, model, sink(1))
        before = fresh.stats().fast

        def work(seed: int) -> None:
            with torch.no_grad():
                kept[seed] = [outcome(fresh, sink(seed)) for _ in range(CALLS)]

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        with self.broken(fresh):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for seed in range(4):
            assert len(kept[seed]) == CALLS
            for answer in kept[seed]:
                assert_equal(answer, outcome(model, sink(seed)))
        assert fresh.stats().fast == before
        # calls that were under way when the third one failed had begun already
        assert MAX_FAILURES <= counted(fresh, FAILED) < MAX_FAILURES + len(threads)
        assert counted(fresh, FAILED) + counted(fresh, OFF) == 4 * CALLS


class FailingShapes(Failing):
    """The same where sizes vary."""

    def test_one_shape_that_the_engine_cannot_do_leaves_the_others_fast(self, fresh_ranged: Fast) -> None:
        fast, model = fresh_ranged, fresh_ranged._compilot_plain
        bad, good = Call(*models.bert_call(5, 9)), Call(*models.bert_call(2, 8))
        close(fast, model, good)
        with self.broken(fast) as tries:
            for _ in range(CALLS):
                assert_equal(outcome(fast, bad), outcome(model, bad))
        assert len(tries) == 1
        assert (counted(fast, FAILED), counted(fast, UNPREPARED)) == (1, CALLS - 1)
        close(fast, model, good)
        close(fast, model, Call(*models.bert_call(3, 4)))

    def test_shapes_that_fail_one_after_the_other_switch_it_off(self, fresh_ranged: Fast) -> None:
        fast, model = fresh_ranged, fresh_ranged._compilot_plain
        calls = [Call(*models.bert_call(1, length)) for length in range(2, 2 + CALLS)]
        close(fast, model, Call(*models.bert_call(2, 8)))
        with self.broken(fast) as tries:
            for call in calls:
                assert_equal(outcome(fast, call), outcome(model, call))
        assert len(tries) == MAX_FAILURES
        assert counted(fast, OFF) == CALLS - MAX_FAILURES
