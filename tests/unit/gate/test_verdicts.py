"""Verdicts of a check on sides whose truth is known: samples are made, nothing is run."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from tests.unit.gate.fake_races import FakeRaces

from compilot.gate.checking import Checked, CheckOptions, check_sides, run_race
from compilot.gate.judging import overall
from compilot.gate.races import Failure, OneSet, Timing
from compilot.gate.report_records import EXIT_CODES, GateVerdict, MetricResult
from compilot.trials.protocol import StateTaken

BOTH = ("eager", "torch.compile")


def checked(races: FakeRaces, arms: tuple[str, ...] = ("eager",), **options: object) -> Checked:
    return check_sides(races, arms, CheckOptions(**options), clock=lambda: 0.0)  # type: ignore[arg-type]


def metric(found: Checked, name: str, arm: str = "eager") -> MetricResult:
    return next(one for one in found.metrics if (one.metric, one.arm) == (name, arm))


def verdict(found: Checked) -> GateVerdict:
    return overall(found.metrics)[0]


@pytest.mark.parametrize("seed", range(20))
def test_equal_sides_are_never_red(seed: int) -> None:
    found = checked(FakeRaces(1.0, seed=seed, arms=BOTH), BOTH)
    assert not any(one.verdict.is_red for one in found.metrics)
    assert verdict(found) is GateVerdict.PASS
    assert "would have been seen" in metric(found, "latency").because


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_down_is_red_when_two_races_show_it(seed: int) -> None:
    found = checked(FakeRaces(1.2, seed=seed))
    latency = metric(found, "latency")
    assert latency.verdict is GateVerdict.SLOWER
    assert latency.races == len(found.races) == 2
    assert latency.low is not None
    assert latency.margin is not None
    assert latency.low > latency.margin >= 0.03
    assert latency.change == pytest.approx(0.2, abs=0.04)
    assert latency.change > (latency.mde or math.inf)  # of both races together
    assert "in a second race with fresh builds" in latency.because
    assert metric(found, "throughput").verdict is GateVerdict.SLOWER
    assert EXIT_CODES[verdict(found)] == 1


def busy(slower: float, seed: int) -> FakeRaces:
    """As a shared machine is: a pair scatters by a fifth, a process is off by a percent, and the machine drifts."""
    return FakeRaces(slower, seed=seed, noise=0.14, process_noise=0.01, drift=0.02, pairs=80)


def latencies(slower: float, checks: int, budget_s: float = 180.0) -> list[MetricResult]:
    return [metric(checked(busy(slower, seed), budget_s=budget_s), "latency") for seed in range(checks)]


@pytest.mark.slow
def test_equal_code_on_a_busy_machine_is_not_red() -> None:
    found = [one.verdict for one in latencies(1.0, 60)]
    assert not any(one.is_red for one in found)


@pytest.mark.slow
def test_a_fifth_more_on_a_busy_machine_is_red() -> None:
    found = [one.verdict for one in latencies(1.2, 20)]
    assert sum(one is GateVerdict.SLOWER for one in found) >= 18
    assert GateVerdict.PASS not in found


@pytest.mark.slow
def test_what_a_pass_says_would_have_been_seen_is_red_four_times_out_of_five() -> None:
    told = sorted(one.mde or math.inf for one in latencies(1.0, 20))
    usual = told[len(told) // 2]
    found = [one.verdict for one in latencies(1.0 + usual, 30)]
    assert sum(one is GateVerdict.SLOWER for one in found) >= 0.8 * len(found)


@pytest.mark.slow
def test_a_change_that_both_races_show_is_red_even_if_one_alone_could_miss_it() -> None:
    """The rule is about both races together: none of them has to exceed what one of them is sure to show."""
    found = latencies(1.12, 20)
    red = [one for one in found if one.verdict is GateVerdict.SLOWER]
    assert red
    assert all((one.change or 0.0) > max(one.margin or 0.0, one.mde or 0.0) for one in red)


def test_a_slow_down_that_does_not_come_back_is_inconclusive() -> None:
    found = checked(FakeRaces(1.3, slower_in=(0,)))
    latency = metric(found, "latency")
    assert latency.verdict is GateVerdict.INCONCLUSIVE
    assert "not confirmed" in latency.because
    assert EXIT_CODES[verdict(found)] == 0


def test_a_speed_up_passes_without_a_second_race() -> None:
    found = checked(FakeRaces(0.7))
    assert metric(found, "latency").verdict is GateVerdict.PASS
    assert len(found.races) == 1


def test_another_torch_may_make_other_kernels() -> None:
    """An upgrade is about speed and answers: what the other torch's compiler makes is shown, with a warning."""
    more = {"kernels": 30, "artifact_bytes": 900_000, "peak_rss_bytes": 900_000_000}
    same = checked(FakeRaces(arms=BOTH, head_compiled=more), BOTH)
    assert metric(same, "kernels", "torch.compile").verdict is GateVerdict.WORSE
    other = checked(FakeRaces(arms=BOTH, head={"torch": "2.14.0"}, head_compiled={**more, "graph_breaks": 1}), BOTH)
    for name in ("kernels", "artifact-bytes", "memory"):
        assert metric(other, name, "torch.compile").verdict is GateVerdict.INCONCLUSIVE
        assert "different versions of torch" in metric(other, name, "torch.compile").because
    assert metric(other, "graph-breaks", "torch.compile").verdict is GateVerdict.WORSE
    slower = checked(FakeRaces(1.3, head={"torch": "2.14.0"}))
    assert metric(slower, "latency").verdict is GateVerdict.SLOWER


