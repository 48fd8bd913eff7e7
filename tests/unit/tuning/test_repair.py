"""A candidate that fails is repaired: the fastest plan that passes, and the name of what is to blame."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stories import ListSearch, told
from tests.unit.candidates.boundaries import gpt2, stop
from tests.unit.candidates.conftest import MadeUp

from compilot.candidates import worth
from compilot.candidates.boundary import main_engine
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.parts import covered
from compilot.candidates.promises import share_of
from compilot.candidates.worth import Worth
from compilot.engines import registry
from compilot.engines.space import Acts, Knob, Seed, Space
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.modules.selectors import culprit
from compilot.records import (
    Candidate,
    Decision,
    Diagnosis,
    Precision,
    ProcessSettings,
    Repair,
    Settings,
    State,
    Trial,
    TrialLine,
)
from compilot.testing.runner import Fate
from compilot.tuning.budget import Left
from compilot.tuning.repair import failures, records_of
from compilot.tuning.repair_worth import next_step
from compilot.tuning.repairing import Repairing, comes_from

PLAIN = Candidate(settings=Settings(engine="jit"), label="jit", rationale="test")


@pytest.fixture
def engine() -> Iterator[Callable[..., None]]:
    """Registers `jit`, which makes one program for like blocks."""

    def registered(space: Space | None = None, **traits: Any) -> None:
        half: Any = MadeUp(space or Space((), (Seed("", "test"),)))
        kind = {"build_cost": BuildCost.COMPILER, "through_dynamo": True, **traits}
        registry.register("jit", half, half, EngineTraits(**kind))

    registered()
    yield registered
    registry.unregister("jit")


def wrong_with(diagnosis: Diagnosis, *culprits: str, state: State = State.WRONG, named: bool = False) -> Any:
    """An engine that fails exactly when a culprit is inside; all else takes half the time."""

    def fate(candidate: Candidate) -> Fate:
        inside = set(covered(candidate, diagnosis))
        bad = [one for one in culprits if not candidate.regions or one in inside]
        if main_engine(candidate, diagnosis) == "jit" and bad:
            reason = f"in {bad[0]}: cannot be exported" if named and candidate.regions else "max abs error 3"
            return Fate(state=state, reason=reason, cold_s=5.0)
        share = share_of(candidate, diagnosis) if candidate.regions else 0.0
        return Fate(speed=1.0 / (1.0 - 0.5 * share), cold_s=5.0)

    return fate


def story(folder: Path, diagnosis: Diagnosis, fates: Any, *, guided: bool = True, seed: int = 0, **how: Any) -> Any:
    search: Any = GuidedSearch(engines=("jit",)) if guided else ListSearch([PLAIN])
    return told(folder, fates, search=search, diagnosis=diagnosis, seed=seed, eager_call_s=0.05, **how)


def trials_of(found: Any) -> list[Trial]:
    return [line.trial for line in found.run_dir.lines() if isinstance(line, TrialLine)]


# ------------------------------------------------------------------------------------------------------------- modules


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("guided", [True, False])
def test_one_wrong_block_of_twelve_is_named_and_all_others_are_compiled(
    tmp_path: Path, engine: Any, seed: int, guided: bool
) -> None:
    diagnosis, culprit = gpt2(), f"model.h.{(7 * seed + 3) % 12}"
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, culprit), guided=guided, seed=seed, noise=0.02)
    (entry,) = found.plan.entries
    inside = set(covered(entry.candidate, diagnosis))
    assert inside >= {f"model.h.{n}" for n in range(12)} - {culprit}
    assert culprit not in inside
    (blamed,) = found.verdict.repairs
    assert blamed.culprits == (culprit,)
    assert blamed.found
    assert blamed.trials <= math.ceil(math.log2(13)) + 2
    assert f"{culprit} stays in eager: with it jit gave wrong answers (6.7 % of an eager call" in found.plan.because
    assert any(culprit in caveat for caveat in entry.caveats)


def test_two_wrong_blocks_are_both_left_out(tmp_path: Path, engine: Any) -> None:
    diagnosis, bad = gpt2(), ("model.h.2", "model.h.9")
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, *bad), guided=False)
    inside = set(covered(found.plan.entries[0].candidate, diagnosis))
    assert {f"model.h.{n}" for n in range(12)} - inside == set(bad)
    assert set(found.verdict.repairs[0].culprits) == set(bad)
    assert "model.h.2, model.h.9 stay in eager: with them jit gave wrong answers" in found.plan.because


def test_a_block_that_a_trial_names_is_left_out_at_once(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    fates = wrong_with(diagnosis, "model.h.4", state=State.INFEASIBLE, named=True)
    found = story(tmp_path, diagnosis, fates, guided=False)
    assert found.verdict.repairs[0].culprits == ("model.h.4",)
    assert found.verdict.repairs[0].trials == 2
    assert "model.h.4 stays in eager: jit cannot take it" in found.plan.because


def test_what_the_doctor_knows_to_stop_an_export_is_not_even_asked_for(tmp_path: Path, engine: Any) -> None:
    engine(whole_graph=True, through_dynamo=False)
    diagnosis = gpt2(breaks=(stop("model.h.5"),))
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, "model.h.5", state=State.INFEASIBLE), guided=False)
    assert not any("model.h.5" in covered(t.candidate, diagnosis) for t in trials_of(found))
    assert found.verdict.repairs[0].culprits == ("model.h.5",)
    assert "a graph break costs nothing any more" in found.plan.because


def test_the_price_in_speed_is_about_what_the_culprit_would_bring(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, "model.h.0"), guided=False)
    share = 0.8 / 12
    whole, repaired = 1 - 0.5 * 0.92, 1 - 0.5 * (0.92 - share)
    assert found.verdict.repairs[0].price == pytest.approx(1 - whole / repaired, abs=0.01)
    assert found.verdict.repairs[0].share == pytest.approx(share, abs=0.001)


def test_the_code_around_the_parts_may_be_to_blame(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()

    def fates(candidate: Candidate) -> Fate:
        whole = Fate(state=State.CRASHED, reason="died of SIGSEGV", cold_s=5.0)
        return Fate(speed=1.5, cold_s=5.0) if candidate.regions else whole

    found = story(tmp_path, diagnosis, fates, guided=False)
    assert "the code around these parts is to blame" in found.plan.because
    assert found.verdict.repairs[0].culprits == ()


def test_a_large_culprit_is_looked_into(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2(2)  # each block takes 40 % of a call

    def fates(candidate: Candidate) -> Fate:
        inside = covered(candidate, diagnosis)
        bad = not candidate.regions or "model.h.1" in inside or "model.h.1.attn" in inside
        speed = 1.0 + share_of(candidate, diagnosis)
        return Fate(state=State.WRONG, reason="error", cold_s=5.0) if bad else Fate(speed=speed, cold_s=5.0)

    found = story(tmp_path, diagnosis, fates, guided=False)
    assert "model.h.1.mlp" in covered(found.plan.entries[0].candidate, diagnosis)
    assert found.verdict.repairs[0].culprits == ("model.h.1.attn",)
    assert found.verdict.repairs[0].share == pytest.approx(0.15)


def test_an_engine_that_fails_everywhere_keeps_eager(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    everywhere = [path for block in diagnosis.repeated for path in block.paths] + ["head"]
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, *everywhere), guided=False)
    assert found.verdict.decision is Decision.KEEP_EAGER
    assert len(trials_of(found)) < 15
    assert found.verdict.repairs == ()


def test_where_eager_is_kept_the_culprit_is_named_all_the_same(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    fate = wrong_with(diagnosis, "model.h.5")
    slower = lambda candidate: fate(candidate)._replace(speed=0.7)  # noqa: E731  # right, but not worth it
    found = story(tmp_path, diagnosis, slower, guided=False)
    assert found.verdict.decision is Decision.KEEP_EAGER
    assert [one.culprits for one in found.verdict.repairs] == [("model.h.5",)]
    assert "jit gave wrong answers because of model.h.5" in found.verdict.because
    assert not found.plan.entries


def test_where_eager_is_kept_and_time_ran_out_that_is_said(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    fate = wrong_with(diagnosis, "model.h.11")
    slower = lambda candidate: fate(candidate)._replace(speed=0.7)  # noqa: E731  # right, but not worth it
    found = story(tmp_path, diagnosis, slower, guided=False, budget_s=26.0)
    assert found.verdict.decision is Decision.KEEP_EAGER
    assert [(one.culprits, one.found) for one in found.verdict.repairs] == [((), False)]
    assert "jit gave wrong answers; what is to blame was not found in time" in found.verdict.because


def test_a_repair_stops_with_the_budget_and_the_best_so_far_is_the_plan(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, "model.h.11"), guided=False, budget_s=55.0)
    assert found.verdict.decision is Decision.USE
    assert "model.h.11" not in covered(found.plan.entries[0].candidate, diagnosis)
    assert not found.verdict.repairs[0].found
    assert "what is to blame was not found in time" in found.plan.because


def test_the_same_trials_ask_the_same_question(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, "model.h.6"), guided=False)
    trials = trials_of(found)
    for end in range(2, len(trials)):
        one, again = (next_step(diagnosis, trials[:end], 0.0) for _ in range(2))
        assert one == again
        assert one is None or one.candidate.id not in {t.candidate.id for t in trials[:end]}


def test_without_parts_there_is_nothing_to_repair(tmp_path: Path, engine: Any) -> None:
    found = story(tmp_path, Diagnosis(cores=2, threads=2), wrong_with(Diagnosis(), "x"), guided=False)
    assert found.runner.tried == ["eager", "jit"]


# ------------------------------------------------------------------------------------------------------------- options


def wrong_option(*bad: str) -> Any:
    def fates(candidate: Candidate) -> Fate:
        options = candidate.settings.options
        if any(options.get(name) for name in bad):
            return Fate(state=State.WRONG, reason="max abs error 3", cold_s=5.0)
        return Fate(speed=1.5 + 0.1 * len(options), cold_s=5.0)

    return fates


@pytest.mark.parametrize("bad", ["p", "q", "r"])
def test_an_option_that_gives_wrong_answers_is_named_and_the_others_are_kept(
    tmp_path: Path, engine: Any, bad: str
) -> None:
    three = msgspec.structs.replace(
        PLAIN, label="jit all", settings=Settings(engine="jit", options=dict.fromkeys("pqr", True))
    )
    search = ListSearch([PLAIN, three])
    found = told(tmp_path, wrong_option(bad), search=search, diagnosis=gpt2(), eager_call_s=0.05)
    assert set(found.plan.entries[0].candidate.settings.options) == set("pqr") - {bad}
    assert found.verdict.repairs[0].culprits == (bad,)
    assert f"without {bad}, with which jit gave wrong answers" in found.plan.because


def test_the_plain_form_is_tried_before_the_model_is_taken_apart(tmp_path: Path, engine: Any) -> None:
    one = msgspec.structs.replace(PLAIN, label="jit p", settings=Settings(engine="jit", options={"p": True}))
    found = told(tmp_path, wrong_option("p"), search=ListSearch([one]), diagnosis=gpt2(), eager_call_s=0.05)
    assert found.runner.tried == ["eager", "jit p", "jit"]
    assert found.plan.entries[0].candidate.settings == Settings(engine="jit")


def test_where_the_plain_form_fails_too_the_submodules_are_tried_in_it(tmp_path: Path, engine: Any) -> None:
    diagnosis = gpt2()
    one = msgspec.structs.replace(PLAIN, label="jit p", settings=Settings(engine="jit", options={"p": True}))
    fates = wrong_with(diagnosis, "model.h.3")
    found = told(tmp_path, fates, search=ListSearch([one]), diagnosis=diagnosis, eager_call_s=0.05)
    assert found.verdict.repairs[0].culprits == ("model.h.3",)
    used = [region.settings for trial in trials_of(found) for region in trial.candidate.regions]
    assert used
    assert all(settings == Settings(engine="jit") for settings in used)


# ---------------------------------------------------------------------------------------------------------- what counts


def ended(candidate: Candidate, state: State, reason: str = "") -> Trial:
    return Trial(candidate=candidate, state=state, reason=reason)


def test_what_cannot_be_repaired_is_left_alone(engine: Any) -> None:
    engine(compiler_at_build=True)
    failed = [ended(PLAIN, State.INFEASIBLE)]
    assert list(failures(gpt2(), failed)) == failed
    assert list(failures(msgspec.structs.replace(gpt2(), compiler_problem="no g++"), failed)) == []
    assert list(failures(gpt2(), [ended(PLAIN, State.TIMED_OUT)])) == []
    lower = msgspec.structs.replace(PLAIN, settings=Settings(engine="jit", precision=Precision.BF16))
    assert list(failures(gpt2(), [ended(lower, State.WRONG)])) == []


def test_of_several_failures_of_an_engine_the_plainest_is_repaired(engine: Any) -> None:
    more = msgspec.structs.replace(PLAIN, settings=Settings(engine="jit", options={"p": True}))
    both = [ended(more, State.WRONG), ended(PLAIN, State.WRONG)]
    assert list(failures(gpt2(), both)) == [both[1]]


def test_a_boundary_that_failed_is_repaired_where_the_whole_was_never_seen(engine: Any) -> None:
    diagnosis = gpt2()
    step = next_step(diagnosis, [ended(PLAIN, State.WRONG)], 0.0)
    assert step is not None
    part = ended(step.candidate, State.WRONG)
    assert list(failures(diagnosis, [part, ended(PLAIN, State.TIMED_OUT)])) == [part]
    again = next_step(diagnosis, [part], 0.0)
    assert again is not None
    assert set(covered(again.candidate, diagnosis)) < set(covered(part.candidate, diagnosis))


@pytest.mark.parametrize(
    ("reason", "path"),
    [
        ("in model.h.5: cannot be exported", "model.h.5"),
        ("crashed; in model.h.5: SIGSEGV", "model.h.5"),
        ("in a race: died of SIGBUS", None),
        ("max abs error 3.1e-2", None),
    ],
)
def test_reasons_name_a_submodule_or_none(reason: str, path: str | None) -> None:
    assert culprit(reason) == path


def test_a_repair_comes_when_it_promises_more_than_the_search(engine: Any) -> None:
    """With a good plan at hand another engine's repair can wait; with nothing at hand it is what promises most."""
    diagnosis, failed = gpt2(), [ended(PLAIN, State.CRASHED)]
    alone, behind = (next_step(diagnosis, failed, best) for best in (0.0, 1.5))
    assert alone is not None
    assert behind is not None
    assert behind.worth.gain < 0.2 * alone.worth.gain


