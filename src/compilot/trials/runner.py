"""Runner: where candidates are tried and timed. One small protocol; `local.py` is the one for this machine.

In: a workload, then jobs, races and confirmations, all of them plain data without callbacks. Out: trials and samples.
A race is given trials, whose files are named by digest, and `fetch` brings those of one trial into the run directory:
a runner elsewhere can speak it. What still is a path of this machine is in the shipment (the target, live objects).
Builds may overlap, and then their cold time carries a doubt; timing never does.
A context manager: its end is the end of everything that it started. `compilot.testing.FakeRunner` is the fake.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from compilot.diagnose.report_records import DoctorReport
from compilot.records import (
    Candidate,
    Diagnosis,
    Fingerprint,
    Measurement,
    ProcessSamples,
    Race,
    Shipment,
    State,
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


class RaceRules(NamedTuple):
    """How long a race goes on."""

    looks: tuple[int, ...]  # at so many rounds; the last one is the end
    half_width: float | None = None  # narrow enough to stop at a look; None: on to the last one
    until_sorted: bool = False  # stop as well at a look where the fastest is shown faster than every other
    for_s: float = math.inf
    purpose: str = "race"
    batch: int | None = None  # samples of a call, where the workload declares the dimension; None: the examples' own


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
        """How many jobs may be submitted at once."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take these jobs."""

    def completed(self) -> Iterator[Trial]:
        """The trials of the submitted jobs, one after another; whatever happened is the trial's story."""

    def keep(self, ids: Sequence[str]) -> None:
        """These candidates will race: what they have running may stay, the rest may go."""

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """Interleaved rounds over eager, eager again where there is room, and the candidates. Raises ArmLost."""

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """The same in one set of fresh processes that load the trials' files. Raises ArmLost."""

    def built_alone(self, trial: Trial, limit_s: float) -> Trial:
        """The trial with the cold time of one more build that has the machine; as it is where that fails."""

    def fetch(self, trial: Trial) -> None:
        """Have the trial's files in the run directory, as their digests say."""


def arm_ids(eager: str, trials: Sequence[Trial], with_aa: bool) -> tuple[str, ...]:
    """The columns of a race: eager, eager again, the candidates."""
    return (eager, *([eager] if with_aa else []), *(t.candidate.id for t in trials))
