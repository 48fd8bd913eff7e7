"""bench/boundary.py: its arms, the order of its steps, and when its aims are met; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.bench.regret_fakes import samples_of
from tests.unit.candidates.boundaries import gpt2, unet

import boundary
import boundary_cases
import boundary_lab
import boundary_table as table
from boundary_cases import (
    BOTTLENECK,
    FEW,
    HYBRID,
    MANY,
    PICK,
    REGIONAL,
    WHOLE,
    Build,
    Case,
    Live,
    Look,
    RaceSet,
    Rules,
    Step,
    Tune,
    cases,
    ids,
    next_step,
)
from boundary_journal import EAGER_ARM, AnyLine, Built, CaseLines, Journal, Life, Looked, Lost, Raced, Tuned
from compilot.artifacts.rundir import RunDir
from compilot.candidates.parts import covered
from compilot.engines.eager.build import EAGER
from compilot.errors import TargetError
from compilot.records import (
    Candidate,
    Evidence,
    Guard,
    Measurement,
    PlanEntry,
    ProcessSettings,
    Region,
    Repair,
    Settings,
    State,
    Trial,
)
from stepping import DONE, MORE, Steps
from tune_runs import Ended, Story

RULES = Rules(processes=2, pairs=40, rounds=3, calls=100)
Speed = Callable[[Candidate], float]


def by_engine(candidate: Candidate) -> float:
    """Times as fast as eager."""
    engine = candidate.regions[0].settings.engine if candidate.regions else candidate.settings.engine
    return {"eager": 1.0, "inductor": 1.5, "openvino": 1.7}.get(engine, 1.2)


class FakeLab:
    """Answers every step at once."""

    def __init__(self, speed: Speed = by_engine, picks: dict[str, Candidate] | None = None) -> None:
        self.speed = speed
        self.picks = picks or {}
        self.repairs: tuple[Repair, ...] = ()
        self.steps: list[Step] = []
        self.fails: set[str] = set()  # ids that fail in a race
        self.start_s = {WHOLE: 40.0, REGIONAL: 8.0}

    def take(self, case: Case, step: Step, lines: CaseLines) -> AnyLine:
        self.steps.append(step)
        match step:
            case Look():
                arms = {name: arm for name, arm in case.arms(gpt2()).items() if isinstance(arm, Candidate)}
                return Looked(case=case.name, diagnosis=gpt2(), arms=arms)
            case Build():
                measured = Measurement(cold_s=self.start_s.get(step.arm, 5.0), cold_cache=True)
                trial = Trial(candidate=step.candidate, state=State.OK, reason="", measurement=measured)
                return Built(case=case.name, arm=step.arm, trial=trial)
            case Tune():
                return self.tuned(case, step)
            case RaceSet():
                if failed := [one.id for one in step.arms if one.id in self.fails]:
                    return Lost(case=case.name, candidate_id=failed[0], reason="died")
                speeds = [self.speed(one) for one in step.arms]
                samples = samples_of(speeds, RULES.pairs, step.process)
                return Raced(case=case.name, arms=ids(step.arms), process=step.process, samples=samples)
            case Live():
                start = self.start_s.get(step.arm, 0.5)
                wall = 3.0 + start + step.calls * 0.05 / self.speed(step.candidate) + 0.01 * step.round
                known = {"case": case.name, "arm": step.arm, "round": step.round, "calls": step.calls}
                return Life(**known, wall_s=wall, start_s=start, programs=1 if step.arm == REGIONAL else 2, error=0.0)

    def tuned(self, case: Case, step: Tune) -> Tuned:
        chosen = self.picks.get(step.arm, boundary_cases.two_arms(gpt2())[REGIONAL])
        assert isinstance(chosen, Candidate)
        entry = plan_entry(chosen)
        because = "; ".join(f"{path} stays in eager" for one in self.repairs for path in one.culprits)
        return Tuned(
            case=case.name,
            arm=step.arm,
            words=step.words,
            budget="5m",
            wall_s=9.0,
            chosen=chosen,
            check="8 cases agree",
            caveats=(because,) if because else (),
            repairs=self.repairs,
            failed=boundary_lab.unrepaired(entry, gpt2()) if self.repairs else None,
            story=Story(tried=(), chosen=chosen.id, because=because),
        )


def plan_entry(candidate: Candidate) -> PlanEntry:
    guard = Guard(positional=0, keywords=(), tensors=())
    return PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="")


def eleven(culprit: str, **process: int) -> Candidate:
    paths = ",".join(f"model.h.{n}" for n in range(12) if f"model.h.{n}" != culprit)
    region = Region(selector=paths, settings=Settings(engine="inductor", options={"freezing": True}))
    made = Candidate(settings=Settings(), label="eleven", rationale="", regions=(region,))
    return msgspec.structs.replace(made, process=ProcessSettings(**process))


def blame(*culprits: str) -> Repair:
    return Repair(engine="inductor", failed="inductor", state=State.WRONG, reason="", culprits=culprits, trials=5)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl", code="abc")


def run(part: str, journal: Journal, lab: Any, only: tuple[str, ...] = (), steps: int | None = None) -> int:
    return boundary.work(cases([part], only), journal, RULES, lab, Steps(steps))


def notes(part: str, journal: Journal, only: tuple[str, ...] = ()) -> str:
    make = {"gpt2": table.told_of_gpt2, "six": table.told_of_six, "repair": table.told_of_repair}[part]
    told = make(cases([part], only), journal, RULES)
    assert all(len(row) == len(told.table[0]) for row in told.table)
    return "\n".join(told.notes)


# ----------------------------------------------------------------------------------------------------------------- arms


def test_arms_are_cut_as_the_search_would() -> None:
    diagnosis = gpt2()
    arms = boundary_cases.four_arms(diagnosis, "openvino")
    found = {name: arm for name, arm in arms.items() if isinstance(arm, Candidate)}
    assert list(found) == [WHOLE, REGIONAL, BOTTLENECK, HYBRID]
    assert (found[WHOLE].settings.engine, found[WHOLE].regions) == ("inductor", ())
    assert covered(found[REGIONAL], diagnosis) == tuple(f"model.h.{n}" for n in range(12))
    assert covered(found[BOTTLENECK], diagnosis) == tuple(f"model.h.{n}.mlp" for n in range(12))
    engines = {covered_one: r.settings.engine for r in found[HYBRID].regions for covered_one in [r.selector]}
    assert set(engines.values()) == {"openvino", "inductor"}
    assert engines["head"] == "inductor"


def test_a_model_without_repeated_blocks_says_which_arm_it_lacks() -> None:
    arms = boundary_cases.four_arms(unet(), "openvino")
    assert arms[REGIONAL] == "no block is repeated"
    assert isinstance(arms[BOTTLENECK], Candidate)


def test_what_was_repaired_is_raced_with_everything_else_as_in_the_plan() -> None:
    other = boundary_lab.unrepaired(plan_entry(eleven("model.h.3", threads=1)), gpt2())
    assert other.regions == ()
    assert other.settings == Settings(engine="inductor", options={"freezing": True})
    assert other.process == ProcessSettings(threads=1)


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(SystemExit, match="unknown cases: nobody; there are gpt2-24"):
        cases(["gpt2"], ["nobody"])
    assert len(cases(boundary_cases.PARTS)) == 1 + 6 + 5 + 5 + 2


# ---------------------------------------------------------------------------------------------------------------- steps


def test_step_by_step_with_the_same_exit_codes(journal: Journal) -> None:
    lab = FakeLab(picks={MANY: eleven("none", threads=1)})  # the other pick is the regional arm, and lives with it
    codes = []
    while not codes or codes[-1] == MORE:
        codes.append(run("gpt2", Journal(journal.path, code="abc"), lab, steps=1))
    kinds = [type(step).__name__ for step in lab.steps]
    assert kinds == ["Look", "Build", "Build", "Tune", "Tune", "RaceSet", "RaceSet", *["Live"] * 12]
    assert codes == [MORE] * (len(kinds) - 1) + [DONE]
    rounds = [(step.round, step.arm) for step in lab.steps if isinstance(step, Live)]
    assert [number for number, _ in rounds] == [0] * 4 + [1] * 4 + [2] * 4
    assert len({arm for number, arm in rounds if number == 1}) == 4
    assert rounds[0][1] != rounds[4][1]  # each round begins with another arm


def test_an_arm_that_fails_in_a_race_is_out_and_the_race_begins_anew(journal: Journal) -> None:
    lab = FakeLab()
    whole = boundary_cases.whole_arm(gpt2())[WHOLE]
    assert isinstance(whole, Candidate)
    lab.fails = {whole.id}
    assert run("six", journal, lab, ("bert",)) == DONE
    last = [step for step in lab.steps if isinstance(step, RaceSet)][-1]
    assert whole.id not in ids(last.arms)
    assert ids(last.arms)[:2] == (EAGER.id, EAGER.id)
    assert "failed in the race: died" in notes("six", journal, ("bert",))


def test_a_model_that_cannot_be_opened_ends_its_case(journal: Journal) -> None:
    journal.append(Looked(case="bert", reason="no such file"))
    assert next_step(cases(["six"], ["bert"])[0], journal.of("bert"), RULES) is None


# ----------------------------------------------------------------------------------------------------------------- aims


def test_regional_compile_is_shorter_and_both_horizons_chose_well(journal: Journal) -> None:
    lab = FakeLab(picks={FEW: eleven("none", threads=2), MANY: eleven("none", threads=1)})
    lab.start_s[MANY] = 20.0
    run("gpt2", journal, lab)
    told = notes("gpt2", journal)
    assert "5.0 times shorter (by round 5.00, 95 % 5.00-5.00); aim 4: met" in told
    assert "programs of regional compile: 1; aim 1: met" in told
    assert f"'{FEW}' not shown above any other arm's total: met" in told
    assert f"'{MANY}' not shown slower than any other arm: met" in told


def test_a_horizon_that_chose_badly_is_said(journal: Journal) -> None:
    slow = eleven("none", threads=1)
    speed = lambda candidate: 0.5 if candidate.id == slow.id else by_engine(candidate)  # noqa: E731
    lab = FakeLab(speed, picks={FEW: slow, MANY: slow})
    lab.start_s = {WHOLE: 20.0, REGIONAL: 8.0, FEW: 30.0}
    run("gpt2", journal, lab)
    told = notes("gpt2", journal)
    assert "2.5 times shorter (by round 2.50, 95 % 2.50-2.50); aim 4: not met" in told
    assert f"'{FEW}' not shown above any other arm's total: not met" in told
    assert f"'{MANY}' not shown slower than any other arm: not met" in told


def test_the_total_of_few_calls_is_held_against_the_plan_for_many_too(journal: Journal) -> None:
    lab = FakeLab(picks={FEW: eleven("none", threads=2), MANY: eleven("none", threads=1)})
    lab.start_s |= {FEW: 1.0, MANY: 0.2}
    run("gpt2", journal, lab)
    assert f"'{FEW}' not shown above any other arm's total: not met" in notes("gpt2", journal)


def test_an_arm_that_is_the_same_candidate_as_another_has_its_lives(journal: Journal) -> None:
    lab = FakeLab(picks={FEW: EAGER, MANY: EAGER})
    run("gpt2", journal, lab)
    lives = [step.arm for step in lab.steps if isinstance(step, Live)]
    assert set(lives) == {EAGER_ARM, WHOLE, REGIONAL}
    lines = journal.of("gpt2-24")
    assert lines.lives(FEW, RULES.calls) == lines.lives(EAGER_ARM, RULES.calls) != {}
    told = notes("gpt2", journal)
    assert f"'{FEW}' / {EAGER_ARM}: the same candidate" in told
    assert f"'{FEW}' not shown above any other arm's total: met" in told


def test_what_was_not_measured_is_not_met(journal: Journal) -> None:
    told = notes("gpt2", journal) + notes("six", journal) + notes("repair", journal)
    assert ": met" not in told
    assert "not measured" in told


@pytest.mark.parametrize(("speed", "verdict"), [(1.0, "met"), (0.8, "not met")])
def test_a_pick_is_compared_with_the_best_arm(journal: Journal, speed: float, verdict: str) -> None:
    pick = eleven("none", threads=1)
    best = lambda candidate: speed * 1.7 if candidate.id == pick.id else by_engine(candidate)  # noqa: E731
    run("six", journal, FakeLab(best, picks={PICK: pick}), ("vit",))
    assert f"picks not shown slower than the best arm: {verdict}" in notes("six", journal, ("vit",))


@pytest.mark.parametrize(("named", "speed", "verdicts"), [(True, 0.95, ("met", "met")), (False, 0.8, ("not met",) * 2)])
def test_a_repair_names_the_block_and_costs_little(
    journal: Journal, named: bool, speed: float, verdicts: tuple[str, str]
) -> None:
    [case] = cases(["repair"], ["backend-2"])
    culprit = table.culprit_in(case)
    plan = eleven(culprit)
    lab = FakeLab(lambda candidate: speed if candidate.regions else 1.0, picks={PICK: plan})
    lab.repairs = (blame(culprit if named else "layers.11"),)
    run("repair", journal, lab, ("backend-2",))
    told = notes("repair", journal, ("backend-2",))
    assert f"backend: the block is named: {int(named)} of 1: {verdicts[0]}" in told
    assert "backend: a plan with regions, proved correct: 1 of 1: met" in told
    assert told.splitlines()[2].endswith(verdicts[1])


def test_a_hybrid_is_compared_with_eager_and_with_the_whole(journal: Journal) -> None:
    [case] = cases(["repair"], ["branch-0"])
    plan = eleven(table.culprit_in(case))
    lab = FakeLab(lambda candidate: 1.4 if candidate.regions else 1.0, picks={PICK: plan})
    lab.repairs = (blame(table.culprit_in(case)),)
    run("repair", journal, lab, ("branch-0",))
    told = notes("repair", journal, ("branch-0",))
    for other in (EAGER_ARM, WHOLE):
        assert f"branch: faster than {other}: 1 of 1: met" in told
    assert "named" not in told  # an engine may take the block: then nothing is repaired


def test_the_report_writes_a_table_for_each_part(
    journal: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("six", journal, FakeLab(), ("bert",))
    table.report(cases(["six"], ["bert"]), journal, RULES, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"six.md", "six.csv"}
    assert "| bert | 1.5" in capsys.readouterr().out


def test_files_are_looked_for_where_they_were_made(tmp_path: Path) -> None:
    [case] = cases(["six"], ["bert"])
    lab = boundary_lab.Lab(tmp_path, "5m", 40)
    built, chosen = eleven("none"), eleven("none", threads=1)
    for name, candidate in (("arms", built), (PICK, chosen)):
        folder = RunDir(lab.folder(case, name)).workspace(candidate.id)
        folder.mkdir(parents=True)
        (folder / "file").touch()
    assert [lab._home(case, one).name for one in (built, chosen, EAGER)] == ["arms", PICK, "arms"]


class FakeRunner:
    """Counts who is opened and closed."""

    def __init__(self, happened: list[str], *, fails: bool = False) -> None:
        self.happened, self.fails = happened, fails

    def __enter__(self) -> FakeRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self.happened.append("closed")

    def open(self, shipment: object) -> None:
        self.happened.append("opened")
        if self.fails:
            raise TargetError("no such file.")

    def inspect(self) -> SimpleNamespace:
        self.happened.append("looked")
        return SimpleNamespace(diagnosis=gpt2())


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a lab does, with a runner that does nothing."""
    found: list[str] = []
    monkeypatch.setattr(boundary_lab, "LocalRunner", lambda *_, **__: FakeRunner(found))
    monkeypatch.setattr(boundary_lab, "ship_target", lambda target: target)
    monkeypatch.setattr(boundary_lab, "try_eager", lambda *_: found.append("eager"))

    def built(runner: object, candidate: Candidate, limit_s: float) -> Trial:
        found.append("built")
        return Trial(candidate=candidate, state=State.OK, reason="")

    monkeypatch.setattr(boundary_lab, "try_one", built)
    ended = Ended(1.0, "stopped")
    monkeypatch.setattr(boundary_lab.tune_runs, "tune", lambda *_, **__: found.append("tuned") or ended)
    return found


