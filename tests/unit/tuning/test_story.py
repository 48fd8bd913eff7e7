"""`tune` from its first line to its last, on a runner that runs nothing: milliseconds, and no process."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stories import ListSearch, candidate, told

from compilot.candidates.guided import GuidedSearch
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.protocol import Availability
from compilot.engines.space import Seed, Space
from compilot.errors import EnvironmentProblem, WorkerError
from compilot.progress import Observer
from compilot.records import (
    Decision,
    Diagnosis,
    Precision,
    RaceLine,
    Settings,
    State,
    Trial,
    TrialLine,
    VerdictLine,
    WarmStartLine,
)
from compilot.testing.runner import FakeRunner, Fate, Fates
from compilot.trials.runner import BESIDE, Capacity, FreshSet, SetRules

FakeRunners = Callable[[type[FakeRunner]], None]
THREE = {"quick": Fate(speed=2.0), "slow": Fate(speed=0.7), "good": Fate(speed=1.5)}


def labels(lines: Sequence[Any]) -> list[str]:
    return [line.trial.candidate.label for line in lines if isinstance(line, TrialLine)]


def test_eager_first_then_the_searchs_order_and_the_fastest_is_chosen(tmp_path: Path) -> None:
    story = told(tmp_path, THREE)
    assert story.runner.tried == ["eager", "quick", "slow", "good"]
    assert [trial.candidate.label for trial in story.search.told] == story.runner.tried
    assert story.verdict.decision is Decision.USE
    assert story.plan.entries[0].candidate.label == "quick"
    assert story.plan.entries[0].artifacts_dir == f"work/{candidate('quick').id}"
    assert 1.95 < story.plan.entries[0].evidence.versus_eager.ratio < 2.05  # type: ignore[union-attr]
    assert story.runner.closed


def test_everything_seen_is_in_the_journal_in_its_order(tmp_path: Path) -> None:
    story = told(tmp_path, THREE)
    lines = story.run_dir.lines()
    assert [type(line).__name__ for line in lines[:2]] == ["RunHeader", "DiagnosisLine"]
    assert labels(lines) == story.runner.tried
    assert [line.race.purpose for line in lines if isinstance(line, RaceLine)] == ["race", "confirm"]
    assert any(isinstance(line, WarmStartLine) for line in lines)
    assert isinstance(lines[-1], VerdictLine)
    assert lines[-1].verdict == story.verdict


def test_the_slower_ones_are_not_raced_and_the_winner_is_confirmed_in_fresh_processes(tmp_path: Path) -> None:
    story = told(tmp_path, THREE)
    assert story.runner.raced == [("quick", "good")]
    assert len(story.runner.confirmed) >= 3
    assert set(story.runner.confirmed) == {("quick",)}  # the race could tell it from its rival


def test_two_that_a_race_cannot_tell_apart_are_both_confirmed(tmp_path: Path) -> None:
    story = told(tmp_path, {"one": Fate(speed=2.0), "other": Fate(speed=2.0)}, noise=0.05)
    assert set(story.runner.confirmed[0]) == {"one", "other"}


def test_the_same_seed_gives_the_same_order_and_the_same_decision(tmp_path: Path) -> None:
    def run(folder: str, seed: int) -> tuple[Any, ...]:
        story = told(tmp_path / folder, THREE, seed=seed, noise=0.2)
        lines = [line for line in story.run_dir.lines() if isinstance(line, TrialLine | RaceLine | VerdictLine)]
        return story.runner.tried, story.runner.raced, story.runner.confirmed, story.verdict, lines

    assert run("a", 3) == run("b", 3)
    assert run("a2", 3)[4] != run("c", 4)[4]  # another seed draws other samples


def test_nothing_faster_keeps_eager_and_says_why(tmp_path: Path) -> None:
    story = told(tmp_path, {"slow": Fate(speed=0.7), "same": Fate(speed=1.0)})
    assert story.verdict.decision is Decision.KEEP_EAGER
    assert story.plan.entries == ()
    assert "best candidate same" in story.plan.because


def test_failures_are_data_and_the_rest_goes_on(tmp_path: Path) -> None:
    fates = {
        "dies": Fate(state=State.CRASHED, reason="died of SIGSEGV while building"),
        "wrong": Fate(state=State.WRONG, reason="max abs error 3.1e-2"),
        "good": Fate(speed=1.5),
    }
    story = told(tmp_path, fates)
    found = {t.candidate.label: (t.state, t.reason) for t in story.search.told}
    assert found["dies"] == (State.CRASHED, "died of SIGSEGV while building")
    assert found["wrong"] == (State.WRONG, "max abs error 3.1e-2")
    assert story.plan.entries[0].candidate.label == "good"


def test_a_candidate_that_fails_in_the_race_is_struck_out_and_the_next_one_wins(tmp_path: Path) -> None:
    fates = {"brittle": Fate(speed=3.0, lost="in a race: died of SIGBUS"), "good": Fate(speed=1.5)}
    story = told(tmp_path, fates)
    assert story.runner.raced[0] == ("brittle", "good")
    assert story.plan.entries[0].candidate.label == "good"
    [*_, last] = [
        line.trial
        for line in story.run_dir.lines()
        if isinstance(line, TrialLine) and line.trial.candidate.label == "brittle"
    ]
    assert (last.state, last.reason) == (State.CRASHED, "in a race: died of SIGBUS")


def test_the_same_program_is_not_measured_twice(tmp_path: Path) -> None:
    story = told(tmp_path, {"one": Fate(speed=2.0, code="c0de"), "twin": Fate(speed=2.0, code="c0de")})
    twin = next(t for t in story.search.told if t.candidate.label == "twin")
    assert (twin.state, twin.same_as) == (State.PRUNED, candidate("one").id)


def test_builds_that_overlap_carry_a_doubt_and_the_finalists_cold_start_is_measured_again_alone(tmp_path: Path) -> None:
    story = told(tmp_path, THREE, slots=3)
    doubts = {t.candidate.label: t.measurement.doubts for t in story.search.told if not t.candidate.is_eager}
    assert doubts == {"quick": (BESIDE,), "slow": (BESIDE,), "good": (BESIDE,)}
    assert story.runner.rebuilt == ["quick", "good"]  # who races
    lines = [line for line in story.run_dir.lines() if isinstance(line, TrialLine | RaceLine)]
    assert [isinstance(line, RaceLine) for line in lines[-2:]] == [True, True]  # last: a resumed run keeps the race
    assert BESIDE not in story.verdict.because
    assert told(tmp_path / "alone", THREE, slots=1).runner.rebuilt == []


def test_an_eager_that_fails_ends_the_run_in_one_sentence(tmp_path: Path) -> None:
    broken = {"eager": Fate(state=State.CRASHED, reason="died of SIGILL while building"), "good": Fate(speed=2.0)}
    with pytest.raises(EnvironmentProblem, match=r"eager itself failed \(crashed\): died of SIGILL"):
        told(tmp_path, broken)


def test_a_budget_that_ends_before_three_processes_keeps_eager(tmp_path: Path) -> None:
    story = told(tmp_path, {"good": Fate(speed=2.0)}, budget_s=10.0, open_s=60.0)
    assert story.verdict.decision is Decision.KEEP_EAGER
    assert story.verdict.chosen_id == EAGER.id
    assert "processes when the budget ended; give a larger budget" in story.verdict.because


class Heard(Observer):
    """Keeps the notes."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRunners]:
    """Stories are told with this kind of runner. A background job ignores Ctrl-C: not here."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda kind: monkeypatch.setattr("stories.FakeRunner", kind)
    signal.signal(signal.SIGINT, usual)


class Interrupted(FakeRunner):
    """Stopped in the second set of the confirmation."""

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        if rules.number == 1:
            raise KeyboardInterrupt
        return super().confirm(trials, rules)


def test_a_resumed_run_repeats_no_trial_and_no_race_and_decides_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = told(tmp_path / "whole", THREE)
    with monkeypatch.context() as patch:
        patch.setattr("stories.FakeRunner", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            told(tmp_path, THREE)
    notes: list[str] = []
    story = told(tmp_path, THREE, resume=True, observer=Heard(notes))
    assert story.runner.tried == ["eager"]  # its worker is needed again
    assert story.runner.raced == []
    assert "the race among the finalists is in the journal already" in notes
    assert story.verdict.chosen_id == whole.verdict.chosen_id
    assert story.verdict.decision is Decision.USE


def test_a_model_that_nobody_can_judge_gets_its_reason(tmp_path: Path) -> None:
    diagnosis = Diagnosis(unjudgeable="two eager runs differ; call model.eval()")
    story = told(tmp_path, THREE, search=GuidedSearch(), diagnosis=diagnosis)
    assert story.runner.tried == ["eager"]
    assert story.plan.because == "two eager runs differ; call model.eval()"


# ------------------------------------------------------------------------------------------------- somebody's engine


class TheirBuild:
    """The tuning half of an engine that another package brings."""

    def available(self) -> Availability:
        return Availability(True, version="1")

    def space(self, diagnosis: Diagnosis) -> Space:
        return Space(seeds=(Seed("", "somebody else made it"),))

    def validate(self, settings: Settings) -> str | None:
        return None


@pytest.fixture
def theirs() -> Iterator[str]:
    load: Any = object()
    registry.register("theirs", TheirBuild(), load)  # type: ignore[arg-type]
    yield "theirs"
    registry.unregister("theirs")


def test_an_engine_that_a_test_registers_is_asked_for_raced_and_chosen(tmp_path: Path, theirs: str) -> None:
    fates = {theirs: Fate(speed=3.0), "onnxruntime": Fate(speed=1.5), "eager channels-last": Fate(speed=1.1)}
    search = GuidedSearch(engines=("eager", "onnxruntime", theirs), precisions=(Precision.BF16,))
    story = told(tmp_path, fates, search=search)
    assert theirs in story.runner.tried
    assert theirs in story.runner.raced[0]
    assert story.plan.entries[0].candidate.settings.engine == theirs


def test_a_search_of_the_tests_own_is_all_that_tune_asks(tmp_path: Path) -> None:
    wanted = [candidate("good", depth=depth) for depth in range(5)]
    search = ListSearch(wanted)
    story = told(tmp_path, lambda one: Fate(speed=1.2 + 0.2 * int(one.settings.options["depth"])), search=search)
    assert [t.candidate.id for t in search.told if not t.candidate.is_eager] == [c.id for c in wanted]
    assert story.plan.entries[0].candidate.settings.options == {"depth": 4}
    assert search.diagnosis is not None


def test_sets_that_do_not_go_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shrinking(FakeRunner):
        """Loses the room for its A/A arm after the first set."""

        def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
            found = super().confirm(trials, rules)
            return found if rules.number == 0 else found._replace(with_aa=False)

    monkeypatch.setattr("stories.FakeRunner", Shrinking)
    with pytest.raises(WorkerError, match="cannot be put together"):
        told(tmp_path, {"good": Fate(speed=2.0)})


@pytest.mark.parametrize(("training", "speed"), [(True, 0.5), (True, 2.0), (False, 0.5)])
def test_eager_kept_in_train_mode_says_to_call_eval(tmp_path: Path, training: bool, speed: float) -> None:
    story = told(tmp_path, {"one": Fate(speed=speed)}, diagnosis=Diagnosis(training=training))
    assert ("call model.eval()" in story.verdict.because) is (training and speed < 1)
    assert story.plan.because.count("train mode") == (1 if training and speed < 1 else 0)


def test_no_candidate_for_a_model_in_train_mode_says_why(tmp_path: Path) -> None:
    story = told(tmp_path, {}, diagnosis=Diagnosis(training=True))
    assert story.verdict.because.startswith("no candidate was tried; the model is in train mode")


def test_what_was_waited_for_other_runs_costs_no_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = FakeRunner.open

    def late(self: FakeRunner, workload: Any) -> Any:
        self._now_s += 5000.0
        return begin(self, workload)

    monkeypatch.setattr(FakeRunner, "open", late)
    assert told(tmp_path / "paid", THREE).runner.tried == ["eager", "quick"]  # the time was the run's own
    monkeypatch.setattr(
        FakeRunner, "capacity", property(lambda self: Capacity(99, 5.0, waited_s=self._now_s and 5000.0))
    )
    assert told(tmp_path / "excused", THREE).runner.tried == ["eager", "quick", "slow", "good"]


class EndedAt(FakeRunner):
    """The user presses Ctrl-C while a certain candidate is tried, which that ends in its middle."""

    at, presses, can = "slow", 1, True

    def completed(self) -> Iterator[Trial]:
        for trial in super().completed():
            if trial.candidate.label != self.at:
                yield trial
                continue
            for _ in range(self.presses):
                signal.raise_signal(signal.SIGINT)
            yield msgspec.structs.replace(trial, state=State.CRASHED, reason="its process was ended")

    def give_up(self) -> bool:
        return self.can


def test_ctrl_c_while_candidates_are_tried_confirms_the_best_so_far(tmp_path: Path, fakes: FakeRunners) -> None:
    fakes(EndedAt)
    notes: list[str] = []
    story = told(tmp_path, THREE, observer=Heard(notes), finish_early=True)
    assert story.runner.tried == ["eager", "quick", "slow"]
    assert story.plan.entries[0].candidate.label == "quick"
    assert story.plan.because.endswith("; ended early, after 1 candidate")
    assert labels(story.run_dir.lines()) == ["eager", "quick"]  # a resumed run tries the other one again
    assert len(story.runner.confirmed) >= 3
    assert any(
        re.match(r"ended early: the best so far is confirmed now, in some \d+ s; Ctrl-C again", n) for n in notes
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("fates", "how"),
    [
        pytest.param(THREE, {"presses": 2}, id="a second one"),
        pytest.param(THREE, {"at": "quick"}, id="nothing to confirm yet"),
        pytest.param({"even": Fate(speed=1.0), "slow": Fate()}, {}, id="nothing faster than eager"),
        pytest.param(THREE, {"can": False}, id="a runner that cannot"),
    ],
)
def test_ctrl_c_ends_the_run(tmp_path: Path, fakes: FakeRunners, fates: Fates, how: dict[str, Any]) -> None:
    fakes(type("Ended", (EndedAt,), how))
    with pytest.raises(KeyboardInterrupt):
        told(tmp_path, fates, finish_early=True)
    assert not (tmp_path / "run" / "plan.json").exists()


def test_ctrl_c_raises_unless_an_early_end_was_asked_for(tmp_path: Path, fakes: FakeRunners) -> None:
    fakes(EndedAt)
    with pytest.raises(KeyboardInterrupt):
        told(tmp_path, THREE)
