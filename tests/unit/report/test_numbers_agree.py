"""Every printed speed-up can be computed again from the two times beside it, and names are the same everywhere."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from rich.console import Console

from compilot.records import Candidate, Settings, Trial
from compilot.report import Row, read_run, results_of, write_csv
from compilot.report.sentences import arm_sentence
from compilot.report.terminal import summary, table

ROOT = Path(__file__).parents[3]
ROUNDING = 0.011  # two times of three digits each, 0.5 % at the worst, and the ratio's own last digit
FIGURES = re.compile(r"([\d.]+) +([\d.]+) +\S+ +(~?)([\d.]+)x(?: \[([\d.]+)-([\d.]+)\])?")
BREAK_EVEN: tuple[Any, ...] = ("break_even_calls", "break_even_low", "break_even_high")
SCREENED = Candidate(settings=Settings(engine="openvino"), label="openvino", rationale="test")


class Printed(NamedTuple):
    """What a line of the table says."""

    own_ms: float
    eager_ms: float
    screened: bool
    ratio: float
    low: float
    high: float


def printed(run_dir: Path, *, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(summary(read_run(run_dir), None, width=width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def figures(text: str) -> dict[str, Printed]:
    """The lines of the table that name a speed-up, by the engine's label."""
    found = {}
    for line in text.splitlines():
        if told := FIGURES.search(line):
            own, eager, tilde, ratio, low, high = told.groups()
            label = line[2:].partition(" ok ")[0].strip()
            found[label] = Printed(
                float(own), float(eager), bool(tilde), float(ratio), float(low or ratio), float(high or ratio)
            )
    return found


def moved(trial: Trial, call_s: float) -> Trial:
    """The same trial, its single calls timed at a moment when the machine was slow."""
    assert trial.measurement is not None
    slow = msgspec.structs.replace(trial.measurement, call_s=(call_s,) * 140)
    return msgspec.structs.replace(trial, measurement=slow)


@pytest.fixture
def uneven_run(small_run: Any, tmp_path: Path) -> Path:
    """Single calls, screening and race of each candidate saw the machine in different states."""
    calls = {"eager": 0.037, "inductor": 0.038, "inductor freezing": 0.039}
    known = {trial.candidate.label: trial for trial in small_run.trials}
    trials = [moved(known[label], call_s) for label, call_s in calls.items()]
    openvino = msgspec.structs.replace(trials[1], candidate=SCREENED, screening=((0.0301, 0.0175),) * 8)
    small_run.trials = (*trials, moved(openvino, 0.038))
    return small_run.write(tmp_path / "uneven")  # type: ignore[no-any-return]


def check(run_dir: Path, labels: set[str]) -> None:
    found = figures(printed(run_dir))
    assert set(found) == labels
    for label, line in found.items():
        again = line.eager_ms / line.own_ms
        assert line.low * (1 - ROUNDING) <= again <= line.high * (1 + ROUNDING), (label, line)


def test_each_printed_speed_up_follows_from_the_times_beside_it(run_dir: Path) -> None:
    check(run_dir, {"inductor", "inductor freezing"})


def test_it_does_where_every_moment_was_another(uneven_run: Path) -> None:
    check(uneven_run, {"inductor", "inductor freezing", "openvino"})
    found = figures(printed(uneven_run))
    assert found["openvino"].screened
    assert not found["inductor"].screened
    rows = {row["candidate"]: row for row in read_run(uneven_run).rows}
    assert rows["inductor"]["p50_ms"] == pytest.approx(16.0, rel=0.01)
    assert rows["eager"]["p50_ms"] == rows["eager"]["eager_p50_ms"] == rows["inductor"]["eager_p50_ms"]
    assert rows["openvino"]["eager_p50_ms"] == pytest.approx(30.1)
    assert rows["openvino"]["samples_per_s"] == pytest.approx(4 / 0.0175)


def test_without_race_and_screening_the_single_calls_are_quoted_and_no_speed_up(small_run: Any, tmp_path: Path) -> None:
    alone = msgspec.structs.replace(small_run.trials[1], screening=())
    small_run.trials = (small_run.trials[0], alone)
    eager, plain = read_run(small_run.write(tmp_path / "cut", finished=False)).rows
    assert eager["p50_ms"] == eager["eager_p50_ms"] == pytest.approx(20.0, rel=0.01)
    assert plain["p50_ms"] == pytest.approx(16.0, rel=0.01)
    assert (plain["eager_p50_ms"], plain["speedup"], plain["speedup_from"]) == (None, None, "")


def test_a_break_even_comes_from_the_race_that_the_speed_up_comes_from(small_run: Any, run_dir: Path) -> None:
    data = read_run(run_dir)
    trial = data.trials[small_run.plan.entries[0].candidate.id]
    slow = msgspec.structs.replace(
        small_run.confirm,
        purpose="race",
        processes=tuple(
            msgspec.structs.replace(p, rounds=tuple(tuple(9 * s for s in row) for row in p.rounds))
            for p in small_run.confirm.processes
        ),
    )
    assert arm_sentence(data._replace(races=(*data.races, slow)), trial) == arm_sentence(data, trial)


def test_a_rows_break_even_follows_from_its_own_figures(run_dir: Path) -> None:
    rows = {row["candidate"]: row for row in read_run(run_dir).rows}
    for label in ("inductor", "inductor freezing"):
        row = rows[label]
        assert row["cold_s"] is not None
        assert row["p50_ms"] is not None
        assert row["eager_p50_ms"] is not None
        saved_s = (row["eager_p50_ms"] - row["p50_ms"]) / 1e3
        calls, low, high = row["break_even_calls"], row["break_even_low"], row["break_even_high"]
        assert calls is not None
        assert low is not None
        assert high is not None
        assert low <= calls <= high
        assert 1 + (row["cold_s"] - 0.03) / saved_s == pytest.approx(calls, rel=0.02)
        assert f"pays back after {calls} calls (95 % {low}-{high})" in arm_sentence(
            read_run(run_dir), read_run(run_dir).trials[row["id"]]
        )
    for label in ("eager", "inductor reduce-overhead", "inductor cpp_wrapper"):
        assert [rows[label][name] for name in BREAK_EVEN] == [None, None, None]


