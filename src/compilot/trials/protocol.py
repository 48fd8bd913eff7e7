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
    Padding,
    PaddingLeak,
    PaddingProof,
    Parameter,
    Plan,
    PlanEntry,
    Record,
    Reference,
    Shipment,
    SizeCount,
    State,
    Traffic,
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


class MakeCurves(Request, frozen=True, kw_only=True):
    """Train eager for many steps, several times, and keep its losses beside the references."""

    references: str
    reference: Reference
    limit_s: float  # fewer steps where all of it would take longer
    lower: bool = False  # for candidates of a lower precision


class CheckCurve(Request, frozen=True, kw_only=True):
    """Train the candidate for as many steps and hold its losses against eager's."""

    references: str
    reference: Reference
    check: Check  # as found so far; with a tolerance: of a lower precision


class MakeGolden(Request, frozen=True, kw_only=True):
    """Keep the example call and eager's answer to it in files of a folder, for a bundle."""

    folder: str
    inputs: str  # file names in the folder
    outputs: str


class SaveWeights(Request, frozen=True, kw_only=True):
    """Write the model's weights as safetensors."""

    path: str


class UseBatch(Request, frozen=True, kw_only=True):
    """From here on work on calls with so many samples, or of these sizes; a warm-up must follow."""

    batch: int | None  # None: the workload's own examples
    sizes: dict[str, int] = {}  # by NAME:DIM, in place of a batch size


class MakeReference(Request, frozen=True, kw_only=True):
    """Write what candidates for other sizes of the example are held against."""

    references: str  # folder
    sizes: dict[str, int]


class ReadTraffic(Request, frozen=True, kw_only=True):
    """Say what the sizes of a trace mean for this model."""

    counts: tuple[SizeCount, ...]
    recorded: bool = False  # `record` wrote the trace
    requests: tuple[CallSizes, ...] = ()  # that are replayed
    indices: IndexFacts = IndexFacts()


class ProvePadding(Request, frozen=True, kw_only=True):
    """Find out which sizes may be padded."""


class CheckPadding(Request, frozen=True, kw_only=True):
    """Ask the built callable the same; the padding ends at the sizes that it was built for."""

    padding: Padding
    tolerance: float | None = None  # as in Verify


class AttachPlan(Request, frozen=True, kw_only=True):
    """Run the model as these entries of a plan say; none: as it is. Each size of the trace is answered twice."""

    entries: tuple[PlanEntry, ...]
    folder: str  # of the plan: where the entries' files are


class UseRequests(Request, frozen=True, kw_only=True):
    """From here on the built callable answers these requests of the trace; each size is answered twice."""

    calls: tuple[CallSizes, ...]


class TimeRequests(Request, frozen=True, kw_only=True):
    """Time some requests of the trace, each on its own, several times over."""

    first: int
    count: int
    passes: int = 1  # over these requests; the seconds of a request are its mean


class AskServed(Request, frozen=True, kw_only=True):
    """Say who answered the requests since the plan was attached and warm."""


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


class KeepState(Request, frozen=True, kw_only=True):
    """Of a check's first process: write the model's weights, its inputs and the cases to be answered."""

    path: str


class TakeState(Request, frozen=True, kw_only=True):
    """Copy what another process of a check kept, where names and shapes are equal."""

    path: str


class KeepAnswers(Request, frozen=True, kw_only=True):
    """Answer the cases that were kept, and write the answers."""

    cases: str  # file of KeepState
    path: str
    double: bool = False  # in double precision, too


class Look(Request, frozen=True, kw_only=True):
    """Say what was counted so far."""

    weights: bool = False  # the digest of the weights' and inputs' values, too


class Quit(Request, frozen=True, kw_only=True):
    """End in order."""


TrialRequest = Open | Inspect | PrepareToolchain | Build | Verify | UseBatch | Warm | TimeBatch | TimeCalls
SizesRequest = (
    MakeReference | ReadTraffic | ProvePadding | CheckPadding | AttachPlan | UseRequests | TimeRequests | AskServed
)
TrainingRequest = MakeCurves | CheckCurve
DoctorRequest = Examine | ExamineTimes
PackingRequest = MakeGolden | SaveWeights
GateRequest = KeepState | TakeState | KeepAnswers | Look  # of the arms of a check (gate/arm.py), which answer these too
AnyRequest = TrialRequest | SizesRequest | TrainingRequest | DoctorRequest | PackingRequest | Quit


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
    import_s: float = 0.0  # beside cold_s: importing torch's compiler
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


class ReferenceMade(Reply, frozen=True, kw_only=True):
    reference: Reference


class TrafficRead(Reply, frozen=True, kw_only=True):
    traffic: Traffic


class PaddingProven(Reply, frozen=True, kw_only=True):
    proof: PaddingProof


class PaddingChecked(Reply, frozen=True, kw_only=True):
    leak: PaddingLeak | None = None
    pad_s: float = 0.0  # what padding a call and cutting its answer back takes


class PlanAttached(Reply, frozen=True, kw_only=True):
    loaded_s: float  # opening the engines and answering each size once
    requests: int  # of the trace
    fallbacks: tuple[str, ...] = ()  # why eager answered some of them


class RequestsReady(Reply, frozen=True, kw_only=True):
    requests: int  # of the trace, without those that have an empty input


class RequestsTimed(Reply, frozen=True, kw_only=True):
    seconds: tuple[float, ...]


class Served(Reply, frozen=True, kw_only=True):
    calls: int
    fast: int
    compiles: int
    peak_rss_bytes: int


class StateTaken(Reply, frozen=True, kw_only=True):
    parameters: str = ""  # what is not alike; "": all values were copied
    inputs: str = ""


class AnswersKept(Reply, frozen=True, kw_only=True):
    repeats: bool  # the same inputs gave the same answer twice
    cases: tuple[str, ...] = ()


class ArmFacts(Record, frozen=True, kw_only=True):
    """What one process of a check has to say of itself. None: it does not apply, or nobody could count it."""

    open_s: float = 0.0  # from the start of the process until the model was there
    first_s: float = 0.0  # the same until its first answer
    cold_s: float = 0.0  # of these: building and the first call
    cpu_s: float = 0.0  # CPU seconds of that
    cold_cache: bool = True  # nothing was there that an earlier build had made
    compiler_runs: int = 0
    torch: str = ""
    python: str = ""
    threads: int = 0
    samples_per_call: int | None = None
    graph_breaks: int | None = None  # of the first call
    recompiles: int | None = None  # functions compiled again by later calls of the same examples
    left_to_eager: int | None = None  # functions that torch.compile could not compile
    fallbacks: int | None = None  # calls that eager answered in a plan's place
    kernels: int | None = None  # generated
    artifact_bytes: int | None = None
    peak_rss_bytes: int = 0
    steady_rss_bytes: int = 0
    parameters_sha256: str = ""  # names, shapes and types
    weights_sha256: str = ""  # values of weights and example inputs
    inputs: str = ""  # paths and shapes of the example inputs


class Looked(Reply, frozen=True, kw_only=True):
    facts: ArmFacts


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
    | ReferenceMade
    | TrafficRead
    | PaddingProven
    | PaddingChecked
    | PlanAttached
    | RequestsReady
    | RequestsTimed
    | Served
    | StateTaken
    | AnswersKept
    | Looked
)

decode_request = msgspec.json.Decoder(AnyRequest).decode
decode_reply = msgspec.json.Decoder(AnyReply).decode
