"""Dispatch: the hot path opened and closed, the slow path behind it, eager behind that.

In: a loaded engine, its guard and the plain model. Out: one answer per call, always; and the count of how it came
about. Covered: other written forms of the same call, variants prepared once under a lock, a circuit breaker for failing
engines, frozen weights (watched from before they are read), hooks that the engine would not run, forks; with
keep_model=False the weights are let go and what eager would have answered is a NoFallback. Not covered: being an
nn.Module (fast.py), deciding what to run (plan).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from compilot._torch import hooks
from compilot._tree import Call, Leaf, call_leaves, map_call
from compilot.engines.baked import OtherWeights
from compilot.engines.protocol import Baked, Infeasible, Loaded, NotTaken
from compilot.errors import ForkedAfterUse, InputError, NoFallback, PlanError, StalePlan, first_cause
from compilot.records import Guard
from compilot.runtime import codegen
from compilot.runtime.canonical import Canonical
from compilot.runtime.counting import count_of
from compilot.runtime.forking import FORKED, tell_after_fork
from compilot.runtime.frozen import WeightWatch
from compilot.runtime.matching import Matcher
from compilot.runtime.notices import Fallbacks, Stats, advice, logger, warn
from compilot.runtime.variants import (
    MAX_SHAPES,
    Key,
    Shapes,
    Variant,
    make_variant,
    same_strides,
    variant_key,
    varying_shapes,
)

MAX_BUILDS = 12  # inference mode on and off, times a few sizes that compilers treat on their own
MAX_FAILURES = 3  # engine failures until it is left alone
LEARNING = 16  # eager answers in which attributes are seen to be changed by the model itself: caches, notes
WEIGHTS_CHANGED = "weights changed after freezing"
FILES_OUTDATED = "weights changed, the plan's files hold the old ones"
HOOKED = "hooks were registered or removed after the model was compiled"
TUNE_AGAIN = "run 'compilot tune' again with the new weights (and 'compilot pack' for a bundle)"
NOT_TAKEN = "the artifact does not take this call"
DROPPED = "there is no eager model behind it (it was dropped by keep_model=False, or never there)"
KEEP_IT = "use compilot.compile(model, ...) with keep_model=True"


class Dispatcher:
    """One engine's callable behind one guard, with eager behind it."""

    def __init__(
        self,
        plain: nn.Module,
        guard: Guard,
        load: Callable[[], Loaded],
        *,
        remains: nn.Module | None = None,
        stand_in: bool = False,
        before_refresh: Callable[[], None] | None = None,
    ) -> None:
        """remains: what is kept of the model where the model itself is let go; None: all of it.

        stand_in: there never was a model, so there are no weights that a call could be differentiated by.
        before_refresh: raises where the engine's files must not be loaded once more.
        """
        self._keep_model = remains is None
        self._before_refresh = before_refresh if remains is None else None
        self._stand_in = stand_in
        self._plain = plain if remains is None else remains
        registered, self._hooks = hooks.registrations(), hooks.hooks_on(self._plain)
        watch = self._snapshot()
        loaded = load()
        if not self._keep_model:
            refuse_to_drop(loaded)
        self._load: Callable[[], Loaded] = load if remains is None else _nothing_to_load
        self._matcher = Matcher(guard)
        self._canonical = Canonical(plain.forward, guard)
        self._fallbacks = Fallbacks()
        self._lock = threading.RLock()
        self._built_before = 0
        self._slowly = itertools.count()  # served by the engine through the slow path
        self._undone = itertools.count()  # counted by the hot path, then not served by the engine
        self._glances = itertools.count()  # at frozen weights, from the slow path
        self._eagerly = itertools.count()  # calls of the plain model while weights are watched
        self._forked = False
        self.otherwise: Callable[..., Any] | None = None  # takes the calls that this guard does not; None: eager
        self.fast_before: Callable[[], int] = lambda: 0  # calls that entries before this one served
        self._counter = itertools.count()
        self._hot = codegen.hot_globals() | {"_registered": registered}
        self._start(loaded, watch)
        self.call = self._write_hot_path(guard)
        tell_after_fork(self)

    def _snapshot(self) -> WeightWatch | None:
        """The weights as they are now: taken before they are read, so that no change can fall in between."""
        return WeightWatch(self._plain, self.weights_changed) if self._keep_model else None

    def _start(self, loaded: Loaded, watch: WeightWatch | None) -> None:
        self.loaded = loaded
        self._variants: dict[Key, Variant] = {}
        self._broken: dict[tuple[Key, Shapes], str] = {}
        self._prepared = 0
        self._failures = 0
        self._closed: str | None = None  # why nothing takes the fast path any more
        self._run = loaded.call if loaded.concurrent else _one_at_a_time(loaded.call)
        self._watch: WeightWatch | None = None
        if loaded.frozen_weights and loaded.baked is not Baked.AT_PREPARE:
            self._begin(watch)

    def _begin(self, watch: WeightWatch | None) -> None:
        self._watch = watch
        if watch is not None:
            watch.begin()

    def _write_hot_path(self, guard: Guard) -> Callable[..., Any]:
        self._hot |= {
            "_state": self._plain.__dict__,
            "_tick": self._counter.__next__,
            "_call": self._run,
            "_slow": self.slow,
            "_failed": self._failed_hot,
            "_changed": self._look_at_weights,
        }
        self._watched = self._keep_model and self.loaded.frozen_weights
        source = codegen.hot_source(guard, self._hot, watched=self._watched)
        return codegen.compile_call(source, self._hot)

    # ---- the slow path -----------------------------------------------------------------------------------------------

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call that the hot path did not take."""
        self._refuse_after_fork()
        if self._hooked():
            return self._eager(HOOKED, Call(args, kwargs))
        call = self._canonical(args, kwargs)
        if call is None:
            return self._pass_on("other arguments than the plan's example", Call(args, kwargs))
        if len(call.args) != len(args) or call.kwargs.keys() != kwargs.keys():
            return self.call(None, *call.args, **call.kwargs)
        mismatch = self._mode_mismatch(call) or self._matcher.call_mismatch(call)
        if mismatch is not None:
            return self._pass_on(self._closed_now() or mismatch, call)
        closed = self._closed_now()
        return self._serve(self._tidy(call)) if closed is None else self._eager(closed, call)

    def _hooked(self) -> bool:
        """Whether other hooks are there than when the engine was loaded: it would not run them."""
        registered = hooks.registrations()
        if registered == self._hot["_registered"]:
            return False
        if self._other_hooks():
            return True
        self._hot["_registered"] = registered
        return False

    def _other_hooks(self) -> bool:
        return [*map(id, hooks.hooks_on(self._plain))] != [*map(id, self._hooks)]

    def _mode_mismatch(self, call: Call) -> str | None:
        """Why the modes do not match; grad mode means nothing where neither weights nor inputs want gradients."""
        careless = self._stand_in and torch.is_grad_enabled() and not self._matcher.guard.grad_enabled
        if careless and not any(map(_wants_gradients, call_leaves(call))):
            with torch.no_grad():
                return self._matcher.mode_mismatch(self._plain.training)
        return self._matcher.mode_mismatch(self._plain.training)

    def _pass_on(self, reason: str, call: Call) -> Any:
        """A call for another entry of the plan, where there is one."""
        if self.otherwise is None:
            return self._eager(reason, call)
        return self.otherwise(None, *call.args, **call.kwargs)

    def _serve(self, call: Call) -> Any:
        """Answer a call that matches the guard."""
        tensors = self._matcher.tensors_of(call)
        key, shapes = variant_key(tensors), varying_shapes(self._matcher.guard.tensors, tensors)
        variant = self._variants.get(key)
        if variant is None or shapes not in variant.shapes:
            return self._serve_first(key, shapes, tensors, call)
        self._open(variant)
        try:
            answer = self._run(*call.args, **call.kwargs)
        except Exception as error:
            failure = error
        else:
            next(self._slowly)
            return answer
        return self._recover(failure, call)

    def _serve_first(self, key: Key, shapes: Shapes, tensors: list[torch.Tensor], call: Call) -> Any:
        """Answer the first call of a variant or shape: one thread prepares it, the others wait."""
        with self._lock:
            if key in self._variants and shapes in self._variants[key].shapes:
                reason = None
            elif (reason := self._why_not_prepare(key, shapes)) is None:
                return self._prepare_or_recover(key, shapes, tensors, call)
        return self._serve(call) if reason is None else self._eager(reason, call)

    def _why_not_prepare(self, key: Key, shapes: Shapes) -> str | None:
        """Why the engine must not build anything for this call; None: it may."""
        reason = self._closed_for_good() or self._broken.get((key, shapes))
        if reason is None and self._builds() >= MAX_BUILDS:
            return f"more than {MAX_BUILDS} programs would be needed for the planned call"
        return reason

    def _prepare_or_recover(self, key: Key, shapes: Shapes, tensors: list[torch.Tensor], call: Call) -> Any:
        try:
            answer = self._prepare(key, shapes, tensors, call)
        except Exception as error:
            failure = error
        else:
            next(self._slowly)
            return answer
        if len(self._broken) < MAX_BUILDS:
            self._broken[key, shapes] = f"engine could not prepare this call: {first_cause(failure)}"
        return self._recover(failure, call)

    def _prepare(self, key: Key, shapes: Shapes, tensors: list[torch.Tensor], call: Call) -> Any:
        """Let the engine build what this variant needs; its answer to the call comes with it."""
        self._prepared += 1
        watch = self._watch or (self._snapshot() if self.loaded.frozen_weights else None)
        answer = self._prepared_answer(call) if watch is None else watch.running(lambda: self._prepared_answer(call))
        if watch is not self._watch:
            self._begin(watch)
        variant = self._variants.setdefault(key, make_variant(self._matcher.guard.tensors, tensors))
        if len(variant.shapes) < MAX_SHAPES:
            variant.shapes.add(shapes)
        self._open(variant)
        return answer

    def _prepared_answer(self, call: Call) -> Any:
        run = self.loaded.prepare
        return run(call.args, call.kwargs) if run is not None else self._run(*call.args, **call.kwargs)

    def _builds(self) -> int:
        """Programs built since the start or the last refresh."""
        return self._prepared if self.loaded.builds is None else self.loaded.builds()

    def _tidy(self, call: Call) -> Call:
        """The call with the plan's strides where a dimension has size 1 and the stride means nothing."""
        changed: dict[str, torch.Tensor] = {}
        for guard, tensor in zip(self._matcher.guard.tensors, self._matcher.tensors_of(call), strict=True):
            tidy = same_strides(guard, tensor)
            if tidy is not tensor:
                changed[guard.path] = tidy
        return map_call(call, lambda path, leaf: changed.get(path, leaf)) if changed else call

    # ---- opening and closing the hot path ----------------------------------------------------------------------------

    def _open(self, variant: Variant) -> None:
        """Let the hot path take this variant: the one used last."""
        hot = self._hot
        if hot["_check"] is variant.check or self._closed is not None:
            return
        hot["_check"] = codegen.never
        hot["_shapes"] = variant.shapes
        watch = self._watch
        if watch is not None:
            hot["_weight"], hot["_held"], hot["_name"] = watch.sentinel, watch.home.get, watch.key
            hot["_version"], hot["_pointer"] = watch.version, watch.pointer
            hot["_few"], hot["_pace"] = watch.few, watch.pace
        if not self._watched or (watch is not None and watch.sentinel is not None):
            hot["_check"] = variant.check

    def _close(self, reason: str) -> None:
        self._closed = reason
        self._hot["_check"] = codegen.never

    def _closed_now(self) -> str | None:
        watch = self._watch
        if self._closed is None and watch is not None:
            full = not next(self._glances) & (codegen.INSPECT_EVERY - 1)
            if watch.changed() if full else watch.glance():
                self.weights_changed()
        return self._closed

    def _closed_for_good(self) -> str | None:
        """The same after a full look: old and new weights must not be mixed in one plan."""
        if self._watch is not None and self._watch.changed():
            self.weights_changed()
        return self._closed

    def _look_at_weights(self) -> bool:
        if self._hooks and self._other_hooks():
            self._hot["_registered"] = hooks.NONE
        elif self._closed_for_good() is None:
            return False
        next(self._undone)  # the hot path has counted this call already
        return True

    def weights_changed(self) -> None:
        """Baked-in weights are out of date: eager answers from now on, and that is said once."""
        if self._closed is None and self._watch is not None:
            self._close(self._outdated())
            names = ", ".join(self._watch.attributes.which())
            what = f"weights changed (attribute {names})" if names else "weights changed"
            text = f"the model's {what} after they were baked into the compiled model; eager answers from now on."
            warn(f"{text} To be fast with the new ones, {TUNE_AGAIN if self._in_files() else 'call refresh()'}.")

    def _in_files(self) -> bool:
        """Whether the weights are in the engine's files, so that loading again brings back the same ones."""
        return self.loaded.frozen_weights and self.loaded.baked is Baked.AT_BUILD

    def _outdated(self) -> str:
        return FILES_OUTDATED if self._in_files() else WEIGHTS_CHANGED

    # ---- failures ----------------------------------------------------------------------------------------------------

    def _failed_hot(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        next(self._undone)  # the hot path has counted this call already
        return self._recover(error, Call(args, kwargs))

    def _recover(self, error: Exception, call: Call) -> Any:
        """Eager's answer. If eager raises as well, the error is the user's own and says nothing about the engine."""
        if isinstance(error, NotTaken):  # a narrower guard than ours, not a failure
            return self._eager(f"{NOT_TAKEN}: {error}", call)
        reason = f"engine failed: {first_cause(error)}"
        if not self._keep_model:
            raise NoFallback(f"{reason}; {DROPPED}, so nothing else can answer; {KEEP_IT}.") from error
        answer = self._eager(reason, call, said=True)
        self._failures += 1
        if self._failures == 1:
            warn(f"the compiled model failed and eager answered instead: {first_cause(error)}")
        if self._failures >= MAX_FAILURES and self._closed is None:
            self._close(f"engine switched off after {MAX_FAILURES} failures, the last: {first_cause(error)}")
            logger.warning("%s", self._closed)
        return answer

    def _eager(self, reason: str, call: Call, *, said: bool = False) -> Any:
        if not self._keep_model:
            said_before = f"the plan does not take this call ({reason}), and {DROPPED}"
            raise NoFallback(f"{said_before}: {advice(reason)}, or {KEEP_IT}.")
        answer = self._plain_answer(call)
        self._fallbacks.count(reason, self._fast_calls() + self.fast_before(), said=said or self._closed is not None)
        return answer

    def _plain_answer(self, call: Call) -> Any:
        watch = self._watch
        if watch is None or next(self._eagerly) >= LEARNING:
            return self._plain(*call.args, **call.kwargs)
        return watch.running(lambda: self._plain(*call.args, **call.kwargs))

    # ---- what fast.py offers -----------------------------------------------------------------------------------------

    def prepare(self, call: Call) -> None:
        """Build what this call needs now. InputError: the plan does not take it. Infeasible: the engine cannot."""
        wanted = self._canonical(call.args, call.kwargs)
        reason = "other arguments" if wanted is None else self._matcher.mode_mismatch(self._plain.training)
        if wanted is None or reason or (reason := self._matcher.call_mismatch(wanted)):
            raise InputError(f"the plan does not take this call ({reason}), so there is nothing to prepare for it.")
        wanted = self._tidy(wanted)
        tensors = self._matcher.tensors_of(wanted)
        key, shapes = variant_key(tensors), varying_shapes(self._matcher.guard.tensors, tensors)
        with self._lock:
            if key in self._variants and shapes in self._variants[key].shapes:
                return
            if closed := self._closed_for_good():
                raise Infeasible(closed)
            try:
                self._prepare(key, shapes, tensors, wanted)
            except Exception as error:
                raise Infeasible(first_cause(error)) from error

    def refresh(self) -> None:
        """Forget what was prepared and load the engine anew, with the weights as they are now.

        StalePlan: the engine's files hold other weights than the model has now; eager goes on answering.
        """
        with self._lock:
            if self._before_refresh is not None:
                self._before_refresh()
            now, watch = hooks.hooks_on(self._plain), self._snapshot()
            loaded = self._load_anew()
            self._hot["_check"] = codegen.never
            if not self._in_files():
                self._hooks, self._hot["_registered"] = now, hooks.NONE
            self._built_before += self._builds()
            self._start(loaded, watch)
            self._hot["_call"] = self._run

    def _load_anew(self) -> Loaded:
        try:
            self._refuse_unknown_weights()
            return self._load()
        except OtherWeights as error:
            self._close(FILES_OUTDATED)
            text = "the compiled model cannot be refreshed: its files hold other weights than the model has now"
            raise StalePlan(f"{text}; {TUNE_AGAIN}. Until then eager answers.", (FILES_OUTDATED,)) from error
        except Infeasible as error:
            self._close(f"engine could not be loaded again: {error}")
            raise PlanError(f"the compiled model cannot be refreshed: {error}. Until then eager answers.") from error

    def _refuse_unknown_weights(self) -> None:
        """OtherWeights where the weights in the files have no digest to compare with, and the model's have changed."""
        if not self._in_files() or self.loaded.weights_sha256 is not None or self._watch is None:
            return
        if self._closed == FILES_OUTDATED or self._watch.changed():
            raise OtherWeights(FILES_OUTDATED)

    @property
    def frozen_weights(self) -> bool:
        """Whether weight values are baked in."""
        return self.loaded.frozen_weights

    def takes(self, call: Call) -> bool:
        """Whether this guard is for this call."""
        wanted = self._canonical(call.args, call.kwargs)
        return wanted is not None and self._matcher.call_mismatch(wanted) is None

    def stats(self) -> Stats:
        """How the calls went so far."""
        fallbacks = self._fallbacks.snapshot()
        fast = self._fast_calls()
        return Stats(fast + sum(fallbacks.values()), fast, fallbacks, self._built_before + self._builds())

    def _fast_calls(self) -> int:
        return count_of(self._counter) + count_of(self._slowly) - count_of(self._undone)

    def after_fork(self) -> None:
        """In a forked child: refuse calls if the parent made any with more than one thread."""
        self._lock = threading.RLock()
        if self.stats().calls and torch.get_num_threads() > 1:
            self._forked = True
            self._close("forked")

    def _refuse_after_fork(self) -> None:
        if self._forked:
            raise ForkedAfterUse(FORKED)


def refuse_to_drop(loaded: Loaded) -> None:
    """InputError for an engine that runs the model itself: without its weights there would be nothing to run."""
    if loaded.needs_model:
        raise InputError(
            "keep_model=False cannot be used with this plan: its engine runs the model itself. Tune with "
            "--engines onnxruntime,openvino,aoti for a plan whose files hold everything, or keep the model."
        )


def _wants_gradients(leaf: Leaf) -> bool:
    return isinstance(leaf.value, torch.Tensor) and leaf.value.requires_grad


def _nothing_to_load() -> Loaded:
    raise NoFallback(f"{DROPPED}, so there is nothing to refresh from; compile the new model instead.")


def has_weights(model: nn.Module) -> bool:
    """False for a model whose code is all there is to it: nothing can change behind its compiled form."""
    return next(itertools.chain(model.parameters(), model.buffers()), None) is not None


def _one_at_a_time(call: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return call(*args, **kwargs)

    return locked