def test_without_a_latency_nothing_is_called_a_pass() -> None:
    races = FakeRaces(taken=StateTaken(inputs="'[0][0]' was 3x4 float32 and is 3x5 float32"))
    found = checked(races)
    said, because = overall(found.metrics)
    assert said is GateVerdict.INCONCLUSIVE
    assert because.startswith("no latency was measured: the example inputs are others")
    assert overall(found.metrics, without_times=True)[0] is GateVerdict.PASS


def test_what_may_grow_a_little_says_how_much() -> None:
    found = checked(FakeRaces(arms=BOTH, head_compiled={"kernels": 11}), BOTH)
    assert metric(found, "kernels", "torch.compile").verdict is GateVerdict.PASS
    assert metric(found, "kernels", "torch.compile").mde == 0.10
    assert metric(found, "artifact-bytes", "torch.compile").because.endswith("; more than 10.0 % more would be red")
    assert metric(found, "graph-breaks", "torch.compile").mde == 0.0


def test_a_small_slow_down_within_the_margin_passes() -> None:
    assert metric(checked(FakeRaces(1.01)), "latency").verdict is GateVerdict.PASS
    assert metric(checked(FakeRaces(1.12), margin=0.25, rule_out=0.3), "latency").verdict is GateVerdict.PASS


@pytest.mark.parametrize("seed", range(10))
def test_on_a_noisy_machine_nothing_is_red_and_little_passes(seed: int) -> None:
    found = checked(FakeRaces(1.1, seed=seed, noise=0.6, process_noise=0.15, pairs=20))
    latency = metric(found, "latency")
    assert latency.verdict is GateVerdict.INCONCLUSIVE
    assert "larger budget" in latency.because


def test_the_second_race_is_asked_for_only_where_something_looks_worse() -> None:
    calm, slow = FakeRaces(1.0), FakeRaces(1.3)
    checked(calm)
    checked(slow)
    assert {race for race, *_ in calm.asked} == {0}
    assert {race for race, *_ in slow.asked} == {0, 1}


