"""Every printed speed-up can be computed again from the two times beside it, and names are the same everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from printed import agrees, figures
from rich.console import Console
from stories import Story, told

from compilot.cli import bench
from compilot.cli.common import document as plain
from compilot.cli.common import print_json
from compilot.diagnose.timing import roofline
from compilot.records import Candidate, Evidence, Goal, Objective, ProcessSamples, Settings, Trial
from compilot.report import Row, bench_of, read_run, results_of, write_csv
from compilot.report.data import _row, paid_back
from compilot.report.page import page_of
from compilot.report.sentences import arm_sentence
from compilot.report.terminal import summary, table
from compilot.showing import notebook
from compilot.showing.live import LiveObserver
from compilot.showing.notebook import NotebookObserver
from compilot.showing.plain import PlainObserver, outcome_line
from compilot.testing import runner
from compilot.testing.runner import Fate
from compilot.verdict.compare import compare
from compilot.verdict.finalists import screening_ratio
from compilot.verdict.plan import honest_sentence

ROOT = Path(__file__).parents[3]
BREAK_EVEN: tuple[Any, ...] = ("break_even_calls", "break_even_low", "break_even_high")
SCREENED = Candidate(settings=Settings(engine="openvino"), label="openvino", rationale="test")


def printed(run_dir: Path, *, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(summary(read_run(run_dir), None, width=width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


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
        assert line.follows(), (label, line)


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
    assert re.search(r"^ +inductor +(ok )?.* (249|250)\.\d ", text, re.MULTILINE)
    assert "wall time over all of them, not what one caller" in " ".join(text.split())
    assert all(len(line) <= width for line in text.splitlines())


def test_one_caller_is_not_named(run_dir: Path) -> None:
    assert "caller" not in printed(run_dir)


@pytest.mark.parametrize(("width", "columns"), [(80, 8), (100, 9), (140, 10)])
def test_the_warm_start_and_eagers_time_are_in_the_table(run_dir: Path, width: int, columns: int) -> None:
    text = printed(run_dir, width=width)
    assert "warm s" in text
    assert "0.50" in text
    assert all(len(line) <= width for line in text.splitlines())
    view = table(read_run(run_dir), width=width)
    assert len(view.columns) == columns
    heads = [str(column.header) for column in view.columns]
    first = heads.index("cold s")
    assert heads[first : first + 6] == ["cold s", "warm s", "p50 ms", "eager", "speed-up", "RSS MiB"]


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("objective", ["latency", "startup", "memory"])
def test_no_tail_stands_beside_a_median_of_other_calls(
    small_run: Any, tmp_path: Path, objective: str, width: int
) -> None:
    small_run.header = msgspec.structs.replace(small_run.header, objective=objective)
    text = printed(small_run.write(tmp_path / "run"), width=width)
    assert "p50 ms" in text
    assert not re.search(r"p9\d|n/a", text)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_who_asked_for_p99_gets_it_and_reads_of_which_calls_it_is(small_run: Any, tmp_path: Path, width: int) -> None:
    small_run.header = msgspec.structs.replace(small_run.header, objective="p99")
    run_dir = small_run.write(tmp_path / "run")
    text = printed(run_dir, width=width)
    column = next(c for c in table(read_run(run_dir), width=width).columns if c.header == "p99 ms")
    rows = read_run(run_dir).rows
    assert [str(cell) == "n/a" for cell in column.cells] == [bool(r["calls"] and r["p99_ms"] is None) for r in rows]
    assert str(next(iter(column.cells))) == f"{rows[0]['p99_ms']:.1f}"
    assert "p99 ms: of single calls, timed apart from those rounds" in " ".join(text.split())
    assert "needs 660 calls" in text
    assert "p95" not in text
    assert all(len(line) <= width for line in text.splitlines())


def test_the_tails_of_a_row_have_a_median_of_the_same_calls(uneven_run: Path) -> None:
    rows = {row["candidate"]: row for row in read_run(uneven_run).rows}
    row = rows["inductor"]
    assert row["p50_ms"] == pytest.approx(16.0, rel=0.01)
    assert row["call_p50_ms"] == row["p95_ms"] == pytest.approx(38.0)
    for other in rows.values():
        assert other["call_p50_ms"] is not None
        assert other["p95_ms"] is None or other["call_p50_ms"] <= other["p95_ms"]


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
    assert all(list(row) == names for row in results_of(run_dir).rows)
    section = (ROOT / "docs/tune.md").read_text().partition("### The columns of trials.csv")[2].partition("\n## ")[0]
    documented = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    assert documented == names


@pytest.mark.parametrize("objective", ["latency", "throughput", "p99"])
def test_the_page_has_the_cells_of_the_terminal(small_run: Any, tmp_path: Path, objective: str) -> None:
    small_run.header = msgspec.structs.replace(small_run.header, objective=objective)
    run_dir = small_run.write(tmp_path / "run")
    shown = table(read_run(run_dir), width=140)
    [candidates] = page_of(run_dir).sections[0].tables
    for column in shown.columns:
        if column.header not in ("", "candidate"):
            cells = [row[candidates.columns.index(str(column.header))] for row in candidates.rows]
            assert cells == [str(cell) for cell in column.cells], column.header
    assert set(candidates.columns) >= {"cold s", "warm s", "p50 ms", "eager", "speed-up", "RSS MiB", "note"}


# ------------------------------------------------------------------------------- every place that prints a speed-up

RATIO = r"([\d.]+)x"
SENTENCE = re.compile(rf"(?:{RATIO} faster than|slower than eager: {RATIO}|shown: {RATIO}|looks {RATIO})")


def said(sentence: str) -> float:
    """The speed-up that a sentence names first."""
    found = SENTENCE.search(sentence)
    assert found is not None, sentence
    return float(next(group for group in found.groups() if group))


@pytest.fixture
def tuned(tmp_path: Path) -> Story:
    """A whole run on a runner that runs nothing; every candidate's speed is another."""
    fates = {"inductor": Fate(speed=1.6), "openvino": Fate(speed=2.3), "onnxruntime": Fate(speed=0.7)}
    return told(tmp_path, fates, noise=0.02)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_of_tune_agrees_at_every_width(tuned: Story, width: int) -> None:
    found = figures(printed(tuned.run_dir.path, width=width))
    assert set(found) == {"inductor", "openvino", "onnxruntime"}
    for one in found.values():
        assert one.follows(), one


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_and_the_sentences_of_bench_agree(
    small_run: Any, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    small_run.confirm = msgspec.structs.replace(small_run.confirm, purpose="bench")
    run_dir = small_run.write(tmp_path / "bench")
    bench.show(bench_of(run_dir, {}))
    text = capsys.readouterr().out
    found = figures(text)
    assert set(found) == {"inductor", "inductor freezing"}
    joined = " ".join(text.split())
    for label, one in found.items():
        assert one.follows(), one
        assert said(joined.partition(f" {label}: ")[2]) == one.ratio
    print_json(plain(bench_of(run_dir, {})))
    document = json.loads(capsys.readouterr().out)
    for row, sentence in zip(document["rows"][1:3], document["sentences"], strict=False):
        assert said(sentence) == round(row["speedup"], 2)


def test_the_plan_its_sentence_and_the_table_have_one_ratio(tuned: Story) -> None:
    entry = tuned.plan.entries[0]
    row = next(row for row in read_run(tuned.run_dir.path).rows if row["chosen"])
    versus = entry.evidence.versus_eager
    assert versus is not None
    assert versus.ratio == row["speedup"]
    assert said(entry.sentence) == said(str(tuned.plan)) == said(tuned.plan._repr_html_()) == round(versus.ratio, 2)
    assert said(tuned.verdict.because) == round(versus.ratio, 2)
    own_s, eager_s = entry.evidence.p50_s, entry.evidence.eager_p50_s
    assert own_s is not None
    assert eager_s is not None
    assert agrees(versus.ratio, own_s, eager_s, versus.low, versus.high)
    assert (own_s * 1e3, eager_s * 1e3) == pytest.approx((row["p50_ms"], row["eager_p50_ms"]))


@pytest.mark.parametrize("resumed", [False, True])
def test_the_plan_its_sentence_and_the_table_have_one_warm_start(
    tmp_path: Path, resumed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts_s = iter([0.9, 0.3, 0.4, 0.8, 0.1, 0.2])
    confirm = runner.FakeRunner.confirm

    def uneven(self: Any, trials: Any, rules: Any) -> Any:
        found, start_s = confirm(self, trials, rules), next(starts_s)
        warm = {name: msgspec.structs.replace(one, cold_s=start_s) for name, one in found.warm.items()}
        return found._replace(warm=warm)

    monkeypatch.setattr(runner.FakeRunner, "confirm", uneven)
    story = told(tmp_path, {"inductor": Fate(speed=1.6)})
    if resumed:
        write_csv(story.run_dir.path)  # it came to its end, so it is measured again
        story = told(tmp_path, {"inductor": Fate(speed=1.6)}, resume=True)
    data = read_run(story.run_dir.path)
    row = next(row for row in data.rows if row["chosen"])
    entry, median_s = story.plan.entries[0], 0.2 if resumed else 0.4
    even, again = entry.evidence.break_even, paid_back(data, data.trials[row["id"]])
    assert row["warm_s"] == entry.evidence.warm_s == median_s
    assert f"{median_s:.2f} s with kept artifacts" in entry.sentence
    assert even is not None
    assert again is not None
    assert even.warm_calls == again.warm_calls


def test_json_and_csv_agree_row_by_row(tuned: Story) -> None:
    rows = json.loads(json.dumps(plain(results_of(tuned.run_dir.path))))["rows"]
    with write_csv(tuned.run_dir.path).open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert len(rows) == len(cells) == 4
    for row, cell in zip(rows, cells, strict=True):
        assert agrees(row["speedup"], row["p50_ms"], row["eager_p50_ms"], row["speedup_low"], row["speedup_high"]), row
        for name in ("speedup", "p50_ms", "eager_p50_ms"):
            assert float(cell[name]) == pytest.approx(row[name], rel=1e-5)


def test_progress_and_table_have_one_figure_for_a_screening(tuned: Story) -> None:
    data = read_run(tuned.run_dir.path)
    screened = [t for t in data.trials.values() if t.screening]
    assert len(screened) == 3
    for trial in screened:
        alone = data._replace(races=())
        row = _row(alone, trial)
        assert f"~{row['speedup']:.2f}x" in outcome_line(trial, screening_ratio(trial))
        assert agrees(row["speedup"], row["p50_ms"], row["eager_p50_ms"])


def test_a_p99_beside_eagers_has_a_ratio_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TAIL_CALLS", 700)
    story = told(tmp_path, {"x": Fate(speed=2.0)}, goal=Goal(objective=Objective.P99))
    found = re.search(rf"p99 ([\d.]+) ms against eager's ([\d.]+) ms \({RATIO}\)", story.verdict.because)
    assert found is not None, story.verdict.because
    own, eager, ratio = map(float, found.groups())
    assert agrees(ratio, own, eager)


def test_the_doctors_times_of_a_plan_have_the_ratio_that_was_proven(tuned: Story) -> None:
    versus = tuned.plan.entries[0].evidence.versus_eager
    assert versus is not None
    planned_s = roofline._plan_s(tuned.plan, 0.020)
    assert agrees(versus.ratio, planned_s, 0.020)


# ------------------------------------------------------------------------------------------- how much was timed


@pytest.mark.parametrize(
    ("pairs", "words"),
    [((20, 20, 20), "3 processes x 20 pairs"), ((60, 46, 20), "126 pairs in 3 processes, at least 20 in each")],
)
def test_progress_says_how_much_was_timed_as_the_result_does(
    small_run: Any, pairs: tuple[int, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = small_run.confirm.processes[0].rounds * 3
    sets = tuple(ProcessSamples(rounds=rows[:number]) for number in pairs)
    race = msgspec.structs.replace(small_run.confirm, processes=sets)
    versus = compare(race, race.arms[2], race.arms[0])
    assert f"; {words}, " in honest_sentence(Evidence(versus_eager=versus), small_run.header.fingerprint.machine)
    console, pictures = Console(file=io.StringIO(), width=200), list[str]()
    with LiveObserver(None, console) as live:
        for observer in (PlainObserver(), live, NotebookObserver(300.0, pictures.append)):
            observer.raced(race)
    for shown in (capsys.readouterr().err, console.file.getvalue(), pictures[-1]):  # type: ignore[attr-defined]
        assert f"confirm: {words}" in shown


def test_while_a_race_goes_on_everyone_counts_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook, "REDRAW_S", 0.0)
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    pictures: list[str] = []
    PlainObserver().racing("confirm", ("eager", "eager", "x"), 1, 42)
    NotebookObserver(300.0, pictures.append).racing("confirm", ("eager", "eager", "x"), 7, 42)
    with LiveObserver(None, console) as live:
        live.racing("confirm", ("eager", "eager", "x"), 7, 42)
        live._draw()
    assert "confirm: up to 42 pairs with eager, 3 processes side by side\n" in capsys.readouterr().err
    assert "confirm: pair 7 of at most 42" in pictures[-1]
    assert "pair 7 of at most 42" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "7 of 42 pairs" in console.file.getvalue()  # type: ignore[attr-defined]
