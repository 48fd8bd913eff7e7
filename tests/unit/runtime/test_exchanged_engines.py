"""A model that is born closed: eager answers, then an engine, another one, and eager again, while calls go by.

The engines mark their answers, so that each answer tells who gave it.
"""

from __future__ import annotations

import copy
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Baked, Infeasible, Loaded, LoadRequest
from compilot.errors import CompilotWarning, InputError
from compilot.records import Candidate, Guard, Settings, Shapes
from compilot.runtime.fast import Fast, attach_closed, entry_core, open_entry
from compilot.runtime.gate import BEING_BUILT, WEIGHTS_CHANGED
from compilot.runtime.guards import make_guard
from compilot.runtime.sources import ApplyOptions, EntryParts

X = torch.randn(2, 3)
NAMES = ("eager", "first", "second")
Modes = tuple[bool, bool]


class Marking:
    """Adds a mark to the model's answer; serves only what it has prepared, each time it is loaded."""

    VERSION = "1"

    def __init__(self, mark: int, *, frozen: bool) -> None:
        self.mark, self.frozen = mark, frozen
        self.unprepared = 0
        self.failure: Exception | None = None

    def load(self, request: LoadRequest) -> Loaded:
        if self.failure is not None:
            raise self.failure
        model, ready = copy.deepcopy(request.model) if self.frozen else request.model, set[Modes]()

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            ready.add(modes())
            return model(*args, **kwargs) + self.mark

        def call(*args: Any, **kwargs: Any) -> Any:
            self.unprepared += modes() not in ready
            return model(*args, **kwargs) + self.mark

        return Loaded(call, prepare, frozen_weights=self.frozen, baked=Baked.AT_LOAD)


def modes() -> Modes:
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@pytest.fixture
def engines() -> Iterator[dict[str, Marking]]:
    """The second one bakes the weights in, so its hot path has more to look at than the first one's."""
    found = {"first": Marking(100, frozen=False), "second": Marking(200, frozen=True)}
    for name, engine in found.items():
        registry.register(name, None, engine)
    yield found
    for name in found:
        registry.unregister(name)


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(3, 3).eval()


def guard_of(model: nn.Module, x: torch.Tensor = X) -> Guard:
    return make_guard(model, Call((x,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)


def parts(name: str, guard: Guard, **more: Any) -> EntryParts:
    return EntryParts(Candidate(settings=Settings(engine=name), label=name, rationale=""), guard, None, **more)


def who(answer: torch.Tensor, right: torch.Tensor) -> str:
    """Who gave this answer; it fails where nobody could have."""
    mark = round(float((answer - right).mean()) / 100)
    assert torch.allclose(answer, right + 100 * mark, rtol=0, atol=1e-4)
    return NAMES[mark]


def asked(fast: Fast, model: nn.Module, times: int = 3) -> set[str]:
    return {who(fast(X), model(X)) for _ in range(times)}


@pytest.mark.usefixtures("engines", "no_grad")
def test_born_closed_opened_exchanged_and_closed_again(model: nn.Module) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    assert asked(fast, model) == {"eager"}
    assert fast.stats() == (3, 0, {BEING_BUILT: 3}, 0, (), {}, {})
    open_entry(fast, parts("first", guard, caveats=("a caveat",)))
    assert asked(fast, model) == {"first"}
    assert fast.stats() == (6, 3, {BEING_BUILT: 3}, 1, ("a caveat",), {}, {})
    open_entry(fast, parts("second", guard))
    assert asked(fast, model) == {"second"}
    assert fast.frozen_weights
    type(fast)._compilot_entries[0].close("rolled back")
    assert asked(fast, model) == {"eager"}
    assert fast.stats() == (12, 6, {BEING_BUILT: 3, "rolled back": 3}, 2, (), {}, {})
    assert not fast.frozen_weights
    open_entry(fast, parts("first", guard))
    assert asked(fast, model) == {"first"}
    assert fast.stats().calls == 15


@pytest.mark.usefixtures("no_grad")
def test_the_hot_path_serves_an_opened_engine_with_no_more_conditions(
    model: nn.Module, engines: dict[str, Marking]
) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    born = type(fast).__call__.__code__
    open_entry(fast, parts("first", guard))
    asked(fast, model, 5)
    gate = type(fast)._compilot_core._gate  # type: ignore[attr-defined]
    assert gate.served() == 4  # all but the one that was prepared
    assert "_weight" not in type(fast).__call__.__code__.co_names
    open_entry(fast, parts("second", guard))
    assert "_weight" in type(fast).__call__.__code__.co_names  # as code that was written for it from the start
    type(fast)._compilot_entries[0].close("rolled back")
    assert type(fast).__call__.__code__.co_code == born.co_code
    assert engines["first"].unprepared == engines["second"].unprepared == 0


@pytest.mark.usefixtures("no_grad")
def test_eight_threads_while_engines_come_and_go(model: nn.Module, engines: dict[str, Marking]) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    link = type(fast)._compilot_entries[0]
    inputs = [X + i for i in range(8)]
    with torch.no_grad():
        right = [model(x) for x in inputs]
    found: list[Counter[str]] = [Counter() for _ in inputs]
    problems: list[BaseException] = []
    done = threading.Event()

    def work(i: int) -> None:
        try:
            mode = (torch.no_grad, torch.inference_mode)[i % 2]
            while not done.is_set():
                with mode():
                    found[i][who(fast(inputs[i]), right[i])] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    kept = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places between any two steps
    try:
        for thread in threads:
            thread.start()
        for turn in itertools.islice(itertools.cycle(["first", "second", "first", "closed"]), 100):
            link.close("rolled back") if turn == "closed" else open_entry(fast, parts(turn, guard))
            done.wait(0.002)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(kept)
    assert problems == []
    total, stats = sum(found, Counter()), fast.stats()
    assert set(total) == set(NAMES)
    assert stats.calls == total.total()
    assert stats.fast == total["first"] + total["second"]
    assert set(stats.fallbacks) <= {BEING_BUILT, "rolled back"}
    assert engines["first"].unprepared == engines["second"].unprepared == 0


@pytest.mark.usefixtures("engines", "no_grad")
def test_weights_are_watched_from_the_opening_on(model: nn.Module) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard], options=ApplyOptions(strict_weights=True))
    assert asked(fast, model) == {"eager"}
    model.weight.data = torch.randn(3, 3)  # nobody has read it yet
    fast.refresh()  # there is nothing to refresh
    assert asked(fast, model) == {"eager"}
    open_entry(fast, parts("second", guard), ApplyOptions(strict_weights=True))
    assert asked(fast, model) == {"second"}
    model.weight.add_(1)
    with pytest.warns(CompilotWarning, match="weights changed"):
        assert asked(fast, model) == {"eager"}
    assert fast.stats().fallbacks[WEIGHTS_CHANGED] == 3
    open_entry(fast, parts("second", guard), ApplyOptions(strict_weights=True))
    assert asked(fast, model) == {"second"}
    model.weight.add_(1)
    with pytest.warns(CompilotWarning, match="weights changed"):
        fast(X)
    fast.refresh()
    assert asked(fast, model) == {"second"}