def test_the_second_race_has_only_the_arms_under_suspicion() -> None:
    races = FakeRaces(arms=BOTH, head_compiled={"cpu_s": 12.0})
    found = checked(races, BOTH)
    assert {arms for (race, *_), arms in zip(races.asked, races.asked_arms, strict=True) if race == 0} == {BOTH}
    assert {arms for (race, *_), arms in zip(races.asked, races.asked_arms, strict=True) if race == 1} == {BOTH[1:]}
    assert metric(found, "compile-cpu", BOTH[1]).verdict is GateVerdict.SLOWER
    assert metric(found, "latency").races == 1


@pytest.mark.parametrize(("slower", "least", "most"), [(1.5, 0.08, 0.08), (1.2, 0.06, 0.08), (1.08, 0.015, 0.03)])
def test_the_second_race_is_as_precise_as_the_first_one_asks_for(slower: float, least: float, most: float) -> None:
    races = FakeRaces(slower)
    assert metric(checked(races), "latency").verdict is GateVerdict.SLOWER
    [width] = {w for (race, *_), w in zip(races.asked, races.asked_widths, strict=True) if race == 1}
    assert least - 1e-9 <= math.log1p(width) <= most + 1e-9


def test_an_allowed_metric_may_get_worse() -> None:
    found = checked(FakeRaces(1.3), allowed=("latency",))
    assert metric(found, "latency").verdict is GateVerdict.PASS
    assert "allowed" in metric(found, "latency").because
    assert len(found.races) == 1


# -------------------------------------------------------------------------------------------------- other metrics


def test_doubled_memory_is_worse() -> None:
    found = checked(FakeRaces(head={"peak_rss_bytes": 600_000_000}))
    memory = metric(found, "memory")
    assert memory.verdict is GateVerdict.WORSE
    assert memory.change == pytest.approx(1.0)
    assert memory.races == 2


def test_a_slow_start_is_slower() -> None:
    start = metric(checked(FakeRaces(head={"first_s": 6.0})), "startup")
    assert start.verdict is GateVerdict.SLOWER
    assert metric(checked(FakeRaces(head={"first_s": 3.3})), "startup").verdict is GateVerdict.PASS


def test_compile_cost_counts_processor_seconds() -> None:
    found = checked(FakeRaces(arms=BOTH, head_compiled={"cpu_s": 12.0}), BOTH)
    assert metric(found, "compile-cpu", "torch.compile").verdict is GateVerdict.SLOWER
    assert not [one for one in found.metrics if one.metric == "compile-cpu" and one.arm == "eager"]


def test_where_builds_are_long_their_cost_is_not_measured_and_the_report_says_why() -> None:
    found = checked(FakeRaces(arms=BOTH, builds_s=60.0, head_compiled={"cold_s": 42.0}), BOTH)
    cost = metric(found, "compile-cpu", BOTH[1])
    assert cost.verdict is GateVerdict.NOT_MEASURED
    assert "a build takes 42 s" in cost.because
    assert metric(found, "kernels", BOTH[1]).verdict is GateVerdict.PASS  # one build is enough to count them
    assert verdict(found) is GateVerdict.PASS


def test_what_one_process_cannot_show_is_named() -> None:
    found = checked(FakeRaces(arms=BOTH), BOTH, processes=1)
    for name, arm in (("startup", "eager"), ("memory", "eager"), ("compile-cpu", "torch.compile")):
        assert metric(found, name, arm).verdict is GateVerdict.NOT_MEASURED
        assert "one process" in metric(found, name, arm).because


@pytest.mark.parametrize("name", ["graph_breaks", "recompiles", "left_to_eager"])
def test_one_more_of_what_the_compiler_stumbles_over_is_worse(name: str) -> None:
    found = checked(FakeRaces(arms=BOTH, head_compiled={name: 1}), BOTH)
    worse = metric(found, name.replace("_", "-"), "torch.compile")
    assert worse.verdict is GateVerdict.WORSE
    assert worse.mde == 0.0
    assert (worse.base, worse.head) == (0.0, 1.0)
    assert len(found.races) == 1  # counted, not timed: a second race would say the same


