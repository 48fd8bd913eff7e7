"""A shape trace drives the model over the sizes that a program really has, in their order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from compilot.diagnose import driving
from compilot.diagnose.examination import Examination
from compilot.errors import InputError
from compilot.records import CallSizes, DimRange
from compilot.traces.reading import ShapeSpec, scan
from compilot.workload import Workload
from compilot.workload.variations import traced_sizes

DYNAMIC = {"tokens": {0: (1, 8), 1: (1, 64)}, "mask": {1: (1, 64)}}
PROGRAM = Path(__file__).parents[2] / "data" / "breaks" / "declared_range.py"


def read_trace(given: ShapeSpec) -> tuple[CallSizes, ...]:
    return scan(given).calls()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.seen.append((tuple(tokens.shape), tuple(mask.shape)))
        return tokens * mask


@pytest.fixture
def workload() -> Workload:
    return Workload(Net(), (torch.ones(4, 16), torch.ones(4, 16)), dynamic=DYNAMIC)


def test_lines_are_read_in_either_spelling(tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text('# what production sends\ntokens:0=2 tokens:1=37\n\n{"tokens:1": 5}\n')
    assert read_trace(file) == (
        CallSizes(line=2, sizes={"tokens:0": 2, "tokens:1": 37}),
        CallSizes(line=4, sizes={"tokens:1": 5}),
    )
    assert read_trace([{"mask": 5}]) == (CallSizes(line=1, sizes={"mask": 5}),)


def test_calls_are_made_in_order_and_dimensions_that_move_together_do(workload: Workload) -> None:
    calls: list[str] = []
    trace = read_trace([{"tokens:1": 37}, {"mask": 9}, {"tokens:0": 1, "mask:1": 16}])
    assert driving.drive(workload, workload.model, calls.append, trace) == []
    assert calls == ["tokens:1=37 (line 1)", "mask=9 (line 2)", "tokens:0=1 mask:1=16 (line 3)"]
    assert workload.model.seen == [((4, 37), (4, 37)), ((4, 9), (4, 9)), ((1, 16), (4, 16))]


def test_the_end_of_a_nested_name_will_do_in_a_trace_as_in_a_declaration() -> None:
    class Nested(nn.Module):
        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return batch["image"] + 1

    nested = Workload(Nested(), ({"image": torch.ones(2, 3)},), dynamic={"image": {0: (1, 8)}})
    [by_dim, by_name] = read_trace([{"image:0": 4}, {"image": 5}])
    assert [*traced_sizes(nested, by_dim).values(), *traced_sizes(nested, by_name).values()] == [4, 5]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"seq": 5}, "no dimension 'seq' is declared; declared are mask:1 (1..64), tokens:0 (1..8), tokens:1 (1..64)"),
        ({"tokens": 5}, "'tokens' may be tokens:0 or tokens:1; write which"),
        ({"tokens:1": 65}, "line 1 of the shape trace: size 65 of tokens:1 is outside its declared range 1..64"),
    ],
)
def test_a_wrong_line_is_told_before_anything_runs(sizes: dict[str, int], told: str, workload: Workload) -> None:
    with pytest.raises(InputError) as problem:
        Examination(workload, read_trace([sizes]))
    assert told in str(problem.value)


def test_what_varies_in_the_trace_and_is_not_declared_gets_its_range_from_there() -> None:
    trace = read_trace([{"input:0": 3}, {"input:0": 7, "input:1": 2}])
    seen = Examination(Workload(nn.ReLU(), (torch.ones(4, 2),)), trace)
    assert [(dim.input, dim.dim, dim.min, dim.max) for dim in seen.workload.dynamic] == [("input", 0, 3, 7)]
    assert seen.notes == ["input:0 varies in the trace and is not declared; its range there, 3..7, is used"]
    [narrow, wide] = [call.args[0].shape for _, call in driving.listed_calls(seen.workload, trace)]
    assert (narrow, wide) == ((3, 2), (7, 2))


def test_the_ranges_of_the_whole_trace_count_where_only_some_calls_are_driven(workload: Workload) -> None:
    whole = {"mask:0": DimRange(min=1, max=900), "tokens:1": DimRange(min=1, max=64)}
    seen = Examination(workload, read_trace([{"mask:0": 5, "tokens:1": 9}]), whole)
    dims = {(dim.input, dim.dim): (dim.min, dim.max) for dim in seen.workload.dynamic}
    assert dims == {("mask", 0): (1, 900), ("mask", 1): (1, 64), ("tokens", 0): (1, 8), ("tokens", 1): (1, 64)}


@pytest.mark.parametrize("text", ["", "tokens:1", "tokens:1=many", "{tokens: 1}", '{"tokens:1": "5"}'])
def test_what_is_no_trace_is_the_users_mistake(text: str, tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text(text)
    with pytest.raises(InputError, match="shape trace"):
        read_trace(file)
    with pytest.raises(InputError, match="cannot read the shape trace"):
        read_trace(tmp_path / "nowhere.txt")


@pytest.mark.slow
def test_the_command_drives_with_the_trace(tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("tokens=16\ntokens=16\ntokens=40\n")
    command = [sys.executable, "-c", "from compilot.cli.main import run; run()", "doctor", f"{PROGRAM}:broken"]
    command += ["--quick", "--json", "-q", "--shapes", "sizes.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["report"]
    assert report["calls"][-3:] == ["tokens=16 (line 1)", "tokens=16 (line 2)", "tokens=40 (line 3)"]
    assert report["driven"] == 3
    (again,) = report["recompiles"]
    assert (again["call"], again["old"], again["new"]) == ("tokens=40 (line 3)", "16", "40")
    assert again["declared"]