@pytest.mark.usefixtures("no_grad")
def test_an_engine_that_cannot_be_loaded_leaves_the_one_before_it(
    model: nn.Module, engines: dict[str, Marking]
) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    engines["second"].failure = Infeasible("no memory")
    with pytest.raises(Infeasible, match="no memory"):
        open_entry(fast, parts("second", guard))
    assert asked(fast, model) == {"eager"}
    open_entry(fast, parts("first", guard))
    assert asked(fast, model) == {"first"}
    with pytest.raises(Infeasible, match="no memory"):
        open_entry(fast, parts("second", guard))
    assert asked(fast, model) == {"first"}


@pytest.mark.usefixtures("no_grad")
def test_closing_does_not_wait_for_a_preparation(model: nn.Module, engines: dict[str, Marking]) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    open_entry(fast, parts("first", guard))
    link = type(fast)._compilot_entries[0]
    begun, go_on = threading.Event(), threading.Event()

    def preparing() -> None:
        with link._lock:  # as a preparation holds it
            begun.set()
            go_on.wait(10)

    holding = threading.Thread(target=preparing)
    holding.start()
    begun.wait(10)
    closing = threading.Thread(target=link.close, args=("rolled back",))
    closing.start()
    while link._gate.closed is None:
        pass
    assert asked(fast, model) == {"eager"}
    go_on.set()
    closing.join()
    holding.join()
    assert asked(fast, model) == {"eager"}


@pytest.mark.usefixtures("engines", "no_grad")
def test_entries_are_opened_one_by_one(model: nn.Module) -> None:
    large = torch.randn(5, 3)
    guards = [guard_of(model), guard_of(model, large)]
    fast = attach_closed(model, guards, "not yet")
    open_entry(fast, parts("second", guards[1]), number=1)
    assert (who(fast(X), model(X)), who(fast(large), model(large))) == ("eager", "second")
    assert entry_core(fast, 0) is not entry_core(fast, 1)
    with pytest.raises(InputError, match="entry 0 takes other calls than first was built for"):
        open_entry(fast, parts("first", guards[1]))
    assert fast.stats()[:-1] == (2, 1, {"not yet": 1}, 1, (), {})


@pytest.mark.usefixtures("engines", "no_grad")
def test_hooks_that_came_before_the_opening_are_the_models_own(model: nn.Module) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    seen: list[int] = []
    model.register_forward_hook(lambda *_: seen.append(1))
    assert asked(fast, model) == {"eager"}
    open_entry(fast, parts("first", guard))  # it runs the model, and so the hook
    assert asked(fast, model) == {"first"}


@pytest.mark.usefixtures("engines", "no_grad")
def test_a_copy_of_a_model_that_is_being_built_is_eager(model: nn.Module) -> None:
    guard = guard_of(model)
    fast = attach_closed(model, [guard])
    open_entry(fast, parts("first", guard))
    copied = copy.deepcopy(fast)
    assert asked(copied, model) == {"eager"}
    assert copied.stats().fallbacks == {BEING_BUILT: 3}
