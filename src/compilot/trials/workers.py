"""The workers of a run: one child process per candidate, eager's among them, and the steps that all of them share.

In: candidates. Out: children that have opened the model, built their candidate and warmed up. Covered: where a worker's
files and log lie, its memory limit, spare eager workers for A/A, how many may live at once, ending them. Not covered: a
trial's story (attempt.py), races (local.py).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import psutil

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import is_eager_only, traits_of
from compilot.errors import WorkerError
from compilot.files import atomic
from compilot.progress import Observer
from compilot.records import CallSizes, Candidate, IndexFacts, Shipment, State
from compilot.trials.child import Child
from compilot.trials.limits import Limits, affordable_workers, worker_env
from compilot.trials.nursery import Nursery
from compilot.trials.opening import opening
from compilot.trials.protocol import (
    Build,
    Built,
    Done,
    Failed,
    Open,
    Opened,
    Reply,
    RequestsReady,
    UseBatch,
    UseRequests,
    Warm,
    Warmed,
)
from compilot.trials.replies import answered

BEFORE_A_LOOK = 99  # workers at once, until eager has shown its size
USUAL_OPEN_S = 5.0

R = TypeVar("R", bound=Reply)


class Calls(NamedTuple):
    """Which calls a worker works on."""

    batch: int | None = None  # samples of each; None: as many as the examples have
    sizes: tuple[tuple[str, int], ...] = ()  # by NAME:DIM; (): those of the examples


OWN_CALLS = Calls()  # the workload's examples


class Failure(Exception):
    """A step failed and the worker lives; carries whose it was, the trial state and the reason."""

    def __init__(self, owner: str, state: State, reason: str) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason


def must(child: Child, reply: R | Failed) -> R:
    """The reply of a step that a candidate may fail at."""
    if isinstance(reply, Failed):
        raise Failure(child.owner, reply.state, reply.reason)
    return reply


def refuse_fallbacks(child: Child, built: Built) -> None:
    """Failure where eager answered the example call in the candidate's place."""
    if built.fallbacks:
        text = f"the example call does not take the fast path: {'; '.join(built.fallbacks)}"
        raise Failure(child.owner, State.INFEASIBLE, text)


def _told(calls: Calls) -> str:
    if calls.sizes:
        return f"size {', '.join(f'{name}={size}' for name, size in calls.sizes)}"
    return "the examples" if calls.batch is None else f"batch size {calls.batch}"


