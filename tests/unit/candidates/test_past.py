"""What a finished run leaves for later ones."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from compilot.candidates.past import past_run, past_trials, point, shown, turned
from compilot.engines.eager.build import EAGER
from compilot.records import (
    JOURNAL_SCHEMA,
    Candidate,
    Decision,
    Diagnosis,
    DiagnosisLine,
    Features,
    JournalLine,
    Precision,
    ProcessSettings,
    RunHeader,
    Settings,
    State,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
    WorkloadRef,
)
from compilot.testing.runner import fake_fingerprint

FEATURES = Features(
    conv_share=0.5,
    matmul_share=0.2,
    memory_share=0.2,
    overhead_share=0.1,
    call_s=0.03,
    operators=90,
    parameter_bytes=1000,
    input_bytes=100,
    batch=4,
)
HEADER = RunHeader(
    schema=JOURNAL_SCHEMA,
    compilot="0",
    created="",
    workload=WorkloadRef(label="Net"),
    fingerprint=fake_fingerprint(),
    budget_s=60.0,
)
VERDICT = VerdictLine(verdict=Verdict(decision=Decision.KEEP_EAGER, chosen_id=EAGER.id, because=""), at_s=1.0)


def candidate(engine: str, process: ProcessSettings | None = None, **settings: Any) -> Candidate:
    made = Settings(engine=engine, **settings)
    return Candidate(settings=made, label=engine, rationale="", process=process or ProcessSettings())


def trial(which: Candidate, ratio: float | None = 2.0, state: State = State.OK, **more: Any) -> Trial:
    screening = ((ratio, 1.0),) * 8 if ratio is not None and state is State.OK else ()
    return Trial(candidate=which, state=state, reason="", screening=screening, **more)


def lines(*trials: Trial, features: Features | None = FEATURES, verdict: bool = True) -> list[JournalLine]:
    seen = DiagnosisLine(diagnosis=Diagnosis(features=features))
    told = [TrialLine(trial=one, at_s=0.0) for one in trials]
    return [HEADER, seen, *told, *([VERDICT] if verdict else [])]


def test_a_finished_run_keeps_its_features_and_what_each_candidate_brought() -> None:
    found = past_run(lines(trial(EAGER, None), trial(candidate("x"), 2.0), trial(candidate("y"), None, State.WRONG)))
    assert found is not None
    assert (found.label, found.features, found.machine) == ("Net", FEATURES, HEADER.fingerprint.machine)
    assert [(t.settings.engine, t.gain) for t in found.trials] == [("x", pytest.approx(math.log(2.0))), ("y", None)]
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_a_run_without_verdict_or_features_has_nothing_to_teach() -> None:
    assert past_run(lines(trial(candidate("x")), verdict=False)) is None
    assert past_run(lines(trial(candidate("x")), features=None)) is None
    assert past_run([HEADER, VERDICT]) is None
    assert past_run([]) is None


def test_the_last_trial_of_a_candidate_counts_in_the_place_of_its_first() -> None:
    found = past_trials([trial(candidate("x"), 2.0), trial(candidate("y"), 1.5), trial(candidate("x"), 3.0)])
    assert [(t.settings.engine, t.gain) for t in found] == [
        ("x", pytest.approx(math.log(3.0))),
        ("y", pytest.approx(math.log(1.5))),
    ]


def test_the_same_program_has_the_speed_of_the_one_that_was_measured() -> None:
    first, twin = candidate("x"), candidate("x", mode="other")
    pruned = trial(twin, None, State.PRUNED, same_as=first.id)
    found = past_trials([trial(first, 2.0), pruned])
    assert [t.gain for t in found] == [pytest.approx(math.log(2.0))] * 2
    assert len(past_trials([msgspec.structs.replace(pruned, same_as="nobody")])) == 0


@pytest.mark.parametrize(
    ("state", "limit", "remembered"),
    [
        (State.INFEASIBLE, {}, True),
        (State.INFEASIBLE, {"max_compile_s": 1.0}, False),
        (State.INFEASIBLE, {"max_memory_bytes": 1}, False),
        (State.WRONG, {}, True),
        (State.WRONG, {"max_error": 1e-9}, False),
        (State.CRASHED, {}, True),
        (State.TIMED_OUT, {}, False),
    ],
)
def test_failures_that_the_users_own_limits_may_have_caused_are_no_news(
    state: State, limit: dict[str, Any], remembered: bool
) -> None:
    header = msgspec.structs.replace(HEADER, **limit)
    assert len(past_trials([trial(candidate("x"), None, state)], [header])) == remembered


def test_lower_precisions_are_left_out() -> None:
    assert past_trials([trial(candidate("x", precision=Precision.BF16))]) == ()


def test_a_run_shows_first_points_further_points_and_turned_knobs() -> None:
    run = past_run(
        lines(
            trial(candidate("x"), 2.0),
            trial(candidate("x", mode="fast"), 3.0),
            trial(candidate("x", process=ProcessSettings(threads=1)), 1.5),
            trial(candidate("y"), None, State.CRASHED),
        )
    )
    assert run is not None
    found = shown(run)
    assert found.best == pytest.approx(math.log(3.0))
    assert found.first == {"x": pytest.approx(math.log(2.0)), "y": None}
    fast = point(Settings(engine="x", mode="fast"), ProcessSettings())
    assert found.points == {fast: pytest.approx(math.log(1.5))}
    assert found.turned["x", "threads", "1"] == pytest.approx(math.log(1.5 / 2.0))
    assert found.turned["x", "mode", "'fast'"] == pytest.approx(math.log(1.5))
    assert found.turned["x", "mode", ""] == pytest.approx(-math.log(1.5))  # and back


def test_one_turned_knob_is_told_from_several_and_from_another_engine() -> None:
    def at(which: Candidate) -> Any:
        return point(which.settings, which.process)

    base = candidate("x", options={"p": True})
    assert turned(at(base), at(candidate("x", options={"p": False}))) == ("x", "options.p", "False")
    assert turned(at(base), at(candidate("x", options={"p": False, "q": True}))) is None
    assert turned(at(candidate("x")), at(candidate("y"))) is None
    assert turned(at(base), at(base)) is None
