"""Dispatch: one call answered, always: the hot path, the slow path behind it, eager behind that.

In: a loaded engine, its guard and the plain model. Out: one answer per call; and the count of how it came about.
Covered: other written forms of the same call, variants prepared once under a lock, engines that fail, forks; with
keep_model=False the weights are let go and what eager would have answered is a NoFallback. A dispatcher can be born
closed: then eager answers until an engine is opened, which can be exchanged and closed again while calls go by, from
any thread; the hot path pays nothing for it. Not covered: when the hot path is open (gate.py), what is prepared
(variants.py), loading the engine again (loading.py), being an nn.Module (fast.py), deciding what to run (plan).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Infeasible, Loaded, NotTaken
from compilot.errors import ForkedAfterUse, IndexOutOfRange, InputError, NoFallback, first_cause
from compilot.records import Guard
from compilot.runtime.call_form import CallForm
from compilot.runtime.counting import count_of
from compilot.runtime.forking import FORKED, tell_after_fork
from compilot.runtime.gate import BEING_BUILT, NO_ENGINE, EngineGone, Gate
from compilot.runtime.indexing import OUT_OF_RANGE
from compilot.runtime.loading import Anew, Load, loaded_anew, loaded_behind
from compilot.runtime.matching import OTHER_ARGUMENTS, Matcher
from compilot.runtime.notices import DROPPED, NEVER_THERE, Fallbacks, Stats, advice
from compilot.runtime.unreadable import Unreadable
from compilot.runtime.variants import Variant, VariantKey, Variants

HOOKED = "hooks were registered or removed after the model was compiled"
NOT_TAKEN = "the artifact does not take this call"
FAILED = "engine failed"
KEEP_IT = "use compilot.compile(model, ...) with keep_model=True"
GIVE_IT = "use compilot.compile(model, bundle), which has the model to fall back on"


PASSED = object()  # what an entry gives that has no answer to a call


class Why(NamedTuple):
    """Why an entry does not answer a call."""

    reason: str
    said: bool = False  # the user has been told of it already
    taken: bool = True  # by its guard it is a call of this entry


class _Unanswered(Exception):
    """The engine does not answer this call, which is no failure of it."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.reason)
        self.why = why


class Watcher(Protocol):
    """Who looks at the calls that eager answers in the engine's place, in the thread of each call."""

    def missed(self, reason: str, call: Call) -> None:
        """Eager is about to answer; what is raised here goes to the caller instead."""

    def failed(self, reason: str) -> None:
        """The engine failed where eager did not."""


class _OfRegion:
    """Tells a watcher of a region: that it failed is the plan's failure, while its calls are none of the user's."""

    def __init__(self, watcher: Watcher, path: str) -> None:
        self._watcher, self._path = watcher, path

    def missed(self, reason: str, call: Call) -> None: ...

    def failed(self, reason: str) -> None:
        self._watcher.failed(f"{reason} (in {self._path})")


Otherwise = Callable[["Dispatcher", Why, Call], Any]  # who does not answer, why, the call


