"""Runner: where candidates are tried and timed. One small protocol; `local.py` is the one for this machine.

In: a workload, then jobs, races and confirmations, all of them plain data without callbacks. Out: trials and samples.
A race is given trials, whose files are named by digest, and `fetch` brings those of one trial into the run directory:
a runner elsewhere can speak it. What still is a path of this machine is in the shipment (the target, live objects).
Builds may overlap, and then their cold time carries a doubt; timing never does.
A context manager: its end is the end of everything that it started. `compilot.testing.FakeRunner` is the fake.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from compilot.diagnose.report_records import DoctorReport
from compilot.errors import InputError
from compilot.records import (
    Candidate,
    Diagnosis,
    Fingerprint,
    HostLease,
    Measurement,
    NodeLine,
    Padding,
    PaddingLeak,
    PaddingProof,
    PlanEntry,
    ProcessSamples,
    Race,
    Shipment,
    SizeCount,
    State,
    Traffic,
    Trial,
    WorkloadRef,
)

TAIL_S = 12.0  # 660 calls of an 18 ms model
TAIL_CALLS = 660  # an honest p99 needs about this many
BESIDE = "built at the same time as other builds"  # a doubt: the cold time is not that of a build that has the machine


class Job(NamedTuple):
    """One candidate to try."""

    candidate: Candidate
    limit_s: float  # for all of it, as far as a step under way can be told
    known_code: Mapping[str, str] = {}  # digest of each program seen so far -> id of the candidate that has it
    best_ratio: float | None = None  # the best speed-up over eager so far; who is far behind it is timed less


class Model(NamedTuple):
    """What was opened."""

    ref: WorkloadRef
    notes: tuple[str, ...] = ()


class Inspection(NamedTuple):
    """What is known before anything is tried."""

    diagnosis: Diagnosis
    fingerprint: Fingerprint
    compiler_tried_s: float | None = None  # how long the C++ compiler's trial took; None: it was not tried yet
    doctor: DoctorReport | str | None = None  # what it saw, or why nothing; None: nobody asked


class Capacity(NamedTuple):
    """What the machine has room and time for."""

    workers: int  # that may live at once
    open_s: float  # start of one more: imports and the model
    forked: bool = False  # workers have torch's compiler from the start
    waited_s: float = 0.0  # so far, until other runs let go of the machine: no run pays for it


class RaceRules(NamedTuple):
    """How long a race goes on."""

    looks: tuple[int, ...]  # at so many rounds; the last one is the end
    half_width: float | None = None  # narrow enough to stop at a look; None: on to the last one
    until_sorted: bool = False  # stop as well at a look where the fastest is shown faster than every other
    for_s: float = math.inf
    purpose: str = "race"
    batch: int | None = None  # samples of a call, where the workload declares the dimension; None: the examples' own
    sizes: Mapping[str, int] = {}  # of a call, by NAME:DIM; {}: the examples' own


class SetRules(NamedTuple):
    """How one more set of fresh processes is timed."""

    pairs: int
    number: int = 0  # of this set: decides the order of the rounds
    for_s: float = math.inf
    tail_s: float = TAIL_S  # for the single calls of each arm
    purpose: str = "confirm"  # what progress calls it


class FreshSet(NamedTuple):
    """What one set of fresh processes gave."""

    samples: ProcessSamples
    with_aa: bool
    warm: dict[str, Measurement]  # first call and single calls of each arm, by candidate
    load: str = ""  # what was odd on the machine meanwhile
    leases: tuple[HostLease, ...] = ()
    machine: str = ""  # which one; sets of two machines are not put together. "": there is only one


class PaddingSeen(NamedTuple):
    """What a built program does with padded calls."""

    leak: PaddingLeak | None
    pad_s: float = 0.0  # of padding a call and cutting its answer back


class Arm(NamedTuple):
    """A whole plan that answers the requests of a trace."""

    id: str  # in the race
    entries: tuple[PlanEntry, ...]  # none: eager
    folder: Path | None = None  # of the plan: where the entries' files are; None: the run directory


class ReplayRules(NamedTuple):
    """How one more set of fresh processes answers the requests of a trace."""

    requests: int
    number: int = 0  # of this set: decides the order of the arms
    for_s: float = math.inf
    with_aa: bool = True  # eager takes part twice
    purpose: str = "replay"  # what progress calls it


class ArmSeen(NamedTuple):
    """What an arm did besides its seconds."""

    loaded_s: float  # opening its engines and answering each size once
    fast_share: float | None  # of the requests, that its programs answered; None: it is eager
    recompiles: int  # after its warm-up
    peak_rss_bytes: int
    fallbacks: tuple[str, ...] = ()  # why eager answered requests in its place


class FreshReplay(NamedTuple):
    """What one set of fresh processes gave."""

    samples: ProcessSamples  # a round is a request
    with_aa: bool
    seen: dict[str, ArmSeen]  # by arm
    load: str = ""


class ArmLost(Exception):
    """A candidate that passed its trial failed in a race: the race must be run again without it."""

    def __init__(self, owner: str, state: State, reason: str) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason


class Runner(Protocol):
    """What `tuning` needs of whoever runs its candidates."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker; at once where an error is under way."""

    def open(self, workload: Shipment) -> Model:
        """Start eager's own worker, which stays for the whole run. What is not timed may begin beside it."""

    def inspect(self) -> Inspection:
        """Look at the model, and make what every candidate is held against; the diagnosis has the machine's load."""

    @property
    def capacity(self) -> Capacity:
        """As known so far: eager's trial tells how large the model is."""

    def free_slots(self) -> int:
        """How many jobs may be submitted now; none where all that could take one are at work."""

    @property
    def pending(self) -> Collection[str]:
        """Ids of candidates that were submitted and whose trials `completed` has not given yet."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take these jobs."""

    def completed(self) -> Iterator[Trial]:
        """Trials of submitted jobs, one after another; whatever happened is the trial's story.

        It may end while others are pending, when there is a slot for another job; not before it has given one.
        """

    def give_up(self) -> bool:
        """End what is being tried, so that `completed` returns soon; False where that cannot be done.

        Called by a signal's handler, at any moment.
        """

    def keep(self, ids: Sequence[str]) -> None:
        """These candidates will race: what they have running may stay, the rest may go."""

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """Interleaved rounds over eager, eager again where there is room, and the candidates. Raises ArmLost."""

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """The same in one set of fresh processes that load the trials' files. Raises ArmLost."""

    def built_alone(self, trial: Trial, limit_s: float) -> Trial:
        """The trial with the cold time of one more build that has the machine; as it is where that fails."""

    def read_traffic(self, counts: Sequence[SizeCount], *, recorded: bool = False) -> Traffic:
        """What the sizes of a trace mean for the model; recorded: `record` wrote it."""

    def prove_padding(self) -> PaddingProof:
        """Which sizes of the model's calls may be padded."""

    def check_padding(self, trial: Trial, padding: Padding) -> PaddingSeen:
        """The same question to the program of a trial, whose size is where the padding ends."""

    def over_requests(self, trials: Sequence[Trial], rules: ReplayRules) -> ProcessSamples:
        """Eager and the programs of these trials over requests of the trace, in this order. Raises ArmLost."""

    def replay(self, arms: Sequence[Arm], rules: ReplayRules) -> FreshReplay:
        """Eager and these plans in fresh processes, over the same requests of the trace. Raises ArmLost."""

    def over_many_steps(self, trial: Trial, limit_s: float) -> Trial:
        """The trial of a training with its losses over many steps beside eager's; wrong where they leave its band.

        limit_s: for eager's own, of which there are several runs.
        """

    def fetch(self, trial: Trial) -> None:
        """Have the trial's files in the run directory, as their digests say."""

    def nodes(self) -> Sequence[NodeLine]:
        """The machines of a cluster, as far as something is known of them; none where there is only this one."""


class WithoutTraces:
    """For runners that cannot replay a trace: whole plans are raced in processes of one machine."""

    def read_traffic(self, counts: Sequence[SizeCount], *, recorded: bool = False) -> Traffic:
        """Refused, before anything is tried."""
        raise one_machine()

    def prove_padding(self) -> PaddingProof:
        """Refused."""
        raise one_machine()

    def check_padding(self, trial: Trial, padding: Padding) -> PaddingSeen:
        """Refused."""
        raise one_machine()

    def over_requests(self, trials: Sequence[Trial], rules: ReplayRules) -> ProcessSamples:
        """Refused."""
        raise one_machine()

    def replay(self, arms: Sequence[Arm], rules: ReplayRules) -> FreshReplay:
        """Refused."""
        raise one_machine()


def one_machine() -> InputError:
    """What a trace on a cluster is refused with."""
    return InputError("a trace is served by a run on one machine; leave out the cluster (on), or the trace.")


def arm_ids(eager: str, trials: Sequence[Trial], with_aa: bool) -> tuple[str, ...]:
    """The columns of a race: eager, eager again, the candidates."""
    return (eager, *([eager] if with_aa else []), *(t.candidate.id for t in trials))
