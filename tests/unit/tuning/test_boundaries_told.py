"""What a run says of the boundary that it chose: how it grew, what did not pay, which graph breaks cost nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from stories import told
from tests.unit.candidates.boundaries import gpt2, part, stop
from tests.unit.candidates.conftest import MadeUp

from compilot.candidates.boundary import regional, wider
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.parts import covered, cut
from compilot.engines import registry
from compilot.engines.space import Seed, Space
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import Candidate, Decision, Diagnosis, Settings, State, Trial, Verdict, WideningStep
from compilot.report.data import read_run
from compilot.report.terminal import summary
from compilot.testing.runner import Fate
from compilot.tuning.boundaries import free_breaks, told_of_boundary, widening
from compilot.verdict.boundary_words import breaks_words, widening_words

JIT = Settings(engine="jit")
MODEL = Diagnosis(
    cores=2, threads=2, eager_call_s=0.05, parts=(part("body", 0.5), part("head", 0.3), part("tail", 0.12))
)


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    half: Any = MadeUp(Space((), (Seed("", "test"),)))
    registry.register("jit", half, half, EngineTraits(build_cost=BuildCost.COMPILER, through_dynamo=True))
    yield
    registry.unregister("jit")


def ended(candidate: Candidate, ratio: float) -> Trial:
    return Trial(candidate=candidate, state=State.OK, reason="", screening=((ratio, 1.0),) * 8)


def grown() -> list[Trial]:
    """body, then body + head, then body + head + tail, which is slower."""
    body = regional(cut(MODEL)[:1], JIT, "", MODEL)
    both = wider(body, JIT, MODEL)[0].candidate
    every = wider(both, JIT, MODEL)[0].candidate
    return [ended(body, 1.3), ended(both, 1.5), ended(every, 1.4)]


def test_the_order_of_widening_and_the_gain_of_each_step_are_told() -> None:
    trials = grown()
    steps = widening(trials[1], trials, MODEL)
    assert [(step.region, round(step.speedup, 2), step.kept) for step in steps] == [
        ("body", 1.3, True),
        ("head", 1.5, True),
        ("tail", 1.4, False),
    ]
    assert widening_words(steps) == (
        "the boundary grew by what paid: body 1.30x, head 1.50x (1.15x as fast with it), not by tail (0.933x)"
    )


def test_another_process_is_no_step() -> None:
    trials = grown()
    process = msgspec.structs.replace(trials[0].candidate.process, threads=1)
    alone = ended(msgspec.structs.replace(trials[0].candidate, process=process), 1.4)
    assert [step.region for step in widening(trials[1], [alone, trials[1]], MODEL)] == ["body + head"]


def test_a_boundary_that_was_varied_after_it_grew_still_tells_how_it_grew() -> None:
    trials = grown()
    process = msgspec.structs.replace(trials[1].candidate.process, keep_memory=True)
    kept = ended(msgspec.structs.replace(trials[1].candidate, process=process), 1.6)
    steps = widening(kept, [*trials, kept], MODEL)
    assert [(step.region, step.kept) for step in steps] == [
        ("body", True),
        ("head", True),
        ("with other settings", True),
        ("tail", False),
    ]
    told = (
        "the boundary grew by what paid: body 1.30x, head 1.50x (1.15x as fast with it), "
        "with other settings 1.60x (1.067x as fast with it), not by tail (0.933x)"
    )
    assert widening_words(steps) == told


def test_breaks_outside_of_every_region_cost_nothing_and_those_inside_still_do() -> None:
    diagnosis = gpt2(
        breaks=(
            stop("", line=1),
            stop("model", line=2),
            stop("model.h.3.mlp", line=3),
            stop(line=4),
            stop("head", "", line=5),
        )
    )
    blocks = ended(regional(cut(diagnosis)[:1], JIT, "", diagnosis), 1.5)
    assert free_breaks(blocks, diagnosis) == ("net.py:1", "net.py:2", "net.py:5")
    both = ended(regional(cut(diagnosis)[:2], JIT, "", diagnosis), 1.5)
    assert free_breaks(both, diagnosis) == ("net.py:1", "net.py:2")  # of :4 nobody knows who runs it


def test_the_words_name_files_and_not_folders() -> None:
    assert breaks_words(["/somewhere/net.py:7"]) == (
        "a graph break costs nothing any more, since it is outside of what is compiled: net.py:7"
    )
    assert breaks_words([f"/a/net.py:{n}" for n in range(5)]).endswith("net.py:0, net.py:1, net.py:2 and 2 more")


def test_a_verdict_without_regions_has_nothing_to_say_of_them() -> None:
    whole = ended(Candidate(settings=JIT, label="jit", rationale=""), 1.5)
    verdict = Verdict(decision=Decision.USE, chosen_id=whole.candidate.id, because="faster")
    assert told_of_boundary(verdict, [whole], gpt2(breaks=(stop(""),))) == verdict
    kept = Verdict(decision=Decision.KEEP_EAGER, chosen_id=grown()[0].candidate.id, because="slower")
    assert told_of_boundary(kept, grown(), MODEL) == kept


def test_the_story_of_a_run_that_widened(tmp_path: Path) -> None:
    """The whole crashes, the parts do not: the plan, the journal and the report say how the boundary grew."""
    shares = {one.path: one.share for one in MODEL.parts}
    diagnosis = msgspec.structs.replace(MODEL, breaks=(stop("", exports=False),), graph_breaks=1)

    def fates(candidate: Candidate) -> Fate:
        if not candidate.regions:
            return Fate(state=State.CRASHED, reason="died of SIGSEGV", cold_s=5.0)
        inside = covered(candidate, diagnosis)
        harm = 0.3 if "tail" in inside else 0.0
        return Fate(speed=1.0 / (1.0 - 0.5 * sum(shares[path] for path in inside) + harm), cold_s=5.0)

    found = told(
        tmp_path, fates, search=GuidedSearch(engines=("jit",)), diagnosis=diagnosis, eager_call_s=0.05, noise=0.002
    )
    assert set(covered(found.plan.entries[0].candidate, diagnosis)) == {"body", "head"}
    assert "a graph break costs nothing any more" in found.plan.because
    assert "body + head 1.67x, not by tail (0.71" in found.plan.because
    assert found.verdict.widening[-1] == WideningStep(
        region="tail", speedup=pytest.approx(1 / 0.84, abs=0.02), gain=pytest.approx(0.71, abs=0.02), kept=False
    )
    console = Console(width=500, record=True, color_system=None, file=io.StringIO())
    console.print(summary(read_run(found.run_dir.path), found.plan))
    assert "A graph break costs nothing any more" in console.export_text()
