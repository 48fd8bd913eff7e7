"""What a check writes down: one `CheckReport` per check, one `Baseline` per stored measurement.

In: nothing. Out: frozen records; the same JSON is `check.json`, `--json` and what every other form of the result is
made from. Covered: the shape of the data, and what a verdict means for the exit code. Not covered: how it is found.
"""

from __future__ import annotations

import enum

from compilot.records import Finding, MachineFingerprint, ProcessSamples, Record, SourceCommit
from compilot.trials.protocol import ArmFacts

CHECK_SCHEMA = 1  # raised when an old reader could misread a new file
BASELINE_SCHEMA = 1


class GateVerdict(enum.StrEnum):
    """What came of one metric, or of a whole check."""

    PASS = "pass"
    SLOWER = "slower"  # a time: shown in two races
    WORSE = "worse"  # something else than a time
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not-measured"

    @property
    def is_red(self) -> bool:
        """Whether it fails the check."""
        return self in (GateVerdict.SLOWER, GateVerdict.WORSE)


EXIT_CODES = {
    GateVerdict.PASS: 0,
    GateVerdict.SLOWER: 1,
    GateVerdict.WORSE: 1,
    GateVerdict.INCONCLUSIVE: 0,  # with a warning
    GateVerdict.NOT_MEASURED: 2,
}


class MetricResult(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One metric of one arm, base against head."""

    metric: str  # "latency", "memory", "graph breaks", ...
    arm: str  # "eager", "torch.compile", or the plan's candidate
    verdict: GateVerdict
    because: str  # one sentence
    unit: str  # "s", "bytes", "samples/s", "" for a count
    base: float | None = None
    head: float | None = None
    change: float | None = None  # relative, above 0: head needs more (of throughput: does more); None: not measured
    low: float | None = None  # 95 % interval of the change; None: there is none, or it is compared exactly
    high: float | None = None
    margin: float | None = None  # a change up to here is none
    mde: float | None = None  # smallest change that would have been red, 4 times out of 5; 0: compared exactly
    races: int = 0  # that it was measured in


class SideInfo(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one side is."""

    what: str  # "main (1a2b3c4)", "the working tree", "torch 2.12.0 (Python 3.11.7)"
    commit: SourceCommit | None = None
    torch: str = ""
    python: str = ""


class RaceSamples(Record, frozen=True, kw_only=True):
    """The raw samples of one race."""

    columns: tuple[str, ...]  # "base eager", "base eager again", "head eager", ...
    processes: tuple[ProcessSamples, ...]
    load: str = ""


class PlacedFinding(Record, frozen=True, kw_only=True):
    """A finding of the doctor in the head's code."""

    finding: Finding
    is_new: bool | None = None  # the base does not have it; None: nobody looked there


class CheckReport(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What came of a check."""

    schema: int
    compilot: str  # version that wrote it
    created: str  # ISO 8601, UTC
    target: str
    label: str  # the model's class
    verdict: GateVerdict
    because: str  # one sentence
    base: SideInfo
    head: SideInfo
    metrics: tuple[MetricResult, ...]
    notes: tuple[str, ...]
    findings: tuple[PlacedFinding, ...]  # of the doctor, where it was asked
    races: tuple[RaceSamples, ...]
    wall_s: float
    budget_s: float
    machine: MachineFingerprint | None = None

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return EXIT_CODES[self.verdict]


class StoredAnswers(Record, frozen=True, kw_only=True):
    """Answers of the base, so that numbers can be compared later; only small ones are kept."""

    data: str  # of the file that an arm wrote: base64 of zlib
    weights_sha256: str  # of the weights that gave them


class Baseline(Record, frozen=True, kw_only=True):
    """One side, measured and stored."""

    schema: int
    compilot: str
    created: str
    target: str  # as the arms open it, with an absolute path
    label: str
    callers: int = 1  # threads that called at once
    machine_id: str  # digest: times are compared on this very machine only
    machine: MachineFingerprint
    commit: SourceCommit | None = None
    facts: dict[str, tuple[ArmFacts, ...]]  # by arm: one for each set of processes
    call_s: dict[str, tuple[float, ...]]  # by arm: the median of each set
    pairs: int  # batches behind each of them
    answers: StoredAnswers | None = None  # None: too large to keep, or the model does not repeat itself
