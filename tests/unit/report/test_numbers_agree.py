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
from compilot.report import Row, as_json, read_run, write_csv
from compilot.report.sentences import arm_sentence
from compilot.report.terminal import summary, table

ROOT = Path(__file__).parents[3]
ROUNDING = 0.011  # two times of three digits each, 0.5 % at the worst, and the ratio's own last digit
FIGURES = re.compile(r"([\d.]+) +([\d.]+) +\S+ +(~?)([\d.]+)x(?: \[([\d.]+)-([\d.]+)\])?")
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


@pytest.mark.parametrize(("width", "columns"), [(80, 9), (100, 10), (140, 11)])
def test_the_warm_start_and_eagers_time_are_in_the_table(run_dir: Path, width: int, columns: int) -> None:
    text = printed(run_dir, width=width)
    assert "warm s" in text
    assert "0.50" in text
    assert all(len(line) <= width for line in text.splitlines())
    view = table(read_run(run_dir), width=width)
    assert len(view.columns) == columns
    heads = [str(column.header) for column in view.columns]
    first = heads.index("cold s")
    assert heads[first : first + 7] == ["cold s", "warm s", "p50 ms", "eager", "p95 ms", "speed-up", "RSS MiB"]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_each_figure_has_a_cell_of_its_own_at_every_width(run_dir: Path, width: int) -> None:
    data = read_run(run_dir)
    for column in table(data, width=width).columns:
        assert not [str(cell) for cell in (column.header, *column.cells) if "\n" in str(cell)]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_candidate_that_failed_says_so_in_its_line_at_every_width(run_dir: Path, width: int) -> None:
    lines = [line for line in printed(run_dir, width=width).splitlines() if line.startswith("  inductor")]
    assert [state for state in ("pruned", "wrong") if sum(state in line for line in lines) != 1] == []
    assert "RMSE 0.031" in printed(run_dir, width=width)


@pytest.mark.parametrize(("number", "title"), [(1, "eager and 0 candidates"), (2, "eager and 1 candidate")])
def test_the_title_counts_eager_apart_and_one_is_one(small_run: Any, tmp_path: Path, number: int, title: str) -> None:
    small_run.trials = small_run.trials[:number]
    assert table(read_run(small_run.write(tmp_path / "cut", finished=False))).title == f"Net: {title}"


def test_json_csv_and_rows_have_the_same_names_and_the_documentation_has_them_all(run_dir: Path) -> None:
    names = list(Row.__annotations__)
    assert {"warm_s", "std_ms", "p99_ms", "samples_per_s"} <= set(names)
    with write_csv(run_dir).open(newline="") as file:
        assert next(csv.reader(file)) == names
    assert all(list(row) == names for row in as_json(run_dir)["rows"])
    section = (ROOT / "docs/tune.md").read_text().partition("### The columns of trials.csv")[2].partition("\n## ")[0]
    documented = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    assert documented == names
