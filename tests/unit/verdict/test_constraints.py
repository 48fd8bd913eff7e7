"""The user's own limits: what is beyond them, and how a trial of a part with other limits is judged."""

from __future__ import annotations

import msgspec
import pytest

from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, Check, Measurement, RunHeader, Settings, State, Trial, WorkloadRef
from compilot.testing.runner import fake_fingerprint
from compilot.verdict.constraints import held_to, judged_again, too_far_off, too_slow

FAST = Candidate(settings=Settings(engine="fast"), label="fast", rationale="")


def asked(max_compile_s: float | None = None, max_error: float | None = None) -> RunHeader:
    return RunHeader(
        schema=3,
        compilot="0",
        created="",
        workload=WorkloadRef(label="Fake"),
        fingerprint=fake_fingerprint(),
        budget_s=60.0,
        max_compile_s=max_compile_s,
        max_error=max_error,
    )


def checked(error: float | None, reference: str = "float64") -> Check:
    return Check(passed=True, why="fine", reference=reference, relative_error=error)


def tried(cold_s: float = 10.0, error: float | None = 1e-6, candidate: Candidate = FAST) -> Trial:
    measured = Measurement(cold_s=cold_s, cold_cache=True)
    return Trial(candidate=candidate, state=State.OK, reason="", measurement=measured, check=checked(error))


def ended(limit_s: float) -> Trial:
    """A build that was ended at a limit: nobody knows how long it would have taken."""
    return Trial(candidate=FAST, state=State.INFEASIBLE, reason=too_slow(limit_s))


def test_a_start_that_takes_too_long_names_the_limit_and_what_it_took() -> None:
    assert too_slow(30.0) == "cold start took longer than the 30 s allowed"
    assert too_slow(0.5, 41.23) == "cold start took longer than the 0.5 s allowed: 41.2 s"


def test_an_error_above_the_limit_names_both_figures_and_the_reference() -> None:
    why = "relative error 0.012 against float64 is above the error allowed, 0.001"
    assert too_far_off(checked(0.012), 1e-3) == why
    assert too_far_off(checked(0.012, "eager"), 1e-3) == why.replace("float64", "eager")
    assert (too_far_off(checked(1e-3), 1e-3), too_far_off(checked(0.5), None), too_far_off(checked(None), 1e-3)) == (
        *("", "", ""),
    )
    held = held_to(checked(0.012), 1e-3)
    assert (held.passed, held.why, held.relative_error) == (False, why, 0.012)
    assert held_to(checked(1e-6), 1e-3) == checked(1e-6)


def test_what_failed_for_another_reason_keeps_it() -> None:
    wrong = msgspec.structs.replace(checked(0.5), passed=False, why="raises ValueError")
    assert held_to(wrong, 1e-3) == wrong


def test_equal_limits_change_nothing() -> None:
    for trial in (tried(cold_s=99.0), ended(30.0)):
        assert judged_again(trial, asked(30.0), asked(30.0)) is trial


def test_a_lower_limit_on_starts_puts_out_what_was_ok() -> None:
    now = judged_again(tried(cold_s=10.0), asked(), asked(5.0))
    assert now is not None
    assert (now.state, now.reason) == (State.INFEASIBLE, "cold start took longer than the 5 s allowed: 10.0 s")
    assert judged_again(tried(cold_s=10.0), asked(), asked(15.0)) == tried(cold_s=10.0)


@pytest.mark.parametrize(("now", "again"), [(None, True), (60.0, True), (20.0, False)])
def test_what_a_limit_ended_is_tried_again_under_a_higher_one_only(now: float | None, again: bool) -> None:
    assert (judged_again(ended(30.0), asked(30.0), asked(now)) is None) == again


def test_what_is_known_of_a_start_decides_whether_it_is_tried_again() -> None:
    slow = msgspec.structs.replace(tried(cold_s=40.0), state=State.INFEASIBLE, reason=too_slow(30.0, 40.0))
    assert judged_again(slow, asked(30.0), asked(35.0)) is slow
    assert judged_again(slow, asked(30.0), asked(45.0)) is None


def test_another_limit_on_errors_judges_by_what_was_measured() -> None:
    now = judged_again(tried(error=1e-3), asked(), asked(None, 1e-4))
    assert now is not None
    assert now.state is State.WRONG
    assert now.reason == "relative error 0.001 against float64 is above the error allowed, 0.0001"
    assert judged_again(now, asked(None, 1e-4), asked(None, 1e-5)) is now
    assert judged_again(now, asked(None, 1e-4), asked(None, 1e-2)) is None
    assert judged_again(tried(error=1e-6), asked(), asked(None, 1e-4)) == tried(error=1e-6)
    assert judged_again(tried(error=None), asked(), asked(None, 1e-4)) is None  # nobody measured it


@pytest.mark.parametrize("lower", [asked(5.0), asked(None, 1e-7)])
def test_what_was_measured_whole_before_a_lower_limit_is_let_in_again_without_another_trial(lower: RunHeader) -> None:
    whole = msgspec.structs.replace(tried(), reason="fine", screening=((1.0, 0.5),))
    out = judged_again(whole, asked(), lower)
    assert out is not None
    assert out.state in (State.INFEASIBLE, State.WRONG)
    assert judged_again(out, lower, asked()) == whole
    tighter = judged_again(out, lower, asked(4.0, 1e-8))
    assert tighter is not None
    assert (tighter.state, tighter.reason) == (
        *(State.INFEASIBLE, "cold start took longer than the 4 s allowed: 10.0 s"),
    )


def test_eager_is_held_to_nothing_and_other_failures_stay() -> None:
    eager = tried(cold_s=99.0, error=0.5, candidate=EAGER)
    assert judged_again(eager, asked(), asked(1.0, 1e-6)) is eager
    crashed = msgspec.structs.replace(tried(), state=State.CRASHED, reason="died")
    assert judged_again(crashed, asked(), asked(1.0, 1e-6)) is crashed
