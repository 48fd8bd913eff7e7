"""One node in a run: its start, and what it is at. In: a link, an order. Out: futures of its start, trials with files.

Covered: the start (code, model, eager's worker, the look at eager, eager's own trial where it is not the first node), a
trial whose files come to the run directory before it counts, deaths that may be the node's own: only a node that still
answers afterwards may blame a candidate. Not covered: which node does what (runner.py).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from compilot.artifacts.rundir import RunDir
from compilot.cluster import moving
from compilot.cluster.alike import Likeness
from compilot.cluster.facts import FileFact, Link, Order, Tried
from compilot.cluster.nodes import bring_code
from compilot.engines.eager.build import EAGER
from compilot.errors import NodeLost
from compilot.files import atomic
from compilot.records import Race, State, Trial
from compilot.trials.runner import ArmLost, Capacity, FreshSet, Inspection, Job, Model, RaceRules, SetRules

GRACE_S = 3.0  # a machine that is being shut down ends our processes one by one; Ray notices the worker's within two
SIGN_LIMIT_S = 30.0
EVENTS_S = 20.0


class Member:
    """A node that works for a run."""

    def __init__(self, link: Link, run_dir: RunDir, order: Order, exchange: str | None, *, grace_s: float) -> None:
        self.link = link
        self.name = link.node.name
        self.opened: Future[Model] = Future()
        self.inspected: Future[Inspection] = Future()
        self.eager: Future[Trial] = Future()  # never of the first node, whose eager trial is the run's own
        self.likeness: Likeness | None = None  # None: not known yet
        self.capacity: Capacity | None = None
        self.lost = ""  # why
        self._run_dir = run_dir
        self._order = order
        self._exchange = exchange
        self._grace_s = grace_s

    # ------------------------------------------------------------------------------------------------- its start

    def start(self, *, first: bool, eager_limit_s: float) -> None:
        """Open the model there, in a thread of its own; first: the run's own look and eager's trial come from it."""
        steps = threading.Thread(target=self._start, args=(first, eager_limit_s), daemon=True)
        steps.name = f"compilot-{self.name}"
        steps.start()

    def _start(self, first: bool, eager_limit_s: float) -> None:
        try:
            self._prepare()
            self.opened.set_result(self.link.do("open", self._order._replace(doctor=first)).result())
            self.inspected.set_result(self.link.do("inspect").result())
            self.capacity = self.link.do("capacity").result()
            if not first:
                tried: Tried = self.link.do("trial", Job(EAGER, eager_limit_s)).result()
                self.capacity = tried.capacity
                self.eager.set_result(tried.trial)
        except BaseException as problem:
            for step in (self.opened, self.inspected, self.eager):
                if not step.done():
                    step.set_exception(problem)

    def _prepare(self) -> None:
        """The user's code, and the model where it came as live objects."""
        bring_code(self.link, self._order.folders, self._exchange)
        shipment = self._order.shipment
        if self._order.live:
            assert shipment.payload is not None
            assert shipment.weights is not None
            paths = [Path(shipment.payload), Path(shipment.weights)]
            folder = paths[0].parent
            facts = [moving.fact(folder, path) for path in paths]
            moving.bring(self.link, "live", folder, facts, self._exchange)

    # ------------------------------------------------------------------------------------------------- its work

    def try_one(self, job: Job) -> Trial:
        """A trial there; its files are in the run directory when it is over."""
        tried: Tried = self.link.do("trial", job).result()
        self.capacity = tried.capacity
        self._must_live_after(tried.trial.state, tried.trial.reason)
        self._keep_log(tried)
        if tried.trial.artifacts:
            candidate_id = job.candidate.id
            place = f"run/{RunDir.artifacts_dir(candidate_id)}"
            moving.take(self.link, place, self._run_dir.workspace(candidate_id), tried.files, self._exchange)
        return tried.trial

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """A race there."""
        race: Race = self._raced("race", trials, rules)
        return race

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """One set of fresh processes there."""
        one: FreshSet = self._raced("confirm", trials, rules)
        return one

    def _raced(self, how: str, trials: Sequence[Trial], rules: Any) -> Any:
        for trial in trials:
            self.has(trial)
        try:
            return self.link.do(how, tuple(trials), rules).result()
        except ArmLost as lost:
            self._must_live_after(lost.state, lost.reason)
            raise

    def has(self, trial: Trial) -> None:
        """Bring a trial's files to the node, unless it has them."""
        if not trial.artifacts:
            return
        folder = self._run_dir.workspace(trial.candidate.id)
        files: tuple[FileFact, ...] = moving.listed(folder)
        place = f"run/{RunDir.artifacts_dir(trial.candidate.id)}"
        moving.bring(self.link, place, folder, files, self._exchange)

    def _must_live_after(self, state: State, reason: str) -> None:
        """NodeLost where the node dies with what a candidate seems to have died of."""
        killed = state is State.INFEASIBLE and "SIGKILL" in reason
        if state is State.CRASHED or killed:
            time.sleep(self._grace_s)
            try:
                self.link.now("ping").result(SIGN_LIMIT_S)
            except TimeoutError as problem:
                raise NodeLost(f"node {self.name} does not answer any more.") from problem

    def _keep_log(self, tried: Tried) -> None:
        if tried.log and tried.trial.stderr_log:
            path = self._run_dir.path / tried.trial.stderr_log
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic.write_bytes(path, tried.log)
