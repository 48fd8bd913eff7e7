"""A doctor's report with every part filled in, some of it meant to break a careless page."""

from __future__ import annotations

from compilot.diagnose.report_records import (
    REPORT_SCHEMA,
    Bound,
    Category,
    CodeFrame,
    CompileTime,
    DoctorReport,
    Graph,
    GraphBreak,
    InputPipeline,
    ModuleNode,
    OperatorTime,
    Roofline,
    RooflinePoint,
    Saving,
    StageTime,
    SubmoduleTime,
)
from compilot.diagnose.timing.spans import Stage, phases, spans, stage_times
from compilot.records import Finding

NASTY = "</pre><script>alert('x')</script><img src=http://example.invalid/x.png>"

_TIMELINE = (
    ("inductor_import", 0.0, 0.7),
    ("entire_frame_compile", 0.75, 11.9),
    ("compile_attempt_0", 0.8, 11.6),
    ("bytecode_tracing", 0.8, 1.5),
    ("backend_compile", 1.55, 11.5),
    ("inductor_codecache_torch_key", 1.6, 2.1),
    ("create_aot_dispatcher_function", 2.2, 11.4),
    ("aot_collect_metadata", 2.3, 2.6),
    ("compile_fx.<locals>.fw_compiler_base", 2.8, 11.3),
    ("_recursive_joint_graph_passes", 2.9, 3.4),
    ("fx_codegen_and_compile", 3.5, 11.2),
    ("GraphLowering.run", 3.6, 4.15),
    ("GraphLowering.codegen", 4.2, 6.4),
    ("Scheduler.__init__", 4.3, 4.75),
    ("Scheduler.codegen", 4.8, 6.3),
    ("async_compile.wait", 6.5, 11.1),
    ("build_guards", 11.65, 11.85),
)


def _phases() -> list[object]:
    marks = [(name, True, begin, "0/0") for name, begin, _ in _TIMELINE]
    marks += [(name, False, end, "0/0") for name, _, end in _TIMELINE]
    return phases(sorted(marks, key=lambda mark: (mark[2], not mark[1])))  # type: ignore[return-value]


def _stages() -> tuple[StageTime, ...]:
    whole = stage_times(_phases(), 12.3, run_s=0.02)  # type: ignore[arg-type]
    parts = [
        StageTime(name=Stage.CPP, wall_s=1.4 - 0.1 * i, submodule=f"encoder.layer.{i}.attention.self.query")
        for i in range(6)
    ]
    return (*whole, *parts)


def _modules() -> tuple[ModuleNode, ...]:
    nodes = [
        ModuleNode(path="", class_name="Classifier", graphs=(0, 1)),
        ModuleNode(path="encoder", class_name="Encoder"),
        ModuleNode(path="encoder.layer", class_name="ModuleList"),
    ]
    for i in range(8):
        nodes.append(ModuleNode(path=f"encoder.layer.{i}", class_name="Layer", graphs=(0,)))
        nodes.append(ModuleNode(path=f"encoder.layer.{i}.attention", class_name="Attention", graphs=(0,)))
        nodes.append(ModuleNode(path=f"encoder.layer.{i}.mlp", class_name="Sequential", graphs=(0,)))
    nodes.append(ModuleNode(path="router", class_name="Router", graphs=(0, 1), breaks=(0, 1)))
    nodes.append(ModuleNode(path="head", class_name="Linear", graphs=(1,)))
    return tuple(nodes)


def _break(line: int, source: str, category: Category) -> GraphBreak:
    return GraphBreak(
        where=CodeFrame(file="models/router.py", line=line, function="forward", source=source),
        category=category,
        cause="the branch depends on a tensor's values, which the compiler cannot know",
        fix="write it with torch.where, so that both sides are computed",
        gb_id="GB0170",
        gb_type="Data-dependent branching",
        per_call=2,
        outside_s=0.0021,
    )