@pytest.mark.parametrize("cost", [BuildCost.BACKEND, BuildCost.COMPILER])
def test_once_the_culprit_is_known_everything_else_comes_before_variations(
    tmp_path: Path, engine: Any, cost: BuildCost
) -> None:
    """Also with an engine of which little is expected: what its parts have shown counts for more."""
    engine(build_cost=cost)
    diagnosis, culprit = gpt2(), "model.h.4"
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, culprit))
    tried = [t.candidate for t in trials_of(found) if t.candidate.regions]
    insides = [set(covered(candidate, diagnosis)) for candidate in tried]
    everything = {f"model.h.{n}" for n in range(12)} | {"head"}
    first = insides.index(everything - {culprit})
    assert all(candidate.process == ProcessSettings() for candidate in tried[:first])
    assert found.verdict.repairs[0].culprits == (culprit,)


def test_what_a_repair_promises_follows_what_its_parts_have_brought(engine: Any) -> None:
    diagnosis, whole = gpt2(), ended(PLAIN, State.WRONG)
    every = next_step(diagnosis, [whole], 0.0)
    assert every is not None
    half = next_step(diagnosis, [whole, ended(every.candidate, State.WRONG)], 0.0)
    assert half is not None
    slow, quick = (
        msgspec.structs.replace(ended(half.candidate, State.OK), screening=((0.01, took),) * 8)
        for took in (0.0099, 0.007)
    )
    after = [next_step(diagnosis, [whole, ended(every.candidate, State.WRONG), one], 0.0) for one in (slow, quick)]
    assert after[0] is not None
    assert after[1] is not None
    assert after[0].candidate == after[1].candidate
    assert after[1].worth.gain > 2 * after[0].worth.gain


