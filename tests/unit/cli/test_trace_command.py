"""`compilot trace`: what `read_trace` and `merge_traces` return, drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import Result

import compilot as public
from compilot.records import Trace
from compilot.report.trace_terminal import drawn

Command = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    sizes = [min(2 ** (number % 10) + number % 3, 512) for number in range(500)]
    (tmp_path / "sizes.txt").write_text("".join(f"ids:0=1 ids:1={size}\n" for size in sizes))
    return tmp_path / "sizes.txt"


def test_show_prints_the_record_as_json(compilot: Command, file: Path) -> None:
    result = compilot("trace", "show", str(file), "--json")
    assert result.exit_code == 0, result.output
    document = msgspec.convert(json.loads(result.stdout), Trace, dec_hook=lambda kind, value: kind(value))
    assert document == public.read_trace(file)


def test_show_draws_a_histogram_with_quantiles(compilot: Command, file: Path) -> None:
    lines = compilot("trace", "show", str(file)).stdout.splitlines()
    trace = public.read_trace(file)
    dim = trace.dims["ids:1"]
    assert lines[0] == f"500 calls, {trace.distinct} different sizes"
    assert lines[2] == f"ids:1  1..512, p50 {dim.p50}, p90 {dim.p90}, p99 {dim.p99}, {dim.distinct} sizes"
    bars = [line for line in lines if "#" in line]
    assert len(bars) == len([one for one in dim.bins if one.calls])
    assert bars[0].split()[0] == "1"
    longest = max(bars, key=lambda line: line.count("#"))
    assert longest.count("#") == 40
    assert longest.split()[-1] == f"{max(one.calls for one in dim.bins) / 500:.1%}"
    assert "never varies: ids:0=1" in lines
    top = trace.sizes[0]
    assert any(line.split() == [f"{top.calls / 500:.1%}", f"ids:1={top.sizes['ids:1']}"] for line in lines)


def test_in_a_terminal_bars_have_eighths(file: Path) -> None:
    console = Console(force_terminal=True, width=100, color_system=None)
    with console.capture() as shown:
        for part in drawn(public.read_trace(file)):
            console.print(part)
    assert "█" * 40 in shown.get()
    assert "#" not in shown.get()


def test_a_trace_of_one_size_is_one_line(compilot: Command, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x:0=4\nx:0=4\n")
    assert compilot("trace", "show", str(tmp_path / "one")).stdout == (
        "2 calls, 1 different size\n\nnever varies: x:0=4\n"
    )


def test_what_was_not_kept_is_said(tmp_path: Path, compilot: Command) -> None:
    header = {"type": "trace", "schema": 1, "model": "Net", "began": "2026-01-02T00:00:00+00:00", "sampling": 4}
    header |= {"calls": 9, "rounded": 2, "left_out": 3}
    (tmp_path / "it").write_text(json.dumps(header) + '\n{"x:0":4}\n{"x:0":8,"n":5}\n')
    lines = compilot("trace", "show", str(tmp_path / "it")).stdout.splitlines()
    assert lines[0] == "9 calls of Net since 2026-01-02T00:00:00+00:00, 2 different sizes"
    assert lines[1].startswith("2 calls with sizes rounded up")
    assert lines[2].startswith("3 calls without sizes")
    assert lines[3] == "one call in 4 was counted"


def test_merge_writes_and_shows_the_sum(compilot: Command, file: Path) -> None:
    out = file.with_name("both.jsonl")
    result = compilot("trace", "merge", str(file), str(file), "-o", str(out), "--json")
    assert result.exit_code == 0, result.output
    document = msgspec.convert(json.loads(result.stdout), Trace, dec_hook=lambda kind, value: kind(value))
    assert document == public.read_trace(out)
    assert document.calls == 1000


def test_a_wrong_line_is_one_sentence(compilot: Command, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("x:0=4\nx:0=many\n")
    result = compilot("trace", "show", str(tmp_path / "bad"))
    assert result.exit_code == 2
    assert "error: line 2 of the shape trace: cannot read 'x:0=many'" in result.stderr
