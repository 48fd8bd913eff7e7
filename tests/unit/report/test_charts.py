"""Charts: their figures are those of the records, they hold all that they need, the same run gives the same bytes."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from browsing import open_page

from compilot.artifacts.journal import Journal
from compilot.artifacts.rundir import RunDir
from compilot.errors import EnvironmentProblem, RunDirError
from compilot.records import (
    BatchRaceLine,
    Candidate,
    Diagnosis,
    DiagnosisLine,
    Measurement,
    ProcessSamples,
    Race,
    RunHeader,
    Settings,
    State,
    Trial,
    TrialLine,
    WorkloadRef,
)
from compilot.report import chart_files
from compilot.report.chart_colours import DARK, LIGHT, NEUTRAL, PALETTE, USUAL, curve_colours, engine_colours
from compilot.report.chart_data import LEAST_S, curves, most_calls, pareto_points, step_seconds
from compilot.report.chart_files import ChartFormat, html_page, svg, write_charts
from compilot.report.chart_labels import APART, Axis, placed
from compilot.report.chart_style import configuration, plot
from compilot.report.charts import break_even_chart, pareto_chart, run_charts, search_chart, steps_chart
from compilot.report.course import course
from compilot.report.data import paid_back, read_run
from compilot.report.pareto import pareto_front

NAMES = ["search", "pareto", "break-even", "steps"]  # that the small run has figures for
UNTIMED = {"boundary": "nothing is decided, or no submodule was timed"}  # test_boundary_chart.py
NAMESPACES = ('xmlns="http://www.w3.org/2000/svg"', 'xmlns:xlink="http://www.w3.org/1999/xlink"')  # names: not fetched
ADDRESS = re.compile(r"(?:https?:)?//[\w.-]+")


def views(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every view of a chart, and every layer."""
    yield spec
    for part in ("hconcat", "vconcat", "layer"):
        for inner in spec.get(part, ()):
            yield from views(inner)


def shown(chart: Any) -> list[dict[str, Any]]:
    """Every row of data in a chart."""
    spec = chart.to_dict()
    return [row for rows in spec["datasets"].values() for row in rows]