def test_a_quarter_that_gained_nothing_does_not_end_a_repair(engine: Any) -> None:
    """A few pairs scatter by more than a quarter of a model gains."""
    diagnosis, told = gpt2(), [ended(PLAIN, State.WRONG)]
    for state in (State.WRONG, State.WRONG, State.OK):
        step = next_step(diagnosis, told, 0.0)
        assert step is not None
        told.append(msgspec.structs.replace(ended(step.candidate, state), screening=((0.01, 0.0101),) * 8))
    after = next_step(diagnosis, told, 0.0)
    assert after is not None
    assert after.worth.gain > worth.VARIATION


def test_code_that_like_blocks_share_leaves_none_of_them_out(tmp_path: Path, engine: Any) -> None:
    """The doctor knows the line, and not which of the twelve stops there: a trial names it."""
    engine(whole_graph=True, through_dynamo=False)
    every = stop(*(f"model.h.{n}" for n in range(12)))
    diagnosis = gpt2(breaks=(every,))
    fates = wrong_with(diagnosis, "model.h.4", state=State.INFEASIBLE, named=True)
    found = story(tmp_path, diagnosis, fates, guided=False)
    inside = set(covered(found.plan.entries[0].candidate, diagnosis))
    assert {f"model.h.{n}" for n in range(12)} - inside == {"model.h.4"}
    assert found.verdict.repairs[0].culprits == ("model.h.4",)


