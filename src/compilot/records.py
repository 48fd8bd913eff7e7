"""READ FIRST: every record of compilot, in the order of its life.

In: nothing. Out: frozen, keyword-only msgspec structs that refuse unknown fields; the same JSON travels on the worker's
pipe, lies in the journal and the plan, and feeds the report. Units are in the names (`median_s`, `peak_rss_bytes`).
Covered: shape of the data, its stable identity, how a plan prints. Not covered: any other behaviour (see the stage that
makes each record).
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

# Raised when an old reader could misread a new file. 2: the model's code counts by what it does; 3: entries have names
# and modules, process settings are the whole plan's; 4: an entry may pad its calls.
PLAN_SCHEMA = 4
JOURNAL_SCHEMA = 3  # as the plan's of before entries could pad: a journal holds no entries
BUNDLE_SCHEMA = 5  # 2: large files have digests of their pieces; then as the plan's
TRACE_SCHEMA = 1  # of recorded sizes
PIECE_BYTES = 8 << 20  # part of the schema: about 5 ms of hashing, so that two cores share 50 MB evenly
PRIOR_BY_DEFAULT = False  # whether earlier runs order a search unasked: not before bench/prior.py has shown a gain
MAX_NAMED = 64  # attributes, and pieces of code, that a fingerprint names: about 3 KB of a plan

OptionValue = bool | int | float | str


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all records: a changed record is a new one (`msgspec.structs.replace`)."""


# --------------------------------------------------------------------------------------------------------------------
# 1. The workload: what the user wants to run
# --------------------------------------------------------------------------------------------------------------------


class Kind(enum.StrEnum):
    """What one unit of work is."""

    INFERENCE = "inference"
    TRACE = "trace"  # the requests of a trace, one after the other
    REQUEST = "request"  # what a program does for one item: prepare it, call the model, finish the answer
    TRAINING = "training"  # one step: forward, loss, backward, and at the end of a window clipping and the optimizer


class DynamicDim(Record, frozen=True, kw_only=True):
    """One input dimension whose size may vary between calls."""

    input: str  # the forward parameter's name ("input_ids"), with a path for nested inputs ("batch.image", "xs.0")
    dim: int
    min: int
    max: int
    widens: bool = False  # a range that is declared already stays, and reaches these sizes and the example's as well


class CallSizes(Record, frozen=True, kw_only=True):
    """The sizes of one call of a trace, by name of the dimension."""

    line: int  # in the file, or the number of the call
    sizes: dict[str, int]  # "input_ids:1" -> 37; sizes only, never values
    recorded: bool = False  # True: `record` wrote it, and names every tensor of the call

    @property
    def label(self) -> str:
        """For people: which call this is."""
        return f"{' '.join(f'{name}={size}' for name, size in self.sizes.items())} (line {self.line})"


class TraceHeader(Record, frozen=True, kw_only=True, tag_field="type", tag="trace"):
    """The first line of a recorded trace; only below it the key "n" of a line is a count."""

    schema: int  # TRACE_SCHEMA
    model: str  # name of its class, for people
    parameters_sha256: str = ""  # names, shapes and dtypes of parameters and buffers; "": it has none
    began: str = ""  # when the first call was counted, UTC
    sampling: int = 1  # one call in so many was counted
    calls: int = 0  # all that were counted
    rounded: int = 0  # calls among them with sizes rounded up to powers of two: there were too many to keep
    left_out: int = 0  # calls among them whose sizes are not in the file
    ranges: dict[str, DimRange] = {}  # exact smallest and largest size by name, where calls were rounded or left out


class SizeCount(Record, frozen=True, kw_only=True):
    """How often the calls of a trace had these sizes."""

    sizes: dict[str, int]
    calls: int
    line: int  # of the file, where they are first


class SizeBin(Record, frozen=True, kw_only=True):
    """The calls whose size at one dimension is from low to high."""

    low: int
    high: int
    calls: int


class DimensionSizes(Record, frozen=True, kw_only=True):
    """The sizes of one dimension over the calls of a trace."""

    calls: int  # that have this dimension
    distinct: int
    min: int
    max: int
    p50: int
    p90: int
    p99: int
    bins: tuple[SizeBin, ...]  # the distribution, smallest sizes first


class Trace(Record, frozen=True, kw_only=True):
    """The sizes that a program's calls have: what `compilot trace show` draws."""

    path: Path | None  # None: it was not read from a file
    header: TraceHeader | None  # None: nobody recorded it; it was written by hand or by another program
    calls: int
    distinct: int  # different sizes of whole calls; at least, where some were rounded
    rounded: int  # calls whose sizes were rounded up to powers of two, because there were too many to keep
    left_out: int  # calls that were counted without their sizes
    dims: dict[str, DimensionSizes]  # by NAME:DIM
    sizes: tuple[SizeCount, ...]  # of whole calls, the most frequent first
    first: tuple[CallSizes, ...]  # the first calls, in their order


class Precision(enum.StrEnum):
    """What the arithmetic may be done in. Anything but as-is is tried only where the user allows it."""

    AS_IS = "as-is"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8_DYNAMIC = "int8-dynamic"  # weights as 8-bit integers; activations too, with a scale found at each call


class StepRules(Record, frozen=True, kw_only=True):
    """What a training step is by the user's own wish: part of the work, never a candidate's choice."""

    accumulate: int = 1  # micro-batches of one window: their gradients add up to one update
    clip_norm: float | None = None  # largest norm of all gradients together; None: they are not clipped
    autocast: Precision = Precision.AS_IS  # of the user's own loop


class WorkloadRef(Record, frozen=True, kw_only=True):
    """How a child process rebuilds the workload."""

    label: str  # the model's class name, for people
    target: str | None = None  # "path/to/file.py:factory" or "package.module:factory"
    payload_sha256: str | None = None  # of the pickled live objects, when there is no target
    kind: Kind = Kind.INFERENCE
    seed: int = 0
    grad: bool = False  # True: the call runs with gradients enabled
    dynamic: tuple[DynamicDim, ...] = ()
    padding: dict[str, bool | int | float] = {}  # by input: what may be put where a call is shorter
    step: StepRules | None = None  # of a training; None: it is none
    loss_sha256: str | None = None  # of a training: the code of its loss; None: nobody has read it


class MachineFingerprint(Record, frozen=True, kw_only=True):
    """What a measurement or an artifact depends on, as far as the machine goes."""

    torch: str
    python: str
    platform: str  # "Linux-x86_64"
    glibc: str
    cpu_model: str
    cpu_isa: tuple[str, ...]  # the instructions that a compiler may use by itself (identity/isa.py), sorted
    cores: int
    threads: int  # torch.get_num_threads() at the time
    compiler: str | None = None  # "g++ 12.2.0", None when there is none
    engines: dict[str, str] = {}  # engine name -> version, installed ones only
    gpu: str | None = None
    gpu_driver: str | None = None


class ModelFingerprint(Record, frozen=True, kw_only=True):
    """Identity of a model. Never its module name or path: the same file loaded under another name is the same model."""

    class_name: str
    code_sha256: str  # byte code of every module class in the tree and of what it reaches; library code by version
    structure_sha256: str  # submodule names and classes, training flags, attributes
    parameters_sha256: str  # names, shapes and dtypes of parameters and buffers
    parameter_count: int
    parameter_bytes: int
    weights_sha256: str | None = None  # values; only where an artifact froze them
    code: dict[str, str] = {}  # short digests of the user's classes and functions, to name what changed; some at most
    libraries: dict[str, str] = {}  # package -> version of library code that is part of code_sha256, besides torch
    attributes: dict[str, str] = {}  # values or short digests of the user's attributes and settings; some at most
    input_settings: dict[str, str] = {}  # the same of settings that only calls with a certain input read; of a plan's
    # model those that its calls do read. No part of structure_sha256.