def having(rows: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    return [row for row in rows if set(fields) <= row.keys()]


STEPS_S = {"opening": 0.5, "building": 3.0, "checking": 0.25}


@pytest.fixture
def timed_run(small_run: Any, run_dir: Path) -> Path:
    """The small run, one of whose trials says where its seconds went; its journal is written anew."""
    lines = RunDir(run_dir).lines()
    path = run_dir / "journal.jsonl"
    path.unlink()
    with Journal.create(path, small_run.header) as journal:
        for line in lines[1:]:
            if isinstance(line, TrialLine) and line.trial.candidate.label == "inductor freezing":
                trial = msgspec.structs.replace(line.trial, wall_s=4.0, steps_s=STEPS_S)
                line = TrialLine(trial=trial, at_s=8.0)
            journal.append(line)
    return run_dir


# ----------------------------------------------------------------------------------------------- figures of the records


def test_the_course_shows_every_trial_with_its_own_figures(timed_run: Path) -> None:
    found = course(RunDir(timed_run).lines())
    rows = shown(search_chart(found, "Net"))
    trials = having(rows, "candidate_id", "to_s")
    by_label = {row["label"]: row for row in trials}
    assert by_label.keys() == {mark.label for mark in found.marks}
    assert (by_label["inductor freezing"]["from_s"], by_label["inductor freezing"]["to_s"]) == (4.0, 8.0)
    assert by_label["inductor freezing"]["ratio"] == pytest.approx(2.0)
    assert by_label["inductor cpp_wrapper"]["state"] == "wrong"
    assert by_label["inductor cpp_wrapper"]["reason"].startswith("RMSE 0.031")
    assert by_label["inductor reduce-overhead"]["state"] == "pruned"
    [proof] = having(rows, "low", "high")
    assert found.ending is not None
    assert found.ending.versus is not None
    versus = found.ending.versus
    assert (proof["ratio"], proof["low"], proof["high"]) == (versus.ratio, versus.low, versus.high)
    assert {(row["name"], row["from_s"], row["to_s"]) for row in having(rows, "name", "from_s")} == set(found.phases)


def test_dropped_trials_have_a_lane_named_by_their_state(timed_run: Path) -> None:
    spec = search_chart(course(RunDir(timed_run).lines()), "Net").to_dict()
    shapes = [view["encoding"]["shape"]["scale"] for view in views(spec) if "shape" in view.get("encoding", {})]
    assert [scale["domain"] for scale in shapes] == [["wrong", "pruned"]]
    assert len(set(shapes[0]["range"])) == 2  # not by colour alone


def test_the_best_so_far_only_rises_and_the_chosen_one_is_named(timed_run: Path) -> None:
    rows = shown(search_chart(course(RunDir(timed_run).lines()), "Net"))
    steps = [row for row in rows if row.keys() == {"to_s", "ratio"}]
    assert [row["ratio"] for row in steps] == sorted(row["ratio"] for row in steps)
    assert steps[-1]["ratio"] == pytest.approx(2.0)
    [chosen] = [row for row in having(rows, "name", "figures") if row["figures"].startswith("chosen")]
    assert chosen["name"] == "inductor freezing"
    assert "2.00x" in chosen["figures"]


def test_the_pareto_chart_has_the_points_of_the_table(timed_run: Path) -> None:
    data = read_run(timed_run)
    points = having(shown(pareto_chart(pareto_points(data), "Net")), "latency")
    rows = {row["candidate"]: row for row in data.rows}
    assert {point["label"] for point in points} == {"eager", "inductor", "inductor freezing"}
    for point in points:
        row = rows[point["label"]]
        assert point["start_s"] == (row["cold_s"] if row["warm_s"] is None else row["warm_s"])
        assert point["memory_mib"] == row["peak_rss_mib"]
        assert row["p50_ms"] is not None
        assert row["eager_p50_ms"] is not None
        assert point["latency"] == row["p50_ms"] / row["eager_p50_ms"]
        assert point["on_front"] == (row["id"] in pareto_front(data.rows))


def test_lines_cross_where_the_table_says_that_a_start_is_paid_back(timed_run: Path) -> None:
    data = read_run(timed_run)
    found = curves(data)
    assert [(curve.label, curve.start) for curve in found] == [
        ("eager", "cold"),
        ("inductor", "cold"),
        ("inductor freezing", "cold"),
        ("inductor freezing", "warm"),
    ]
    trial = next(trial for trial in data.trials.values() if trial.candidate.label == "inductor freezing")
    even = paid_back(data, trial)
    assert even is not None
    assert [curve.break_even for curve in found[2:]] == [even.cold_calls, even.warm_calls]
    for curve in found[1:]:
        calls = curve.break_even
        assert calls is not None
        assert curve.total_s(calls) <= found[0].total_s(calls)
        assert curve.total_s(calls - 1) > found[0].total_s(calls - 1)
    rows = shown(break_even_chart(found, "Net"))
    crossings = [row for row in rows if row.keys() == {"calls", "total_s"}]
    assert sorted(row["calls"] for row in crossings) == sorted(curve.break_even or 0 for curve in found[1:])
    drawn = having(rows, "calls", "candidate")
    assert max(row["calls"] for row in drawn) == most_calls(found) >= 10 * max(row["calls"] for row in crossings)
    for row in drawn:
        [curve] = [one for one in found if (one.label, one.start) == (row["candidate"], row["start"])]
        assert row["total_s"] == curve.total_s(row["calls"])


def test_a_start_too_short_to_be_measured_has_a_place_on_the_axis(timed_run: Path) -> None:
    data = read_run(timed_run)
    instant = data._replace(rows=[{**row, "cold_s": 0.0, "warm_s": None} for row in data.rows])
    assert {point.start_s for point in pareto_points(instant)} == {LEAST_S}
    for chart in (pareto_chart(pareto_points(instant), "Net"), break_even_chart(curves(instant), "Net")):
        assert svg(chart.to_dict()).startswith("<svg")


def test_the_bars_of_a_trial_add_up_to_its_seconds(timed_run: Path) -> None:
    rows = having(shown(steps_chart(step_seconds(read_run(timed_run)), "Net")), "seconds")
    assert {row["trial"] for row in rows} == {"3 inductor freezing"}  # the others say nothing
    assert {row["step"]: row["seconds"] for row in rows} == {**STEPS_S, "other": 0.25}
    assert [row["order"] for row in rows] == sorted(row["order"] for row in rows)


def test_a_run_without_races_has_the_charts_that_it_can_have(small_run: Any, tmp_path: Path) -> None:
    drawn = run_charts(small_run.write(tmp_path / "run", finished=False))
    assert list(drawn.charts) == ["search", "pareto"]
    assert drawn.left_out == {
        "break-even": "no candidate has raced yet",
        "steps": "no trial says where its seconds went",
        **UNTIMED,
    }


def test_a_run_that_has_tried_nothing_has_no_charts(small_run: Any, tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run" / "journal.jsonl", small_run.header) as journal:
        journal.append(DiagnosisLine(diagnosis=Diagnosis()))
    for form in ChartFormat:
        made = write_charts(tmp_path / "run", tmp_path / "out", form)
        assert made.files == ()
        assert list(made.left_out) == [*NAMES, *UNTIMED]
    assert not (tmp_path / "out").exists()


def test_where_there_is_no_run_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunDirError):
        write_charts(tmp_path / "none", tmp_path, ChartFormat.SVG)


# ------------------------------------------------------------------------------------------------------------ the files


def test_the_same_records_give_the_same_bytes(timed_run: Path, tmp_path: Path) -> None:
    first = write_charts(timed_run, tmp_path / "a", ChartFormat.SVG)
    again = write_charts(timed_run, tmp_path / "b", ChartFormat.SVG)
    assert [file.path.name for file in first.files] == [f"{name}.svg" for name in NAMES]
    for one, other in zip(first.files, again.files, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()


def test_names_that_the_converter_counts_up_are_counted_anew() -> None:
    one = '<clipPath id="clip7"></clipPath><g clip-path="url(#clip7)"/><use href="#clip9"/>'
    other = one.replace("clip7", "clip23").replace("clip9", "clip24")
    assert chart_files._counted_anew(one) == chart_files._counted_anew(other) != one


def test_a_chart_that_cuts_marks_off_gives_the_same_bytes_again() -> None:
    spec = plot([{"x": 1, "y": 2}]).mark_point(clip=True).encode(x="x:Q", y="y:Q").to_dict()
    first = svg(spec)
    assert "url(#" in first
    assert svg(spec) == first


def test_pictures_hold_all_that_they_need(timed_run: Path, tmp_path: Path) -> None:
    for file in write_charts(timed_run, tmp_path, ChartFormat.SVG).files:
        text = file.path.read_text()
        for name in NAMESPACES:
            text = text.replace(name, "", 1)
        assert ADDRESS.findall(text) == []
        assert "<image" not in text
        assert "inductor freezing" in text  # as text: it can be found and read out
    for chart in run_charts(timed_run).charts.values():
        assert [view for view in views(chart.to_dict()) if "url" in view.get("data", {})] == []


def test_pictures_are_readable_on_dark_pages(timed_run: Path) -> None:
    text = svg(run_charts(timed_run).charts["search"].to_dict())
    assert len({*LIGHT, *DARK}) == len(LIGHT) + len(DARK)
    for light, dark in zip(LIGHT, DARK, strict=True):
        assert f'"{light}"' in text
        assert f'[fill="{light}"]{{fill:{dark}}}' in text
        assert f'[stroke="{light}"]{{stroke:{dark}}}' in text
    used = set(re.findall(r'(?:fill|stroke)="(#\w+)"', text.partition("</style>")[2]))
    assert used <= {*LIGHT, NEUTRAL, *PALETTE}  # nothing stays as it is that only a light page shows


def test_the_picture_of_the_documentation_has_todays_style() -> None:
    picture = (Path(__file__).parents[3] / "docs" / "search.svg").read_text()
    assert f"<style>{chart_files._exchanged(LIGHT, DARK)}</style>" in picture
    for words in ("The course of a search", "seconds of the run", "speed-up over eager", "confirming", "chosen; "):
        assert words in picture


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_has_the_contrast_that_accessible_pages_need(theme: Any) -> None:
    assert contrast(theme.ink, theme.page) >= 7
    assert contrast(theme.quiet, theme.page) >= 4.5
    assert min(contrast(colour, theme.page) for colour in (NEUTRAL, *PALETTE)) >= 2  # of marks, which have names, too


def test_the_page_opens_in_a_real_browser_without_complaint(timed_run: Path, tmp_path: Path) -> None:
    [file] = write_charts(timed_run, tmp_path, ChartFormat.HTML).files
    assert file.charts == tuple(NAMES)
    seen = open_page(file.path, "--dump-dom", "--virtual-time-budget=10000")
    assert "CONSOLE" not in seen.stderr, seen.stderr
    assert seen.stdout.count('class="marks"') == len(NAMES)
    assert f'fill="{LIGHT.ink}"' in seen.stdout


def test_the_page_is_dark_for_readers_who_want_it_so(timed_run: Path, tmp_path: Path) -> None:
    [file] = write_charts(timed_run, tmp_path, ChartFormat.HTML).files
    dark = "--blink-settings=preferredColorScheme=0"
    seen = open_page(file.path, "--dump-dom", "--virtual-time-budget=10000", dark)
    assert f'fill="{DARK.ink}"' in seen.stdout
    assert f'fill="{LIGHT.ink}"' not in seen.stdout


def without_vega(page: str) -> str:
    """The page but for the script of others, whose text names addresses and marks that it does not use here."""
    return re.sub(r'<script type="module">.*?</script>', "", page, flags=re.DOTALL)


def test_the_page_loads_nothing(timed_run: Path) -> None:
    page = html_page(run_charts(timed_run))
    assert "default-src 'none'" in page
    own = without_vega(page)
    assert re.findall(r"""(?:src|href)=["']?(?!data:)[^"'\s>]+""", own) == []
    assert "@import" not in own
    assert "url(" not in own


def test_a_name_cannot_end_the_script(small_run: Any, tmp_path: Path) -> None:
    nasty = "</script><img src=x onerror=alert(1)>"
    header: RunHeader = msgspec.structs.replace(small_run.header, workload=WorkloadRef(label=nasty))
    candidate = Candidate(settings=Settings(engine="inductor"), label=nasty, rationale="")
    measured = Measurement(cold_s=1.0, cold_cache=True, call_s=(0.1,) * 20, peak_rss_bytes=2**20)
    trial = Trial(
        candidate=candidate, state=State.OK, reason="", measurement=measured, screening=((0.2, 0.1),) * 8, wall_s=1.0
    )
    with Journal.create(tmp_path / "run" / "journal.jsonl", header) as journal:
        journal.append(DiagnosisLine(diagnosis=Diagnosis()))
        journal.append(TrialLine(trial=trial, at_s=2.0))
    page = html_page(run_charts(tmp_path / "run"))
    assert "<img" not in without_vega(page)
    assert page.count("</script>") == 2
    data = json.loads(re.findall(r'id="charts">(.*?)</script>', page, re.DOTALL)[0])
    assert nasty in data["charts"]["search"]["title"]["text"]
    assert "<img" not in svg(run_charts(tmp_path / "run").charts["search"].to_dict())


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_a_missing_library_is_one_sentence_with_the_command(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("charts", "search_chart", "chart_style"):
        monkeypatch.delitem(sys.modules, f"compilot.report.{module}", raising=False)
    with pytest.raises(EnvironmentProblem, match="pip install altair vl-convert-python") as problem:
        write_charts(run_dir, tmp_path / "out", ChartFormat.SVG)
    assert str(problem.value).count(".") == 1
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------- colours and labels


def test_engines_have_colours_of_their_own_in_every_chart() -> None:
    assert len(set(USUAL.values())) == len(USUAL)
    colours = engine_colours(["eager", "inductor", "dynamo:a", "dynamo:b"])
    assert len(set(colours.values())) == 4
    assert (colours["eager"], colours["inductor"]) == (NEUTRAL, USUAL["inductor"])


def test_two_finalists_of_one_engine_can_be_told_apart() -> None:
    colours = curve_colours([("eager", "eager"), ("a", "inductor"), ("a", "inductor"), ("b", "inductor")])
    assert colours["a"] == USUAL["inductor"]
    assert len(set(colours.values())) == 3


def test_numbers_of_close_marks_do_not_cover_each_other_nor_a_mark() -> None:
    x, y = Axis(0.0, 100.0, 600.0), Axis(0.5, 2.5, 280.0)
    marks = [(50.0, 1.5), (50.5, 1.52), (51.0, 1.48), (99.9, 2.49), (0.1, 0.51)]
    places = placed(marks, x, y)
    pixels = [(x.pixel(a), y.pixel(b)) for a, b in (*places, *marks)]
    for number in range(len(marks)):
        near = min(math.dist(pixels[number], other) for n, other in enumerate(pixels) if n != number)
        assert near >= APART - 1e-6
        assert 0 <= pixels[number][0] <= x.length
        assert 0 <= pixels[number][1] <= y.length


@pytest.mark.parametrize("axis", [Axis(0.0, 150.0, 600.0), Axis(0.01, 20.0, 320.0, log=True)])
def test_an_axis_finds_a_value_again(axis: Axis) -> None:
    for value in (0.02, 1.0, 19.0):
        assert axis.value(axis.pixel(value)) == pytest.approx(value)


def test_a_logarithmic_axis_has_round_ticks() -> None:
    assert Axis(0.04, 3.0, 100.0, log=True).ticks() == [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
    assert Axis(1.0, 1e6, 100.0, log=True).ticks() == [10.0**n for n in range(7)]


def test_no_font_is_fetched_and_there_is_one_for_everybody() -> None:
    assert configuration(LIGHT)["font"].endswith("sans-serif")


# --------------------------------------------------------------------------------------------------------- batch sizes


def test_batch_sizes_are_drawn_where_they_were_measured(timed_run: Path, small_run: Any) -> None:
    assert "batch-sizes" not in run_charts(timed_run).charts
    eager = small_run.trials[0].candidate
    with Journal.open(timed_run / "journal.jsonl") as journal:
        for batch, call_s in ((1, 0.01), (2, 0.012), (4, 0.024)):
            rounds = tuple((call_s, call_s) for _ in range(8))
            race = Race(arms=(eager.id, eager.id), with_aa=True, processes=(ProcessSamples(rounds=rounds),))
            journal.append(BatchRaceLine(batch=batch, race=race))
    chart = run_charts(timed_run).charts["batch-sizes"]
    marks = having(shown(chart), "batch", "samples_per_s")
    assert [(mark["batch"], round(mark["samples_per_s"])) for mark in marks] == [(1, 100), (2, 167), (4, 167)]
    assert [mark["recommended"] for mark in marks] == [False, True, False]
    assert "eager 2" in chart.to_dict()["title"]["subtitle"]