class Dispatcher:
    """One engine's callable behind one guard, with eager behind it."""

    def __init__(
        self,
        plain: nn.Module,
        guard: Guard,
        load: Load | None,
        *,
        remains: nn.Module | None = None,
        stand_in: bool = False,
        strict_weights: bool = False,
        unreadable: Unreadable | None = None,
        before_refresh: Callable[[], None] | None = None,
        notes: tuple[str, ...] = (),
        closed: str = BEING_BUILT,
        part: str = "",
    ) -> None:
        """load: None gives one that is born closed, and `closed` is why.

        remains: what is kept of the model where the model itself is let go; None: all of it.

        stand_in: there never was a model, so there are no weights that a call could be differentiated by.
        strict_weights: all weights are looked at in every call. unreadable: what of the model nobody can read.
        before_refresh: raises where the engine's files must not be loaded once more.
        notes: what the plan says of the engine's answers; goes into the statistics.
        part: path of the submodule that is dispatched; the model that it is part of is watched as a whole.
        """
        self._notes = notes
        self._keep_model = remains is None
        self._before_refresh = before_refresh if remains is None else None
        self._stand_in = stand_in
        self._no_eager, self._remedy = (NEVER_THERE, GIVE_IT) if stand_in else (DROPPED, KEEP_IT)
        self._plain = plain if remains is None else remains
        watched, name = self._keep_model and not part, f"the compiled {part}" if part else "the compiled model"
        self._gate = Gate(self._plain, guard, keep_model=watched, strict_weights=strict_weights, name=name)
        anew = Anew(NO_ENGINE, None, unreadable) if load is None else self._first(load, unreadable)
        self._load = load if self._keep_model else None
        self.guard = guard
        self._matcher = Matcher(guard)
        self._form = CallForm(plain.forward, guard)
        self._part = part
        self._fallbacks = Fallbacks(part)
        self._lock = threading.RLock()
        self._built_before = 0
        self._slowly = itertools.count()  # served by the engine through the slow path
        self._not_users = 0  # calls that the engine served before the user's first
        self._forked = False
        self._watcher: Watcher | None = None  # hears of every call that the engine does not answer
        self._sealed = ""  # why nothing is built any more for calls of new kinds: eager answers them; "": it is
        self.otherwise: Otherwise | None = None  # takes the calls that this guard does not; None: eager
        self.fast_elsewhere: Callable[[], int] = lambda: 0  # calls that other entries served
        self._variants = Variants(guard.tensors, None)
        self._take(anew, closed if load is None else None)
        self.call: Callable[..., Any] = self._gate.write(self.slow, self._failed_hot)
        tell_after_fork(self)

    def _first(self, load: Load, unreadable: Unreadable | None) -> Anew:
        watch = self._gate.snapshot()
        loaded = load() if watch is None else watch.running(load)
        if not self._keep_model:
            _refuse_to_drop(loaded)
        self._gate.refuse_unwatchable(loaded, watch)
        return Anew(loaded, watch, unreadable)

    def _take(self, anew: Anew, closed: str | None = None) -> None:
        """Have this engine behind the gate; what the one before it prepared is forgotten. closed: why it stays shut."""
        self._built_before += self._variants.builds()
        self.loaded = engine = anew.loaded
        self._variants = Variants(self.guard.tensors, engine.builds, len(engine.parts))  # before its callable: _serve
        self._hand_down(engine)
        self._gate.start(anew.loaded, anew.watch, anew.unreadable, closed)
        if anew.hooks is not None:  # not before: the engine of before does not run them
            self._gate.accept_hooks(anew.hooks)

    def watch(self, watcher: Watcher) -> None:
        """Have somebody hear of every call that the engine does not answer, and of regions that fail."""
        self._watcher = watcher
        self._hand_down(self.loaded)

    def seal(self, why: str) -> None:
        """Build nothing any more for calls of new kinds, in regions neither: eager answers them."""
        self._sealed = why
        self._hand_down(self.loaded)

    @property
    def sealed(self) -> str:
        """Why nothing is built any more; "": it is."""
        return self._sealed

    def _hand_down(self, engine: Loaded) -> None:
        for path, part in engine.parts.items():
            if self._watcher is not None:
                part.watch(_OfRegion(self._watcher, path))
            if self._sealed:
                part.seal(self._sealed)

    # ---- the slow path -----------------------------------------------------------------------------------------------

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call that the hot path did not take."""
        if self._forked:
            raise ForkedAfterUse(FORKED)
        if self._gate.hooked():
            return self.eager(HOOKED, Call(args, kwargs))
        call = self._form(args, kwargs)
        if call is None:
            reason = f"{OTHER_ARGUMENTS} than the plan's example"
            return self._pass_on(Why(reason, taken=False), Call(args, kwargs))
        if len(call.args) != len(args) or call.kwargs.keys() != kwargs.keys():
            return self.call(None, *call.args, **call.kwargs)
        try:
            return self._answer(call)
        except _Unanswered as error:  # not kept: its traceback holds the inputs
            why = error.why
        return self._pass_on(why, call)

    def offered(self, call: Call) -> Any:
        """The answer to a call that another entry passed on; PASSED: there is none here, either."""
        if self._forked:
            raise ForkedAfterUse(FORKED)
        wanted = None if self._gate.hooked() else self._form(call.args, call.kwargs)
        try:
            return PASSED if wanted is None else self._answer(wanted)
        except _Unanswered:
            return PASSED

    def _answer(self, call: Call) -> Any:
        """The engine's answer to a call of the guard's form, or eager's where the engine fails. Else _Unanswered."""
        mismatch = self._mode_mismatch(call) or self._matcher.call_mismatch(call)
        closed = self._gate.closed_now()
        if mismatch is not None or closed is not None:
            raise _Unanswered(Why(closed or mismatch or "", said=closed is not None, taken=mismatch is None))
        return self._serve(self._matcher.with_planned_strides(call))

    def _mode_mismatch(self, call: Call) -> str | None:
        if self._stand_in:
            return self._matcher.mode_mismatch_without_weights(self._plain.training, call)
        return self._matcher.mode_mismatch(self._plain.training)

    def _pass_on(self, why: Why, call: Call) -> Any:
        """A call for another entry of the plan, where there is one."""
        if self.otherwise is None:
            return self.eager(why.reason, call, said=why.said)
        return self.otherwise(self, why, call)

    def _serve(self, call: Call) -> Any:
        """Answer a call that matches the guard."""
        tensors = self._matcher.tensors_of(call)
        variants = self._variants
        key = variants.key_of(tensors)
        variant, run = variants.ready(key), self._gate.run
        if variant is None or variants is not self._variants:  # or another engine took over: it has prepared nothing
            return self._serve_first(key, tensors, call)
        self._open(variants, variant)
        try:
            answer = run(*call.args, **call.kwargs)
        except Exception as error:
            failure = error
        else:
            next(self._slowly)
            return answer
        try:
            return self._recover(failure, call)
        finally:
            del failure  # its traceback holds this frame, and so the inputs

    def _open(self, variants: Variants, variant: Variant) -> None:
        """Let the hot path take this variant, unless another engine takes over at this moment."""
        if self._lock.acquire(blocking=False):
            try:
                if variants is self._variants:
                    self._gate.open(variant)
            finally:
                self._lock.release()

    def _serve_first(self, key: VariantKey, tensors: list[torch.Tensor], call: Call) -> Any:
        """Answer the first call of a variant or shape: one thread prepares it, the others wait.

        Only for that: where nothing has to be built, and where eager answers, they do so at the same time.
        """
        variants, run = self._variants, self._gate.run
        try:
            if self._is_built(call) and variants.why_not(key) is None:
                answer = run(*call.args, **call.kwargs)
                self._remember(variants, key, tensors)
            else:
                answer = self._prepare_alone(key, tensors, call)
        except _Unanswered:
            raise
        except Exception as error:
            failure = error
        else:
            if answer is PASSED:  # another thread has prepared it meanwhile
                return self._serve(call)
            next(self._slowly)
            return answer
        try:
            return self._recover(failure, call)
        finally:
            del failure  # its traceback holds this frame, and so the inputs

    def _is_built(self, call: Call) -> bool:
        built = self.loaded.is_built
        return built is not None and built(call.args, call.kwargs)

    def _remember(self, variants: Variants, key: VariantKey, tensors: list[torch.Tensor]) -> None:
        """Have the next call like this known by its check; unless the lock is taken: then the next one is asked."""
        if self._lock.acquire(blocking=False):
            try:
                if variants is self._variants:
                    self._gate.open(variants.add(key, tensors))
            finally:
                self._lock.release()

    def _prepare_alone(self, key: VariantKey, tensors: list[torch.Tensor], call: Call) -> Any:
        """The answer that comes with the preparation; PASSED: it is prepared already."""
        with self._lock:
            if self._variants.ready(key) is not None:
                return PASSED
            closed = self._gate.closed_for_good()
            if reason := closed or self._variants.why_not(key) or self._sealed:
                raise _Unanswered(Why(reason, said=closed is not None))
            try:
                return self._prepare(key, tensors, call)
            except NotTaken:  # which may be for the values of this one call
                raise
            except Exception as error:
                self._variants.give_up(key, f"engine could not prepare this call: {first_cause(error)}")
                raise

    def _prepare(self, key: VariantKey, tensors: list[torch.Tensor], call: Call) -> Any:
        """Let the engine build what this variant needs; its answer to the call comes with it."""
        self._variants.ask()
        try:
            answer = self._gate.preparing(lambda: self._prepared_answer(call))
        except NotTaken:
            self._variants.unask()
            raise
        self._gate.open(self._variants.add(key, tensors))
        return answer

    def _prepared_answer(self, call: Call) -> Any:
        run = self.loaded.prepare
        return run(call.args, call.kwargs) if run is not None else self._gate.run(*call.args, **call.kwargs)

    # ---- failures ----------------------------------------------------------------------------------------------------

    def _failed_hot(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._gate.undo()
        if isinstance(error, EngineGone):
            return self.slow(args, kwargs)
        try:
            return self._recover(error, Call(args, kwargs))
        except _Unanswered as unanswered:
            why = unanswered.why
        return self._pass_on(why, Call(args, kwargs))

    def _recover(self, error: Exception, call: Call) -> Any:
        """Eager's answer. If eager raises as well, the error is the user's own and says nothing about the engine.

        _Unanswered: the engine did not fail, it does not take this call.
        """
        if isinstance(error, NotTaken):  # a narrower guard than ours, not a failure
            raise _Unanswered(Why(f"{NOT_TAKEN}: {error}"))
        reason = f"{FAILED}: {first_cause(error)}"
        if not self._keep_model:
            raise NoFallback(f"{reason}; {self._no_eager}; {self._remedy}.") from error
        answer = self.eager(reason, call, said=True)
        self._gate.failed(error)
        if self._watcher is not None:
            self._watcher.failed(reason)
        return answer

    def eager(self, reason: str, call: Call, *, said: bool = False, counted: Fallbacks | None = None) -> Any:
        """Eager's answer, and why; counted: where it is, unless with this entry."""
        if not self._keep_model:
            why = f"the plan does not take this call ({reason}), and {self._no_eager}"
            kind = IndexOutOfRange if reason.startswith(OUT_OF_RANGE) else NoFallback
            raise kind(f"{why}; {advice(reason)}, or {self._remedy}.")
        if self._watcher is not None:
            self._watcher.missed(reason, call)
        answer = self._gate.running_plain(lambda: self._plain(*call.args, **call.kwargs))
        said = said or self._gate.closed is not None or self._watcher is not None  # who tells of them
        (counted or self._fallbacks).count(reason, self._all_fast, said=said)
        return answer

    def _all_fast(self) -> int:
        return self.fast_calls() + self.fast_elsewhere()

    # ---- what fast.py offers -----------------------------------------------------------------------------------------

    def prepare(self, call: Call) -> None:
        """Build what this call needs now. InputError: the plan does not take it. Infeasible: the engine cannot."""
        wanted = self._form(call.args, call.kwargs)
        reason = "other arguments" if wanted is None else self._matcher.mode_mismatch(self._plain.training)
        if wanted is None or reason or (reason := self._matcher.call_mismatch(wanted)):
            raise InputError(f"the plan does not take this call ({reason}), so there is nothing to prepare for it.")
        wanted = self._matcher.with_planned_strides(wanted)
        tensors = self._matcher.tensors_of(wanted)
        key = self._variants.key_of(tensors)
        with self._lock:
            if self._variants.ready(key) is not None:
                return
            if closed := self._gate.closed_for_good():
                raise Infeasible(closed)
            try:
                self._prepare(key, tensors, wanted)
            except Exception as error:
                raise Infeasible(first_cause(error)) from error

    def refresh(self) -> None:
        """Forget what was prepared and load the engine again, with the weights as they are now.

        StalePlan: the engine's files hold other weights or code than the model has now; eager goes on answering.
        """
        with self._lock:
            if self.loaded is NO_ENGINE:  # nothing was read yet: what is opened reads the model as it is then
                return
            if self._before_refresh is not None:
                self._before_refresh()
            self._take(loaded_anew(self._plain, self._load, self._gate, self._no_eager))

    def open(
        self, load: Load, *, before_refresh: Callable[[], None] | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        """Let this engine answer from now on. The one before it answers while it is loaded, and if load raises."""
        assert self._keep_model  # an engine that may be exchanged needs what answers without one
        with self._lock:
            self._take(loaded_behind(self._plain, load, self._gate))
            self._load, self._before_refresh, self._notes = load, before_refresh, notes

    def close(self, reason: str) -> None:
        """Let go of the engine: eager answers and is counted with the reason, until another one is opened."""
        self._gate.close(reason)  # at once: a preparation under way may hold the lock for long
        with self._lock:
            self._take(Anew(NO_ENGINE, None, self._gate.unreadable), reason)
            self._load, self._before_refresh, self._notes = None, None, ()

    @property
    def frozen_weights(self) -> bool:
        """Whether weight values are baked in."""
        return self.loaded.frozen_weights

    def takes(self, call: Call) -> bool:
        """Whether this guard is for this call."""
        wanted = self._form(call.args, call.kwargs)
        return wanted is not None and self._matcher.call_mismatch(wanted) is None

    def in_form(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call as the plan's example was written; None: it is another one."""
        return self._form(args, kwargs)

    def stats(self) -> Stats:
        """How the calls went so far."""
        fallbacks = self._fallbacks.snapshot()
        fast = self.fast_calls()
        calls, compiles = fast + sum(fallbacks.values()), self._built_before + self._variants.builds()
        regions = {path: part.stats() for path, part in self.loaded.parts.items()}
        return Stats(calls, fast, fallbacks, compiles, self._notes, regions)

    def forget_calls(self) -> None:
        """The calls so far were not the user's: leave them out of the statistics."""
        self._not_users += self.fast_calls()
        self._fallbacks = Fallbacks(self._part)
        for part in self.loaded.parts.values():
            part.forget_calls()

    def fast_calls(self) -> int:
        """Calls of the user that the engine answered."""
        return self._gate.served() + count_of(self._slowly) - self._not_users

    def after_fork(self) -> None:
        """In a forked child: refuse calls if the parent made any with more than one thread."""
        self._lock = threading.RLock()
        used = self._not_users + self.fast_calls() + self._fallbacks.total()
        if used and torch.get_num_threads() > 1:
            self._forked = True
            self._gate.close("forked")


def _refuse_to_drop(loaded: Loaded) -> None:
    """InputError for an engine that runs the model itself: without its weights there would be nothing to run."""
    if loaded.needs_model:
        raise InputError(
            "keep_model=False cannot be used with this plan: its engine runs the model itself. Tune with "
            f"{', '.join(registry.standalone())} only for a plan whose files hold everything, or keep the model."
        )
