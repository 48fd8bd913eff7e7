"""What parent and worker say to each other. In: requests, one JSON line each. Out: one reply per request, same id.

The pipe is a pair of file descriptors of its own, so nothing the model prints can corrupt it. The protocol is versioned
and speaks of files by folder and digest, so that a runner on another machine can speak it too.
"""

from __future__ import annotations

import enum

import msgspec

from compilot.diagnose.report_records import DoctorReport
from compilot.records import (
    ArtifactFile,
    CallSizes,
    Candidate,
    Check,
    Diagnosis,
    DimRange,
    Fingerprint,
    Golden,
    Guard,
    IndexFacts,
    Parameter,
    Plan,
    Record,
    Reference,
    Shipment,
    State,
    WarmUp,
    WorkloadRef,
)

PROTOCOL = 1


class Request(Record, frozen=True, kw_only=True, tag=True):
    """Base of what the parent asks; the pipe numbers it."""

    id: int = 0


class Open(Request, frozen=True, kw_only=True):
    """Load the workload and apply the process settings of the candidate."""

    protocol: int
    shipment: Shipment
    candidate: Candidate
    workspace: str


class Inspect(Request, frozen=True, kw_only=True):
    """Run eager, look at the model, write the references into a folder."""

    references: str
    without: tuple[str, ...] = ()  # cases that ended eager's process


class PrepareToolchain(Request, frozen=True, kw_only=True):
    """Compile something trivial: builds the shared header and shows whether the compiler works."""


class Build(Request, frozen=True, kw_only=True):
    """Make the candidate's callable and answer the first call."""

    known_code: dict[str, str] = {}  # code digest -> id of the candidate that has it already
    reuse: bool = False  # the files of an earlier build are in the workspace: load them, as the run plane would
    indices: IndexFacts = IndexFacts()  # as eager's process found them
    shared: str = ""  # folder of forms that candidates of this run have in common; "": the build is on its own


class Verify(Request, frozen=True, kw_only=True):
    """Check the callable against the references."""

    references: str
    reference: Reference
    tolerance: float | None = None  # of a lower precision; None: the strict limits


class MakeGolden(Request, frozen=True, kw_only=True):
    """Keep the example call and eager's answer to it in files of a folder, for a bundle."""

    folder: str
    inputs: str  # file names in the folder
    outputs: str


class SaveWeights(Request, frozen=True, kw_only=True):
    """Write the model's weights as safetensors."""

    path: str


class UseBatch(Request, frozen=True, kw_only=True):
    """From here on work on calls with so many samples; a warm-up must follow."""

    batch: int | None  # None: the workload's own examples


class Warm(Request, frozen=True, kw_only=True):
    """Call until steady, then calibrate the batch."""

    for_s: float  # at the most
    callers: int = 1  # that call at the same time, from here on


class TimeBatch(Request, frozen=True, kw_only=True):
    """Time one calibrated batch, with the callers of the warm-up."""


class TimeCalls(Request, frozen=True, kw_only=True):
    """Time single calls, for the tails, as each caller of the warm-up sees them."""

    calls: int
    for_s: float  # at the most


class ExamineStep(enum.StrEnum):
    """The steps of the doctor, in order; each is worth a line of progress."""

    EAGER = "eager"
    CAPTURE = "capture"
    WEIGH = "weigh"
    DRIVE = "drive"
    REPORT = "report"


class Examine(Request, frozen=True, kw_only=True):
    """Do one step of the doctor's examination; the last one answers with the report."""

    step: ExamineStep
    shapes: tuple[CallSizes, ...] = ()  # the calls to drive the model with, in place of the workload's; read once
    ranges: dict[str, DimRange] = {}  # the smallest and largest size of the whole trace, by name; read once


class ExamineTimes(Request, frozen=True, kw_only=True):
    """Add everything about time to a report: what bounds the work, data loading, a cold compile by stage."""

    report: DoctorReport
    plan: Plan | None = None


class Quit(Request, frozen=True, kw_only=True):
    """End in order."""


TrialRequest = Open | Inspect | PrepareToolchain | Build | Verify | UseBatch | Warm | TimeBatch | TimeCalls
DoctorRequest = Examine | ExamineTimes
PackingRequest = MakeGolden | SaveWeights
AnyRequest = TrialRequest | DoctorRequest | PackingRequest | Quit


class Reply(Record, frozen=True, kw_only=True, tag=True):
    """Base of what the worker answers; it gets the number of its request."""

    id: int = 0


class Done(Reply, frozen=True, kw_only=True):
    """Nothing to tell."""


class Failed(Reply, frozen=True, kw_only=True):
    """The step failed; the worker lives."""

    state: State
    reason: str
    error: str = ""  # name of the compilot error class, when the user must be told


class Opened(Reply, frozen=True, kw_only=True):
    ref: WorkloadRef
    notes: tuple[str, ...] = ()
    calls_per_unit: int = 1
    imports: tuple[str, ...] = ()  # installed modules that opening it imported, in their order


class Inspected(Reply, frozen=True, kw_only=True):
    diagnosis: Diagnosis
    reference: Reference
    fingerprint: Fingerprint


class ToolchainReady(Reply, frozen=True, kw_only=True):
    wall_s: float
    problem: str | None = None


class Built(Reply, frozen=True, kw_only=True):
    cold_s: float
    cold_cache: bool
    cpu_s: float
    compiler_runs: int
    shared_s: float = 0.0  # of cold_s: what another candidate of this run had made already
    for_others_s: float = 0.0  # of cold_s: what others of this run need not make again
    guard: Guard
    artifacts: tuple[ArtifactFile, ...] = ()
    code_sha256: str | None = None
    same_as: str | None = None  # the build was stopped: this is the same program as that candidate
    frozen_weights: bool = False
    weights_sha256: str | None = None  # of the weights in the artifacts
    fallbacks: tuple[str, ...] = ()  # the example call itself did not take the fast path, and why


class Verified(Reply, frozen=True, kw_only=True):
    check: Check


class GoldenMade(Reply, frozen=True, kw_only=True):
    golden: Golden
    parameters: tuple[Parameter, ...] = ()
    weights_sha256: str = ""


class WeightsSaved(Reply, frozen=True, kw_only=True):
    weights_sha256: str


class Warmed(Reply, frozen=True, kw_only=True):
    warm_up: WarmUp
    calls_per_batch: int
    call_s: float
    rss_bytes: int
    peak_rss_bytes: int
    samples_per_call: int | None = None
    request_s: float | None = None  # of one request, where requests are timed
    model_s: float | None = None  # of these: inside the model


class BatchTimed(Reply, frozen=True, kw_only=True):
    per_call_s: float


class Examined(Reply, frozen=True, kw_only=True):
    report: DoctorReport | None = None


class CallsTimed(Reply, frozen=True, kw_only=True):
    call_s: tuple[float, ...]
    peak_rss_bytes: int


AnyReply = (
    Done
    | Failed
    | Opened
    | Inspected
    | Examined
    | ToolchainReady
    | Built
    | Verified
    | GoldenMade
    | WeightsSaved
    | Warmed
    | BatchTimed
    | CallsTimed
)

decode_request = msgspec.json.Decoder(AnyRequest).decode
decode_reply = msgspec.json.Decoder(AnyReply).decode
