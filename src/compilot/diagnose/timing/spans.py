"""From marks on torch's timeline to stages that add up.

In: marks of the thread that compiles. Out: the tree of phases as `Span` records, and the wall time of each stage.
Every moment belongs to one stage: that of the innermost phase whose name is known. What no phase covers is "other", so
the stages always add up to the total. Pure: no torch, no clock.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilot.diagnose.report_records import Span, StageTime


class Stage(enum.StrEnum):
    """Where compile time goes, in the order in which it is spent."""

    IMPORT = "importing the compiler"
    CAPTURE = "graph capture"
    AUTOGRAD = "autograd tracing"
    FUSION = "fusion and scheduling"
    CODEGEN = "code generation"
    CPP = "C++ compile"
    AUTOTUNE = "autotuning"
    CACHE = "cache lookup"
    RUN = "running the model"
    OTHER = "other"


# The first pattern that fits a phase's name decides; a phase that fits none belongs to the stage around it.
_STAGES = (
    (r".*autotun|.*benchmark|.*coordinate_descent|.*_template_precompiling", Stage.AUTOTUNE),
    (r"inductor_import", Stage.IMPORT),
    (r".*torch_key|.*triton_key|.*[Cc]ache.*lookup|AOTAutogradCache\.|TritonBundler|pgo\.|FxGraphCache", Stage.CACHE),
    (r"compile_file|async_compile|PyCodeCache|.*precompile_header|AotCodeCompiler|reload_kernel", Stage.CPP),
    (r"code_gen$|GraphLowering\.codegen|Scheduler\.codegen|.*Wrapper.*\.generate|generate_kernel_code", Stage.CODEGEN),
    (r"GraphLowering\.compile_to", Stage.CODEGEN),
    (r"inductor_compile|fx_codegen_and_compile|compile_fx|GraphLowering|Scheduler", Stage.FUSION),
    (r"_recursive_.*_passes|pass\.|additional_fake_tensor_prop|convert_conv_weights", Stage.FUSION),
    (r"create_aot_dispatcher|aot_|min_cut|backward\._backward_impl|backend_compile", Stage.AUTOGRAD),
    (r"entire_frame_compile|compile_attempt|bytecode|build_guards|dynamo|gc$|.*runtime_asserts", Stage.CAPTURE),
    (r"fullgraph_capture|invoke_subgraph|TranslationValidator", Stage.CAPTURE),
)


class Phase(NamedTuple):
    """One phase: name, compile id, begin and end on the same clock."""

    name: str
    compile_id: str
    begin_s: float
    end_s: float


class _Node(NamedTuple):
    phase: Phase
    stage: Stage
    depth: int
    children: list[_Node]


class _Begun(NamedTuple):
    name: str
    compile_id: str
    at_s: float


def phases(marks: Iterable[tuple[str, bool, float, str]]) -> list[Phase]:
    """Pairs of begin and end; marks are (name, begins, at_s, compile_id). An end without a begin is dropped."""
    open_: list[_Begun] = []
    found: list[Phase] = []
    for name, begins, at_s, compile_id in marks:
        if begins:
            open_.append(_Begun(name, compile_id, at_s))
            continue
        place = next((i for i in reversed(range(len(open_))) if open_[i].name == name), None)
        if place is not None:  # what was left open inside (an exception) ends here as well
            found += [Phase(begun.name, begun.compile_id, begun.at_s, at_s) for begun in open_[place:]]
            del open_[place:]
    return sorted(found, key=lambda phase: (phase.begin_s, -phase.end_s))


def stage_of(name: str, around: Stage) -> Stage:
    """The stage of a phase inside another one."""
    return next((stage for pattern, stage in _STAGES if re.match(pattern, name)), around)


def spans(found: Sequence[Phase], begin_s: float) -> tuple[Span, ...]:
    """The phases as records, parents before their children, times since begin_s."""
    return tuple(
        Span(
            name=node.phase.name,
            stage=node.stage,
            start_s=max(0.0, node.phase.begin_s - begin_s),
            wall_s=node.phase.end_s - node.phase.begin_s,
            depth=node.depth,
        )
        for node in _walk(_tree(found))
    )


def stage_times(found: Sequence[Phase], total_s: float, run_s: float = 0.0) -> tuple[StageTime, ...]:
    """Wall time per stage, in order, empty ones left out; run_s of what no phase covers is the model's own work."""
    sums = dict.fromkeys(Stage, 0.0)
    for node in _walk(_tree(found)):
        inside = sum(child.phase.end_s - child.phase.begin_s for child in node.children)
        sums[node.stage] += max(0.0, node.phase.end_s - node.phase.begin_s - inside)
    rest = max(0.0, total_s - sum(sums.values()))
    sums[Stage.RUN] += min(run_s, rest)
    sums[Stage.OTHER] += rest - min(run_s, rest)
    return tuple(StageTime(name=stage, wall_s=wall) for stage, wall in sums.items() if wall > 0 or stage is Stage.OTHER)


def _tree(found: Sequence[Phase]) -> list[_Node]:
    roots: list[_Node] = []
    path: list[_Node] = []
    for phase in found:
        while path and phase.begin_s >= path[-1].phase.end_s:
            path.pop()
        around = path[-1].stage if path else Stage.OTHER
        clipped = phase._replace(end_s=min(phase.end_s, path[-1].phase.end_s)) if path else phase
        node = _Node(clipped, stage_of(phase.name, around), len(path), [])
        (path[-1].children if path else roots).append(node)
        path.append(node)
    return roots


def _walk(nodes: Iterable[_Node]) -> Iterable[_Node]:
    for node in nodes:
        yield node
        yield from _walk(node.children)
