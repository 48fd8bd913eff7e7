"""What runs where: boxes are as wide as their share, colours and numbers are those of the plan's regions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.candidates.boundaries import gpt2

from compilot.artifacts.journal import Journal
from compilot.artifacts.rundir import RunDir
from compilot.candidates.boundary import regional, with_regions
from compilot.candidates.parts import cut, is_within
from compilot.engines.eager.build import EAGER
from compilot.records import (
    Candidate,
    Diagnosis,
    DiagnosisLine,
    Region,
    Repair,
    Settings,
    State,
    TrialLine,
    VerdictLine,
)
from compilot.report.boundary_chart import STAYS, boundary_chart
from compilot.report.boxes import REST, Tree, tree, tree_of
from compilot.report.chart_files import svg
from compilot.report.charts import run_charts
from compilot.report.data import read_run

INDUCTOR, OPENVINO = Settings(engine="inductor"), Settings(engine="openvino")


def hybrid(diagnosis: Diagnosis) -> Candidate:
    blocks = cut(diagnosis)[0]
    regions = [Region(selector=blocks.selector, settings=INDUCTOR), Region(selector="head", settings=OPENVINO)]
    return with_regions(regions, "", diagnosis)


def engines(found: Tree) -> dict[str, str]:
    return {box.path: box.engine for box in found.boxes}


def test_each_submodule_has_the_engine_of_its_region_and_the_rest_is_eager() -> None:
    diagnosis = gpt2()
    found = tree(hybrid(diagnosis), diagnosis, "GPT")
    by_path = engines(found)
    assert {by_path[f"model.h.{n}"] for n in range(12)} == {"inductor"}
    assert by_path["model.h.3.mlp"] == "inductor"  # what is inside of a region runs with it
    assert (by_path["head"], by_path["model"], by_path[""]) == ("openvino", "eager", "eager")
    numbers = {box.number for box in found.boxes if box.engine == "openvino"}
    assert numbers == {next(row.number for row in found.rows if row.label == "openvino on head")}
    assert found.rows[-1].number == REST
    assert found.rows[-1].share == pytest.approx(1.0 - 0.8 - 0.12)


def test_boxes_are_as_wide_as_their_share_and_lie_in_what_is_around_them() -> None:
    diagnosis = gpt2()
    boxes = tree(hybrid(diagnosis), diagnosis, "GPT").boxes
    for box in boxes:
        assert box.right - box.left == pytest.approx(box.share)
        outer = [o for o in boxes if o.depth == box.depth - 1 and is_within(box.path, o.path)]
        assert all(o.left - 1e-9 <= box.left and box.right <= o.right + 1e-9 for o in outer)
    level = sorted((box for box in boxes if box.depth == 2), key=lambda box: box.left)
    assert [box.path for box in level] == [f"model.h.{n}" for n in range(12)]  # 10 comes after 9
    assert all(one.right <= other.left + 1e-9 for one, other in pairwise(level))


def test_shares_that_add_up_to_more_than_the_whole_are_drawn_narrower() -> None:
    diagnosis = gpt2()
    parts = tuple(msgspec.structs.replace(part, share=0.4) for part in diagnosis.parts)  # less than is inside of it
    boxes = tree(EAGER, msgspec.structs.replace(diagnosis, parts=parts), "GPT").boxes
    [model] = [box for box in boxes if box.path == "model"]
    inside = [box for box in boxes if is_within(box.path, "model")]
    assert model.right - model.left == pytest.approx(0.4)
    assert (min(box.left for box in inside), max(box.right for box in inside)) == (model.left, model.right)


def test_a_whole_model_is_one_region_and_eager_is_none() -> None:
    diagnosis = gpt2()
    whole = tree(Candidate(settings=INDUCTOR, label="inductor", rationale=""), diagnosis, "GPT")
    assert {(box.engine, box.number) for box in whole.boxes} == {("inductor", "1")}
    assert [row.label for row in whole.rows] == ["inductor"]
    kept = tree(EAGER, diagnosis, "GPT")
    assert {(box.engine, box.number) for box in kept.boxes} == {("eager", REST)}


@pytest.fixture
def repaired(small_run: Any, tmp_path: Path) -> Path:
    """The small run, as if its model had twelve blocks and its plan eleven of them."""
    run: Path = small_run.write(tmp_path / "run")
    diagnosis = gpt2()
    paths = ",".join(f"model.h.{n}" for n in range(12) if n != 5)
    candidate = with_regions([Region(selector=paths, settings=INDUCTOR)], "", diagnosis)
    blame = Repair(engine="inductor", failed="inductor", state=State.WRONG, reason="", culprits=("model.h.5",))
    lines = RunDir(run).lines()
    chosen = next(line.verdict.chosen_id for line in lines if isinstance(line, VerdictLine))
    (run / "journal.jsonl").unlink()
    with Journal.create(run / "journal.jsonl", small_run.header) as journal:
        for line in lines[1:]:
            if isinstance(line, DiagnosisLine):
                line = DiagnosisLine(diagnosis=diagnosis)
            elif isinstance(line, TrialLine) and line.trial.candidate.id == chosen:
                trial = msgspec.structs.replace(line.trial, candidate=candidate)
                line = TrialLine(trial=trial, at_s=line.at_s)
            elif isinstance(line, VerdictLine):
                verdict = msgspec.structs.replace(line.verdict, chosen_id=candidate.id, repairs=(blame,))
                line = VerdictLine(verdict=verdict, at_s=line.at_s)
            if isinstance(line, DiagnosisLine | TrialLine | VerdictLine):
                journal.append(line)
    return run


def test_what_is_to_blame_is_marked_and_named(repaired: Path) -> None:
    found = tree_of(read_run(repaired))
    assert found is not None
    assert found.staying == ("model.h.5",)
    spec = boundary_chart(found, "GPT").to_dict()
    rows = [row for rows in spec["datasets"].values() for row in rows if "region" in row]
    marks = {row["path"]: row["region"] for row in rows}
    assert (marks["model.h.5"], marks["model.h.4"], marks["head"]) == (STAYS, "1", "")
    text = svg(spec)
    assert "model.h.5 stays in eager" in text
    assert "inductor on 11 of 12 x Block" in text
    assert "What runs where: GPT" in text


def test_it_is_one_of_a_runs_charts_and_left_out_where_nothing_is_known(
    repaired: Path, small_run: Any, tmp_path: Path
) -> None:
    assert "boundary" in run_charts(repaired).charts
    unfinished = small_run.write(tmp_path / "unfinished", finished=False)
    assert run_charts(unfinished).left_out["boundary"] == "nothing is decided, or no submodule was timed"


def test_the_picture_of_the_documentation_has_this_form() -> None:
    picture = (Path(__file__).parents[3] / "docs" / "boundary.svg").read_text()
    for words in ("What runs where", "share of an eager call", "of an eager call"):
        assert words in picture


def test_one_kind_of_block_alone_is_one_row() -> None:
    diagnosis = gpt2()
    found = tree(regional(cut(diagnosis)[:1], INDUCTOR, "", diagnosis), diagnosis, "GPT")
    assert [(row.label, row.submodules) for row in found.rows[:1]] == [("inductor on 12 x Block", 12)]