class Workers:
    """Child processes over one shipment."""

    def __init__(
        self, shipment: Shipment | None, run_dir: RunDir, *, limits: Limits, observer: Observer, callers: int = 1
    ) -> None:
        self.shipment = shipment  # None: nothing was opened yet
        self.run_dir = run_dir
        self.limits = limits
        self.observer = observer
        self.callers = callers  # at the same time, in every worker that is timed
        self.at_once = BEFORE_A_LOOK
        self.open_s = USUAL_OPEN_S  # start of a process, imports and the model: the quickest one so far
        self.imports_compiler = False  # the target itself imports torch's compiler: eager pays for that, too
        self.indices = IndexFacts()  # of the model, as eager's worker found them
        self.nursery = Nursery(run_dir.log("forkserver"))
        self._live: dict[str, Child] = {}
        self._spares: list[Child] = []
        self._work = WeakKeyDictionary[Child, Calls | None]()  # what it works on; None: not known

    # ------------------------------------------------------------------------------------------------------ steps

    def open(self, candidate: Candidate, limits: Limits) -> Child:
        """Start a candidate's own worker; it has the model afterwards."""
        begin = time.monotonic()
        child = self.live(candidate.id) or self.spawn(candidate, candidate.id)
        request = self.opening(candidate)
        must(child, child.ask(request, Opened, limit_s=limits.open_s, doing="opening"))
        self.open_s = min(self.open_s, time.monotonic() - begin)  # the first ones read from a cold disk
        return child

    def reopen(self, candidate: Candidate) -> Child:
        """A worker again for a candidate whose first one was let go: built from its own files."""
        child = self.open(candidate, self.limits)
        refuse_fallbacks(child, self.build(child, self.limits, reuse=True))
        self.warm_up(child, self.limits)
        return child

    def build(
        self,
        child: Child,
        limits: Limits,
        *,
        known: Mapping[str, str] | None = None,
        reuse: bool = False,
        alone: bool = False,
    ) -> Built:
        """Build the candidate and answer the first call; raises Failure where that is the end of it.

        alone: nothing that another candidate made is used.
        """
        shared = "" if alone else str(self.run_dir.shared)
        request = Build(known_code=dict(known or {}), reuse=reuse, indices=self.indices, shared=shared)
        built = must(child, child.ask(request, Built, limit_s=limits.build_s, doing="building"))
        return msgspec.structs.replace(built, import_s=0.0) if self.imports_compiler else built

    def warm_up(self, child: Child, limits: Limits) -> Warmed:
        """Call until the times are steady."""
        warm = Warm(for_s=limits.warm_s, callers=self.callers)
        return must(child, child.ask(warm, Warmed, limit_s=limits.warm_s + 120.0, doing="warming up"))

    def work_on(self, child: Child, calls: Calls) -> None:
        """Have a warm worker work on calls of so many samples, or of these sizes."""
        if self._work.get(child, OWN_CALLS) == calls:
            return
        self._work[child] = None  # until it has done it
        limit_s = self.limits.build_s  # torch may compile for the new size
        request = UseBatch(batch=calls.batch, sizes=dict(calls.sizes))
        must(child, child.ask(request, Done, limit_s=limit_s, doing=f"trying {_told(calls)}"))
        self.warm_up(child, self.limits)
        self._work[child] = calls

    def answer_requests(self, child: Child, calls: Sequence[CallSizes]) -> int:
        """Have a warm worker answer these requests of a trace, and how many it has; whoever races it next gives it
        other work.
        """
        self._work[child] = None
        request, limit_s = UseRequests(calls=tuple(calls)), self.limits.build_s  # torch may compile for a new size
        return must(child, child.ask(request, RequestsReady, limit_s=limit_s, doing="answering requests")).requests

    # --------------------------------------------------------------------------------------------- whom we have

    @property
    def alive(self) -> int:
        """How many there are."""
        return len(self._live) + len(self._spares)

    def live(self, candidate_id: str) -> Child | None:
        """A candidate's own worker, if it lives."""
        return self._live.get(candidate_id)

    def opening(self, candidate: Candidate, apart: str = "") -> Open:
        """What a worker is told first."""
        if self.shipment is None:
            raise WorkerError("no workload was opened.")
        return opening(self.shipment, candidate, self.workspace(candidate, apart))

    @property
    def eager(self) -> Child:
        """The worker of the baseline."""
        return self._live[EAGER.id]

    def spare(self) -> Child:
        """A second eager worker: the A/A arm."""
        return self._spares[0] if self._spares else self.extra_eager("eager-again")

    def extra_eager(self, name: str) -> Child:
        """One more eager worker, warmed up; it lives until `close`."""
        child = self.begin_extra(name)
        self.extra_opened(child)
        self.extra_warm(child)
        return child

    def begin_extra(self, name: str, candidate: Candidate = EAGER) -> Child:
        """Start one more worker and do not wait: several can import side by side."""
        child = self.spawn(candidate, name, keep=False, builds=False)
        self._spares.append(child)  # at once: whatever happens next, close() must know it
        child.send(self.opening(candidate), doing="opening")
        return child

    def begin_arm(self, owner: str, name: str, candidate: Candidate, *, compiles: bool) -> Child:
        """A process for a whole plan, with a folder of its own; it lives until `close`."""
        workspace = self.run_dir.workspace(name)
        workspace.mkdir(mode=0o755, parents=True, exist_ok=True)
        limit = self.limits.machine_bytes if candidate.is_eager else self.limits.memory_bytes
        child = Child(
            owner,
            log=self.run_dir.log(name),
            env=worker_env(workspace),
            memory_limit_bytes=limit,
            start=self.nursery.choose(compiles=compiles),
        )
        self._spares.append(child)
        return child

    def extra_opened(self, child: Child) -> None:
        """Wait until a worker of `begin_extra` has its model."""
        answered(child.receive(Opened, limit_s=self.limits.open_s))

    def extra_warm(self, child: Child) -> None:
        """Its first call and its warm-up: nothing else should run meanwhile."""
        refuse_fallbacks(child, self.build(child, self.limits))
        self.warm_up(child, self.limits)

    def spawn(
        self, candidate: Candidate, name: str, *, keep: bool = True, apart: str = "", builds: bool = True
    ) -> Child:
        """Start a process; `keep`: it is the candidate's own until `drop`; `apart`: with a workspace of its own.

        `builds`: not only loads what was built; an exporter needs torch's compiler then.
        """
        workspace = self.workspace(candidate, apart)
        limit = self.limits.machine_bytes if candidate.is_eager else self.limits.memory_bytes  # eager is the judge
        compiles = traits_of(candidate).through_dynamo or (builds and not is_eager_only(candidate))
        child = Child(
            candidate.id,
            log=self.run_dir.log(name),
            env=worker_env(workspace),
            memory_limit_bytes=limit,
            start=self.nursery.choose(compiles=compiles),
        )
        if keep:
            self._live[candidate.id] = child
        return child

    def workspace(self, candidate: Candidate, apart: str = "") -> Path:
        """Where a candidate's files and caches lie; `apart`: those of a build that nobody will use."""
        workspace = self.run_dir.workspace(f"{candidate.id}{apart}")
        workspace.mkdir(mode=0o755, parents=True, exist_ok=True)  # no umask lets others change what will be loaded
        return workspace

    def clear(self, candidate: Candidate, apart: str = "") -> None:
        """Empty a candidate's workspace: a cold start that finds what a killed build left is not cold, or is broken."""
        if apart or candidate.id not in self._live:
            atomic.remove(self.run_dir.workspace(f"{candidate.id}{apart}"))

    def copied(self, source: Candidate, candidate: Candidate) -> bool:
        """Give a candidate what another one built, whose own files stay as they are; False: there is no room for it."""
        try:
            shutil.copytree(self.workspace(source), self.workspace(candidate), dirs_exist_ok=True, symlinks=True)
        except OSError:  # shutil's own is one, too
            self.clear(candidate)
            return False
        return True

    def learn_capacity(self, rss_bytes: int) -> int:
        """How many workers may live at once, from the size of the eager one."""
        available = psutil.virtual_memory().available + rss_bytes
        self.at_once = affordable_workers(rss_bytes, available)
        return self.at_once

    def keep_only(self, ids: Sequence[str]) -> None:
        """Let go of every candidate's worker but these; eager always stays."""
        for key in [k for k in self._live if k not in ids and k != EAGER.id]:
            self.drop(key)

    def drop(self, candidate_id: str) -> None:
        """Let go of one candidate's worker."""
        child = self._live.pop(candidate_id, None)
        if child is not None:
            child.quit()

    def close(self) -> None:
        """End every worker."""
        for child in [*self._live.values(), *self._spares]:
            child.quit()
        self._live.clear()
        self._spares.clear()

    def end(self) -> None:
        """End every worker, and let those who wait for an answer know."""
        for child in [*self._live.values(), *self._spares]:
            child.end()

    def abort(self) -> None:
        """End every worker at once, without good-byes."""
        for child in [*self._live.values(), *self._spares]:
            child.kill()
