import msgspec
import pytest

from compilot._durations import parse_duration
from compilot.engines.eager.build import EAGER
from compilot.errors import InputError
from compilot.records import Candidate, Check, Goal, LossCurve, Measurement, Settings, State, StepFacts, Trial
from compilot.trials.runner import Capacity
from compilot.tuning.budget import Budget, Costs, Spending, confirmation_s

PACE = Costs(eager_call_s=0.02, open_s=5.0)


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def trial(cold_s: float) -> Trial:
    candidate = Candidate(settings=Settings(engine="inductor"), label="inductor", rationale="test")
    measurement = Measurement(cold_s=cold_s, cold_cache=True)
    return Trial(candidate=candidate, state=State.OK, reason="", measurement=measurement)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2.5m", 150), ("1m30s", 90)]
)
def test_durations_as_people_write_them(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "five", "-3s", "0", "5 minutes", "m"])
def test_what_is_no_duration_is_said_so(text: str):
    with pytest.raises(InputError, match="90s, 5m"):
        parse_duration(text)


def test_a_dynamo_engine_needs_less_where_workers_are_forked_with_the_compiler():
    forked = PACE._replace(compiler_s=0.0)
    assert confirmation_s(PACE, [trial(40.0)]) == pytest.approx(confirmation_s(forked, [trial(40.0)]) + 3 * 2.0)


def test_the_reserve_grows_with_the_cost_of_a_first_call():
    three_warm_starts = 3 * (40.0 - 1.0) * 0.25
    assert confirmation_s(PACE, [trial(40.0)]) > confirmation_s(PACE, [trial(1.0)]) + three_warm_starts


def test_more_budget_affords_more_pairs_and_never_less_than_the_first_look():
    def pairs(budget_s: float) -> int:
        budget = Budget(budget_s, FakeClock())
        return Spending(budget, {}, lambda: Capacity(99, PACE.open_s), Goal()).confirm_pairs([trial(5.0)])

    assert pairs(1.0) == 20
    assert pairs(65.0) == 40
    assert pairs(10_000.0) == 80


def test_what_was_waited_for_others_is_not_counted():
    clock, waited = FakeClock(), [0.0]
    budget = Budget(60.0, clock)
    budget.excuse(lambda: waited[0])
    clock.now += 50.0
    assert budget.remaining_s == 10.0
    waited[0] = 40.0
    assert budget.remaining_s == 50.0
    assert budget.elapsed_s == 50.0  # the journal's times are those of the clock


@pytest.mark.parametrize("spent_s", [10.0, 295.0])
def test_who_ends_the_trying_leaves_the_time_of_what_comes_after_it(spent_s: float):
    timed = Measurement(cold_s=1.0, cold_cache=True, call_s=(0.1,))
    eager = Trial(candidate=EAGER, state=State.OK, reason="", measurement=timed)
    new, clock = trial(1.0), FakeClock()
    known = {EAGER.id: eager, new.candidate.id: new}
    spending = Spending(Budget(300.0, clock), known, lambda: Capacity(99, PACE.open_s), Goal())
    clock.now += spent_s
    reserve_s = spending.reserve_s()
    assert 5.0 < reserve_s < 290.0
    assert spending.end_trying() == pytest.approx(min(reserve_s, 300.0 - spent_s))
    assert spending.budget.remaining_s == pytest.approx(min(reserve_s, 300.0 - spent_s))


@pytest.mark.parametrize(("drops", "runs"), [(False, 1), (True, 6)])
def test_time_for_the_loss_curves_of_finalists_is_reserved(drops: bool, runs: int):
    step_s, steps = 0.1, 50  # 13.5 % of five minutes are 50 steps of eager's eight runs
    timed = Measurement(cold_s=1.0, cold_cache=True, call_s=(step_s,))
    eager = Trial(candidate=EAGER, state=State.OK, reason="", measurement=timed)
    facts = StepFacts(optimizer="SGD", ways=(), compilable=True, tensors=1, shapes=1, drops=drops)

    def reserve(finalist: Trial, step: StepFacts | None) -> float:
        known = {EAGER.id: eager, finalist.candidate.id: finalist}
        budget = Budget(300.0, FakeClock())
        return Spending(budget, known, lambda: Capacity(99, PACE.open_s), Goal(), step=step).reserve_s()

    new = trial(1.0)
    assert reserve(new, facts) == pytest.approx(reserve(new, None) + (8 + runs) * steps * step_s)
    curve = LossCurve(losses=(1.0,), eager=(1.0,), low=(1.0,), high=(1.0,))
    proven = msgspec.structs.replace(new, check=Check(passed=True, why="", reference="eager", curve=curve))
    assert reserve(proven, facts) == reserve(proven, None)