def test_counts_grow_a_little_before_they_fail() -> None:
    assert metric(checked(FakeRaces(arms=BOTH, head_compiled={"kernels": 11}), BOTH), "kernels", BOTH[1]).verdict is (
        GateVerdict.PASS
    )
    assert metric(checked(FakeRaces(arms=BOTH, head_compiled={"kernels": 12}), BOTH), "kernels", BOTH[1]).verdict is (
        GateVerdict.WORSE
    )


def test_fewer_breaks_pass() -> None:
    races = FakeRaces(arms=BOTH, head_compiled={"kernels": 5})
    kernels = metric(checked(races, BOTH), "kernels", "torch.compile")
    assert kernels.verdict is GateVerdict.PASS
    assert kernels.because == "10 before, 5 now"


# ------------------------------------------------------------------------------------------------- what fails


def test_a_head_that_crashes_is_worse() -> None:
    found = checked(FakeRaces(failures={"head eager": Failure("died of SIGSEGV while warming up", crashed=True)}))
    assert verdict(found) is GateVerdict.WORSE
    assert "the head crashed where the base works: died of SIGSEGV" in metric(found, "runs").because
    assert len(found.races[0]) == 1  # it would crash again


KILLED = {"head eager": Failure("killed by SIGKILL while warming up", crashed=True, by_machine=True)}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_head_that_was_killed_once_has_one_more_set(number: int) -> None:
    races = FakeRaces(deaths={(0, number): KILLED})
    found = checked(races)
    runs = metric(found, "runs")
    assert runs.verdict is GateVerdict.INCONCLUSIVE
    assert "was ended once where the base works, and not again: killed by SIGKILL" in runs.because
    assert races.asked[-1][1] > number
    assert metric(found, "latency").verdict is GateVerdict.PASS
    assert EXIT_CODES[verdict(found)] == 0


def test_a_head_that_was_killed_twice_is_worse() -> None:
    races = FakeRaces(deaths={(0, 0): KILLED, (0, 1): KILLED})
    found = checked(races)
    assert metric(found, "runs").verdict is GateVerdict.WORSE
    assert "was ended 2 times where the base works: killed by SIGKILL" in metric(found, "runs").because
    assert len(races.asked) == 2


def test_a_head_that_is_killed_in_the_only_set_has_one_more() -> None:
    races = FakeRaces(deaths={(0, 0): KILLED})
    assert metric(checked(races, processes=1), "runs").verdict is GateVerdict.INCONCLUSIVE
    assert len(races.asked) == 2


def test_where_the_base_is_killed_too_there_is_nothing_to_compare_with() -> None:
    both = KILLED | {"base eager": Failure("killed by SIGKILL while warming up", crashed=True, by_machine=True)}
    races = FakeRaces(deaths={(0, 0): both})
    assert verdict(checked(races)) is GateVerdict.NOT_MEASURED
    assert len(races.asked) == 1


def test_an_arm_that_was_killed_before_it_answered_has_no_numbers() -> None:
    found = checked(FakeRaces(deaths={(0, 0): KILLED}))
    assert metric(found, "numbers").verdict is GateVerdict.NOT_MEASURED
    assert "ended before it had answered" in metric(found, "numbers").because


def test_a_base_that_fails_is_not_measured() -> None:
    found = checked(FakeRaces(failures={"base eager": Failure("importing model.py failed")}))
    assert verdict(found) is GateVerdict.NOT_MEASURED
    assert EXIT_CODES[verdict(found)] == 2
    assert "the base fails: importing model.py failed" in overall(found.metrics)[1]


