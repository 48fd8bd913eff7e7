"""The report of a run, before it is drawn: its figures are the table's, and a section without figures is not there."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import msgspec
import pages_of_runs
import pytest
from doctor_fakes import full_report

from compilot.artifacts.rundir import RunDir
from compilot.errors import RunDirError
from compilot.records import Candidate, Diagnosis, Region, RepeatedBlock, Settings, Trial
from compilot.report import cells
from compilot.report.batches import batch_sizes
from compilot.report.data import paid_back, read_run
from compilot.report.page import SECTIONS, page_of
from compilot.report.page_files import ReportFormat, write_page
from compilot.report.page_head import KEEP, OPEN, USE
from compilot.report.page_html import page_html
from compilot.report.page_modules import regions, where_table
from compilot.report.page_records import Page, Section
from compilot.report.page_tables import NOTED, again_command
from compilot.report.picture_rows import MOST
from compilot.report.results import results_of

ALL = [
    *("candidates", "search", "intervals", "calls", "starts", "front", "payback", "batches"),
    *("modules", "findings", "correctness", "environment", "again"),
]

KINK = "gradient of inner.weight is wrong: RMSE 3.6e-04 > 2.3e-07 (step 3): passed over"


def section(page: Page, name: str) -> Section:
    return next(one for one in page.sections if one.id == name)


@pytest.fixture
def full_run(small_run: Any, tmp_path: Path) -> Path:
    return pages_of_runs.full(small_run, tmp_path / "run")


# ----------------------------------------------------------------------------------------------------- the first screen


def test_the_first_screen_has_the_verdict_the_sentence_and_the_lines_of_python(
    full_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(full_run.parent)
    head = page_of(full_run).head
    [row] = [row for row in read_run(full_run).rows if row["chosen"]]
    assert (head.kind, head.verdict) == (USE, f"Use inductor freezing: {row['speedup']:.2f}x faster than eager")
    assert head.sentence == results_of(full_run).sentence
    assert head.usage[:2] == ("import compilot", 'fast = compilot.compile(model, "run/plan.json")')
    tiles = {tile.name: f"{tile.figure} {tile.below}" for tile in head.tiles}
    assert tiles["speed-up"] == f"{row['speedup']:.2f}x 95 % {row['speedup_low']:.2f}-{row['speedup_high']:.2f}"
    assert tiles["first call"] == f"{cells.number(row['cold_s'])} s cold {cells.number(row['warm_s'])} s warm"
    assert tiles["pays back"].startswith(f"{row['break_even_calls']:,} ")
    assert any(remark.text.startswith("Against plain torch.compile: ") for remark in head.remarks)


def test_a_run_that_keeps_eager_says_why(tmp_path: Path) -> None:
    head = page_of(pages_of_runs.failures(tmp_path)).head
    assert (head.kind, head.verdict) == (KEEP, "Keep eager")
    assert head.sentence == results_of(tmp_path / "run").sentence
    assert head.usage_about.startswith("The plan keeps the model eager")


def test_a_run_that_was_interrupted_has_a_page_without_a_verdict(small_run: Any, tmp_path: Path) -> None:
    page = page_of(small_run.write(tmp_path / "run", finished=False))
    assert page.head.kind == OPEN
    assert "did not come to its end" in page.head.verdict
    assert page.head.usage == ()
    assert "payback" not in [one.id for one in page.sections]


def test_a_comparison_has_a_sentence_for_each_arm(small_run: Any, tmp_path: Path) -> None:
    small_run.confirm = msgspec.structs.replace(small_run.confirm, purpose="bench")
    run_dir = small_run.write(tmp_path / "run")
    lines = (run_dir / "journal.jsonl").read_text().splitlines(keepends=True)
    (run_dir / "journal.jsonl").write_text("".join(line for line in lines if '"type":"verdict"' not in line))
    (run_dir / "plan.json").unlink()
    head = page_of(run_dir).head
    assert head.verdict == "Measured side by side; nothing is decided"
    assert re.search(r"inductor freezing: [\d.]+x faster than eager", head.sentence)


# ------------------------------------------------------------------------------------------------------------- sections


def test_a_full_run_has_every_section_and_none_is_forgotten(full_run: Path) -> None:
    assert [one.id for one in page_of(full_run).sections] == ALL
    others = 3  # the sizes of a trace; the parts and the losses of a training
    assert len(SECTIONS) == len(ALL) + others


def test_every_candidate_is_in_the_table_with_the_cells_of_its_row(full_run: Path) -> None:
    [table] = section(page_of(full_run), "candidates").tables
    rows = read_run(full_run).rows
    for row, found in zip(rows, table.rows, strict=True):
        named = dict(zip(table.columns, found, strict=True))
        assert named["candidate"].removeprefix("► ") == row["candidate"]
        assert named["speed-up"] == cells.speed_up(row)
        assert named["p50 ms"] == cells.number(row["p50_ms"])
        assert named["RSS MiB"] == cells.memory(row)
    assert [rows[number]["candidate"] for number in table.marked] == ["inductor freezing"]


def test_the_search_names_what_was_dropped_with_the_whole_reason(full_run: Path) -> None:
    found = section(page_of(full_run), "search")
    trials = [trial for trial in read_run(full_run).trials.values() if trial.state != "ok"]
    assert [(row[0], row[1], row[3]) for row in found.tables[0].rows] == [
        (trial.candidate.label, trial.state.value, trial.reason) for trial in trials
    ]
    assert found.key[-1].name.startswith("confirmed: ")


def test_the_break_even_has_the_interval_of_the_record(full_run: Path) -> None:
    data = read_run(full_run)
    [chosen] = [row for row in data.rows if row["chosen"]]
    even = paid_back(data, data.trials[chosen["id"]])
    assert even is not None
    assert even.cold_low is not None
    words = [row.figures for row in section(page_of(full_run), "payback").key if row.name == "inductor freezing"]
    assert f"cold start: pays back after {even.cold_calls:,} calls (95 % {even.cold_low:,}-{even.cold_high:,})" in words
    assert any(word.startswith(f"warm start: pays back after {even.warm_calls:,} calls") for word in words)


def test_batch_sizes_are_drawn_with_the_figures_of_the_table(full_run: Path) -> None:
    found = section(page_of(full_run), "batches")
    known = batch_sizes(RunDir(full_run).lines())
    assert known is not None
    assert found.picture is not None
    rates = [point.samples_per_s for point in known.points if point.candidate == "inductor freezing"]
    for drawn in found.picture:
        marks = re.findall(r'cy="([\d.]+)" r="4.0"><title>inductor freezing:', drawn)
        assert len(marks) == len(rates) == 4
        assert sorted(marks, key=float, reverse=True) == sorted(marks, key=lambda up: rates[marks.index(up)] or 0)
        assert all(f"inductor freezing at batch {batch} " in drawn for batch in (1, 2, 4, 8))
        assert drawn.count('class="ring"') == len(known.advice)
    assert "no memory" in {row[-1] for row in found.tables[0].rows}
    assert any("max_batch_size" in note for note in found.notes)


def test_intervals_stand_where_their_figures_are(full_run: Path) -> None:
    picture = section(page_of(full_run), "intervals").picture
    assert picture is not None
    for drawn in picture:
        [label] = re.findall(r'aria-label="([^"]*)"', drawn)
        marks = {
            name: float(x)
            for x, name in re.findall(r'<circle class="(?:dot|hollow) c\d" cx="([\d.]+)"[^>]*><title>([^:<]+):', drawn)
        }
        rows = {row["candidate"]: row for row in read_run(full_run).rows if row["candidate"] in marks}
        assert sorted(marks, key=lambda name: marks[name]) == sorted(rows, key=lambda name: rows[name]["speedup"] or 0)
        for name, row in rows.items():
            assert f"{name} {cells.speed_up(row)}" in label
    assert 'width="960"' in picture.wide
    assert 'width="334"' in picture.narrow


def test_the_doctors_findings_and_the_tree_come_from_the_runs_own_files(full_run: Path) -> None:
    page = page_of(full_run)
    assert section(page, "findings").body.page == "doctor/report.html"
    assert section(page, "findings").body.findings == read_run(full_run).diagnosis.findings  # type: ignore[union-attr]
    tree = section(page, "modules").body
    assert tree.root.class_name == full_report().modules[0].class_name
    assert tree.graphs == full_report().graphs
    drawn = page_html(page)
    assert drawn.count("<summary><b>graph ") == 2
    assert ">" + full_report().graphs[0].text + "</pre>" in drawn  # on demand, inside of a summary


@pytest.mark.parametrize("damage", [b"{", b'{"schema": 1}', None])
def test_an_examination_that_cannot_be_read_is_left_out(full_run: Path, damage: bytes | None) -> None:
    path = full_run / "doctor" / "report.json"
    path.unlink() if damage is None else path.write_bytes(damage)
    found = section(page_of(full_run), "modules")
    assert found.body.root is None
    assert found.tables[0].caption == "What runs where"


def test_correctness_shows_every_case_with_its_limit(full_run: Path) -> None:
    summary, first, *_ = section(page_of(full_run), "correctness").tables
    assert [row[1] for row in summary.rows] == ["passed"] * len(summary.rows)
    assert first.caption == "Outputs of inductor freezing"  # the chosen one first
    assert first.rows[0] == ("seed 1", "output[0]", "2e-07", "1e-07", "1e-06", "3e-07", "passed")


def with_notes(small_run: Any, folder: Path, notes: dict[str, tuple[str, ...]]) -> Path:
    def noted(trial: Trial) -> Trial:
        if trial.check is None:
            return trial
        found = msgspec.structs.replace(trial.check, notes=notes.get(trial.candidate.label, ()))
        return msgspec.structs.replace(trial, check=found)

    small_run.trials = tuple(map(noted, small_run.trials))
    return small_run.write(folder)


def test_what_the_checks_passed_over_is_shown_with_those_that_have_it(small_run: Any, tmp_path: Path) -> None:
    both = "no float64 reference: too large"
    notes = {"inductor": (both,), "inductor freezing": (KINK, both)}
    page = page_of(with_notes(small_run, tmp_path / "run", notes))
    [table] = [one for one in section(page, "correctness").tables if one.caption == NOTED]
    assert table.rows == (("inductor freezing", KINK), ("inductor freezing; inductor", both))
    assert table.marked == {0, 1}  # of the chosen one
    assert not table.folded
    assert html.escape(KINK) in page_html(page)
    assert f"Correctness check: {KINK}." in [remark.text for remark in page.head.remarks]


def test_a_note_of_all_checks_does_not_name_them(small_run: Any, tmp_path: Path) -> None:
    labels = [trial.candidate.label for trial in small_run.trials if trial.check is not None]
    page = page_of(with_notes(small_run, tmp_path / "run", dict.fromkeys(labels, ("dropped",))))
    [table] = [one for one in section(page, "correctness").tables if one.caption == NOTED]
    assert table.rows == (("all", "dropped"),)


def test_checks_without_notes_have_no_table_of_them(full_run: Path) -> None:
    assert NOTED not in [one.caption for one in section(page_of(full_run), "correctness").tables]


def test_one_candidate_has_a_page(tmp_path: Path) -> None:
    page = page_of(pages_of_runs.one(tmp_path))
    assert page.head.kind == USE
    assert len(section(page, "candidates").tables[0].rows) == 2
    assert {"search", "intervals", "calls", "starts", "payback"} <= {one.id for one in page.sections}


def test_sixty_candidates_are_all_in_the_table_and_the_pictures_show_those_that_matter(
    small_run: Any, tmp_path: Path
) -> None:
    page = page_of(pages_of_runs.sixty(small_run, tmp_path / "run"))
    assert len(section(page, "candidates").tables[0].rows) == 61
    picture = section(page, "intervals").picture
    assert picture is not None
    assert picture.wide.count('class="name') == MOST
    assert re.search(r" \d+ more are in the table above[.]", section(page, "intervals").about)
    assert len(section(page, "search").tables[0].rows) == sum(
        trial.state != "ok" for trial in read_run(page.run_dir).trials.values()
    )


def test_failures_alone_have_reasons_and_no_speed_ups(tmp_path: Path) -> None:
    page = page_of(pages_of_runs.failures(tmp_path))
    assert [row[3] for row in section(page, "search").tables[0].rows] == ["a broke", "b broke", "c broke"]
    assert not {"intervals", "payback", "front"} & {one.id for one in page.sections}


# ------------------------------------------------------------------------------------------------------ what runs where

PART = Settings(engine="openvino", options={"hint": "latency"})


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        ("block:abcdef0123456789", ["layers.0", "layers.1"]),
        ("layers.*", ["layers.0", "layers.1"]),
        ("head", ["head"]),
        ("head, layers.1", ["head", "layers.1"]),
        ("nobody.knows", ["nobody.knows"]),
    ],
)
def test_regions_are_named_by_the_paths_that_the_run_knows(selector: str, paths: list[str]) -> None:
    block = RepeatedBlock(
        class_name="Block", paths=("layers.0", "layers.1"), parameters=1, structure_sha256="abcdef0123456789" * 4
    )
    nodes = [{"path": path, "class_name": "M"} for path in ("", "layers", "layers.0", "layers.1", "head")]
    examined = msgspec.convert({**msgspec.to_builtins(full_report()), "modules": nodes}, type(full_report()))
    candidate = Candidate(
        settings=Settings(), label="x", rationale="", regions=(Region(selector=selector, settings=PART),)
    )
    found = regions(candidate, Diagnosis(repeated=(block,)), examined)
    assert list(found) == paths
    rows = where_table(candidate, found).rows
    assert rows[0] == (", ".join(paths), "openvino", "hint = latency")
    assert rows[-1] == ("everything else", "eager", "")


# ------------------------------------------------------------------------------------------------------- doing it again


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (("compilot", "tune", "net.py:net", "--out", "run", "-q"), "compilot tune net.py:net"),
        (("x", "tune", "net.py:net", "--out=run", "--engines", "a b"), "compilot tune net.py:net --engines 'a b'"),
        (("compilot", "tune", "--resume", "run"), "compilot tune /models/net.py:net --budget 2m"),
        ((), "compilot tune /models/net.py:net --budget 2m"),
    ],
)
def test_the_command_begins_the_run_again_in_another_folder(
    small_run: Any, argv: tuple[str, ...], command: str
) -> None:
    assert again_command(msgspec.structs.replace(small_run.header, argv=argv)) == command


def test_a_claim_can_be_measured_again_and_a_plan_without_one_cannot(full_run: Path) -> None:
    assert f"compilot reproduce {full_run}" in write_page(full_run).path.read_text()
    RunDir(full_run).plan.unlink()
    assert "compilot reproduce" not in write_page(full_run).path.read_text()


def test_a_model_that_came_from_a_program_has_no_command(small_run: Any) -> None:
    workload = msgspec.structs.replace(small_run.header.workload, target=None)
    assert again_command(msgspec.structs.replace(small_run.header, workload=workload)) == ""


# ---------------------------------------------------------------------------------------------------------------- files


def test_the_same_journal_gives_the_same_bytes_and_a_damaged_plan_does_not_matter(full_run: Path) -> None:
    first = write_page(full_run).path.read_bytes()
    assert write_page(full_run).path.read_bytes() == first
    RunDir(full_run).plan.write_text("{")
    assert write_page(full_run).sections == tuple(ALL)


def test_a_report_goes_where_it_is_asked_to(full_run: Path, tmp_path: Path) -> None:
    assert write_page(full_run).path == full_run / "report.html" == RunDir(full_run).report
    assert write_page(full_run, form=ReportFormat.MD).path == full_run / "report.md"
    assert write_page(full_run, tmp_path / "new" / "x.html").path.is_file()
    (tmp_path / "file").touch()
    with pytest.raises(RunDirError, match="cannot write"):
        write_page(full_run, tmp_path / "file" / "x.html")
    with pytest.raises(RunDirError, match="there is no journal"):
        write_page(tmp_path)