class Shipment(Record, frozen=True, kw_only=True):
    """What a child process needs to rebuild a workload."""

    sys_path: tuple[str, ...]
    cwd: str
    ref: WorkloadRef | None = None  # None: a target nobody has opened yet
    target: str | None = None  # with an absolute file path
    payload: str | None = None  # absolute path of the pickled structure
    weights: str | None = None  # absolute path of the storages' bytes
    engine_modules: tuple[str, ...] = ()  # of engines that the parent registered
    seed: int | None = None  # instead of the target's own, while ref is None
    extra_dynamic: tuple[DynamicDim, ...] = ()  # besides the target's own, while ref is None
    default_dtype: str | None = None  # torch's, where live objects were shipped from; None: as the target sets it
    replay: tuple[CallSizes, ...] = ()  # requests of a trace, in order: these are the work, in place of the examples
    replay_ranges: dict[str, DimRange] = {}  # sizes of the whole trace that they are from, by name
    replay_later: bool = False  # the trace declares what varies, and the examples stay the work
    padding: dict[str, bool | int | float] = {}  # besides the target's own, while ref is None
    example_sizes: dict[str, int] = {}  # of the example call, by NAME:DIM, in place of its own: a program for that size


class Fingerprint(Record, frozen=True, kw_only=True):
    machine: MachineFingerprint
    model: ModelFingerprint


# --------------------------------------------------------------------------------------------------------------------
# 2. The diagnosis: what is known before anything is tried
# --------------------------------------------------------------------------------------------------------------------


class Finding(Record, frozen=True, kw_only=True):
    """One thing worth reporting to the user, with its cost and its fix."""

    kind: str  # "train-mode", "stochastic", "tiny-work", "graph-break", ...
    where: str  # file:line or module path, "" for the whole model
    explanation: str
    advice: str
    cost_s: float | None = None  # per call, where it can be told
    category: str = ""  # finer than the kind: "scalar-read", "shape", ...
    snippet: str = ""  # the line of source it is about
    gb_id: str = ""  # torch's number of a graph break, "GB0124"
    count: int = 1  # per call for a graph break, over the whole drive for a recompile
    what: str = ""  # of a recompile: the thing that changed, which tells two changes in one function apart
    recompiles: int = 0  # of a graph break: how often what follows was compiled again, since its value changed
    served: bool = False  # true of plain torch.compile only: compilot's plans see to it by themselves


class SizeOf(Record, frozen=True, kw_only=True):
    """A number that follows a size of the same call: times the size of a dimension of an input, plus."""

    path: str
    dim: int
    times: int
    plus: int


class IndexColumns(Record, frozen=True, kw_only=True, array_like=True):
    """Positions along a dimension of an input that have a range of their own. An array in JSON: there may be many."""

    first: int
    last: int  # inclusive
    low: int | SizeOf
    high: int | SizeOf  # inclusive
    exempt: tuple[int, ...] = ()


class IndexRange(Record, frozen=True, kw_only=True):
    """Values of an integer input with which every index that the model makes of it is in range for eager."""

    low: int | SizeOf
    high: int | SizeOf  # inclusive
    exempt: tuple[int, ...] = ()  # values outside of it that are legal all the same (labels that a loss ignores)
    dim: int = 0  # along which the columns are counted
    columns: tuple[IndexColumns, ...] = ()  # in order; the range above is that of all others


class IndexFacts(Record, frozen=True, kw_only=True):
    """How the model's indices depend on its inputs. By path; an input that no index depends on is not in it."""

    ranges: dict[str, IndexRange] = {}  # at the example's sizes
    at_all_sizes: dict[str, IndexRange] = {}  # at every declared size
    sized: bool = False  # the ranges depend on sizes: those of undeclared sizes are not known
    unproven: str = ""  # an index that may be out of range whatever the inputs are; "": there is none
    unproven_sizes: str = ""  # the same at a declared size that is not the example's


class RepeatedBlock(Record, frozen=True, kw_only=True):
    """Submodules that are alike by class, by their parameters and buffers, and by their own submodules."""

    class_name: str
    paths: tuple[str, ...]  # of the instances, in the model's order: "layers.0", "layers.1"
    parameters: int  # of one instance
    structure_sha256: str  # names of classes; names, shapes and dtypes of parameters and buffers; all submodules
    level: int = 0  # how many repeated blocks are around its innermost instance; 0: there is none around any
    differs: tuple[str, ...] = ()  # attributes that are not equal in all instances: "layer_idx", "attention.scale"
    shares: tuple[float, ...] = ()  # as of ModulePart, one for each path; 0.0: never called; (): nobody looked

    @property
    def count(self) -> int:
        """How often the block is there."""
        return len(self.paths)


class ModulePart(Record, frozen=True, kw_only=True):
    """A submodule that takes a good part of an eager call's time."""

    path: str
    class_name: str
    share: float  # of the time of one eager call, with everything in it
    calls: int = 1  # in one call of the model


class BreakPlace(Record, frozen=True, kw_only=True):
    """Where torch.compile stops in the module tree: one graph break of the doctor's report."""

    where: str  # file:line
    modules: tuple[str, ...] = ()  # paths of the submodules that run it, "" for the model's own forward
    stops_export: bool = False  # an export stops there, too


class UnfitPart(Record, frozen=True, kw_only=True):
    """A submodule that cannot be a region: how it is called, or its sizes at the declared ones, stand against it."""

    path: str
    why: str
    exports_only: bool = False  # it can with engines that need no ranges of sizes and look into objects


class BusyProcess(Record, frozen=True, kw_only=True):
    """Somebody else's process."""

    name: str
    pid: int
    share: float  # of one core


class MachineLoad(Record, frozen=True, kw_only=True):
    """What others did with the machine while the run started; shares of one core, so 2.0 is two cores."""

    others: float  # used by processes that are neither ours nor our parents, in each half of the look
    steal: float = 0.0  # taken by the hypervisor, where that is known
    cores: int = 1  # that this process may use
    processes: tuple[BusyProcess, ...] = ()  # the busiest, as far as they may be seen


class Features(Record, frozen=True, kw_only=True):
    """Where one eager call spends its time and how large the work is: models alike in these are often alike at all."""

    conv_share: float  # of the time of a call: convolutions; the four shares add up to 1
    matmul_share: float  # matrix products, attention, recurrent layers
    memory_share: float  # all other operators, most of which wait for memory
    overhead_share: float  # outside of operators: Python, dispatch
    call_s: float
    operators: int  # per call
    parameter_bytes: int
    input_bytes: int
    batch: int | None = None  # None: the inputs do not agree on one


class StepFacts(Record, frozen=True, kw_only=True):
    """What one look at a training says: which ways to do its step can work at all."""

    optimizer: str  # name of its class
    ways: tuple[OptimizerWay, ...]  # that it has besides the one it was made with
    compilable: bool  # it is one of torch's own that can be compiled
    tensors: int  # parameters that it moves
    shapes: int  # different ones among them
    hooks: str = ""  # "a gradient hook of encoder.weight": the one-graph mode may leave them out; "": there are none
    blocks: tuple[str, ...] = ()  # selectors of repeated blocks, which can be compiled or checkpointed each
    drops: bool = False  # the step draws random numbers
    batch_norm: bool = False  # statistics that running a block twice would move twice
    forward_s: float | None = None  # of one micro-batch: forward and loss,
    backward_s: float | None = None  # backward,
    update_s: float | None = None  # and of a step: clipping and optimizer
    data_s: float | None = None  # waiting for the loader, per step; None: there is none