def test_nothing_failed_means_no_repair(engine: Any) -> None:
    assert records_of(gpt2(), [ended(PLAIN, State.OK)]) == []
    assert next_step(gpt2(), [ended(PLAIN, State.OK)], 0.0) is None


# -------------------------------------------------------------------------------------------------------------- passes

REWRITES = Space(
    knobs=tuple(Knob(name, Acts.OPTION, (True, False), "test", variations=(), without=False) for name in "abcd"),
    seeds=(Seed("", "test"),),
)


def wrong_pass(*bad: str) -> Any:
    """An engine that is wrong, on whatever it runs, unless these passes are left out; each one costs some speed."""

    def fate(candidate: Candidate) -> Fate:
        settings = candidate.regions[0].settings if candidate.regions else candidate.settings
        if settings.engine != "jit":
            return Fate(speed=1.0, cold_s=5.0)
        if any(settings.options.get(name, True) for name in bad):
            return Fate(state=State.WRONG, reason="max abs error 3", cold_s=5.0)
        return Fate(speed=2.0 - 0.2 * len(settings.options), cold_s=5.0)

    return fate


@pytest.mark.parametrize("bad", ["a", "b", "d"])
def test_a_pass_that_gives_wrong_answers_is_named_and_the_others_are_kept(
    tmp_path: Path, engine: Any, bad: str
) -> None:
    engine(REWRITES)
    search = ListSearch([PLAIN])
    found = told(tmp_path, wrong_pass(bad), search=search, diagnosis=gpt2(), eager_call_s=0.05, budget_s=3000.0)
    (entry,) = found.plan.entries
    assert entry.candidate.settings == Settings(engine="jit", options={bad: False})
    assert not entry.candidate.regions
    (blamed,) = found.verdict.repairs
    assert (blamed.kind, blamed.culprits, blamed.found) == ("passes", (bad,), True)
    assert f"without the passes {bad}, with which jit gave wrong answers" in found.plan.because


