"""Swap: eager answers now, the plan takes over when it is proven, and gives way when it drifts.

In: a model, and a plan, a bundle, a store's URL or nothing. Out: something that is called like the model and always
gives a right answer. The story: a source is brought by a thread (building and fetching in a bounded child process),
loaded, proven on its golden calls and on kept ones, then shadowed, then asked for some users' answers (each compared
before it goes out), then live. One mismatch, one failure of the engine, or a median above eager's, and eager answers
again; so does a call that the plan does not have. Every decision is made by the number of a call, and is an event.
Covered: threads, forks before the first call, a new plan as the canary of the live one. Not covered: moving requests
between processes, batching (the server's own business).

The hot path when live: an attribute, a counter, a remainder, the thread count, then the dispatcher.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import torch
from torch import nn

from compilot._tree import Call
from compilot.artifacts.bundle_trust import Trust
from compilot.errors import InputError, first_cause
from compilot.files.private import cache_home
from compilot.records import State
from compilot.runtime.counting import count_of
from compilot.runtime.forking import tell_after_fork
from compilot.runtime.sources import ApplyOptions
from compilot.serve.durations import Durations
from compilot.serve.events import EventLog, OnEvent
from compilot.serve.keeping import KeptCalls
from compilot.serve.manager import Manager, Wanted
from compilot.serve.outcomes import Outcome, Verdict
from compilot.serve.pairs import MARGIN, PairWindow
from compilot.serve.records import Bounds, BuildResult, EventKind, SwapEvent, SwapState, SwapStats
from compilot.serve.route import Route, period_of
from compilot.serve.sentinel import Sentinel
from compilot.serve.standing import Standing
from compilot.serve.staying import SUPERSEDED, Closing, Disproved, NeedsExample, Source, Stays

if TYPE_CHECKING:
    from compilot.serve.bringing import Bringer
    from compilot.serve.shared import SharedBundle
    from compilot.serve.trial import Trial

RECURRING_THREADS = 16  # calls at another thread count until the plan is compared at it
PROVEN_THREADS = 8  # comparisons there, until it is served
MOST_ADOPTED = 8  # sizes that are added to a plan: each is a program in memory
MISSED_EVERY = 10  # ticks between two lines about missed calls
FIRST_ANSWER_S = 0.5  # after the first call: the work of this thread would hold the interpreter before its answer
NONE_TAKEN = 50  # calls that a plan did not take, until that is said
END_S = 10.0
UNWANTED = "it was rolled back before it was there"

logger = logging.getLogger("compilot")
_threads = torch.get_num_threads


class Stage(NamedTuple):
    """One part of the way to live."""

    state: SwapState
    period: int  # one call in so many is compared
    calls: int  # compared without mismatch until the next stage


class Swap:
    """A model that is swapped for its plan while it serves."""

    def __init__(
        self,
        model: nn.Module,
        source: Source = None,
        *,
        shadow: float = 0.01,
        shadow_calls: int = 64,
        canary: Sequence[float] = (0.05, 1.0),
        canary_calls: int = 64,
        margin: float = MARGIN,
        require_fast: bool = False,
        on_event: OnEvent | None = None,
        allow_trace: bool = False,
        adopt: bool = True,
        log: str | os.PathLike[str] | None = None,
        trusted_keys: Sequence[str | os.PathLike[str]] = (),
        require_signature: bool = False,
        allow_stale: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        """source: a plan, a bundle, the URL of a store, or None: then a child process builds what it can prove.

        shadow and canary are shares of the calls, and upper limits; but one call a second is compared whatever they
        are. margin: by how much the plan's median over 200 pairs may be above eager's. require_fast: `ready()` waits
        for the plan. allow_trace: a torch.compile plan may be compiled in this process, with the calls of `warm` and
        before its first request. adopt: build what recurs and the plan does not have. log: the file for events; None:
        events.jsonl in compilot's cache. bounds: what the building child may use.
        """
        _refuse_fast(model)
        self.model = model
        self._stages = _stages(shadow, shadow_calls, canary, canary_calls)
        self._live_period = period_of(shadow, "shadow")
        self._margin = margin
        self._require_fast, self._allow_trace, self._adopt = require_fast, allow_trace, adopt
        self._bounds = bounds or Bounds()
        self._options = ApplyOptions(Trust(trusted_keys, require_signature), allow_stale=allow_stale)
        self._numbers = itertools.count()
        self._by_eager = itertools.count()
        self._log = EventLog(_log_path(log), on_event)
        self._standing = Standing(self._log, self._numbers)
        self._kept = KeptCalls()
        self.sentinel = Sentinel()
        self.durations = Durations()
        self._live: Trial | None = None  # the plan that answers
        self._rolling: Trial | None = None  # the one on its way there
        self._bringing: Wanted | None = None  # what the manager's thread is at
        self._generation = 0  # of what is wanted: a rollback ends what was wanted before it
        self._builds: list[SharedBundle] = []
        self._retired: Counter[str] = Counter()  # what was counted by plans that are gone
        self._ticks = 0
        self._compared_at: tuple[int, ...] = (0, 0)  # at the last tick: by the plan that is tried or live, by its base
        self._warned = False
        self._needs_example = False  # nothing could be built for want of one; `warm` gives it
        self._first_live: int | None = None  # number of the call
        self._flushes: list[Callable[[], None]] = []
        self._source = source  # the newest
        self._route = Route(SwapState.EAGER, self._look_eager)
        self._begin()
        self._want(Wanted(source))
        tell_after_fork(self)
        _close_at_exit(self)

    def _begin(self) -> None:
        """Threads and locks of this process."""
        self._forked = False
        self._lock = threading.RLock()
        self._comparing = threading.Lock()
        self._stop = threading.Event()
        self._brings: Bringer | None = None
        self._manager = Manager(self, self._stop, self._bounds)
        self._manager.start()

    @property
    def _bringer(self) -> Bringer:
        """Made when it is needed, by the manager's thread: a server that starts does not wait for its imports."""
        if self._brings is None:
            from compilot.serve.bringing import Bringer

            self._brings = Bringer(
                self.model,
                self._kept,
                options=self._options,
                bounds=self._bounds,
                stop=self._stop,
                tell_state=self._under_way,
                go_on=self._go_on,
                superseded=self._manager.plans_wanted,
                tell_built=self._was_built,
                may_trace=lambda: self._allow_trace and not count_of(self._numbers),
            )
        return self._brings

    # ---- a call --------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's answer to a call."""
        route = self._route
        number = next(self._numbers)
        if number % route.every and _threads() in route.threads:
            return route.hot(None, *args, **kwargs)  # type: ignore[misc]  # without one `every` is 1
        return route.look(route, number, args, kwargs)

    def _look_eager(self, route: Route, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._forked:
            self._revive()
        if self._kept.wanted:
            self._kept.offer(Call(args, kwargs))
        return self._eager(args, kwargs)

    def _eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        next(self._by_eager)
        begin = time.perf_counter()
        answer = self.model(*args, **kwargs)
        self.durations.add("eager", time.perf_counter() - begin)
        return answer

    def _base(self, route: Route, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Whoever answers while a plan is tried: eager, or the live plan, whose calls stay compared meanwhile."""
        live = route.base
        if live is None:
            return self._eager(args, kwargs)
        if _threads() not in live.threads:
            self.sentinel.missed(_at_threads(live), Call(args, kwargs), adoptable=False)
            return self.model(*args, **kwargs)
        if route.base_due or (number - 1) % self._live_period == 0:  # of other periods 1 is no multiple
            route.base_due = False
            return self._answered_live(route, live, args, kwargs)
        return live.call(None, *args, **kwargs)

    def _look_rolling(self, route: Route, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Shadow: eager's answer. Canary: the plan's, once it is seen to be right."""
        shadow = route.state is SwapState.SHADOW
        if self._forked:
            self._revive()
        if self._kept.wanted:
            self._kept.offer(Call(args, kwargs))
        trial = route.trial
        assert trial is not None
        if not route.wants(number) or (trial.traced and _threads() not in trial.threads):  # that would compile
            return self._base(route, number, args, kwargs)
        if shadow and not self._comparing.acquire(blocking=False):
            return self._base(route, number, args, kwargs)
        try:
            outcome = self._compared(route, trial, args, kwargs)
        finally:
            if shadow:
                self._comparing.release()
        self._weigh(route, trial, outcome)
        if shadow or outcome.verdict is not Verdict.SAME:
            next(self._by_eager)
            return outcome.eager
        return outcome.plan

    def _look_live(self, route: Route, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that stays compared, or one at a thread count that the plan is not proven at."""
        if self._forked:
            self._revive()
        if self._kept.wanted:
            self._kept.offer(Call(args, kwargs))
        assert route.trial is not None
        if _threads() not in route.threads:
            return self._at_other_threads(route, route.trial, args, kwargs)
        return self._answered_live(route, route.trial, args, kwargs)

    def _answered_live(self, route: Route, live: Trial, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The live plan's answer once it is seen to be right, unless somebody compares at this moment."""
        if not self._comparing.acquire(blocking=False):
            return live.call(None, *args, **kwargs)
        try:
            outcome = self._compared(route, live, args, kwargs)
        finally:
            self._comparing.release()
        self._weigh(route, live, outcome)
        if outcome.verdict in (Verdict.MISMATCH, Verdict.FAILED):
            next(self._by_eager)
        return outcome.best

    def _compared(
        self, route: Route, trial: Trial, args: tuple[Any, ...], kwargs: dict[str, Any], *, counted: bool = False
    ) -> Outcome:
        """Both answers. counted: the call is among the missed ones already."""
        if trial is route.trial:
            route.compared()
        outcome = trial.compare(self.model, Call(args, kwargs), plan_first=bool(trial.compared & 1))
        if outcome.verdict is Verdict.NOT_TAKEN and not counted:
            self._not_taken(trial, outcome.why, Call(args, kwargs))
        elif outcome.verdict is Verdict.SAME:
            self.durations.add("eager", outcome.eager_s)
            self.durations.add("fast", outcome.plan_s)
        return outcome

    # ---- what follows from it ------------------------------------------------------------------------------------

    def _weigh(self, route: Route, trial: Trial, outcome: Outcome) -> None:
        """One comparison: on to the next stage, or back."""
        with self._lock:
            if outcome.verdict is Verdict.NOT_TAKEN or trial not in (self._live, self._rolling):
                return
            if outcome.verdict is Verdict.SAME:
                trial.compared += 1
                trial.threads = {*trial.threads, _threads()}  # another one: somebody may be reading it
                slower = trial.pairs.add(outcome.eager_s, outcome.plan_s)
                self._back(trial, slower) if slower else self._passed(route, trial)
            elif outcome.verdict is Verdict.MISMATCH:
                trial.compared += 1
                trial.mismatches += 1
                self._back(trial, f"its answer is not eager's: {outcome.why}")
            else:
                trial.failures += 1
                self._back(trial, outcome.why)

    def _passed(self, route: Route, trial: Trial) -> None:
        if self._route is not route or trial is not self._rolling:
            return
        trial.passed += 1
        if trial.passed >= self._stages[trial.stage].calls:
            trial.stage, trial.passed = trial.stage + 1, 0
            self._enter_stage(trial)

    def _enter_stage(self, trial: Trial) -> None:
        if trial.stage == len(self._stages):
            return self._go_live(trial)
        stage = self._stages[trial.stage]
        share = f"up to {100 / stage.period:.3g} % of the calls, {stage.calls} of them"
        self._route = Route(stage.state, self._look_rolling, period=stage.period, trial=trial, base=self._live)
        self._standing.become(stage.state, share, plan=trial.label, settled=False)
        return None

    def _go_live(self, trial: Trial) -> None:
        if self._live is not None:
            self._retired += self._live.counts()
        self._live, self._rolling = trial, None
        trial.is_live(count_of(self._numbers))
        if self._first_live is None:
            self._first_live = trial.live_since
        trial.on_missed = lambda reason, call: self._missed(trial, reason, call)
        trial.on_failed = lambda reason: self._failed(trial, reason)
        self._route = self._live_route(trial)  # the swap
        self.sentinel.begin_anew()
        if trial.adopted:
            self._standing.tell(EventKind.ADOPTED, trial.adopted, plan=trial.label)
        settled = self._idle()
        if settled:
            self._kept.forget()
        speed = trial.pairs.summary().speedup
        words = "" if speed is None else f", {speed:.2f}x over eager by the pairs so far"
        self._standing.become(
            SwapState.LIVE, f"proven on {trial.compared} calls{words}", plan=trial.label, settled=settled
        )

    def _live_route(self, trial: Trial) -> Route:
        threads = frozenset(trial.threads)
        return Route(
            SwapState.LIVE, self._look_live, period=self._live_period, trial=trial, hot=trial.call, threads=threads
        )

    def _failed(self, trial: Trial, reason: str) -> None:
        """The engine failed in a call that nobody compared; eager has answered it."""
        next(self._by_eager)
        with self._lock:
            if trial in (self._live, self._rolling):
                self._back(trial, reason)

    def _back(self, trial: Trial, why: str) -> None:
        """Whoever answered before this plan answers again."""
        self._retired += trial.counts()
        if trial is self._live:
            self._live = None
        rolling, self._rolling = self._rolling, None
        if rolling is not None and rolling is not trial:  # it was to replace the one that failed: go on without that
            self._rolling = rolling
            self._standing.become(
                SwapState.ROLLED_BACK, f"rolled back: {why}", plan=trial.label, settled=False, back=True
            )
            return self._enter_stage(rolling)
        base = self._live
        if base is not None:
            self._route = self._live_route(base)
            why = f"rolled back: {why}; the plan before it goes on"
            self._standing.become(SwapState.LIVE, why, plan=trial.label, settled=False, back=True)
            return self._give_up()
        self._route = Route(SwapState.ROLLED_BACK, self._look_eager)
        reason = f"rolled back: {why}"
        self._standing.become(SwapState.ROLLED_BACK, reason, plan=trial.label, settled=False, back=True)
        return self._give_up()

    def _idle(self) -> bool:
        """Whether no plan is on its way to live."""
        one = self._bringing
        bringing = one is not None and one.more is None and self._is_wanted(one)
        return self._rolling is None and not bringing and not self._manager.plans_wanted()

    def _give_up(self) -> None:
        """One plan less is under way; after the last one nothing is kept, and nobody waits any more."""
        with self._lock:
            if self._idle():
                self._kept.forget()
                self._standing.settle()

    # ---- the sentinel --------------------------------------------------------------------------------------------

    def _not_taken(self, trial: Trial, reason: str, call: Call) -> None:
        """A call that was to be compared and is none of the plan's; said once where all of them are."""
        trial.not_taken += 1
        if trial is self._live:
            self._missed(trial, reason, call)
        elif trial.not_taken == NONE_TAKEN and not trial.compared:
            self._standing.tell(EventKind.WARNING, f"the plan takes none of the calls so far: {reason}")

    def _missed(self, trial: Trial, reason: str, call: Call) -> None:
        """A call that the plan does not answer; eager does."""
        room = self._adopt and trial is self._live and 0 < len(trial.made) <= MOST_ADOPTED
        fits = room and not any(map(_takes(call), trial.links))
        if self.sentinel.missed(reason, call, adoptable=fits) and (example := self.sentinel.next_wanted()):
            self._want(Wanted(more=example, under_way=trial))

    def _at_other_threads(self, route: Route, trial: Trial, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Eager's answer; where the count recurs, the plan is compared at it, and then served."""
        now, reason = _threads(), _at_threads(trial)
        self.sentinel.missed(reason, Call(args, kwargs), adoptable=False)
        if trial.traced or self.sentinel.count(reason) <= RECURRING_THREADS:
            return self.model(*args, **kwargs)
        outcome = self._compared(route, trial, args, kwargs, counted=True)
        before = len(trial.threads)
        if outcome.verdict is Verdict.SAME and trial.proven_at(now) < PROVEN_THREADS:
            return outcome.eager
        self._weigh(route, trial, outcome)
        with self._lock:
            if len(trial.threads) > before and self._route is route:
                self._route = self._live_route(trial)
                self._standing.tell(EventKind.ADOPTED, f"thread count {now} is proven, too", plan=trial.label)
        return outcome.eager

    # ---- for the manager -----------------------------------------------------------------------------------------

    def _want(self, wanted: Wanted) -> None:
        with self._lock:
            self._manager.want(wanted._replace(generation=self._generation))

    def _may_bring(self) -> bool:
        """Not while another plan is on its way to live, unless that one takes none of the calls."""
        rolling = self._rolling
        return rolling is None or (rolling.not_taken >= NONE_TAKEN and not rolling.compared)

    def _go_on(self) -> None:
        """Raises Stays where what is being brought was rolled back meanwhile."""
        if self._bringing is not None and not self._is_wanted(self._bringing):
            raise Stays(UNWANTED)

    def _is_wanted(self, one: Wanted) -> bool:
        return one.generation == self._generation

    def _bring_once(self, wanted: Wanted) -> None:
        self._bringing = wanted  # until it is there, or `_stays`
        self._go_on()
        if wanted.source is None and wanted.more is None:
            self._await_call()
        if wanted.more is not None and wanted.under_way is not None:
            trial = self._bringer.bring_more(wanted.under_way, wanted.more)
        else:
            trial = self._bringer.bring(wanted.source)
        with self._lock:
            self._go_on()
            if self._stop.is_set():
                return
            if wanted.under_way is not None and wanted.under_way is not self._live:
                raise Stays("the plan that they were built for is not live any more")
            if self._rolling is not None:
                self._back(self._rolling, "it takes none of the calls, and another plan is there")
            if wanted.more is not None:
                trial.adopted = _adopted(wanted)
            trial.pairs = PairWindow(self._margin)
            self._rolling, self._bringing = trial, None
            self._enter_stage(trial)

    def _await_call(self) -> None:
        """With nothing to start from there is nothing to do before a first call."""
        if not self._kept.arrived.is_set():
            self._under_way(SwapState.BUILDING, "waiting for a first call")
        while not self._kept.arrived.wait(0.2):
            self._go_on()
            if self._stop.is_set():
                raise Closing
            if self._manager.plans_wanted():
                raise Stays(SUPERSEDED)
        self._stop.wait(FIRST_ANSWER_S)

    def _under_way(self, state: SwapState, reason: str) -> None:
        """A step of bringing; while a plan is live the state stays so, and only the reason tells."""
        with self._lock:
            self._go_on()
            if self._live is None and self._rolling is None:
                self._standing.become(state, reason)

    def _was_built(self, found: SharedBundle) -> None:
        self._builds.append(found)
        spent = found.spent
        reason = "built by another process, or earlier" if spent is None else _lost(found.result)
        more = {} if spent is None else {"seconds": spent.seconds, "cpu_s": spent.cpu_s}
        if spent is not None:
            more["peak_memory_bytes"] = spent.peak_memory_bytes
        self._standing.tell(EventKind.BUILT, reason, plan=found.result.label, **more)

    def _postponed(self, reason: str, retry_s: float | None, wanted: Wanted) -> None:
        with self._lock:
            if not self._is_wanted(wanted):
                return  # the next attempt ends it
            self._standing.tell(EventKind.POSTPONED, reason, retry_s=retry_s)
            if retry_s is None:
                self._stays(Stays(reason), wanted)
            elif self._live is None and self._rolling is None:
                self._standing.become(SwapState.EAGER, f"{reason}; tried again in {retry_s:.0f} s")

    def _stays(self, why: Stays, wanted: Wanted) -> None:
        """What was wanted will not come."""
        reason = str(why)
        with self._lock:
            self._bringing = None
            self._needs_example = isinstance(why, NeedsExample) and self._is_wanted(wanted)
            if wanted.more is not None:
                self.sentinel.not_built(wanted.more)
            if isinstance(why, Disproved) and self._rolling is None and self._is_wanted(wanted):
                after = "; the plan before it goes on" if self._live is not None else ""
                state = SwapState.ROLLED_BACK if self._live is None else SwapState.LIVE
                self._standing.become(state, f"rolled back: {reason}{after}", settled=False, back=True)
            elif self._live is not None or self._rolling is not None or not self._is_wanted(wanted):
                what = "other calls are not adopted" if wanted.more is not None else "the new plan is not used"
                self._standing.tell(EventKind.WARNING, f"{what}: {reason}")
            else:
                self._standing.become(SwapState.EAGER, reason)
            self._give_up()

    def _tick(self) -> None:
        """Once a second: see that something is compared; now and then write down what was missed."""
        self._ticks += 1
        route = self._route
        seen = tuple(0 if one is None else one.compared for one in (route.trial, route.base))
        if route.trial is not None and seen[0] == self._compared_at[0]:
            route.make_due()
        if route.base is not None and seen[1] == self._compared_at[1]:
            route.base_due = True
        self._compared_at = seen
        if not self._ticks % MISSED_EVERY:
            self._tell_missed()
        self._flush()

    def _flush(self) -> None:
        for flush in self._flushes:
            try:
                flush()
            except Exception as error:
                logger.warning("a callback of at_each_tick failed: %s", first_cause(error))

    def _tell_missed(self) -> None:
        found = self.sentinel.news()
        live = self._live
        if found is not None:
            if not self._warned:
                top = found[0]
                logger.warning("eager answers calls that the plan does not have, most often: %s", top.reason)
            self._warned = True
            calls = count_of(self._numbers) - (self._first_live or 0)
            self._standing.tell(EventKind.MISSED, missed=found, calls=calls, plan=live.label if live else "")

    # ---- what users ask ------------------------------------------------------------------------------------------

    @property
    def state(self) -> SwapState:
        """Who answers, and what is under way."""
        return self._standing.state

    @property
    def reason(self) -> str:
        """Why it is in this state."""
        return self._standing.reason

    @property
    def events(self) -> list[SwapEvent]:
        """The newest events, the oldest first."""
        return list(self._log.newest)

    @property
    def log(self) -> Path | None:
        """The file that the events go to."""
        return self._log.path

    @property
    def building_pid(self) -> int | None:
        """The process that builds or fetches at this moment; None: there is none."""
        return None if self._brings is None else self._brings.child.pid

    def ready(self) -> bool:
        """Whether a right answer can be given: always, unless `require_fast`, which waits for the plan."""
        return self.live() if self._require_fast else self.state is not SwapState.CLOSED

    def live(self) -> bool:
        """Whether a plan answers all calls now, also while another one is tried beside it."""
        route = self._route
        return route.state is SwapState.LIVE or route.base is not None

    def warm(self, calls: Iterable[Any]) -> Self:
        """Make these calls now, and prove and build with them; each is a tuple of arguments, or (args, kwargs).

        A Swap that stayed eager because no example could be made tries again with them.
        """
        with self._lock:
            again, self._needs_example = self._needs_example and self.state is not SwapState.CLOSED, False
            if again:
                self._kept.begin_anew()
        for given in calls:
            call = _as_call(given)
            self._kept.offer(call, given=True)
            if not self._allow_trace:  # else this would be the first request
                self(*call.args, **call.kwargs)
        if again:
            self.promote(self._source)
        return self

    def wait(self, seconds: float | None = None) -> SwapState:
        """Wait until the plan is live, or will not be; the state then, or when time is up."""
        self._standing.wait(lambda: self._standing.settled, seconds)
        return self.state

    def rollback(self, why: str) -> None:
        """Have eager, or the plan before the newest one, answer from the next call on."""
        with self._lock:
            trial = self._rolling or self._live
            under_way = self._bringing is not None or self._manager.plans_wanted()
            self._generation += 1
            self._manager.forget()
            if trial is not None:
                self._back(trial, why)
            elif under_way and self.state is not SwapState.CLOSED:
                self._standing.become(SwapState.ROLLED_BACK, f"rolled back: {why}", settled=False, back=True)
                self._give_up()

    def promote(self, source: Source) -> None:
        """Bring another plan; the live one goes on until this one is proven, and stays if it is not."""
        if self.state is SwapState.CLOSED:
            raise InputError("this Swap is closed; make a new one.")
        if self._forked:
            self._revive()
        with self._lock:
            self._source, self._needs_example = source, False
            self._standing.settled = False
            self._want(Wanted(source))
            self._kept.begin_anew()

    def stats(self) -> SwapStats:
        """How the calls went so far."""
        from compilot.serve.summary import pss_bytes

        return msgspec.structs.replace(self.counters(), pss_bytes=pss_bytes())

    def counters(self) -> SwapStats:
        """`stats()` without the memory of this process, which takes milliseconds to ask for."""
        from compilot.serve.summary import summary

        return summary(self)

    def build_seconds(self) -> list[float]:
        """Wall time of each child that came to its end."""
        return [one.spent.seconds for one in self._builds if one.spent is not None]

    def at_each_tick(self, flush: Callable[[], None]) -> None:
        """Have this called once a second, and when the Swap is closed."""
        self._flushes.append(flush)

    def close(self) -> None:
        """Stop: eager answers, the child is ended, what was kept is gone."""
        if self.state is SwapState.CLOSED:
            return
        self._tell_missed()
        self._stop.set()
        with self._lock:
            for trial in (self._live, self._rolling):
                if trial is not None:
                    self._retired += trial.counts()
            self._live = self._rolling = None
            self._route = Route(SwapState.CLOSED, self._look_eager)
            self._kept.forget()
            self._standing.become(SwapState.CLOSED, "closed")
        try:
            self._flush()
        finally:
            self._manager.join(END_S)
            self._log.flush(END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- forks ---------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """In a forked child: locks anew; the threads, which stayed in the parent, at the next call."""
        self._lock = threading.RLock()
        self._comparing = threading.Lock()
        self._standing.renew_locks()
        self._log.renew_locks()
        self._kept.renew_locks()
        self.sentinel.renew_locks()
        self.durations.renew_locks()
        for trial in (self._live, self._rolling):
            if trial is not None:
                trial.pairs.renew_locks()
        self._forked = True

    def _revive(self) -> None:
        with self._lock:
            if not self._forked or self.state is SwapState.CLOSED:
                return
            self._bringing = None
            self._begin()
            if self._live is None and self._rolling is None and self.state is not SwapState.ROLLED_BACK:
                self._want(Wanted(self._source))


def _stages(shadow: float, shadow_calls: int, canary: Sequence[float], canary_calls: int) -> tuple[Stage, ...]:
    for name, count in (("shadow_calls", shadow_calls), ("canary_calls", canary_calls)):
        if count < 1:
            raise InputError(f"{name} is a number of calls: at least 1, not {count}.")
    steps = [Stage(SwapState.CANARY, period_of(share, "canary"), canary_calls) for share in canary]
    return Stage(SwapState.SHADOW, period_of(shadow, "shadow"), shadow_calls), *steps


def _refuse_fast(model: nn.Module) -> None:
    """InputError for a model that is a plan's already; where nobody has made one, its room is not imported."""
    if (room := sys.modules.get("compilot.runtime.fast")) is not None:
        room.refuse_compiled(model)


def _lost(result: BuildResult) -> str:
    """Why it is not the engine that was tried first; "": it is."""
    return "; ".join(f"{one.label} {one.state}, {one.reason}" for one in result.tried if one.state != State.OK)


def _at_threads(trial: Trial) -> str:
    """Why eager answers at this thread count."""
    proven = ", ".join(map(str, sorted(trial.threads))) or "none"
    return f"thread count {_threads()}, the plan is proven at {proven}"


def _takes(call: Call) -> Callable[[Any], bool]:
    return lambda link: link.takes(call)


def _adopted(wanted: Wanted) -> str:
    from compilot.serve.keeping import sizes_of

    assert wanted.more is not None
    shown = ", ".join(f"{path} {list(size)}" for path, size in sizes_of(wanted.more.call).items())
    return f"built for calls that recur: {shown}"


def _as_call(given: Any) -> Call:
    if isinstance(given, Call):
        return given
    if isinstance(given, torch.Tensor):
        return Call((given,), {})
    if isinstance(given, dict):
        return Call((), given)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict):
        return Call(*given)
    return Call(tuple(given), {})


def _log_path(log: str | os.PathLike[str] | None) -> Path | None:
    if log is not None:
        return Path(log).absolute()
    with contextlib.suppress(Exception):
        return cache_home() / "serve" / "events.jsonl"
    return None


_to_close: weakref.WeakKeyDictionary[Swap, int] = weakref.WeakKeyDictionary()  # with the process that made it


def _close_at_exit(swap: Swap) -> None:
    """End the child, and remove what lies on disk, when the interpreter ends; a Swap may be gone by then."""
    _to_close[swap] = os.getpid()


@atexit.register
def _close_all() -> None:
    for swap, owner in list(_to_close.items()):
        if os.getpid() == owner:
            swap.close()
