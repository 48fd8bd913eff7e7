"""The gate: whether the hot path may take calls, and why it is closed.

In: the plain model, the loaded engine, the variant that was used last. Out: the globals of the generated code with that
variant's check in them, or with one that takes nothing; the reason, in words. Covered: engines that are still to come,
or are exchanged while calls go by; hooks that the engine would not run, weights, attributes and code that changed after
they were baked in (watched from before they are read), engines that fail again and again, and engines that take one
call at a time. Not covered: the answer to a call (dispatch.py), the looks themselves (weight_watch.py, code_watch.py,
own_forward.py, strict_weights.py, unreadable.py).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from torch import nn

from compilot._torch import hooks
from compilot.engines.protocol import Baked, Follows, Loaded
from compilot.errors import FallbackWarning, first_cause
from compilot.identity.input_settings import ignored_by
from compilot.records import Guard
from compilot.runtime import codegen, own_forward, strict_weights
from compilot.runtime.code_watch import MethodWatch, Watch
from compilot.runtime.codegen import Watched
from compilot.runtime.counting import count_of
from compilot.runtime.forking import tell_after_fork
from compilot.runtime.notices import logger, warn
from compilot.runtime.unreadable import Unreadable
from compilot.runtime.variants import Variant
from compilot.runtime.weight_watch import INSPECT_EVERY, WeightWatch

MAX_FAILURES = 3  # engine failures until it is left alone
MAX_NAMES = 5  # in a warning
LEARNING = 16  # eager answers in which attributes are seen to be changed by the model itself: caches, notes
WEIGHTS_CHANGED = "weights changed after freezing"
FILES_OUTDATED = "weights changed, the plan's files hold the old ones"
CODE_CHANGED = "the model's code or attributes changed after it was compiled"
FILES_OF_OTHER_CODE = "the model's code or attributes changed, the plan's files hold the old ones"
BEING_BUILT = "the compiled model is being built"
TUNE_AGAIN = "run 'compilot tune' again with the new weights (and 'compilot pack' for a bundle)"


class EngineGone(Exception):
    """The engine was exchanged or let go after the hot path had taken a call for it."""


def _gone(*args: Any, **kwargs: Any) -> Any:
    raise EngineGone


NO_ENGINE = Loaded(_gone, follows=Follows.EVERYTHING)  # what stands behind a gate before the first engine is there


class Gate:
    """One hot path, open for one variant or closed."""

    def __init__(
        self,
        plain: nn.Module,
        guard: Guard,
        *,
        keep_model: bool,
        strict_weights: bool = False,
        name: str = "the compiled model",
    ) -> None:
        """keep_model: there is a model to watch; strict_weights: all its weights are looked at in every call.

        name: what is said to have failed.
        """
        self._guard = guard
        self._name = name
        self._plain = plain
        self._keep_model = keep_model
        self._strict = strict_weights
        registered, self._hooks = hooks.registrations(), hooks.hooks_on(plain)
        self._ticks = itertools.count()  # calls that the hot path took
        self._undone = itertools.count()  # counted by the hot path, then not served by the engine
        self._glances = itertools.count()  # at frozen weights, from the slow path
        self._eagerly = itertools.count()  # calls of the plain model while weights are watched
        self.hot = codegen.hot_globals() | {"_registered": registered}
        self._code: Callable[..., Any] | None = None  # the generated `__call__`
        self._engines = itertools.count(2)
        self._engine = "_call"  # what the code calls the engine: one name each, so that none gets another's calls

    def snapshot(self) -> WeightWatch | None:
        """The weights as they are now: taken before they are read, so that no change can fall in between."""
        if not self._keep_model:
            return None
        may_change = [(one.owner, one.name) for one in ignored_by(self._plain, self._guard)]
        return WeightWatch(self._plain, self.model_changed, may_change)

    def refuse_unwatchable(self, loaded: Loaded, before: WeightWatch | None) -> None:
        """InputError where weights are to be looked at in every call, and one leaves no trace of a write."""
        if self._strict and before is not None and loaded.frozen_weights:
            strict_weights.refuse_unversioned(before)

    def start(
        self,
        loaded: Loaded,
        before: WeightWatch | None,
        unreadable: Unreadable | None = None,
        closed: str | None = None,
    ) -> None:
        """Stand before a newly loaded engine; before: the weights as they were before it was loaded.

        Calls go by meanwhile: those that the hot path has taken already find no engine, until a variant is opened.
        """
        self.shut()
        self.hot[self._engine] = _gone
        self.loaded = loaded
        self.run = loaded.call if loaded.concurrent else _OneAtATime(loaded.call)
        self._failures = 0
        self.watch: Watch | None = None
        self.unreadable = unreadable
        if loaded.baked is not Baked.AT_PREPARE:
            self._begin(before)
        self._write_again()
        self.closed = closed  # why nothing takes the fast path; None lets calls in, so it is set last

    def _begin(self, before: WeightWatch | None) -> None:
        """The engine has read the model: from now on changes matter. before: the model as it was before that."""
        watch = self._watch_needed(before)
        self.hot |= own_forward.names(self._plain)
        self.watch = watch
        if watch is not None:
            watch.begin()

    def _watch_needed(self, before: WeightWatch | None) -> Watch | None:
        loaded = self.loaded
        if before is None or (loaded.follows is Follows.EVERYTHING and not loaded.frozen_weights):
            return None
        if loaded.frozen_weights:
            return before
        return MethodWatch(self._plain) if loaded.follows is Follows.GUARDED else before.code

    def _watched(self) -> Watched:
        """What the hot path has to look at."""
        loaded = self.loaded
        if not self._keep_model or (loaded.follows is Follows.EVERYTHING and not loaded.frozen_weights):
            return Watched.NOTHING
        return Watched.WEIGHTS if loaded.frozen_weights else Watched.CODE

    def write(self, slow: Callable[..., Any], failed: Callable[..., Any]) -> Callable[..., Any]:
        """The generated `__call__`: slow takes what the engine does not, failed what it could not answer."""
        self.hot |= {
            "_state": self._plain.__dict__,
            "_ticks": self._ticks,
            "_slow": slow,
            "_failed": failed,
            "_elsewhere": self._changed_elsewhere,
            "_changed": self._look_at_everything,
            "_unread_changed": lambda: self.unreadable is not None and self.unreadable.changed(),
        }
        self._code = codegen.compile_call(self._written(), self.hot)
        return self._code

    def _written(self) -> str:
        also = self._conditions()
        return codegen.hot_source(self._guard, self.hot, watched=self._watched(), also=also, engine=self._engine)

    def _write_again(self) -> None:
        """Have the hot path look at what this engine needs looked at; calls under way end with the code they have."""
        if self._code is not None:
            self._engine = f"_call{next(self._engines)}"
            self.hot[self._engine] = _gone
            self._code.__code__ = codegen.compile_call(self._written(), self.hot).__code__

    def _conditions(self) -> list[str]:
        """What must hold in every call, besides the guard."""
        watched = self._watched()
        found = []
        if watched is not Watched.NOTHING and self._looks_at_forward():
            found.append(own_forward.condition(self._plain))
        if watched is not Watched.NOTHING and self.unreadable:
            found.append("not _unread_changed()")
        if watched is Watched.WEIGHTS and self._strict:
            found.append(strict_weights.CONDITION)
        return found

    def _looks_at_forward(self) -> bool:
        """torch.compile's own guards see another forward or class; a program that bakes weights in has none of them."""
        return self.loaded.frozen_weights or self.loaded.follows is not Follows.GUARDED

    # ---- opening and closing -----------------------------------------------------------------------------------------

    def open(self, variant: Variant) -> None:
        """Let the hot path take this variant: the one used last."""
        hot = self.hot
        if hot["_checks"] is variant.checks or self.closed is not None:
            return
        self.shut()
        watch = self.watch
        if isinstance(watch, WeightWatch) and watch.sentinel is not None:
            hot["_weight"], hot["_home"], hot["_name"] = watch.sentinel, watch.home, watch.key
            hot["_version"], hot["_address"], hot["_pointer"] = watch.version, watch.sentinel.data_ptr, watch.pointer
            hot["_next_weights"], hot["_skip_bits"] = watch.next_weights, watch.skip_bits
            hot |= strict_weights.names(watch) if self._strict else {}
        elif self._watched() is Watched.WEIGHTS:
            return
        hot[self._engine] = self.run
        hot["_checks"] = variant.checks
        hot["_check"] = variant.checks.get((), codegen.never)

    def shut(self) -> None:
        """Have every call looked at by the slow path, until a variant is opened again."""
        self.hot["_check"], self.hot["_checks"] = codegen.never, {}

    def close(self, reason: str) -> None:
        """Let nothing in any more, until the engine is loaded again."""
        self.closed = reason
        self.shut()

    def failed(self, error: Exception) -> None:
        """The engine failed where eager did not: said once, and after a few times it is left alone."""
        self._failures += 1
        if self._failures == 1:
            warn(f"{self._name} failed and eager answered instead: {first_cause(error)}", FallbackWarning)
        if self._failures >= MAX_FAILURES and self.closed is None:
            self.close(f"engine switched off after {MAX_FAILURES} failures, the last: {first_cause(error)}")
            logger.warning("%s", self.closed)

    def closed_now(self) -> str | None:
        """Why the engine must not answer this call; a glance at the model, as the hot path takes one."""
        watch = self.watch
        if self.closed is None and watch is not None:
            full = self._strict or not next(self._glances) & (INSPECT_EVERY - 1)
            if self._is_replaced() or (self._look() if full else watch.glance()):
                self.model_changed()
        return self.closed

    def closed_for_good(self) -> str | None:
        """The same after a full look: old and new weights must not be mixed in one plan."""
        if self.watch is not None and (self._is_replaced() or self._look()):
            self.model_changed()
        return self.closed

    def _is_replaced(self) -> bool:
        """Whether the model has another forward or class, or something that nobody can read was exchanged."""
        if self.unreadable is not None and self.unreadable.changed():
            return True
        return self._looks_at_forward() and own_forward.is_replaced(self._plain, self.hot)

    def has_unreadable(self) -> bool:
        """Whether the model holds what nobody can read."""
        return bool(self.unreadable)

    def is_rebuilt(self) -> bool:
        """Whether the model's code, structure or attributes are not those that the engine was made from."""
        watch = self.watch
        return self._is_replaced() or (isinstance(watch, WeightWatch) and watch.code.rebuilt())

    def _look(self) -> bool:
        """A full look; where nothing has changed, the hot path compares with what was found."""
        watch = self.watch
        owned = self.hot["_owned"]() if self._strict and "_owned" in self.hot else None
        if watch is not None and watch.changed():
            return True
        if owned is not None:
            self.hot["_owned_before"] = owned
        return False

    # ---- hooks -------------------------------------------------------------------------------------------------------

    def hooked(self) -> bool:
        """Whether other hooks are there than when the engine was loaded: it would not run them."""
        registered = hooks.registrations()
        if registered == self.hot["_registered"]:
            return False
        if self._other_hooks():
            return True
        self.hot["_registered"] = registered
        return False

    def _other_hooks(self) -> bool:
        return [*map(id, hooks.hooks_on(self._plain))] != [*map(id, self._hooks)]

    def accept_hooks(self, found: list[Any]) -> None:
        """These hooks belong to the model that the engine runs."""
        self._hooks, self.hot["_registered"] = found, hooks.NONE

    # ---- weights -----------------------------------------------------------------------------------------------------

    def preparing(self, prepare: Callable[[], Any]) -> Any:
        """Let the engine prepare; weights that it bakes in by that are watched from before it reads them."""
        before = None if self.watch is not None or self._watched() is Watched.NOTHING else self.snapshot()
        watch = self.watch or before
        answer = prepare() if watch is None else watch.running(prepare)
        if before is not None:
            self._begin(before)
        return answer

    def running_plain(self, run: Callable[[], Any]) -> Any:
        """Run the model itself: what it changes in its attributes by that is no change of weights."""
        watch = self.watch
        return run() if watch is None or next(self._eagerly) >= LEARNING else watch.running(run)

    def _changed_elsewhere(self) -> bool:
        """Whether it is worth a full look: what has no turn of its own, and hooks that were there from the start."""
        return bool(self._hooks and self._other_hooks()) or (self.watch is not None and self.watch.changed_elsewhere())

    def _look_at_everything(self) -> bool:
        """A full look, for the hot path; it has counted this call already."""
        if self._hooks and self._other_hooks():
            self.hot["_registered"] = hooks.NONE
        elif self.closed_for_good() is None:
            return False
        self.undo()
        return True

    def model_changed(self) -> None:
        """What was baked in is out of date: eager answers from now on, and that is said once."""
        if self.closed is not None or self.watch is None:
            return
        names = [*self.watch.which(), *(self.unreadable.which() if self.unreadable is not None else ())]
        in_files = self.loaded.in_files
        rebuilt = bool(names) or not self.loaded.frozen_weights  # without names: another submodule or parameter object
        if rebuilt:
            self.close(FILES_OF_OTHER_CODE if in_files else CODE_CHANGED)
        else:
            self.close(FILES_OUTDATED if in_files else WEIGHTS_CHANGED)
        which = f" ({', '.join(names[:MAX_NAMES])})" if names else ""
        what = f"code or attributes{which}" if rebuilt else "weights"
        text = f"the model's {what} changed after they were baked into the compiled model; eager answers from now on."
        warn(f"{text} To be fast with the new ones, {TUNE_AGAIN if in_files else 'call refresh()'}.", FallbackWarning)

    # ---- counting ----------------------------------------------------------------------------------------------------

    def undo(self) -> None:
        """A call that the hot path has counted already was not served by the engine."""
        next(self._undone)

    def served(self) -> int:
        """Calls that the engine answered through the hot path."""
        return count_of(self._ticks) - count_of(self._undone)


class _OneAtATime:
    """An engine's callable that only one thread may be in."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.after_fork()
        tell_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child: the thread that was in it is not there any more."""
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return self._call(*args, **kwargs)