def test_one_arm_that_fails_leaves_the_other() -> None:
    failures = {f"{side} torch.compile": Failure("no C++ compiler") for side in ("base", "head")}
    found = checked(FakeRaces(arms=BOTH, failures=failures), BOTH)
    assert metric(found, "latency").verdict is GateVerdict.PASS
    assert metric(found, "runs", "torch.compile").verdict is GateVerdict.NOT_MEASURED
    assert verdict(found) is GateVerdict.PASS


def test_other_inputs_are_other_work() -> None:
    found = checked(FakeRaces(1.5, taken=StateTaken(inputs="'[0][0]' was 8x64 float32 and is 16x64 float32")))
    assert metric(found, "latency").verdict is GateVerdict.NOT_MEASURED
    assert "not the same work" in metric(found, "latency").because


# ---------------------------------------------------------------------------------------------------- numbers


def kept(tmp_path: Path, **answers: torch.Tensor) -> dict[str, Path]:
    found = {}
    for name, answer in answers.items():
        exact = {"example 1": {"": answer.double()}}
        path = tmp_path / f"{name}.pt"
        torch.save({"answers": {"example 1": {"": answer}}, "double": exact}, path)
        found[f"{name} eager"] = path
    return found


def test_the_same_numbers_pass_and_say_what_would_have_been_seen(tmp_path: Path) -> None:
    answer = torch.randn(4, 8)
    found = checked(FakeRaces(answers=kept(tmp_path, base=answer, head=answer * (1 + 1e-7))))
    assert metric(found, "numbers").verdict is GateVerdict.PASS
    assert "would have been seen" in metric(found, "numbers").because


def test_a_made_up_case_that_one_side_refuses_is_left_out(tmp_path: Path) -> None:
    answer = torch.randn(4, 8)
    files = kept(tmp_path, base=answer, head=answer)
    more = {"answers": {"example 1": {"": answer}, "seed 1": {"": answer}}, "double": None}
    torch.save(more, files["base eager"])
    numbers = metric(checked(FakeRaces(answers=files)), "numbers")
    assert numbers.verdict is GateVerdict.PASS
    assert numbers.because.startswith("the same answers in 1 case")


def test_other_numbers_are_worse(tmp_path: Path) -> None:
    answer = torch.randn(4, 8)
    numbers = metric(checked(FakeRaces(answers=kept(tmp_path, base=answer, head=answer * 1.01))), "numbers")
    assert numbers.verdict is GateVerdict.WORSE
    assert "case example 1" in numbers.because
    gone = metric(checked(FakeRaces(answers=kept(tmp_path, base=answer, head=answer[:2]))), "numbers")
    assert "was (4, 8)" in gone.because


def test_answers_without_tensors_are_not_the_same_answers(tmp_path: Path) -> None:
    path = tmp_path / "none.pt"
    torch.save({"answers": {"example 1": {}, "seed 1": {}}, "double": None}, path)
    numbers = metric(checked(FakeRaces(answers={"base eager": path, "head eager": path})), "numbers")
    assert numbers.verdict is GateVerdict.NOT_MEASURED
    assert "no tensors" in numbers.because


@pytest.mark.parametrize(
    ("own", "head", "expected"),
    [
        (1.01, 1.01, GateVerdict.PASS),
        (1.01, 1.02, GateVerdict.WORSE),  # off, and not as the base was
        (1.01, float("nan"), GateVerdict.WORSE),
        (float("nan"), float("nan"), GateVerdict.WORSE),
        (1.0, 1.01, GateVerdict.WORSE),
    ],
)
def test_where_the_base_is_off_the_head_must_be_as_it_was(
    tmp_path: Path, own: float, head: float, expected: GateVerdict
) -> None:
    answer = torch.randn(4, 8)
    files = kept(tmp_path, base=answer, head=answer, own=answer * own, other=answer * head)
    answers = {"base eager": files["base eager"], "head eager": files["head eager"]}
    answers |= {"base torch.compile": files["own eager"], "head torch.compile": files["other eager"]}
    found = checked(FakeRaces(answers=answers, arms=BOTH), BOTH)
    assert metric(found, "numbers").verdict is GateVerdict.PASS
    assert metric(found, "numbers", "torch.compile").verdict is expected


