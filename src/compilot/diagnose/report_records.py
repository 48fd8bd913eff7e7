"""What the doctor writes down: one `DoctorReport` per examination.

In: nothing. Out: frozen records; the same JSON travels from the child, lies in `report.json` and feeds the terminal,
the HTML page, `--fail-on` and `--fix-check`. Covered: the shape of the data. Not covered: how any of it is found
(`graphs`, `recompiles`, `timing`).
"""

from __future__ import annotations

import enum

from compilot.records import Finding, Fingerprint, Record

REPORT_SCHEMA = 1  # raised when an old reader could misread a new report


class Category(enum.StrEnum):
    """What kind of code breaks a graph or makes it compile again."""

    # graph breaks
    DATA_DEPENDENT_BRANCH = "data-dependent-branch"
    SCALAR_READ = "scalar-read"  # .item(), int(tensor), .tolist()
    DYNAMIC_OUTPUT_SHAPE = "dynamic-output-shape"  # nonzero, unique, masked_select
    PRINT = "print"
    LOGGING = "logging"
    UNSUPPORTED_BUILTIN = "unsupported-builtin"
    THIRD_PARTY_CALL = "third-party-call"
    NUMPY = "numpy"
    GENERATOR = "generator"
    CONTEXT_MANAGER = "context-manager"
    SIDE_EFFECT = "side-effect"
    AUTOGRAD = "autograd"
    HOOK = "hook"
    EXCEPTION = "exception"
    EXPLICIT = "explicit"  # torch.compiler.disable, graph_break()
    UNSUPPORTED_OPERATOR = "unsupported-operator"
    UNSUPPORTED_PYTHON = "unsupported-python"
    # recompiles
    SHAPE = "shape"
    DTYPE = "dtype"
    STRIDE = "stride"
    DEVICE = "device"
    REQUIRES_GRAD = "requires-grad"
    ATTRIBUTE = "attribute"
    GLOBAL_VALUE = "global-value"
    CLOSURE_VALUE = "closure-value"
    ARGUMENT_VALUE = "argument-value"
    ARGUMENT_KIND = "argument-kind"  # None or not, another type
    CONTAINER_LENGTH = "container-length"
    OBJECT_IDENTITY = "object-identity"
    GRAD_MODE = "grad-mode"
    THREADS = "threads"
    GLOBAL_STATE = "global-state"  # autocast, default dtype, determinism flags
    RECOMPILE_LIMIT = "recompile-limit"
    OTHER = "other"


class CodeFrame(Record, frozen=True, kw_only=True):
    """One place in source code."""

    file: str
    line: int
    function: str
    source: str = ""  # the line itself, without indentation
    library: bool = False  # torch, site-packages or the standard library: not the user's to edit


class GraphBreak(Record, frozen=True, kw_only=True):
    """One place where the compiler had to stop a graph and hand back to Python."""

    where: CodeFrame  # the innermost frame of the user's own code
    category: Category
    cause: str  # plain words
    fix: str  # for this code
    inside: CodeFrame | None = None  # the frame in a library where it really happens
    gb_id: str = ""  # torch's own number, "GB0124"
    gb_type: str = ""  # torch's own title
    link: str = ""  # torch's page about it
    modules: tuple[str, ...] = ()  # paths of the submodules that run it, "" for the root
    per_call: int = 1  # how often it happens in one call of the model
    outside_s: float | None = None  # time per call spent outside graphs because of it
    fusion_s: float | None = None  # time per call of reading and writing what a whole graph would keep in registers
    skips: tuple[str, ...] = ()  # functions that are not only cut in two: they run eagerly as a whole
    recompiles: int = 0  # how often the value made here changed and what follows was compiled again; listed only here
    raises: bool = False  # torch.compile would not go on in eager but raise an error


class Recompile(Record, frozen=True, kw_only=True):
    """One compile that an earlier compile should have served."""

    where: CodeFrame  # the line that needs the thing that changed, or the head of the function
    function: CodeFrame  # what was compiled again
    category: Category
    what: str  # the thing that changed: "size of x at dimension 1", "self.step", "the grad mode"
    old: str
    new: str
    cause: str  # plain words
    fix: str
    guard: str = ""  # torch's own words
    call: str = ""  # which call of the drive it was: "example 2", "smallest"
    count: int = 1  # how often this same thing changed during the drive
    functions: int = 1  # how many functions one change made it compile again; graph breaks make several of one
    compile_s: float | None = None  # tracing time alone; the compiler behind it costs more
    resumed: bool = False  # what was compiled again is the rest of a function after a graph break
    name: str = ""  # the argument, attribute or variable, as written in the source
    dim: int | None = None  # of a tensor, where the change is about one dimension
    declared: bool = False  # this dimension is declared dynamic: compilot's plans see to it
    limit_hit: bool = False  # later calls of this function silently run eagerly
    gave_up: tuple[str, ...] = ()  # file:line of every function that does


