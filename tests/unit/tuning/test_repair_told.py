"""What a plan says of a repair: who is to blame, which engine has it instead; one engine's lesson for the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stories import ListSearch, told
from tests.unit.candidates.boundaries import gpt2, layers, stop
from tests.unit.candidates.conftest import MadeUp

from compilot.candidates.boundary import main_engine
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.parts import covered, paths_of
from compilot.candidates.promises import share_of
from compilot.engines import registry
from compilot.engines.space import Seed, Space
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import Candidate, Region, Repair, Settings, State, TrialLine
from compilot.testing.runner import Fate
from compilot.tuning.repairing import comes_from
from compilot.verdict.boundary_words import NOT_FOUND, blame_words, repair_words

CULPRIT = "model.h.4"
SHARED_LINE = gpt2(breaks=(stop(*layers("model.h", 12)),))  # the doctor names a line that twelve blocks share
OTHERS = {path for path in layers("model.h", 12) if path != CULPRIT}


@pytest.fixture(autouse=True)
def engines() -> Iterator[None]:
    """`file` and `pack` export; `jit` does not."""
    kinds = {
        "file": EngineTraits(build_cost=BuildCost.SECONDS, whole_graph=True),
        "pack": EngineTraits(build_cost=BuildCost.EXPORT_AND_COMPILER, whole_graph=True),
        "jit": EngineTraits(build_cost=BuildCost.COMPILER, through_dynamo=True),
    }
    for name, traits in kinds.items():
        half: Any = MadeUp(Space((), (Seed("", "test"),)))
        registry.register(name, half, half, traits)
    yield
    for name in kinds:
        registry.unregister(name)


def stopped_by_the_culprit(candidate: Candidate) -> Fate:
    """No export of the culprit; `pack` brings more than `file`."""
    inside, engine = covered(candidate, SHARED_LINE), main_engine(candidate, SHARED_LINE)
    if engine in ("file", "pack") and (not candidate.regions or CULPRIT in inside):
        reason = f"in {CULPRIT}: " if candidate.regions else ""
        return Fate(state=State.INFEASIBLE, reason=f"{reason}control flow depends on values", cold_s=0.5)
    saved = {"file": 0.3, "pack": 0.6}.get(engine, 0.0)
    return Fate(
        speed=1.0 / (1.0 - saved * (share_of(candidate, SHARED_LINE) if candidate.regions else 0.0)), cold_s=5.0
    )


def test_what_stops_one_engines_export_is_left_out_of_the_next_ones_at_once(tmp_path: Path) -> None:
    search = GuidedSearch(engines=("file", "pack"))
    found = told(
        tmp_path, stopped_by_the_culprit, search=search, diagnosis=SHARED_LINE, seed=0, eager_call_s=0.05, noise=0.01
    )
    trials = [line.trial for line in found.run_dir.lines() if isinstance(line, TrialLine)]
    first = next(t for t in trials if main_engine(t.candidate, SHARED_LINE) == "pack")
    assert set(covered(first.candidate, SHARED_LINE)) >= OTHERS
    assert first.state is State.OK
    (entry,) = found.plan.entries
    assert main_engine(entry.candidate, SHARED_LINE) == "pack"
    assert CULPRIT not in covered(entry.candidate, SHARED_LINE)
    assert f"{CULPRIT} stays in eager: pack cannot take it" in found.plan.because


def test_a_plan_of_an_engine_that_has_not_failed_says_whose_export_stopped(tmp_path: Path) -> None:
    whole = Candidate(settings=Settings(engine="file"), label="file", rationale="")
    others = made_of(region("pack", *sorted(OTHERS)))
    found = story(tmp_path, stopped_by_the_culprit, whole, others)
    assert found.plan.entries[0].candidate.id == others.id
    assert f"{CULPRIT} stays in eager: file cannot take it, so it was left out for pack, too" in found.plan.because
    assert found.verdict.repairs[0].carried_to == ("pack",)


def story(folder: Path, fates: Any, *candidates: Candidate) -> Any:
    search: Any = ListSearch(candidates)
    return told(folder, fates, search=search, diagnosis=SHARED_LINE, seed=0, eager_call_s=0.05, noise=0.01)


def region(engine: str, *paths: str) -> Region:
    return Region(selector=",".join(paths), settings=Settings(engine=engine))


def made_of(*regions: Region) -> Candidate:
    return Candidate(settings=Settings(), label="", rationale="", regions=regions)


@pytest.mark.parametrize(
    ("regions", "comes"),
    [
        ([region("file", *sorted(OTHERS))], True),
        ([region("file", *sorted(OTHERS)), region("jit", CULPRIT)], True),  # another engine has the culprit
        ([region("file", *sorted(OTHERS), CULPRIT)], False),
        ([region("file", "model")], False),  # the culprit is inside of it
        ([region("file", f"{CULPRIT}.mlp")], True),  # what is right inside of the culprit
        ([region("jit", *sorted(OTHERS))], False),  # not the engine that failed
    ],
)
def test_a_plan_comes_from_a_repair_where_the_engine_that_failed_is_without_the_culprit(
    regions: list[Region], comes: bool
) -> None:
    repair = Repair(engine="file", failed="file", state=State.WRONG, reason="", culprits=(CULPRIT,))
    assert comes_from(made_of(*regions), repair, SHARED_LINE) is comes


def test_a_culprit_that_another_engine_has_is_not_said_to_stay_in_eager(tmp_path: Path) -> None:
    def fates(candidate: Candidate) -> Fate:
        inside = set(covered(candidate, SHARED_LINE))
        packed = [r.selector for r in candidate.regions if r.settings.engine == "pack"]
        own = {path for selector in packed for path in paths_of(selector, SHARED_LINE)}
        if main_engine(candidate, SHARED_LINE) != "jit" and (not candidate.regions or CULPRIT in own):
            return stopped_by_the_culprit(candidate)
        if not candidate.regions:
            return Fate(state=State.CRASHED, reason="signal 11")
        return Fate(speed=2.0 if CULPRIT in inside else 1.5, cold_s=5.0)

    hybrid = made_of(region("pack", *sorted(OTHERS)), region("jit", CULPRIT))
    whole = Candidate(settings=Settings(engine="pack"), label="pack", rationale="")
    found = story(tmp_path, fates, whole, hybrid)
    assert found.plan.entries[0].candidate.id == hybrid.id
    (repair,) = found.verdict.repairs
    assert repair.runs_with == "jit"
    assert f"{CULPRIT} runs with jit: pack cannot take it" in found.plan.because


def test_words_for_several_culprits_with_another_engine() -> None:
    repair = Repair(
        engine="pack", failed="pack", state=State.CRASHED, reason="", culprits=("a", "b"), runs_with="jit", share=0.2
    )
    assert repair_words(repair) == "a, b run with jit: with them pack crashed (20.0 % of an eager call)"


def repair_of(*culprits: str, **more: Any) -> Repair:
    return Repair(engine="pack", failed="pack", state=State.INFEASIBLE, reason="", culprits=culprits, **more)


@pytest.mark.parametrize(
    ("repair", "words"),
    [
        (repair_of("a", share=0.1), "a stays in eager: pack cannot take it (10.0 % of an eager call)"),
        (
            repair_of("a", "b", carried_to=("file", "box"), share=0.1),
            "a, b stay in eager: pack cannot take them, so they were left out for file and box, too"
            " (10.0 % of an eager call)",
        ),
        (repair_of("freezing", kind="options"), "without freezing, with which pack cannot take the model"),
        (
            repair_of(kind="around"),
            "pack cannot take the whole model: the code around these parts is to blame and stays in eager",
        ),
        (repair_of(found=False), f"pack cannot take the whole model; {NOT_FOUND}"),
    ],
)
def test_a_model_that_an_engine_cannot_take_does_not_sound_like_a_broken_engine(repair: Repair, words: str) -> None:
    assert repair_words(repair) == words


def test_words_where_eager_is_kept() -> None:
    assert blame_words(repair_of("a")) == "pack cannot take the model because of a"
    assert blame_words(repair_of(found=False)) == f"pack cannot take the model; {NOT_FOUND}"


def test_culprits_in_different_places_are_told_apart(tmp_path: Path) -> None:
    other = "model.h.7"
    diagnosis = SHARED_LINE

    def fates(candidate: Candidate) -> Fate:
        packed = [r.selector for r in candidate.regions if r.settings.engine == "pack"]
        own = {path for selector in packed for path in paths_of(selector, diagnosis)}
        bad = [one for one in (CULPRIT, other) if one in own]
        if bad:
            return Fate(state=State.INFEASIBLE, reason=f"in {bad[0]}: control flow depends on values", cold_s=0.5)
        if not candidate.regions:
            return Fate(state=State.CRASHED, reason="signal 11")
        return Fate(speed=2.0 if CULPRIT in covered(candidate, diagnosis) else 1.5, cold_s=5.0)

    hybrid = made_of(region("pack", *sorted(OTHERS - {other})), region("jit", CULPRIT))
    whole = Candidate(settings=Settings(engine="pack"), label="pack", rationale="")
    found = story(tmp_path, fates, whole, hybrid)
    assert found.plan.entries[0].candidate.id == hybrid.id
    placed = {repair.culprits: (repair.runs_with, round(repair.share, 3)) for repair in found.verdict.repairs}
    assert placed == {(CULPRIT,): ("jit", round(0.8 / 12, 3)), (other,): ("", round(0.8 / 12, 3))}
    assert f"{CULPRIT} runs with jit: with it pack crashed" in found.plan.because
    assert f"{other} stays in eager: with it pack crashed" in found.plan.because