def test_what_is_no_faster_has_no_break_even(small_run: Any, tmp_path: Path) -> None:
    same = msgspec.structs.replace(
        small_run.confirm,
        processes=tuple(
            msgspec.structs.replace(p, rounds=tuple((row[0],) * len(row) for row in p.rounds))
            for p in small_run.confirm.processes
        ),
    )
    small_run.confirm = same
    rows = read_run(small_run.write(tmp_path / "same")).rows
    assert all(row[name] is None for row in rows for name in BREAK_EVEN)


@pytest.fixture
def shared_run(small_run: Any, tmp_path: Path) -> Path:
    """The same with four callers: what a caller waits is about four times the wall time per call."""
    small_run.header = msgspec.structs.replace(small_run.header, objective="throughput", concurrency=4)
    known = {trial.candidate.label: trial for trial in small_run.trials}
    calls = {"eager": 0.080, "inductor": 0.064, "inductor freezing": 0.040}
    small_run.trials = tuple(moved(known[label], call_s) for label, call_s in calls.items())
    return small_run.write(tmp_path / "shared")  # type: ignore[no-any-return]


def test_with_several_callers_times_and_samples_are_of_all_of_them(shared_run: Path) -> None:
    check(shared_run, {"inductor", "inductor freezing"})
    rows = {row["candidate"]: row for row in read_run(shared_run).rows}
    assert {row["callers"] for row in rows.values()} == {4}
    assert rows["inductor"]["p50_ms"] == pytest.approx(16.0, rel=0.01)
    assert rows["inductor"]["samples_per_s"] == pytest.approx(4 / 0.016, rel=0.01)
    assert rows["inductor"]["p95_ms"] == pytest.approx(64.0, rel=0.01)  # of a single call, as its caller sees it
    with write_csv(shared_run).open(newline="") as file:
        csv_rows = {row["candidate"]: row for row in csv.DictReader(file)}
    for row in results_of(shared_run).rows:
        assert row == rows[row["candidate"]]
        assert csv_rows[row["candidate"]]["samples_per_s"] == f"{row['samples_per_s']:.6g}"
        assert csv_rows[row["candidate"]]["callers"] == "4"


def test_without_a_race_single_calls_are_shared_out_among_the_callers(small_run: Any, tmp_path: Path) -> None:
    small_run.header = msgspec.structs.replace(small_run.header, objective="throughput", concurrency=4)
    small_run.trials = (moved(small_run.trials[0], 0.080), msgspec.structs.replace(small_run.trials[1], screening=()))
    eager, plain = read_run(small_run.write(tmp_path / "cut", finished=False)).rows
    assert eager["p50_ms"] == eager["eager_p50_ms"] == pytest.approx(20.0)
    assert eager["samples_per_s"] == pytest.approx(4 / 0.020)
    assert plain["p50_ms"] == pytest.approx(16.0 / 4, rel=0.01)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_of_a_throughput_run_shows_samples_per_second_and_the_callers(shared_run: Path, width: int) -> None:
    text = printed(shared_run, width=width)
    assert "Net: eager and 2 candidates, 4 callers at the same time" in text
    assert "samples/s" in text
    assert "p95" not in text
    assert re.search(r"inductor +ok .* 250\.\d |inductor +ok .* 249\.\d ", text)
    assert "wall time over all of them, not what one caller" in " ".join(text.split())
    assert all(len(line) <= width for line in text.splitlines())


def test_one_caller_is_not_named(run_dir: Path) -> None:
    assert "caller" not in printed(run_dir)


@pytest.mark.parametrize(("width", "columns"), [(80, 8), (100, 10), (140, 11)])
def test_the_warm_start_and_eagers_time_are_in_the_table(run_dir: Path, width: int, columns: int) -> None:
    text = printed(run_dir, width=width)
    assert "warm s" in text
    assert "0.50" in text
    assert all(len(line) <= width for line in text.splitlines())
    view = table(read_run(run_dir), width=width)
    assert len(view.columns) == columns
    heads = "\n".join(str(column.header) for column in view.columns).split("\n")
    assert heads[3:10] == ["cold s", "warm s", "p50 ms", "eager", "p95 ms", "speed-up", "RSS MiB"]


@pytest.mark.parametrize(("number", "title"), [(1, "eager and 0 candidates"), (2, "eager and 1 candidate")])
def test_the_title_counts_eager_apart_and_one_is_one(small_run: Any, tmp_path: Path, number: int, title: str) -> None:
    small_run.trials = small_run.trials[:number]
    assert table(read_run(small_run.write(tmp_path / "cut", finished=False))).title == f"Net: {title}"


def test_json_csv_and_rows_have_the_same_names_and_the_documentation_has_them_all(run_dir: Path) -> None:
    names = list(Row.__annotations__)
    assert {"warm_s", "std_ms", "p99_ms", "samples_per_s"} <= set(names)
    with write_csv(run_dir).open(newline="") as file:
        assert next(csv.reader(file)) == names
    assert all(list(row) == names for row in results_of(run_dir).rows)
    section = (ROOT / "docs/tune.md").read_text().partition("### The columns of trials.csv")[2].partition("\n## ")[0]
    documented = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    assert documented == names