def test_all_arms_of_a_case_are_built_in_one_opening(tmp_path: Path, journal: Journal, happened: list[str]) -> None:
    lab = boundary_lab.Lab(tmp_path, "3m", 40)
    [case] = cases(["gpt2"])
    while "tuned" not in happened:
        step = next_step(case, journal.of(case.name), RULES)
        assert step is not None
        journal.append(lab.take(case, step, journal.of(case.name)))
    assert happened == ["opened", "looked", "eager", "built", "built", "closed", "tuned"]


def test_the_next_case_is_opened_anew_and_everything_is_closed_in_the_end(tmp_path: Path, happened: list[str]) -> None:
    lab = boundary_lab.Lab(tmp_path, "3m", 40)
    first, second = cases(["six"], ["bert", "vit"])
    for case in (first, second):
        assert not lab.look(case).reason
    assert happened == ["opened", "looked", "closed", "opened", "looked"]
    lab.close()
    lab.close()
    assert happened[-1] == "closed"
    assert happened.count("closed") == 2


def test_a_model_that_cannot_be_opened_leaves_nothing_open(
    tmp_path: Path, happened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary_lab, "LocalRunner", lambda *_, **__: FakeRunner(happened, fails=True))
    found = boundary_lab.Lab(tmp_path, "3m", 40).look(cases(["six"], ["bert"])[0])
    assert found.reason == "no such file."
    assert happened == ["opened", "closed"]
