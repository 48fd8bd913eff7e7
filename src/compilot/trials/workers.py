"""The workers of a run: one child process per candidate, eager's among them, and the steps that all of them share.

In: candidates. Out: children that have opened the model, built their candidate and warmed up. Covered: where a worker's
files and log lie, its memory limit, spare eager workers for A/A, how many may live at once, ending them. Not covered: a
trial's story (trying.py), races (runner.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from compilot.engines.eager.build import EAGER
from compilot.files import atomic
from compilot.progress import Observer
from compilot.records import Candidate, IndexFacts, Measurement, Shipment, State
from compilot.trials.child import Child
from compilot.trials.limits import Limits, affordable_workers, worker_env
from compilot.trials.protocol import PROTOCOL, Build, Built, Failed, Open, Opened, Warm, Warmed
from compilot.trials.replies import raise_user_error


class Story(NamedTuple):
    """What is known of a candidate while its trial goes on."""

    built: Built
    measurement: Measurement


class Failure(Exception):
    """A step failed and the worker lives; carries whose it was, the trial state and reason, and what is known."""

    def __init__(self, owner: str, state: State, reason: str, **known: Any) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason
        self.known = known


class Workers:
    """Child processes over one shipment."""

    def __init__(self, shipment: Shipment, run_dir: Path, *, limits: Limits, observer: Observer) -> None:
        self.shipment = shipment
        self.run_dir = run_dir
        self.limits = limits
        self.observer = observer
        self.workers_at_once = 99
        self.opened_in_s = 5.0  # start of a process, imports and the model: the quickest one so far
        self.indices = IndexFacts()  # of the model, as eager's worker found them
        self._live: dict[str, Child] = {}
        self._spares: list[Child] = []

    # ------------------------------------------------------------------------------------------------------ steps

    def open(self, candidate: Candidate, limits: Limits) -> Child:
        """Start a candidate's own worker; it has the model afterwards."""
        self.observer.doing("starting its process")
        begin = time.monotonic()
        child = self.spawn(candidate, candidate.id)
        reply = child.ask(Open, Opened, limit_s=limits.open_s, doing="opening", **self.open_fields(candidate))
        if isinstance(reply, Failed):
            raise Failure(candidate.id, reply.state, reply.reason)
        self.opened_in_s = min(self.opened_in_s, time.monotonic() - begin)  # the first ones read from a cold disk
        return child

    def reopen(self, candidate: Candidate) -> Child:
        """A worker again for a candidate whose first one was let go: built from its own files."""
        child = self.open(candidate, self.limits)
        self.build(child, candidate, {}, self.limits, reuse=True)
        self.warm_up(child, self.limits)
        return child

    def build(
        self, child: Child, candidate: Candidate, known: dict[str, str], limits: Limits, *, reuse: bool = False
    ) -> Story:
        """Build the candidate and answer the first call; raises Failure where that is the end of it."""
        self.observer.doing("building and answering the first call")
        told: dict[str, Any] = {"known_code": known, "reuse": reuse, "indices": self.indices}
        reply = child.ask(Build, Built, limit_s=limits.build_s, doing="building", **told)
        if isinstance(reply, Failed):
            raise Failure(candidate.id, reply.state, reply.reason)
        measurement = _first_call(reply)
        if reply.same_as is not None:
            reason = f"generates the same program as candidate {reply.same_as}; not measured twice"
            known_fields = {"same_as": reply.same_as, "code_sha256": reply.code_sha256, "measurement": measurement}
            raise Failure(candidate.id, State.PRUNED, reason, **known_fields)
        if reply.fallbacks:
            text = f"the example call does not take the fast path: {'; '.join(reply.fallbacks)}"
            raise Failure(candidate.id, State.INFEASIBLE, text, measurement=measurement)
        return Story(reply, measurement)

    def warm_up(self, child: Child, limits: Limits) -> Warmed:
        """Call until the times are steady."""
        reply = child.ask(Warm, Warmed, limit_s=limits.warm_s + 120.0, doing="warming up", for_s=limits.warm_s)
        if isinstance(reply, Failed):
            raise Failure(child.owner, reply.state, reply.reason)
        warmed: Warmed = reply
        return warmed

    # --------------------------------------------------------------------------------------------- whom we have

    def live(self, candidate_id: str) -> Child | None:
        """A candidate's own worker, if it lives."""
        return self._live.get(candidate_id)

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
        child = self.spawn(candidate, name, keep=False)
        self._spares.append(child)  # at once: whatever happens next, close() must know it
        child.send(Open, Opened, doing="opening", **self.open_fields(candidate))
        return child

    def extra_opened(self, child: Child) -> None:
        """Wait until a worker of `begin_extra` has its model."""
        answered(child.receive(limit_s=self.limits.open_s))

    def extra_warm(self, child: Child) -> None:
        """Its first call and its warm-up: nothing else should run meanwhile."""
        self.build(child, EAGER, {}, self.limits)
        self.warm_up(child, self.limits)

    def spawn(self, candidate: Candidate, name: str, *, keep: bool = True) -> Child:
        """Start a process; `keep`: it is the candidate's own until `drop`."""
        workspace = self.workspace(candidate)
        log = self.run_dir / "logs" / f"{name}.log"
        limit = self.limits.machine_bytes if candidate.is_eager else self.limits.memory_bytes  # eager is the judge
        child = Child(candidate.id, log=log, env=worker_env(workspace), memory_limit_bytes=limit)
        if keep:
            self._live[candidate.id] = child
        return child

    def workspace(self, candidate: Candidate) -> Path:
        """Where a candidate's files and caches lie."""
        workspace = self.run_dir / "work" / candidate.id
        workspace.mkdir(mode=0o755, parents=True, exist_ok=True)  # no umask lets others change what will be loaded
        return workspace

    def clear(self, candidate: Candidate) -> None:
        """Empty a candidate's workspace: a cold start that finds what a killed build left is not cold, or is broken."""
        if candidate.id not in self._live:
            atomic.remove(self.run_dir / "work" / candidate.id)

    def open_fields(self, candidate: Candidate) -> dict[str, Any]:
        """What a worker is told first."""
        workspace = str(self.workspace(candidate))
        return {"protocol": PROTOCOL, "shipment": self.shipment, "candidate": candidate, "workspace": workspace}

    def learn_capacity(self, rss_bytes: int) -> int:
        """How many workers may live at once, from the size of the eager one."""
        available = psutil.virtual_memory().available + rss_bytes
        self.workers_at_once = affordable_workers(rss_bytes, available)
        return self.workers_at_once

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

    def abort(self) -> None:
        """End every worker at once, without good-byes."""
        for child in [*self._live.values(), *self._spares]:
            child.kill()


def answered(reply: Any) -> Any:
    """The reply of a step that must work (eager's own); its failure is the user's or the environment's."""
    if isinstance(reply, Failed):
        raise_user_error(reply)
    return reply


def _first_call(built: Built) -> Measurement:
    return Measurement(
        cold_s=built.cold_s, cold_cache=built.cold_cache, cold_cpu_s=built.cpu_s, compiler_runs=built.compiler_runs
    )