def test_a_model_without_parts_is_repaired_by_its_passes(tmp_path: Path, engine: Any) -> None:
    engine(REWRITES)
    alone = Diagnosis(cores=2, threads=2, eager_call_s=0.05)
    found = told(tmp_path, wrong_pass("c"), search=ListSearch([PLAIN]), diagnosis=alone, eager_call_s=0.05)
    assert found.plan.entries[0].candidate.settings.options == {"c": False}


def test_passes_are_asked_for_once_where_it_is_none_of_them(tmp_path: Path, engine: Any) -> None:
    engine(REWRITES)
    diagnosis = gpt2()
    found = story(tmp_path, diagnosis, wrong_with(diagnosis, "model.h.3"), guided=False)
    assert [name for name in found.runner.tried if "no a" in name] == ["jit, no a, no b, no c, no d"]
    (blamed,) = found.verdict.repairs
    assert (blamed.kind, blamed.culprits) == ("modules", ("model.h.3",))


def test_no_pass_stops_an_export(engine: Any) -> None:
    engine(REWRITES)
    alone = Diagnosis(cores=2, threads=2, eager_call_s=0.05)
    assert next_step(alone, [ended(PLAIN, State.INFEASIBLE)], 0.0) is None
    assert next_step(alone, [ended(PLAIN, State.WRONG)], 0.0) is not None