class Diagnosis(Record, frozen=True, kw_only=True):
    """What one look at the eager model says."""

    findings: tuple[Finding, ...] = ()
    eager_call_s: float | None = None
    has_4d_input: bool = False
    has_conv: bool = False
    unjudgeable: str | None = None  # why no candidate can be judged correct, and what to do; None: they can
    training: bool = False
    stochastic: bool = False  # it draws random numbers; judged with torch seeded before each call
    floating_inputs: bool = True
    dynamic: bool = False
    cuda: bool = False
    parameter_bytes: int = 0
    cores: int = 1
    threads: int = 1
    graph_breaks: int | None = None  # places where torch.compile stops; None: nobody looked
    export_stops: int | None = None  # those of them that stop an export of the whole model, too
    size_recompiles: int = 0  # compiled again because of a size that nobody declared dynamic
    compiler_problem: str | None = None  # why no C++ compiler can be used; None: it works
    cpu_isa: tuple[str, ...] = ()  # as in the fingerprint: tells which precisions the CPU computes in
    denormals: bool = False  # a weight, an input or a layer's output holds numbers too small to be normal
    indices: IndexFacts = IndexFacts()
    repeated: tuple[RepeatedBlock, ...] = ()  # outermost first
    parts: tuple[ModulePart, ...] = ()  # outermost first, larger ones before smaller ones; the model itself is none
    breaks: tuple[BreakPlace, ...] = ()  # as far as the doctor looked
    unfit: tuple[UnfitPart, ...] = ()  # of the repeated blocks and the parts: those that cannot be regions
    load: MachineLoad | None = None  # of the machine when the run began; None: nobody looked, or it does not say
    onednn_gain: float | None = None  # speed of oneDNN's fp32 products over the math library's; None: unknown
    eager_error: float | None = None  # as in the reference; None: candidates are judged against eager, not float64
    features: Features | None = None  # None: they could not be taken
    layers: dict[str, str] = {}  # path -> class and sizes of the submodules that compute, in order; some at most
    step: StepFacts | None = None  # of a training; None: it is none


# --------------------------------------------------------------------------------------------------------------------
# 3. The candidate: one way to run the model
# --------------------------------------------------------------------------------------------------------------------


class Shapes(enum.StrEnum):
    """What the compiled code may assume about input shapes."""

    STATIC = "static"  # exactly the example's shapes
    DYNAMIC = "dynamic"  # the declared dimensions vary (all dimensions where none is declared)


class MemoryFormat(enum.StrEnum):
    PRESERVE = "preserve"
    CHANNELS_LAST = "channels_last"


class Settings(Record, frozen=True, kw_only=True):
    """How one engine is to run the model or a region of it. Engines validate their own options."""

    engine: str = "eager"
    mode: str | None = None
    options: dict[str, OptionValue] = {}
    shapes: Shapes = Shapes.STATIC
    memory_format: MemoryFormat = MemoryFormat.PRESERVE
    precision: Precision = Precision.AS_IS


class Region(Record, frozen=True, kw_only=True):
    """Other settings for the submodules that a selector names."""

    selector: str
    settings: Settings


class ProcessSettings(Record, frozen=True, kw_only=True):
    """Settings of the whole process. None leaves what the process has."""

    threads: int | None = None
    flush_denormals: bool | None = None
    keep_memory: bool | None = None  # freed memory stays in the process instead of going back to the system


class OptimizerWay(enum.StrEnum):
    """How the optimizer moves the parameters."""

    AS_IS = "as-is"  # as the user made it
    LOOP = "for-loop"
    FOREACH = "foreach"
    FUSED = "fused"
    COMPILED = "compiled"  # its whole step is one program
    KERNEL = "compiled-kernel"  # one program per shape of a parameter, shared by all that have it


class CompiledWay(enum.StrEnum):
    """How much of forward, loss and backward is compiled together. The engine's settings are the candidate's."""

    NOTHING = "nothing"
    MODEL = "model"
    REGIONS = "regions"  # each submodule that the candidate's regions name; the rest is eager's
    WITH_LOSS = "with-loss"  # model and loss
    ONE_GRAPH = "one-graph"  # model, loss and backward


class StepParts(Record, frozen=True, kw_only=True):
    """How the parts of a training step are run. Each part is a choice of its own; layout and options are Settings'."""

    optimizer: OptimizerWay = OptimizerWay.AS_IS
    compiled: CompiledWay = CompiledWay.NOTHING
    compiled_autograd: bool = False  # the backward is captured as it runs, graph breaks and hooks included
    memory_budget: float | None = None  # share of the activations that is kept for the backward, 0 to 1; None: all
    checkpoint: str = ""  # selector of submodules that run once more in the backward; "": none
    autocast: Precision = Precision.AS_IS  # of forward and loss, where the user allows it


def normal_form(value: Any) -> Any:
    """Plain data without what equals its default: equal records give equal data.

    msgspec itself leaves a default out only where it is the very same object, which a typed name is not.
    """
    if isinstance(value, msgspec.Struct):
        named = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        return {field.encode_name: normal_form(own) for field, own in named if own != _default(field)}
    if isinstance(value, dict):
        return {name: normal_form(own) for name, own in value.items()}
    return [normal_form(own) for own in value] if isinstance(value, list | tuple) else value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


class Candidate(Record, frozen=True, kw_only=True):
    """One way to run the model, with the reason for trying it. Its identity is the settings alone."""

    settings: Settings
    label: str
    rationale: str
    regions: tuple[Region, ...] = ()
    process: ProcessSettings = ProcessSettings()
    sizes: dict[str, int] = {}  # of the example call that it is built for, by NAME:DIM; {}: the example's own
    step: StepParts = StepParts()  # of a training step; the default is eager's, and no part of the id

    @property
    def id(self) -> str:
        """Stable short id of the normal form: equal settings give equal ids, in any process and on any machine."""
        normal: dict[str, Any] = {"settings": self.settings, "regions": self.regions, "process": self.process}
        if self.sizes:
            normal["sizes"] = self.sizes
        if self.step != StepParts():
            normal["step"] = self.step
        text = msgspec.json.encode(normal_form(normal), order="sorted")
        return hashlib.sha256(text).hexdigest()[:10]

    @property
    def program_id(self) -> str:
        """The same for candidates that have one program: what a process does with freed memory and with denormal
        numbers is none of it, while the number of threads is, as compilers write it into their code.
        """
        process = msgspec.structs.replace(self.process, flush_denormals=None, keep_memory=None)
        return msgspec.structs.replace(self, process=process).id

    @property
    def is_eager(self) -> bool:
        """True for the baseline itself: plain eager, nothing changed."""
        plain = self.settings == Settings() and self.process == ProcessSettings() and self.step == StepParts()
        return plain and not self.regions


# --------------------------------------------------------------------------------------------------------------------
# 4. The trial: what happened when it was tried
# --------------------------------------------------------------------------------------------------------------------


class WarmUp(Record, frozen=True, kw_only=True):
    """How the callable became steady."""

    calls: int
    wall_s: float
    steady: bool
    slope: float | None = None  # relative change over the last third of the warm-up; None: too few calls to tell