def test_other_parameters_have_no_numbers(tmp_path: Path) -> None:
    answer = torch.randn(4, 8)
    races = FakeRaces(answers=kept(tmp_path, base=answer, head=answer * 2), taken=StateTaken(parameters="'c' is new"))
    numbers = metric(checked(races), "numbers")
    assert numbers.verdict is GateVerdict.NOT_MEASURED
    assert numbers.because == "the model has other parameters: 'c' is new"


def test_a_model_that_does_not_repeat_itself_has_no_numbers(tmp_path: Path) -> None:
    answer = torch.randn(4, 8)
    found = checked(FakeRaces(answers=kept(tmp_path, base=answer, head=answer), repeats=False))
    assert "model.eval()" in metric(found, "numbers").because


# ----------------------------------------------------------------------------------------------------- the time


class Clock:
    """Seconds that pass as sets are run."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class SlowSets(FakeRaces):
    """Sets that take their time."""

    def __init__(self, clock: Clock, set_s: float, builds_s: float) -> None:
        super().__init__(builds_s=builds_s)
        self._clock, self._set_s = clock, set_s

    def one_set(
        self, race: int, number: int, timing: Timing, *, reuse: bool, arms: Collection[str] | None = None
    ) -> OneSet:
        self._clock.now_s += self._set_s + timing.for_s
        return super().one_set(race, number, timing, reuse=reuse, arms=arms)


def test_a_race_keeps_to_its_share_of_the_budget() -> None:
    clock = Clock()
    races = SlowSets(clock, set_s=10.0, builds_s=1.0)
    sets = run_race(races, 0, CheckOptions(budget_s=180.0), clock)
    assert len(sets) == 4
    assert clock.now_s <= 0.45 * 180.0 + 1e-9
    assert [reuse for *_, reuse in races.asked] == [False, False, False, True]


@pytest.mark.parametrize(("set_s", "sets"), [(5.0, 5), (10.0, 4), (15.0, 3), (35.0, 2)])
def test_a_race_has_as_many_sets_as_leave_most_of_it_for_pairs(set_s: float, sets: int) -> None:
    clock = Clock()
    assert len(run_race(SlowSets(clock, set_s, 1.0), 0, CheckOptions(budget_s=180.0), clock)) == sets


def test_long_builds_are_made_once_per_race() -> None:
    clock = Clock()
    races = SlowSets(clock, set_s=30.0, builds_s=25.0)
    run_race(races, 0, CheckOptions(budget_s=180.0), clock)
    assert [reuse for *_, reuse in races.asked] == [False, True]  # and there is no time for a third set


def test_a_longer_budget_has_more_processes_and_wants_narrower_intervals() -> None:
    short, long = CheckOptions(budget_s=180.0), CheckOptions(budget_s=600.0)
    assert (short.fewest_sets, short.most_sets, short.half_width) == (3, 5, 0.03)
    assert (long.fewest_sets, long.most_sets, long.half_width) == (3, 12, 0.015)
    assert CheckOptions(budget_s=600.0, processes=2).fewest_sets == 2
    assert CheckOptions(budget_s=600.0, processes=2).most_sets == 2


@pytest.mark.parametrize("slower", [0.7, 1.0, 1.3])
def test_a_race_that_is_precise_ends_early_whatever_it_says(slower: float) -> None:
    calm, noisy = FakeRaces(slower), FakeRaces(slower, noise=0.6, process_noise=0.15)
    assert [len(race) for race in checked(calm).races] == [3] * (2 if slower > 1.0 else 1)
    assert {len(race) for race in checked(noisy).races} == {5}
    assert {len(race) for race in checked(FakeRaces(slower, head={"first_s": 3.0}), processes=4).races} == {4}
