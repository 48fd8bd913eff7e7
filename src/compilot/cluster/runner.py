"""RayRunner: the Runner over the nodes of a Ray cluster, each of which wraps the runner of one machine.

In: an address, a workload, jobs. Out: what every Runner gives. Nodes with equal fingerprints start side by side; the
first of them looks at the model, has eager's trial, the races and the confirmation. Others take candidates as soon as
eager against itself across the nodes passes (alike.py). Files of a trial are in the run directory before the trial
counts, so a run that is resumed finds them whatever became of the nodes.
Covered: a lost node: its jobs go to another, its races begin again elsewhere, nothing of it is a candidate's failure;
a lost first node: another one takes its place. Not covered: the nodes (nodes.py), a node's steps (member.py).
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from compilot.artifacts.rundir import RunDir
from compilot.cluster import alike, code
from compilot.cluster.facts import Crew, Link, Order
from compilot.cluster.member import GRACE_S, Member
from compilot.cluster.nodes import PLACE_S, Cluster
from compilot.cluster.watching import Watching
from compilot.errors import EnvironmentProblem, NodeLost, WorkerError
from compilot.progress import Observer
from compilot.records import Fingerprint, MachineFingerprint, NodeLine, Race, Shipment, Trial, encode
from compilot.trials.runner import Capacity, FreshSet, Inspection, Job, Model, RaceRules, SetRules, WithoutTraces
from compilot.tuning.options import TuneOptions

LOOK_S = 0.5
RECRUIT_S = 3.0  # between two looks at who joined
MOST_LOSSES = 3  # nodes that one candidate may be on when they are lost, before the run ends

T = TypeVar("T")


class RayRunner(WithoutTraces):
    """Runs trials on the nodes of a cluster, races and confirmations on one of them."""

    def __init__(
        self,
        address: str = "auto",
        run_dir: RunDir | None = None,
        options: TuneOptions | None = None,
        observer: Observer | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        exchange: str | None = None,
        like: MachineFingerprint | None = None,
        crew: Crew | None = None,
        wait_s: float = PLACE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """address: whatever `ray.init` takes; "ray" means "auto". labels: only nodes with all of these.

        run_dir: where the files of trials go; None: a temporary folder. exchange: a URL that all machines reach, for
        large files. like: the machine of a run that is resumed. crew: nodes of another kind, in place of Ray's.
        """
        self._temporary = tempfile.TemporaryDirectory(prefix="compilot-run-") if run_dir is None else None
        self.run_dir = run_dir or RunDir(Path(self._temporary.name if self._temporary else ""))
        self.options = options or TuneOptions()
        self.observer = observer or Observer()
        self._address = address
        self._labels = dict(labels or {})
        self._exchange = exchange
        self._like = like
        self._crew = crew
        self._wait_s = wait_s
        self._grace_s = grace_s
        self._order: Order | None = None
        self._members: dict[str, Member] = {}  # by id of the node; those that were lost, too
        self._first: Member | None = None
        self._fingerprint: Fingerprint | None = None
        self._eager: Trial | None = None
        self._waiting: list[Job] = []
        self._running: dict[Future[Trial], tuple[Member, Job]] = {}
        self._losses = Counter[str]()  # by candidate
        self._said: set[str] = set()
        self._recruited_s = time.monotonic()
        self._pool = ThreadPoolExecutor(64, thread_name_prefix="compilot-trial")
        self._watching = Watching(self.observer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker of this run, on every node."""
        self._watching.close()
        try:
            if self._crew is not None:
                self._crew.close()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            if self._temporary is not None:
                self._temporary.cleanup()

    # ------------------------------------------------------------------------------------------------- eager first

    def open(self, workload: Shipment) -> Model:
        """Place a worker on every node, and open the model on those that are alike; the first one's answer counts."""
        if self._crew is None:
            self._crew = Cluster(self._address, labels=self._labels, wait_s=self._wait_s)
        live = workload.payload is not None
        self._order = Order(workload, self.options, code.folders_of(workload, [self.run_dir.path]), live)
        self._begin_on(self._one_kind(self._crew.links()))
        return self._on_first(lambda member: member.opened.result())

    def _one_kind(self, links: Sequence[Link]) -> list[Link]:
        """The nodes of one kind of machine: that of the resumed run, or the kind that there is most of."""
        groups: dict[bytes, list[Link]] = {}
        for link in links:
            groups.setdefault(encode(link.node.fingerprint), []).append(link)
        if self._like is not None:
            alike_ = [link for link in links if alike.same_kind(link.node.fingerprint, self._like)]
            if not alike_:
                there = alike.machine_words(self._like, links[0].node.fingerprint)
                raise EnvironmentProblem(
                    f"no node at {self._address} is a machine like the one that this run was begun on ({there}); "
                    "add such a node, or start a new run."
                )
            groups = {key: [link for link in group if link in alike_] for key, group in groups.items()}
        largest = max(groups.values(), key=len)  # of equal ones the first by name
        for link in links:
            if link not in largest:
                self._say(f"{link.node.name} is not used: {_other_kind(largest[0], link)}")
        return largest

    def _begin_on(self, links: Sequence[Link]) -> None:
        """Open the model on these nodes, side by side; the first of a run has its look and eager's trial."""
        assert self._order is not None
        for link in links:
            member = Member(link, self.run_dir, self._order, self._exchange, grace_s=self._grace_s)
            self._members[link.node.id] = member
            self._watching.listen(member)
            first = self._first is None
            if first:
                self._first = member
            member.start(first=first, eager_limit_s=self.options.budget_s)

    def inspect(self) -> Inspection:
        """What the first node saw."""
        seen = self._on_first(lambda member: member.inspected.result())
        self._fingerprint = seen.fingerprint
        return seen

    # ------------------------------------------------------------------------------------------------------ trials

    @property
    def capacity(self) -> Capacity:
        """Of the first node, where the races are."""
        member = self._first
        return (member.capacity if member is not None else None) or Capacity(workers=99, open_s=5.0)

    def free_slots(self) -> int:
        """One for each node that may take candidates and has none."""
        self._must_have_first()
        self._judge()
        return max(0, len(self._free()) - len(self._waiting))

    @property
    def pending(self) -> list[str]:
        """Those that wait or are under way."""
        return [job.candidate.id for job in (*self._waiting, *(job for _, job in self._running.values()))]

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take these jobs, and begin those that there is a node for."""
        ids = [*self.pending, *(job.candidate.id for job in jobs)]
        if len(set(ids)) < len(ids):
            raise WorkerError("a candidate was submitted twice at once.")
        self._waiting += jobs
        self._assign()

    def completed(self) -> Iterator[Trial]:
        """Trials as they end; after one, or when another node joins, the caller may submit more."""
        while self._waiting or self._running:
            self._must_have_first()
            self._recruit()
            if self._judge():
                return
            self._assign()
            done, _ = wait(self._running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            ended = [trial for future in done if (trial := self._ended(future)) is not None]
            yield from ended
            if ended:
                return

    def _free(self) -> list[Member]:
        """Nodes that could begin something now, the first one before others."""
        busy = {member.name for member, _ in self._running.values()}
        usable = [member for member in self._members.values() if self._may_try(member) and member.name not in busy]
        return sorted(usable, key=lambda member: member is not self._first)

    def _may_try(self, member: Member) -> bool:
        if member.lost:
            return False
        return member is self._first or (member.likeness is not None and member.likeness.used)

    def _assign(self) -> None:
        free = self._free()
        for job in list(self._waiting):
            able = [member for member in free if member is self._first or not job.candidate.is_eager]
            if able:
                member = able[0]
                free.remove(member)
                self._waiting.remove(job)
                self._running[self._pool.submit(member.try_one, job)] = (member, job)
                self._watching.gave(member, job.candidate)

    def _ended(self, future: Future[Trial]) -> Trial | None:
        """The trial; None: its node was lost, and the job waits for another one."""
        member, job = self._running.pop(future)
        self._watching.idle(member)
        try:
            trial = future.result()
        except NodeLost as lost:
            self._lose(member, lost)
        except EnvironmentProblem as problem:  # eager's own process died there: nothing can be timed there any more
            self._lose(member, problem)
        else:
            if trial.candidate.is_eager:
                self._eager = trial
            return trial
        self._waiting.insert(0, job)
        self._losses[job.candidate.id] += 1
        if self._losses[job.candidate.id] >= MOST_LOSSES:
            raise EnvironmentProblem(
                f"{MOST_LOSSES} nodes were lost while they tried '{job.candidate.label}' ({member.lost}); look at"
                f" these machines, then run 'compilot tune --resume {self.run_dir}'."
            )
        return None

    def built_alone(self, trial: Trial, limit_s: float) -> Trial:
        """One more cold build, on the first node."""

        def build(member: Member) -> Trial:
            built: Trial = member.link.do("built_alone", trial, limit_s).result()
            return built

        return self._on_first(build)

    def over_many_steps(self, trial: Trial, limit_s: float) -> Trial:
        """Losses over many steps, on the first node."""

        def train(member: Member) -> Trial:
            seen: Trial = member.link.do("over_many_steps", trial, limit_s).result()
            return seen

        return self._on_first(train)

    def fetch(self, trial: Trial) -> None:
        """They came with the trial."""
        if trial.artifacts and (missing := lacking_artifacts(self.run_dir, trial)):
            raise WorkerError(
                f"{missing[0]} of '{trial.candidate.label}' is missing in {self.run_dir}; resume the run."
            )

    def give_up(self) -> bool:
        """Not on a cluster: other machines go on with what they have."""
        return False

    def keep(self, ids: Sequence[str]) -> None:
        """Workers of these stay on the first node, all others go."""
        for member in self._members.values():
            if not member.lost and self._may_try(member):
                with contextlib.suppress(NodeLost):  # the next one who asks it hears of that
                    member.link.do("keep", tuple(ids) if member is self._first else ()).result()

    # ------------------------------------------------------------------------------------------------------- races

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """On the first node; begun again elsewhere where that is lost."""
        return self._on_first(lambda member: member.race(trials, rules))

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """The same in fresh processes."""
        return self._on_first(lambda member: member.confirm(trials, rules))

    # ------------------------------------------------------------------------------------------------------- nodes

    def nodes(self) -> list[NodeLine]:
        """Those of which it is known whether they take candidates."""
        return [line for member in self._members.values() if (line := self._line(member)) is not None]

    def _line(self, member: Member) -> NodeLine | None:
        host, found = member.link.node.host, member.likeness
        if member.lost:
            return NodeLine(node=member.name, host=host, because=member.lost)
        if member is self._first:
            return NodeLine(node=member.name, host=host, used=True, because="it has the races and the confirmation")
        if found is None:
            return None
        return NodeLine(
            node=member.name, host=host, used=found.used, because=found.because, aa_low=found.low, aa_high=found.high
        )

    def _judge(self) -> bool:
        """Look at nodes that have started; True: one more may take candidates."""
        joined = False
        self._take_eager()
        for member in self._members.values():
            if member.lost or member is self._first or member.likeness is not None:
                continue
            if self._eager is None or self._fingerprint is None or not member.eager.done():
                continue
            problem = member.eager.exception()
            if isinstance(problem, NodeLost):
                self._lose(member, problem)
                continue
            if problem is not None:
                member.likeness = alike.Likeness(False, f"the model does not run there: {problem}")
            else:
                other = member.inspected.result().fingerprint
                member.likeness = alike.likeness(self._fingerprint, self._eager, other, member.eager.result())
            verb = "takes candidates, too" if member.likeness.used else "takes no candidates"
            self._say(f"{member.name} {verb}: {member.likeness.because}")
            joined = joined or member.likeness.used
        return joined

    def _take_eager(self) -> None:
        """Of a first node that came later: its eager trial of then is what others are compared with."""
        first = self._first
        if self._eager is None and first is not None and first.eager.done() and first.eager.exception() is None:
            self._eager = first.eager.result()

    def _on_first(self, work: Callable[[Member], T]) -> T:
        """Have the first node do something; where it is lost, the next one."""
        while True:
            member = self._must_have_first()
            try:
                return work(member)
            except NodeLost as lost:
                self._lose(member, lost)

    def _must_have_first(self) -> Member:
        """The first node; another one takes its place where it was lost. EnvironmentProblem where there is none."""
        if self._first is not None and not self._first.lost:
            return self._first
        end = time.monotonic() + self._wait_s
        while True:
            if (member := self._successor(end)) is not None:
                self._crown(member)
                self._say(f"{member.name} has the races and the confirmation from here on")
                return member
            if time.monotonic() >= end:
                why = "; ".join(told for member in self._members.values() if (told := self._why_not(member)))
                raise EnvironmentProblem(
                    f"no node is left that could go on ({why}); add one, then run"
                    f" 'compilot tune --resume {self.run_dir}'."
                )
            self._recruit()
            time.sleep(LOOK_S)

    def _why_not(self, member: Member) -> str:
        """Why a node could not take the first one's place; "": nobody knows."""
        if not member.lost and not member.inspected.done():
            return f"{member.name} has not opened the model within {self._wait_s:g} s"
        return member.lost

    def _crown(self, member: Member) -> None:
        """The first node from here on: the others are compared with its eager, no longer with that of a lost one."""
        self._first, self._eager = member, None
        for other in self._members.values():
            other.likeness = None
        self._judge()  # now: the next one to be lost may be this one

    def _successor(self, end: float) -> Member | None:
        """A node that has started, those that take candidates first; waits, until then, for one that is starting."""
        left = [member for member in self._members.values() if not member.lost]
        for member in sorted(left, key=_standing):
            try:
                problem = member.inspected.exception(max(0.0, end - time.monotonic()))
            except TimeoutError:
                continue
            if problem is None and member.inspected.result().fingerprint == (
                self._fingerprint or member.inspected.result().fingerprint
            ):
                return member
            if isinstance(problem, NodeLost):
                self._lose(member, problem)
            elif problem is not None and self._fingerprint is None:
                raise problem  # the model itself
        return None

    def _recruit(self) -> None:
        """Begin on nodes that joined, and on those where only the worker was lost; not too often."""
        assert self._crew is not None
        if time.monotonic() - self._recruited_s < RECRUIT_S:
            return
        self._recruited_s = time.monotonic()
        known = {key for key, member in self._members.items() if not member.lost}
        wanted = self._fingerprint.machine if self._fingerprint is not None else None
        links = [link for link in self._crew.joined() if link.node.id not in known]
        self._begin_on([one for one in links if wanted is None or alike.same_kind(one.node.fingerprint, wanted)])

    def _lose(self, member: Member, problem: BaseException) -> None:
        if member.lost:
            return
        member.lost = str(problem).rstrip(".")
        self._watching.forget(member)
        if self._crew is not None:
            self._crew.forget(member.link.node.id)
        self._say(f"{member.lost}; what it had not finished is done elsewhere")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.observer.note(text)


def _standing(member: Member) -> tuple[int, bool]:
    """Sorts by who should be the first: nodes like the last one, those not compared yet, those that differ."""
    unlike = 1 if member.likeness is None else 2 * (not member.likeness.used)
    return unlike, not member.inspected.done()


def _other_kind(first: Link, other: Link) -> str:
    told = alike.machine_words(first.node.fingerprint, other.node.fingerprint)
    return f"another machine than {first.node.name} ({told})"


def lacking_artifacts(run_dir: RunDir, trial: Trial) -> list[str]:
    """Files of a trial that are not in the run directory."""
    folder = run_dir.workspace(trial.candidate.id)
    return [one.name for one in trial.artifacts if not (folder / one.name).exists()]


def runner_on(
    address: str, labels: Mapping[str, str], exchange: str | None = None
) -> Callable[[RunDir, TuneOptions, Observer], RayRunner]:
    """What makes a run's runner over a cluster; a run that is resumed goes on with machines as it had."""

    def make(run_dir: RunDir, options: TuneOptions, observer: Observer) -> RayRunner:
        like = run_dir.header().fingerprint.machine if run_dir.holds_run else None
        return RayRunner(address, run_dir, options, observer, labels=labels, exchange=exchange, like=like)

    return make