class Measurement(Record, frozen=True, kw_only=True):
    """Raw samples of one arm in one process and what was seen on the way."""

    cold_s: float  # build + first call; cold only when cold_cache is True
    cold_cache: bool  # the cache directory was empty at the start
    cold_cpu_s: float = 0.0  # CPU seconds of the process and its children during the build
    compiler_runs: int = 0  # C++ compiler processes started during the build
    shared_s: float = 0.0  # of cold_s: an export that another candidate of the run had made, and that was not repeated
    for_others_s: float = 0.0  # of cold_s: an export that was made here, and that other candidates need not repeat
    import_s: float = 0.0  # beside cold_s: importing torch's compiler, where a process with eager does without it
    warm_up: WarmUp | None = None
    calls_per_batch: int = 1  # of all callers together
    batch_s: tuple[float, ...] = ()  # time per call, one sample per batch
    call_s: tuple[float, ...] = ()  # single calls as their caller sees them, for the tails
    samples_per_call: int | None = None  # size of the batch dimension, for throughput
    request_s: float | None = None  # of one request, where requests are timed; in the same turns as the next
    model_s: float | None = None  # of these: inside the model
    peak_rss_bytes: int = 0
    steady_rss_bytes: int = 0
    doubts: tuple[str, ...] = ()


class OutputCheck(Record, frozen=True, kw_only=True):
    """One output tensor of one case."""

    case: str  # "seed 1", "zeros", "largest", ...
    output: str  # path inside the output structure, "output" for a bare tensor
    rmse: float  # candidate against the reference
    eager_rmse: float  # eager against the reference
    limit: float
    max_abs: float
    passed: bool
    why: str = ""


class LossCurve(Record, frozen=True, kw_only=True):
    """The losses of many training steps beside eager's, one number per step."""

    losses: tuple[float, ...]  # the candidate's; the mean over its seeds where there are several
    eager: tuple[float, ...]  # the same of eager
    exact: tuple[float, ...] = ()  # float64's; (): random numbers leave nothing to compare step by step
    low: tuple[float, ...]  # the band: what is allowed; with several seeds the range of eager's
    high: tuple[float, ...]
    seeds: int = 1
    within: bool = True  # it passed


class Check(Record, frozen=True, kw_only=True):
    """Is the candidate correct?"""

    passed: bool
    why: str  # the first failure, or what was checked
    reference: str  # "float64" or "eager"
    tolerance: float | None = None  # relative RMSE that was allowed; None: the strict limits, as for every as-is one
    relative_error: float | None = None  # worst relative RMSE of any output against the reference; None: none has one
    worst: tuple[OutputCheck, ...] = ()  # the worst output of each case
    notes: tuple[str, ...] = ()  # dropped cases, differences on non-finite inputs
    caveats: tuple[str, ...] = ()  # what its user must know: checks that it leaves out, outputs that share no memory
    curve: LossCurve | None = None  # of a finalist of a training; None: nobody looked


class Raising(Record, frozen=True, kw_only=True):
    """A case on which eager raises."""

    case: str
    error: str  # "ValueError"
    message: str = ""  # its first line


class Reference(Record, frozen=True, kw_only=True):
    """What every candidate is compared with; the tensors lie in the run's folder, one file per case."""

    kind: str  # "float64", or "eager" where the model cannot run in double precision
    cases: tuple[str, ...]  # names of the cases kept, in order; eager raises on the others
    stochastic: bool = False  # two eager runs on the same inputs differ
    seeded: bool = False  # stochastic, but seeding torch before each call makes eager repeat itself
    stateful: str = ""  # the attributes through which one call changes the next, "" where there are none
    overwritten: tuple[str, ...] = ()  # outputs whose memory eager itself shares between calls
    raising: tuple[Raising, ...] = ()  # cases that are not kept because eager raises; those of unequal sizes apart
    eager_error: float | None = None  # eager's own worst relative RMSE against float64; None: there is no float64
    notes: tuple[str, ...] = ()


class State(enum.StrEnum):
    OK = "ok"
    WRONG = "wrong"
    INFEASIBLE = "infeasible"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    PRUNED = "pruned"


class ArtifactFile(Record, frozen=True, kw_only=True):
    """A file an engine made, addressed by what is in it."""

    name: str  # relative to the candidate's workspace
    sha256: str
    size_bytes: int
    pieces: tuple[str, ...] = ()  # SHA-256 of each PIECE_BYTES of a larger file, so that threads share it


class HostLease(Record, frozen=True, kw_only=True):
    """When a run had a machine to itself, to time something. Leases of one host never overlap, whosever they are."""

    host: str  # digest of its boot
    from_s: float  # on the host's clock that only goes forward
    to_s: float
    held: bool = True  # False: timed without it: another run did not let go in time, or there are no locks
    node: str = ""  # name of the cluster's node; "": this machine


class Trial(Record, frozen=True, kw_only=True):
    """One candidate's story. A failed candidate is data, not an exception."""

    candidate: Candidate
    state: State
    reason: str  # why it failed or was pruned; for ok ones, one line of what was seen
    measurement: Measurement | None = None
    check: Check | None = None
    artifacts: tuple[ArtifactFile, ...] = ()
    code_sha256: str | None = None  # of the generated code, to recognise candidates that are the same program
    same_as: str | None = None  # id of the candidate this one is identical to
    files_of: str | None = None  # id of the candidate with the same program whose files, and cold start, it has
    guard: Guard | None = None  # which inputs the built callable serves
    frozen_weights: bool = False  # weight values were baked in
    weights_sha256: str | None = None  # digest of those in the artifacts
    screening: tuple[tuple[float, float], ...] = ()  # (eager, candidate) seconds per call, paired
    stderr_log: str = ""  # relative to the run directory
    wall_s: float = 0.0
    limit_s: float = 0.0  # the time that it was given; 0: nobody limited it
    steps_s: dict[str, float] = {}  # where wall_s went: opening, building, checking, warming up, pairing
    leases: tuple[HostLease, ...] = ()  # under which it was timed


# --------------------------------------------------------------------------------------------------------------------
# 5. The race and the verdict
# --------------------------------------------------------------------------------------------------------------------


class ProcessSamples(Record, frozen=True, kw_only=True):
    """Paired samples of one set of processes: one row per round, one column per arm, seconds per call."""

    rounds: tuple[tuple[float, ...], ...]
    settle_timeouts: int = 0  # batches started although another arm was not idle yet
    window: int = 1  # rounds in a row that one arm made before the next had its turn


class Race(Record, frozen=True, kw_only=True):
    """Several arms timed in interleaved rounds. arms[0] is eager; arms[1] is eager again (A/A) where with_aa is set."""

    arms: tuple[str, ...]  # candidate ids
    with_aa: bool
    processes: tuple[ProcessSamples, ...]
    purpose: str = "race"  # "race", "confirm", "aa", "bench", "twin"
    load: str = ""  # what was odd on the machine meanwhile ("another process used 83 % of a core"), "" for quiet
    leases: tuple[HostLease, ...] = ()  # under which it was timed