def full_report() -> DoctorReport:
    """Every section of the page has something to show."""
    return DoctorReport(
        schema=REPORT_SCHEMA,
        compilot="0.2.0",
        created="2026-01-02T03:04:05+00:00",
        label="Classifier",
        target="models/classifier.py:factory",
        eager_call_s=0.0123,
        findings=(
            Finding(
                kind="data-loading",
                where="",
                explanation="data loading is 70 % of the step; compiling will not help",
                advice="fix the input pipeline before the model: give the DataLoader more workers (num_workers)",
                cost_s=0.0287,
            ),
            Finding(
                kind="graph-break",
                where="models/router.py:41",
                explanation="the branch depends on a tensor's values, twice per call",
                advice="write it with torch.where, so that both sides are computed",
                cost_s=0.0042,
            ),
            Finding(
                kind="recompile",
                where="models/classifier.py:17",
                explanation="the size of x at dimension 1 changed from 128 to 131: " + NASTY,
                advice='mark the dimension dynamic: Workload(..., dynamic={"x": {1: (1, 512)}})',
            ),
            Finding(
                kind="memory-bound",
                where="",
                explanation="operators that wait for memory take 58 % of a call of 12.3 ms",
                advice="fusion (any compiler) and lower precision help, because both move fewer bytes",
            ),
        ),
        graphs=tuple(
            Graph(index=i, where=CodeFrame(file="a.py", line=1, function="f"), ops=9, modules=("", "first"), text=text)
            for i, text in enumerate(("# first\nlinear: float32[2, 4] = linear(x, first.weight, first.bias)", ""))
        ),
        breaks=(
            _break(41, "if scores.max() > 0:", Category.DATA_DEPENDENT_BRANCH),
            _break(47, NASTY, Category.PRINT),
        ),
        modules=_modules(),
        stages=_stages(),
        compile_time=CompileTime(
            total_s=12.3,
            compiler_runs=9,
            header_builds=1,
            graphs=2,
            spans=spans(_phases(), 0.0),  # type: ignore[arg-type]
            savings=(
                Saving(what="kept cache", saves_s=9.6, because="estimate: spares everything after graph capture"),
                Saving(what="regional compile", saves_s=7.1, because="estimate: 8 blocks hold 80 % of the operators"),
            ),
        ),
        bound=Bound(
            limited_by="memory",
            because="operators that wait for memory take 58 % of a call of 12.3 ms",
            overhead_share=0.12,
            memory_share=0.58,
            compute_share=0.30,
            advice="memory-bound: fusion (any compiler) and lower precision help",
            operators=(
                OperatorTime(name="aten.add", calls=24, wall_s=0.0041, flops=2.4e7, bytes=9e7, limited_by="memory"),
                OperatorTime(name="aten.addmm", calls=48, wall_s=0.0036, flops=4.8e8, bytes=3e7, limited_by="compute"),
                OperatorTime(name="aten.view", calls=130, wall_s=0.0002, flops=0, bytes=0, limited_by="overhead"),
            ),
            submodules=(
                SubmoduleTime(path="encoder.layer.0.mlp", class_name="Sequential", wall_s=0.002, own_s=0.0019),
                SubmoduleTime(path="", class_name="Classifier", wall_s=0.0123, own_s=0.0004),
            ),
        ),
        roofline=Roofline(
            peak_flops_per_s=1.5e11,
            bandwidth_bytes_per_s=3.2e10,
            achieved_flops_per_s=4.3e10,
            achieved_bytes_per_s=1e10,
            flops=5.3e8,
            bytes=1.3e8,
            least_bytes=4e7,
            points=(
                RooflinePoint(label="eager", call_s=0.0123, flops_per_s=4.3e10, roof_share=0.29),
                RooflinePoint(label="inductor freezing", call_s=0.0061, flops_per_s=8.7e10, roof_share=0.58),
            ),
        ),
        input_pipeline=InputPipeline(
            load_s=0.0287, step_s=0.041, because="data loading is 70 % of the step; compiling will not help", steps=30
        ),
        notes=("the model is in train mode",),
    )