# ---------------------------------------------------------------------------------------------------------- the search


class Slots:
    """A search with as many candidates as anybody wants."""

    def __init__(self) -> None:
        self.given = 0

    def begin(self, diagnosis: Diagnosis) -> None: ...

    def tell(self, trial: Trial) -> None: ...

    def next_worth(self, budget: Any) -> Worth | None:
        return Worth(1e-9, 1.0)

    def ask(self, slots: int, budget: Any) -> list[Candidate]:
        made = [msgspec.structs.replace(PLAIN, settings=Settings(engine="jit", mode=f"m{n}")) for n in range(99)]
        self.given += slots
        return made[self.given - slots : self.given]


def test_other_slots_are_the_searchs_while_a_repair_waits_for_its_answer(engine: Any) -> None:
    repairing = Repairing(Slots())
    repairing.begin(gpt2())
    repairing.tell(ended(PLAIN, State.WRONG))
    first = repairing.ask(3, Left(1e6))
    assert [bool(one.regions) for one in first] == [True, False, False]
    assert [bool(one.regions) for one in repairing.ask(3, Left(1e6))] == [False] * 3  # nobody has answered it yet
    repairing.tell(ended(first[0], State.WRONG))
    assert [bool(one.regions) for one in repairing.ask(2, Left(1e6))] == [True, False]


@pytest.mark.parametrize("own", [{"process": ProcessSettings(threads=1)}, {"options": {"cpp.simdlen": 256}}])
def test_a_plan_that_has_what_is_to_blame_does_not_say_that_it_is_without_it(engine: Any, own: Any) -> None:
    plain = {"process": ProcessSettings(), "options": {}, **own}
    chosen = Candidate(
        settings=Settings(engine="jit", options=plain["options"]), label="", rationale="", process=plain["process"]
    )
    for culprit_name, comes in (("threads", "process" not in own), ("simdlen", "options" not in own)):
        repair = Repair(
            engine="jit", failed="x", state=State.WRONG, reason="", culprits=(culprit_name,), kind="options"
        )
        assert comes_from(chosen, repair, gpt2()) is comes
