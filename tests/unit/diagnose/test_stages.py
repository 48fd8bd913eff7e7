"""Compile time by stage: every moment belongs to one stage, and the stages add up."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

import pytest
import torch
from torch import nn

from compilot.diagnose.report_records import StageTime
from compilot.diagnose.timing.savings import cache_saving, like_regions, regional_saving
from compilot.diagnose.timing.spans import Stage, phases, spans, stage_times
from compilot.diagnose.timing.stages import Compiled, by_submodule, measure_compile
from compilot.workload import Workload


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + torch.sigmoid(self.linear(x)))


class Stack(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(depth))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# (name, begins, at_s, compile_id): a frame of 10 s with a backend of 8 s, in it 5 s of C++ with 1 s of another file
MARKS = [
    ("entire_frame_compile", True, 0.0, "0/0"),
    ("bytecode_tracing", True, 0.5, "0/0"),
    ("bytecode_tracing", False, 1.5, "0/0"),
    ("backend_compile", True, 2.0, "0/0"),
    ("GraphLowering.codegen", True, 3.0, "0/0"),
    ("Scheduler.__init__", True, 3.5, "0/0"),
    ("Scheduler.__init__", False, 4.0, "0/0"),
    ("GraphLowering.codegen", False, 5.0, "0/0"),
    ("async_compile.wait", True, 5.0, "0/0"),
    ("compile_file", True, 6.0, "0/0"),
    ("compile_file", False, 7.0, "0/0"),
    ("async_compile.wait", False, 10.0, "0/0"),
    ("backend_compile", False, 10.0, "0/0"),
    ("entire_frame_compile", False, 10.0, "0/0"),
    ("dynamo", False, 10.0, "0/0"),  # torch writes this end without a begin
]


def _by_name(stages: tuple[StageTime, ...]) -> dict[str, float]:
    return {stage.name: stage.wall_s for stage in stages if not stage.submodule}


def test_each_moment_counts_for_the_innermost_known_phase() -> None:
    times = _by_name(stage_times(phases(MARKS), total_s=12.0, run_s=0.5))
    assert times == {
        Stage.CAPTURE: 2.0,
        Stage.AUTOGRAD: 1.0,
        Stage.FUSION: 0.5,
        Stage.CODEGEN: 1.5,
        Stage.CPP: 5.0,
        Stage.RUN: 0.5,
        Stage.OTHER: 1.5,
    }


def test_spans_stand_parents_first_with_their_stage() -> None:
    found = spans(phases(MARKS), begin_s=-1.0)
    assert [(span.name, span.depth) for span in found][:3] == [
        ("entire_frame_compile", 0),
        ("bytecode_tracing", 1),
        ("backend_compile", 1),
    ]
    assert found[0].start_s == 1.0
    assert found[-1].stage == Stage.CPP


def test_a_phase_left_open_by_an_exception_ends_with_the_one_around_it() -> None:
    marks = [("entire_frame_compile", True, 0.0, ""), ("inductor_compile", True, 1.0, ""), MARKS[-2]]
    times = _by_name(stage_times(phases(marks), total_s=10.0))
    assert times == {Stage.CAPTURE: 1.0, Stage.FUSION: 9.0, Stage.OTHER: 0.0}


def test_submodules_share_a_stage_by_their_operators() -> None:
    stages = (StageTime(name=Stage.CPP, wall_s=8.0), StageTime(name=Stage.OTHER, wall_s=1.0))
    shares = by_submodule(stages, Counter({"": 2, "a": 4, "b": 2}))
    assert [(s.submodule, s.name, s.wall_s) for s in shares] == [("a", Stage.CPP, 4.0), ("b", Stage.CPP, 2.0)]
    assert by_submodule(stages, Counter()) == ()


def test_a_kept_cache_spares_what_comes_after_graph_capture() -> None:
    stages = (StageTime(name=Stage.CAPTURE, wall_s=3.0), StageTime(name=Stage.CPP, wall_s=8.0))
    saving = cache_saving(stages)
    assert saving is not None
    assert 7.0 < saving.saves_s < 8.0
    assert saving.because.startswith("estimate")
    assert cache_saving(stages[:1]) is None


def test_blocks_that_are_alike_are_compiled_once_by_regional_compile() -> None:
    model = Stack(depth=4)
    operators = Counter({f"blocks.{i}.{part}": 2 for i in range(4) for part in ("linear", "norm")} | {"head": 4})
    (group,) = like_regions(model, operators)
    assert (group.class_name, len(group.paths), group.operator_share) == ("Block", 4, 0.8)
    saving = regional_saving(model, operators, compiled_s=10.0)
    assert saving is not None
    assert saving.saves_s == pytest.approx(6.0)
    assert regional_saving(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), Counter({"0": 1}), 10.0) is None


def test_blocks_that_share_their_code_already_leave_nothing_to_save() -> None:
    """A graph break around them had each compiled for itself, and the first one's code serves all."""
    assert regional_saving(Stack(depth=4), Counter({"blocks.0.linear": 2, "blocks.0.norm": 2}), 10.0) is None


class Measured(NamedTuple):
    """One real cold compile, and its times by other clocks."""

    made: Compiled
    wall_s: float
    torchs_own_s: float


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    from torch._dynamo.utils import get_compilation_metrics

    workload = Workload(Stack().eval(), (torch.randn(8, 16),))
    folder = tmp_path_factory.mktemp("stages")
    begin = time.perf_counter()
    made = measure_compile(workload, workload.call, folder)
    wall_s = time.perf_counter() - begin
    frames_s = [one.entire_frame_compile_time_s for one in get_compilation_metrics()]  # None: it is not about a frame
    return Measured(made, wall_s, [seconds for seconds in frames_s if seconds is not None][-1])


@pytest.mark.compiles
@pytest.mark.measures
def test_stages_of_a_real_compile_add_up_to_its_wall_time(compiled: Measured) -> None:
    made, wall_s = compiled.made, compiled.wall_s
    times = _by_name(made.stages)
    assert sum(times.values()) == pytest.approx(made.time.total_s, rel=0.05)
    frames_s = sum(span.wall_s for span in made.time.spans if span.name == "entire_frame_compile")
    assert frames_s < made.time.total_s < wall_s  # around torch's own phases, within what a second call comes after
    assert times[Stage.OTHER] < 0.05 * made.time.total_s + 0.1  # nearly everything has a name
    assert {Stage.CAPTURE, Stage.AUTOGRAD, Stage.FUSION, Stage.CODEGEN, Stage.CPP} <= times.keys()


@pytest.mark.compiles
@pytest.mark.measures
def test_torch_counts_the_same_compile_time(compiled: Measured) -> None:
    frame = next(span for span in compiled.made.time.spans if span.name == "entire_frame_compile")
    assert frame.wall_s == pytest.approx(compiled.torchs_own_s, rel=0.05)


@pytest.mark.compiles
def test_compiler_runs_and_submodules_of_a_real_compile(compiled: Measured) -> None:
    made = compiled.made
    assert made.time.graphs == 1
    assert made.time.compiler_runs > made.time.header_builds
    assert {"blocks.0.linear", "blocks.2.norm", "head"} <= {stage.submodule for stage in made.stages}