class Outcome(enum.StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no-difference"
    UNDECIDED = "undecided"


class Comparison(Record, frozen=True, kw_only=True):
    """Speed-up of one arm over another. ratio > 1: the candidate is faster."""

    candidate_id: str
    baseline_id: str
    ratio: float
    low: float  # 95 % interval
    high: float
    outcome: Outcome
    margin: float  # relative; smaller differences are not called differences
    mde: float  # smallest relative effect that this many samples could have shown
    aa_noise: float  # this race's own A/A 95th percentile
    processes: int
    pairs: int  # per process; of the shortest one where they differ
    all_pairs: int = 0  # of all processes together; 0: not counted
    far_out: int = 0  # samples beyond 3 IQR; kept, only counted
    doubts: tuple[str, ...] = ()


class BreakEven(Record, frozen=True, kw_only=True):
    """When the compile cost is paid back. None: never.

    The 95 % interval is that of the saving per call. No low end: it could not be computed; a low end alone: the other
    end never pays back.
    """

    cold_calls: int | None
    warm_calls: int | None
    cold_low: int | None = None
    cold_high: int | None = None
    warm_low: int | None = None
    warm_high: int | None = None


class Objective(enum.StrEnum):
    """What a plan is chosen for."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    P99 = "p99"
    STARTUP = "startup"
    MEMORY = "memory"


class Goal(Record, frozen=True, kw_only=True):
    """What the user wants the plan for."""

    objective: Objective = Objective.LATENCY
    horizon_calls: int | None = None  # that a process will make in its life; None: so many that a start does not count
    concurrency: int = 1  # callers at the same time, of throughput


class Decision(enum.StrEnum):
    USE = "use"
    KEEP_EAGER = "keep-eager"


class NotReached(Record, frozen=True, kw_only=True):
    """What the budget of a run did not suffice for."""

    not_tried: tuple[Candidate, ...] = ()  # that the search would still have asked for
    ran_out: tuple[Candidate, ...] = ()  # that were ended because there was no time left
    more_s: float  # that they would take, about
    budget_s: float  # of a run that would most likely reach all of them


class Repair(Record, frozen=True, kw_only=True):
    """An engine that could not have the model as it is, and what is to blame."""

    engine: str
    failed: str  # label of the candidate that failed
    state: State
    reason: str
    culprits: tuple[str, ...]  # paths of submodules, "freezing", "threads"; none: it was not found in time
    kind: str = "modules"  # "options"; "passes" of the engine; "around": the code around the parts, which are all right
    share: float = 0.0  # of an eager call: the submodules to blame
    runs_with: str = ""  # the engine that has them in the chosen candidate; none: they stay in eager
    carried_to: tuple[str, ...] = ()  # the chosen engines: they did not fail, but leave the culprits out, too
    price: float | None = None  # about how much slower for it; None: not known
    trials: int = 0  # that it took
    found: bool = True  # False: time ran out, or there are more than it looked for


class WideningStep(Record, frozen=True, kw_only=True):
    """A boundary with one region more, or the last one with other settings."""

    region: str  # "12 x GPT2Block", "decoder", "with other settings"
    speedup: float  # over eager at the screening, with it
    gain: float | None = None  # over the boundary without it; None: it is the first
    kept: bool = True  # False: it did not pay


class PartGain(Record, frozen=True, kw_only=True):
    """What one part of a training step brought."""

    part: str  # "fused optimizer"
    speedup: float  # at the screening, with it over without it
    alone: bool = False  # measured on eager, without the other parts; False: on top of all others
    kept: bool = True  # False: it was tried and is not in the chosen candidate


class Verdict(Record, frozen=True, kw_only=True):
    decision: Decision
    chosen_id: str
    because: str
    entry: str = ""  # name of the plan's entry that it is about; "": the whole plan
    comparisons: tuple[Comparison, ...] = ()
    break_even: BreakEven | None = None
    not_reached: NotReached | None = None  # None: nothing that is known of
    repairs: tuple[
        Repair, ...
    ] = ()  # that the chosen candidate comes from; eager is kept: those that found whom to blame
    widening: tuple[WideningStep, ...] = ()  # how the chosen candidate's boundary grew, in order; then what did not pay
    parts: tuple[PartGain, ...] = ()  # of a training step: what each brought, those of the chosen candidate first
    free_breaks: tuple[str, ...] = ()  # graph breaks (file:line) outside of its regions: they cost nothing any more
    sizes: SizesVerdict | None = None  # how the sizes of a trace are served; None: there was no trace


# ------------------------------------------------------------------------------------------- sizes: what serves which


class SizePlace(Record, frozen=True, kw_only=True):
    """One dimension of an input of the model."""

    path: str  # of the tensor, as in a guard: "args[0]", "kwargs['mask']"
    dim: int


class TrafficDim(Record, frozen=True, kw_only=True):
    """One size of the calls: dimensions that have the same size in every call."""

    name: str  # of the first of them, NAME:DIM
    also: tuple[str, ...] = ()  # names of others that could differ, and never did in the trace
    min: int  # declared, or the smallest of the trace
    max: int
    places: tuple[SizePlace, ...]

    @property
    def label(self) -> str:
        """All of its names: "image:2 = image:3"."""
        return " = ".join((self.name, *self.also))


class Traffic(Record, frozen=True, kw_only=True):
    """What the sizes of a trace mean for a model."""

    dims: tuple[TrafficDim, ...]  # that vary, or may vary
    demand: tuple[SizeDemand, ...]  # sizes of these dimensions, and how often each comes
    guard: Guard  # of a call, with the ranges
    requests: tuple[tuple[int, ...], ...] = ()  # sizes of the calls that are replayed, in order
    empty_calls: int = 0  # of the trace, with an empty input: they are left out

    def named(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """One size for each dimension, by all of their names."""
        pairs = zip(self.dims, sizes, strict=True)
        return {name: size for dim, size in pairs for name in (dim.name, *dim.also)}


class SizeDemand(Record, frozen=True, kw_only=True):
    """How often calls of one size were seen."""

    sizes: tuple[int, ...]  # one for each dimension of the choice: (37,), or batch and length (4, 37)
    count: int  # 0: not seen, but it must be served


class CostPoint(Record, frozen=True, kw_only=True):
    """One measured size."""

    sizes: tuple[int, ...]
    call_s: float


class ProgramCost(Record, frozen=True, kw_only=True):
    """What one kind of program costs."""

    points: tuple[CostPoint, ...]  # seconds of a call; between them it is a straight line
    build_s: float = 0.0  # of one such program, with its first call
    size_bytes: int = 0  # of its files
    memory_bytes: int = 0  # of a process with one such program; 0: not known


class ShapeCosts(Record, frozen=True, kw_only=True):
    """What one engine's programs cost at the sizes of some traffic, beside eager."""

    eager: ProgramCost
    static: ProgramCost | None = None  # a program for one size, measured at that size; None: the engine has none
    dynamic: ProgramCost | None = None  # one program for all sizes; None: the engine has none
    pad_s: float = 0.0  # of padding a call and cutting its answer back
    may_pad: bool = False  # padding was proven harmless
    may_split: bool = False  # the one size is the batch, and calls were proven to be the same in parts


class ShapePolicy(enum.StrEnum):
    """How calls of different sizes are served."""

    EAGER = "eager"
    STATIC = "static"  # programs for the sizes that gain most, each for that size alone; eager for the others
    DYNAMIC = "dynamic"  # one program for all sizes
    POWERS_OF_TWO = "powers-of-two"  # padded to the next power of two: what people do by hand
    BUCKETS = "buckets"  # padded to a few chosen sizes
    MIXED = "mixed"  # a few static programs, and the dynamic one behind them
    SPLIT = "split"  # one of these for smaller batches; larger calls are answered in parts


class Bucket(Record, frozen=True, kw_only=True):
    """One static program and what it serves."""

    sizes: tuple[int, ...]  # of the program: smaller calls are padded up to it
    smallest: tuple[int, ...]  # in each dimension, of the calls that it serves
    calls: int  # of the trace that it serves
    padded: int = 0  # of these: calls that are smaller than the program
    split: int = 0  # and calls that are larger, answered in parts
    call_s: float  # forecast of one call


class SplitRule(Record, frozen=True, kw_only=True):
    """Which calls are answered in parts: by the program for `rows`, or by the dynamic one where there is none."""

    rows: int  # of a part; the last one has what is left
    min: int  # fewest rows of a call that is cut


class PolicyForecast(Record, frozen=True, kw_only=True):
    """What a policy is expected to take for all calls of a trace."""

    policy: ShapePolicy
    calls_s: float  # all calls
    start_s: float = 0.0  # building and reading its programs, once in a process's life
    total_s: float  # what is compared: the calls, and the trace's share of the start
    memory_bytes: int = 0  # of a process with all its programs; 0: not known
    buckets: tuple[Bucket, ...] = ()
    dynamic_calls: int = 0  # that the dynamic program serves
    eager_calls: int = 0
    uses_dynamic: bool = False  # there is a dynamic program, whether or not the trace has calls for it
    split: SplitRule | None = None  # None: every call is answered whole

    @property
    def entries(self) -> int:
        """Programs that it needs."""
        return len(self.buckets) + self.uses_dynamic


class ShapeChoice(Record, frozen=True, kw_only=True):
    """Which policy serves some traffic best, by forecast. A replay of the trace decides."""

    chosen: PolicyForecast
    forecasts: tuple[PolicyForecast, ...]  # of every policy that is possible, eager first
    calls: int  # of the trace
    distinct: int  # sizes in it
    because: str

    @property
    def speedup(self) -> float:
        """Of the chosen policy over eager."""
        return self.forecasts[0].total_s / self.chosen.total_s if self.chosen.total_s > 0 else 1.0


class EngineSizes(Record, frozen=True, kw_only=True):
    """What one engine's programs cost at the sizes of a trace, and the policy that follows from it."""

    engine: str
    label: str  # of the candidate whose settings its programs have
    costs: ShapeCosts
    choice: ShapeChoice
    notes: tuple[str, ...] = ()  # what it could not do: sizes that failed, padding that its programs do not stand


class PolicyArm(Record, frozen=True, kw_only=True):
    """One way to serve a trace that was replayed: a whole plan, or eager."""

    id: str  # as in the race's arms
    label: str  # "openvino buckets 64, 512"
    engine: str
    policy: ShapePolicy | None  # None: nobody chose sizes for it
    programs: tuple[str, ...] = ()  # names of its entries
    candidates: tuple[str, ...] = ()  # ids, of each of them
    forecast: float | None = None  # seconds of eager over its own, for the replayed requests; None: there was none
    start_s: float = 0.0  # building its programs, cold
    loaded_s: float | None = None  # opening them in a fresh process and answering each size once
    size_bytes: int = 0  # of its files
    peak_rss_bytes: int = 0
    fast_share: float | None = None  # of the replayed calls that its programs answered; None: eager has none
    recompiles: int = 0  # after its warm-up
    serves_all: bool = True  # every declared size, whether or not the trace has it
    splits: bool = False  # calls with many rows are answered in parts
    lost: str = ""  # why it has no figures


class Replay(Record, frozen=True, kw_only=True):
    """Requests of a trace, answered by several arms in the same order. Each request is a round of the race."""

    race: Race  # arms: ids of the policies; seconds of single requests
    arms: tuple[PolicyArm, ...]  # in the race's order, without eager's twin; then those that were lost
    requests: int  # of one process
    calls: int  # of the whole trace
    distinct: int  # sizes among them
    batch_sizes: bool = False  # there is no trace: these are the batch sizes that were asked for


class SizesVerdict(Record, frozen=True, kw_only=True):
    """How the sizes of a trace are served, and why."""

    policy: ShapePolicy
    arm_id: str  # of the replay
    because: str
    comparisons: tuple[Comparison, ...]  # of every arm with eager, by the total of the replay
    forecast: float | None = None  # of the chosen one, as in its arm
    replayed: float | None = None  # what the replay gave
    notes: tuple[str, ...] = ()  # padding that was refused, sizes that go to eager, a forecast that was wrong


class BatchPoint(Record, frozen=True, kw_only=True):
    """One way to run the model at one batch size."""

    candidate: str  # label
    candidate_id: str
    batch: int
    call_s: float | None  # median; None: it was not measured, see why
    samples_per_s: float | None = None  # the batch size over that median
    versus_eager: Comparison | None = None  # at this size, from the same rounds; None: eager itself, or too few rounds
    why: str = ""  # there is no figure


class BatchAdvice(Record, frozen=True, kw_only=True):
    """How large batches should be for one way to run the model."""

    candidate: str  # label
    candidate_id: str
    max_batch_size: int
    samples_per_s: float
    because: str
    splits: dict[str, tuple[int, ...]] = {}  # measured batch sizes that are faster in parts: "16" -> (8, 8)


class BatchSizes(Record, frozen=True, kw_only=True):
    """A model at several batch sizes: the table, and what it suggests."""

    points: tuple[BatchPoint, ...]  # by candidate, eager first; then by batch size
    advice: tuple[BatchAdvice, ...] = ()  # in the same order
    doubts: tuple[str, ...] = ()  # why the figures may not be relied on


# --------------------------------------------------------------------------------------------------------------------
# 6. The plan: what the run plane applies
# --------------------------------------------------------------------------------------------------------------------


class DimRange(Record, frozen=True, kw_only=True):
    """Sizes that a guard accepts at one dimension."""

    min: int
    max: int


ANY_SIZE = DimRange(min=0, max=2**31 - 1)  # a dimension that varies without a declared range


class TensorGuard(Record, frozen=True, kw_only=True):
    """One tensor leaf that the callable was built for."""

    path: str  # python-like path from the call: "args[0]", "kwargs['mask']", "args[0]['x'][1]"
    dtype: str  # "torch.float32"
    device: str  # "cpu", "cuda:0"
    shape: tuple[int | DimRange, ...]
    stride: tuple[int, ...] | None  # None: contiguous at whatever shape, or as `order` says (a dimension is dynamic)
    requires_grad: bool = False
    index: IndexRange | None = None  # its values that keep every index in range; None: any
    order: tuple[int, ...] | None = None  # instead of contiguous, where a size varies: the dimensions from the widest
    # stride to the narrowest; those left out have stride 0


class ValueGuard(Record, frozen=True, kw_only=True):
    """One non-tensor leaf (bool, int, float, str, None) that was baked in."""

    path: str
    type: str
    value: str  # repr; "": any object of this class, which only regions take whose engine looks into it by itself


class ContainerGuard(Record, frozen=True, kw_only=True):
    """One list, tuple or dict among the inputs, whose make-up was baked in."""

    path: str
    type: str  # "list", "tuple", "dict" or a qualified class name
    keys: tuple[str, ...] | None = None  # dict keys
    length: int | None = None  # list and tuple


class Guard(Record, frozen=True, kw_only=True):
    """Which calls an entry takes; everything else goes to eager."""

    positional: int  # number of positional arguments in the example call
    keywords: tuple[str, ...]
    tensors: tuple[TensorGuard, ...]
    values: tuple[ValueGuard, ...] = ()
    containers: tuple[ContainerGuard, ...] = ()
    grad_enabled: bool = False
    autocast: bool = False
    training: bool = False
    default_dtype: str = "torch.float32"  # torch's default for new tensors; "": any, as where there is no eager model


class MaskRule(enum.StrEnum):
    """Which masks a call may have, so that padding changes nothing. Looked at in every call that is padded."""

    ANY = "any"  # whatever it holds
    SOME = "some"  # each row lets something through: a row that masks everything is an average over all positions
    FIRST = "first"  # each row lets its first position through: causal models then mask no position entirely
    ONES = "ones"  # nothing is masked


class PaddedInput(Record, frozen=True, kw_only=True):
    """One dimension of an input that is padded at its end."""

    path: str  # as in the guard: "args[0]", "kwargs['attention_mask']"
    dim: int
    value: bool | int | float | None = None  # what is put there; None: the last real row is repeated
    mask: MaskRule = MaskRule.ANY  # of an input of zeros and ones


class PaddedOutput(Record, frozen=True, kw_only=True):
    """One dimension of an output that follows the padded size: cut to times the call's own size, plus."""

    path: str  # as in a check: "output", "output.logits", "output['last_hidden_state']"
    dim: int
    times: int = 1
    plus: int = 0


class PaddedDim(Record, frozen=True, kw_only=True):
    """One size of the calls that is brought to one number: all these inputs have the same size there."""

    min: int  # smallest size that is padded, at least 1
    size: int  # that the engine is called with, and the largest that a call may have
    inputs: tuple[PaddedInput, ...]
    outputs: tuple[PaddedOutput, ...] = ()
    in_parts: bool = (
        False  # it is the batch, and proven: answers to parts of a call, joined, are the answer to the call
    )


class OutputLayout(Record, frozen=True, kw_only=True):
    """How eager lays out an output that is not contiguous."""

    path: str
    order: tuple[int, ...]  # its dimensions, the one with the largest stride first


class Padding(Record, frozen=True, kw_only=True):
    """How an entry's calls are padded and its answers cut back. The engine is built for the padded sizes only."""

    dims: tuple[PaddedDim, ...]  # batch, length, ...: each input dimension in one of them
    layouts: tuple[OutputLayout, ...] = ()  # of outputs that are not contiguous in eager


class SplitCalls(Record, frozen=True, kw_only=True):
    """How calls with many rows are answered in parts: the inputs are cut, and the answers joined."""

    rows: int  # of a part; the last one has what is left
    min: int  # fewest rows of a call that is cut
    batch: PaddedDim  # which inputs are cut and which outputs joined; up to its size that is proven
    layouts: tuple[OutputLayout, ...] = ()  # of outputs that are not contiguous in eager


class PaddingLeak(Record, frozen=True, kw_only=True):
    """Why a size is not padded."""

    inputs: tuple[str, ...]  # "input_ids dimension 1"
    why: str  # in plain words, with what to do where there is something
    output: str = ""  # that padding changes; "": none was compared
    size: int | None = None  # at which it does
    padded_to: int | None = None


class PaddingProof(Record, frozen=True, kw_only=True):
    """Which sizes of a model's calls may be padded. Which sizes to pad to is chosen later."""

    padding: Padding | None = None  # everything that was proven, up to the largest declared sizes; None: nothing
    refused: tuple[PaddingLeak, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every size that was asked for may be padded."""
        return self.padding is not None and not self.refused


class RegionPart(Record, frozen=True, kw_only=True):
    """One submodule of a region, as it was built: a line of `regions.json` among a candidate's files."""

    region: int  # number of the region in the candidate
    path: str  # of the submodule
    guard: Guard  # which of its calls the engine takes
    folder: str = ""  # of the engine's files in the candidate's folder; "": that folder itself


class Evidence(Record, frozen=True, kw_only=True):
    """The figures behind an entry; the raw samples are in the journal."""

    versus_eager: Comparison | None = None
    versus_compile: Comparison | None = None  # against plain torch.compile, where that was possible
    eager_p50_s: float | None = None
    p50_s: float | None = None
    callers: int = 1  # at the same time: the two above are wall seconds per call over all of them
    cold_s: float | None = None
    warm_s: float | None = None  # first call of a fresh process that finds the artifacts
    peak_rss_bytes: int | None = None
    steady_rss_bytes: int | None = None
    break_even: BreakEven | None = None
    candidates_tried: int = 0
    check: str = ""
    tolerance: float | None = None  # of a lower precision, as in the check
    relative_error: float | None = None  # as in the check


class PlanEntry(Record, frozen=True, kw_only=True):
    """One way to run the calls that its guard takes."""

    name: str = ""  # what verdicts and journal lines call it; "": the only one
    module: str = ""  # path of the submodule that it is about; "": the whole model
    guard: Guard
    candidate: Candidate
    evidence: Evidence
    sentence: str  # the honest sentence
    artifacts: tuple[ArtifactFile, ...] = ()
    artifacts_dir: str = ""  # relative to the plan's folder
    frozen_weights: bool = False  # the artifact holds weight values: later updates invalidate it
    weights_sha256: str | None = None  # digest of weights that the build baked into files: only they are served
    caveats: tuple[str, ...] = ()  # as in the check, and which parts stay in eager because they are to blame
    padding: Padding | None = None  # calls are padded to the sizes that the engine was built for; None: never
    split: SplitCalls | None = None  # calls with many rows are answered in parts, each padded where needed; None: never

    @property
    def is_for_sizes(self) -> bool:
        """Whether it is of a plan for many sizes: built for one of them, or with calls that are padded or cut."""
        return bool(self.candidate.sizes or self.padding or self.split)


class Plan(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What was decided for this model on this machine. What no entry takes goes to eager."""

    schema: int
    compilot: str  # version that wrote it
    created: str  # ISO 8601, UTC
    workload: WorkloadRef
    fingerprint: Fingerprint
    because: str
    process: ProcessSettings = ProcessSettings()  # of the process that runs it: one for all entries
    entries: tuple[PlanEntry, ...] = ()

    @property
    def path(self) -> Path | None:
        """Where its file lies, as far as this process knows; no part of the record: paths are of one machine."""
        return next((found for find in _finders if (found := find(self)) is not None), None)

    def __str__(self) -> str:
        """What was chosen and why, and where the files are: two lines. `repr` has every field."""
        return "\n".join(filter(None, (f"plan for {self.workload.label}: {self._chosen()}", self._files())))

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        import html  # here: a program that only runs a plan does without its table of entities

        name, chosen, files = (html.escape(text) for text in (self.workload.label, self._chosen(), self._files()))
        return f"<b>plan for {name}</b>: {chosen}" + (f"<br><code>{files}</code>" if files else "")

    def _chosen(self) -> str:
        if not self.entries:
            return f"keep eager, because {self.because}"
        if len({entry.sentence for entry in self.entries}) < len(self.entries):  # one for all of them
            names = ", ".join(entry.name or entry.candidate.label for entry in self.entries)
            return f"{len(self.entries)} programs ({names}): {self.entries[0].sentence or self.because}"
        return "; ".join(f"{entry.candidate.label}: {entry.sentence or self.because}" for entry in self.entries)

    def _files(self) -> str:
        return "" if self.path is None else f"files: {self.path.parent} ({self.path.name})"


def find_plans_with(find: Callable[[Plan], Path | None]) -> None:
    """For `Plan.path`: who knows where a plan's file lies. Records stand alone; the list is kept elsewhere."""
    _finders.append(find)


_finders: list[Callable[[Plan], Path | None]] = []


# --------------------------------------------------------------------------------------------------------------------
# 7. The bundle: a plan that can travel
# --------------------------------------------------------------------------------------------------------------------


class Weights(enum.StrEnum):
    """Where a bundle's weights are."""

    BAKED = "baked"  # inside the engines' files
    MODEL = "model"  # in the user's model object
    CARRIED = "carried"  # in a safetensors file of the bundle


class GoldenOutput(Record, frozen=True, kw_only=True):
    """One output leaf of the golden call and how far an answer may be from it."""

    path: str
    rmse_limit: float = 0.0  # 0: must be equal
    text: str | None = None  # of a leaf that is no tensor: its repr


class Golden(Record, frozen=True, kw_only=True):
    """A call whose answer is known: run before the first answer is served."""

    inputs: str  # safetensors file in the bundle, one tensor per input leaf
    outputs: str  # the same for eager's answer
    expected: tuple[GoldenOutput, ...]


class BundleEntry(Record, frozen=True, kw_only=True):
    """One plan entry's files. Which engine reads them is said by the plan."""

    folder: str  # of the entry's files in the bundle; "" when it has none
    golden: Golden | None = None
    needs_compiler: bool = False  # a C++ compiler must be there at the start
    start_s: float | None = None  # measured where it was packed: open, check, load, golden call


class Parameter(Record, frozen=True, kw_only=True):
    """One parameter of the model's forward, so that calls can be understood without the model."""

    name: str
    kind: str  # of inspect.Parameter: "POSITIONAL_OR_KEYWORD", ...
    default: str | None = None  # a literal; None: it must be given (or its default is none that a file can hold)


class Manifest(Record, frozen=True, kw_only=True):
    """What is in a bundle: every file with its digest, and what it was made for. The plan is one of the files."""

    schema: int
    compilot: str  # version that packed it
    created: str  # ISO 8601, UTC
    label: str  # the model's class name, for people
    engine: str  # of the first entry, "eager" where the plan keeps eager
    engines: tuple[str, ...] = ()  # of all entries
    fingerprint: Fingerprint
    weights: Weights
    standalone: bool = False  # the files are the whole model: no model object is needed
    entries: tuple[BundleEntry, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    files: tuple[ArtifactFile, ...] = ()  # all but the manifest, its digest and its signature
    sentences: tuple[str, ...] = ()  # the plan's honest ones, and what packing has to say
    built: dict[str, str] = {}  # how: packages and commands, for people


# --------------------------------------------------------------------------------------------------------------------
# 8. The journal: append-only, one line per record
# --------------------------------------------------------------------------------------------------------------------


class EngineExpectation(Record, frozen=True, kw_only=True):
    """What an engine's first point brought in earlier runs, by how near their models are."""

    engine: str
    speedup: float | None  # over eager, at the screening; None: it worked in none of them
    runs: int  # that tried it


class Expectation(Record, frozen=True, kw_only=True):
    """What earlier runs on this machine let a search expect. It orders the trials and decides nothing."""

    suggested: str  # the engine that promises most; "eager": none was faster
    engines: tuple[EngineExpectation, ...]  # the most promising first
    runs: int  # earlier ones that count: same machine and versions, a model alike
    nearest: tuple[str, ...]  # labels of their models, nearest first; some at most
    left_out: int = 0  # other runs: another machine, other versions, no model alike, no features
    unreadable: int = 0  # runs that are gone, damaged, unfinished or of another version of compilot


class SourceCommit(Record, frozen=True, kw_only=True):
    """Which state of the model's git repository a run saw."""

    commit: str  # all digits
    dirty: bool = False  # tracked files were changed since, or the target's own file is not in it


class RunHeader(Record, frozen=True, kw_only=True, tag="run"):
    """First line of a journal, and the first of each resumed part: what was asked for."""

    schema: int
    compilot: str
    created: str
    workload: WorkloadRef
    fingerprint: Fingerprint
    budget_s: float
    objective: str = "latency"
    horizon_calls: int | None = None
    concurrency: int = 1  # callers at the same time: every sample is wall seconds per call over all of them
    argv: tuple[str, ...] = ()
    allow_precision: tuple[Precision, ...] = ()
    tolerance: float | None = None  # the user's own; None: each precision's default
    engines: tuple[str, ...] = ()  # the only ones to try; (): every one found
    max_memory_bytes: int | None = None  # of a candidate, the user's own; None: what the machine can spare
    max_compile_s: float | None = None  # of a candidate's cold start; None: as long as the budget lasts
    max_error: float | None = None  # relative RMSE against float64 that any candidate may have; None: the usual limits
    preset: str | None = None  # that some of these come from; None: there was none
    prior: bool = False  # earlier runs order the trials
    batch_sizes: tuple[int, ...] = ()  # that the plan is chosen for, or at which it is timed in the end
    trace: str = ""  # file of sizes that the plan is to serve, "(calls)" where they were given; "": there is none
    max_entries: int | None = None  # programs of a plan for a trace; None: the usual number
    expected: Expectation | None = None  # what they let expect; None: nothing
    source: SourceCommit | None = None  # of the model's repository; None: there is none, or git did not say
    on: str = ""  # address of the cluster that ran the candidates; "": this machine did
    nodes: dict[str, str] = {}  # labels that its nodes had to have
    exchange: str = ""  # URL that large files between the machines went through


class DiagnosisLine(Record, frozen=True, kw_only=True, tag="diagnosis"):
    diagnosis: Diagnosis
    prepare_s: float = 0.0  # building the shared precompiled header, paid once per machine


class TrialLine(Record, frozen=True, kw_only=True, tag="trial"):
    trial: Trial
    at_s: float  # since the run began
    entry: str = ""  # as a verdict's, here and below


class RaceLine(Record, frozen=True, kw_only=True, tag="race"):
    race: Race
    at_s: float
    entry: str = ""


class WarmStartLine(Record, frozen=True, kw_only=True, tag="warm-start"):
    """First call of a fresh process that reuses a trial's artifacts, from the confirmation."""

    candidate_id: str
    measurement: Measurement
    entry: str = ""


class BatchRaceLine(Record, frozen=True, kw_only=True, tag="batch-race"):
    """Arms side by side at one batch size; of a plan for batch sizes, the requests of that size in its last replay."""

    batch: int
    race: Race | None  # None: eager itself could not do it
    lost: dict[str, str] = {}  # candidate id, or a policy's -> why it has no figure at this size
    at_s: float = 0.0


class TrafficLine(Record, frozen=True, kw_only=True, tag="traffic"):
    """The sizes of a trace, what padding was proven, and what each engine's programs cost there."""

    traffic: Traffic
    proof: PaddingProof
    engines: tuple[EngineSizes, ...] = ()
    notes: tuple[str, ...] = ()
    at_s: float = 0.0


class ReplayLine(Record, frozen=True, kw_only=True, tag="replay"):
    """Policies side by side over requests of a trace."""

    replay: Replay
    at_s: float = 0.0


class VerdictLine(Record, frozen=True, kw_only=True, tag="verdict"):
    verdict: Verdict
    at_s: float


class NodeLine(Record, frozen=True, kw_only=True, tag="node"):
    """A node of a cluster: whether candidates were tried there, and how eager's time there compares."""

    node: str  # its name
    host: str = ""  # as of a lease
    used: bool = False
    because: str = ""  # why it was used, or why not
    aa_low: float | None = None  # eager's time here over eager's time on the first node, 95 % interval
    aa_high: float | None = None


JournalLine = (
    RunHeader
    | DiagnosisLine
    | TrialLine
    | RaceLine
    | WarmStartLine
    | BatchRaceLine
    | TrafficLine
    | ReplayLine
    | VerdictLine
    | NodeLine
)


def encode(record: Any) -> bytes:
    """JSON of a record, on one line."""
    return msgspec.json.encode(record)