class Graph(Record, frozen=True, kw_only=True):
    """One captured graph of the first call."""

    index: int
    where: CodeFrame  # the frame it came from
    ops: int
    modules: tuple[str, ...] = ()  # paths of the submodules whose work is in it
    text: str = ""  # its operators, one a line; "": the report has enough text of other graphs


class ModuleNode(Record, frozen=True, kw_only=True):
    """One submodule, with what the compiler made of it."""

    path: str  # "" for the root
    class_name: str
    graphs: tuple[int, ...] = ()  # indexes of graphs with work of this module's own
    breaks: tuple[int, ...] = ()  # indexes into `breaks`


class StageTime(Record, frozen=True, kw_only=True):
    """Compile time of one stage, or of one submodule within it."""

    name: str
    wall_s: float
    submodule: str = ""  # "" for the whole model; a submodule's share is an estimate, by its number of operators


class Span(Record, frozen=True, kw_only=True):
    """One phase of the compile on torch's own timeline; parents stand before their children."""

    name: str
    stage: str
    start_s: float  # since the call began
    wall_s: float
    depth: int  # 0: directly below the whole call


class Saving(Record, frozen=True, kw_only=True):
    """What one way to compile less would save. An estimate, and said to be one."""

    what: str  # "kept cache", "regional compile"
    saves_s: float
    because: str


class CompileTime(Record, frozen=True, kw_only=True):
    """One cold compile: the first call in an empty cache."""

    total_s: float
    compiler_runs: int = 0
    header_builds: int = 0  # of them, builds of the precompiled header that all models on a machine share
    graphs: int = 0
    spans: tuple[Span, ...] = ()
    savings: tuple[Saving, ...] = ()


class OperatorTime(Record, frozen=True, kw_only=True):
    """All calls of one operator in one eager call of the model."""

    name: str  # "aten.addmm"
    calls: int
    wall_s: float
    flops: float
    bytes: float  # read and written, as if nothing stayed in a cache
    limited_by: str  # "overhead", "memory", "compute"


class SubmoduleTime(Record, frozen=True, kw_only=True):
    """Time of one submodule in one eager call."""

    path: str
    class_name: str
    wall_s: float  # its children included
    own_s: float  # without them


class Bound(Record, frozen=True, kw_only=True):
    """What limits an eager call; the shares add up to one."""

    limited_by: str  # "overhead", "memory", "compute"
    because: str
    overhead_share: float = 0.0
    memory_share: float = 0.0
    compute_share: float = 0.0
    advice: str = ""
    operators: tuple[OperatorTime, ...] = ()  # the longest first
    submodules: tuple[SubmoduleTime, ...] = ()  # the longest own time first


class RooflinePoint(Record, frozen=True, kw_only=True):
    """One way to run the model, and how near it comes to the roof."""

    label: str  # "eager", or the plan's candidate
    call_s: float
    flops_per_s: float
    roof_share: float | None  # of what this machine could do at this intensity; above 1: it works from the caches;
    # None: it computes in a lower precision, and the roof is not that precision's


class Roofline(Record, frozen=True, kw_only=True):
    """This machine's measured roof and how far below it the model runs."""

    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    achieved_flops_per_s: float | None = None  # of eager
    achieved_bytes_per_s: float | None = None
    dtype: str = "float32"  # of the matmul behind the peak
    flops: float | None = None  # per call
    bytes: float | None = None  # per call, every operator's reads and writes
    least_bytes: float | None = None  # per call, every weight, input and output moved once
    points: tuple[RooflinePoint, ...] = ()


class InputPipeline(Record, frozen=True, kw_only=True):
    """How long a step waits for its data."""

    load_s: float  # per step
    step_s: float  # per step, data included
    because: str = ""
    steps: int = 0


class DoctorReport(Record, frozen=True, kw_only=True):
    """One examination of one model: what is wrong, where, what it costs, how to fix it."""

    schema: int
    compilot: str  # version that wrote it
    created: str  # ISO 8601, UTC
    label: str
    target: str = ""
    fingerprint: Fingerprint | None = None
    eager_call_s: float | None = None
    calls: tuple[str, ...] = ()  # what the compiled model was called with, in order
    driven: int = 0  # calls of the drive among them; 0: there was none
    findings: tuple[Finding, ...] = ()  # ranked, the most costly first
    graphs: tuple[Graph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    modules: tuple[ModuleNode, ...] = ()
    stages: tuple[StageTime, ...] = ()
    compile_time: CompileTime | None = None
    bound: Bound | None = None
    roofline: Roofline | None = None
    input_pipeline: InputPipeline | None = None
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # what was not looked at and why: breaks and recompiles may be there that are not here

    @property
    def spread(self) -> int:
        """How many calls the cost of a recompile is spread over: those that a program makes, not the doctor's own."""
        return self.driven or len(self.calls) or 1
