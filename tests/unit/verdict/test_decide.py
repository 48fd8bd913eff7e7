"""Who replaces eager, under each objective, and why not."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_fakes import EAGER, candidate, eager_trial, race, trial

from compilot.records import Decision, Goal, Measurement, Objective, ProcessSettings, State, WarmUp
from compilot.verdict import decide

QUICK, SLOW_START, MEDIOCRE = candidate("default"), candidate("max-autotune"), candidate("cpp-wrapper")


def warm(cold_s: float, **measured: object) -> Measurement:
    return Measurement(cold_s=cold_s, cold_cache=False, **measured)  # type: ignore[arg-type]


def test_the_fastest_is_used_with_its_figures() -> None:
    verdict = decide([eager_trial(), trial(QUICK), trial(MEDIOCRE)], race({QUICK.id: 1.93, MEDIOCRE.id: 1.2}))
    assert (verdict.decision, verdict.chosen_id) == (Decision.USE, QUICK.id)
    assert verdict.because.startswith("default: 1.93x faster than eager (95 % 1.9")
    assert verdict.break_even is not None
    assert verdict.break_even.cold_calls == pytest.approx(5.0 / (0.010 - 0.010 / 1.93), rel=0.05)
    assert {c.candidate_id for c in verdict.comparisons} == {QUICK.id, MEDIOCRE.id}


def test_among_equals_the_one_that_asks_for_no_settings_of_the_process() -> None:
    kept = msgspec.structs.replace(QUICK, label="default, memory kept", process=ProcessSettings(keep_memory=True))
    trials = [eager_trial(), trial(kept, cold_s=2.0), trial(QUICK, cold_s=5.0)]
    verdict = decide(trials, race({kept.id: 1.505, QUICK.id: 1.5}))
    assert verdict.chosen_id == QUICK.id
    assert "no difference from default, memory kept shown" in verdict.because
    assert "needs no settings of the process" in verdict.because
    assert decide(trials, race({kept.id: 1.8, QUICK.id: 1.5})).chosen_id == kept.id


def test_among_equals_the_one_that_starts_cheapest() -> None:
    trials = [eager_trial(), trial(SLOW_START, cold_s=60.0), trial(QUICK, cold_s=5.0)]
    verdict = decide(trials, race({SLOW_START.id: 1.505, QUICK.id: 1.5}))
    assert verdict.chosen_id == QUICK.id
    assert "no difference from max-autotune shown" in verdict.because
    assert "starts in 5.0 s" in verdict.because


def test_a_shown_difference_beats_a_cheap_start() -> None:
    trials = [eager_trial(), trial(SLOW_START, cold_s=60.0), trial(QUICK, cold_s=5.0)]
    assert decide(trials, race({SLOW_START.id: 1.8, QUICK.id: 1.5})).chosen_id == SLOW_START.id


def test_eager_is_kept_when_the_best_is_within_the_noise() -> None:
    verdict = decide([eager_trial(), trial(QUICK)], race({QUICK.id: 1.02}, scatter=0.1))
    assert (verdict.decision, verdict.chosen_id) == (Decision.KEEP_EAGER, EAGER.id)
    assert "best candidate default: " in verdict.because
    assert "looks " in verdict.because
    assert "not proven" in verdict.because
    assert verdict.break_even is None


def test_eager_is_kept_when_all_are_slower() -> None:
    verdict = decide([eager_trial(), trial(QUICK)], race({QUICK.id: 0.9}))
    assert verdict.decision is Decision.KEEP_EAGER
    assert re.search(r"default: slower than eager: 0\.(90\d?|89\d?)x", verdict.because)


@pytest.mark.parametrize(
    ("trials", "because"),
    [
        ([eager_trial()], "no candidate was tried"),
        (
            [eager_trial(), trial(QUICK, state=State.CRASHED), trial(MEDIOCRE, state=State.WRONG)],
            "no candidate could be used: 1 crashed, 1 wrong",
        ),
        ([eager_trial(), trial(QUICK)], "1 candidate passed all checks, but none was confirmed"),
    ],
)
def test_eager_is_kept_when_there_is_nothing_to_choose(trials: list, because: str) -> None:
    verdict = decide(trials, None)
    assert (verdict.decision, verdict.chosen_id) == (Decision.KEEP_EAGER, EAGER.id)
    assert verdict.because.startswith(because)


@pytest.mark.parametrize("objective", list(Objective))
def test_what_cannot_be_computed_is_never_a_win(objective: Objective) -> None:
    trials = [eager_trial(peak_rss_bytes=2**30), trial(QUICK, peak_rss_bytes=2**20)]
    for broken in (race({QUICK.id: 3.0}, pairs=3), race({QUICK.id: 3.0}, processes=0)):
        assert decide(trials, broken, Goal(objective=objective)).decision is Decision.KEEP_EAGER


def test_doubts_are_printed_with_the_decision() -> None:
    unsteady = trial(QUICK, warm_up=WarmUp(calls=3, wall_s=1.0, steady=False))
    verdict = decide([eager_trial(), unsteady], race({QUICK.id: 2.0}, load="another process used 83 % of a core"))
    assert verdict.decision is Decision.USE
    assert verdict.because.endswith("; doubts: unsteady, another process used 83 % of a core")


# ---- horizon -------------------------------------------------------------------------------------------------------


def test_a_short_life_keeps_eager_and_a_long_one_pays_for_the_compile() -> None:
    trials = [eager_trial(), trial(QUICK, cold_s=5.0), trial(SLOW_START, cold_s=60.0)]
    final = race({QUICK.id: 1.5, SLOW_START.id: 2.0})
    short, middle, long = (decide(trials, final, Goal(horizon_calls=n)) for n in (100, 5_000, 1_000_000))
    assert short.decision is Decision.KEEP_EAGER
    assert "over 100 calls" in short.because
    assert "pays back after" in short.because
    assert middle.chosen_id == QUICK.id
    assert "in total against eager's" in middle.because
    assert long.chosen_id == SLOW_START.id


def test_importing_torchs_compiler_counts_in_a_total_and_is_said() -> None:
    """Eager takes 5 s for 500 calls, 1.5x faster 3.3 s: a start of 1.2 s pays, but not with an import of 2 s."""
    final = race({QUICK.id: 1.5})
    file, compiled = trial(QUICK, cold_s=1.2), trial(QUICK, cold_s=1.2, import_s=2.0)
    paid, unpaid, later = (
        decide([eager_trial(), one], final, Goal(horizon_calls=calls))
        for one, calls in ((file, 500), (compiled, 500), (compiled, 1500))
    )
    assert (paid.decision, unpaid.decision, later.decision) == (Decision.USE, Decision.KEEP_EAGER, Decision.USE)
    assert "importing" not in paid.because
    assert re.search(r"6\.\d s in total \(2\.0 s of it importing torch's compiler\) against eager's 5", unpaid.because)
    assert int(re.findall(r"pays back after (\d+) calls", unpaid.because)[0]) == pytest.approx(960, rel=0.05)
    assert "(2.0 s of it importing torch's compiler)" in later.because


def test_a_total_hardly_below_eagers_is_no_reason_to_compile() -> None:
    """1000 calls take eager 10 s, and 2x faster 5 s besides its start."""
    final = race({QUICK.id: 2.0}, scatter=0.0, bias=0.0, drift=0.0)
    near, far = (
        decide([eager_trial(cold_s=0.01), trial(QUICK, cold_s=cold)], final, Goal(horizon_calls=1000))
        for cold in (4.95, 4.8)
    )
    assert (near.decision, far.decision) == (Decision.KEEP_EAGER, Decision.USE)
    assert "against eager's 10.0 s: less than 1.0 % saved" in near.because


def test_a_horizon_never_buys_what_was_not_shown_faster() -> None:
    free = trial(QUICK, cold_s=0.0)
    verdict = decide([eager_trial(cold_s=9.0), free], race({QUICK.id: 1.0}), Goal(horizon_calls=2))
    assert verdict.decision is Decision.KEEP_EAGER


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.floats(0.7, 3.0), st.floats(0.01, 100.0)), min_size=1, max_size=3),
    st.lists(st.integers(1, 10**6), min_size=2, max_size=5),
)
def test_a_longer_horizon_never_picks_a_slower_plan(plans: list[tuple[float, float]], horizons: list[int]) -> None:
    names = [candidate(f"plan {i}") for i in range(len(plans))]
    trials = [eager_trial(), *(trial(who, cold_s=cold) for who, (_, cold) in zip(names, plans, strict=True))]
    final = race({who.id: ratio for who, (ratio, _) in zip(names, plans, strict=True)}, pairs=10)
    verdicts = [decide(trials, final, Goal(horizon_calls=calls)) for calls in sorted(horizons)]
    ratio = {EAGER.id: 1.0} | {c.candidate_id: c.ratio for c in verdicts[0].comparisons}
    picked = [ratio[verdict.chosen_id] for verdict in verdicts]
    assert picked == sorted(picked)


# ---- the other objectives ------------------------------------------------------------------------------------------


def test_throughput_is_judged_like_latency_by_samples_of_all_callers() -> None:
    trials, final = [eager_trial(), trial(QUICK)], race({QUICK.id: 1.5})
    assert decide(trials, final, Goal(objective=Objective.THROUGHPUT)) == decide(trials, final)
    four = decide(trials, final, Goal(objective=Objective.THROUGHPUT, concurrency=4))
    assert four.because == f"{decide(trials, final).because}; 4 callers at the same time"


@pytest.mark.parametrize("ratio", [0.9, 1.0])
def test_eager_that_is_kept_names_the_callers_too(ratio: float) -> None:
    goal = Goal(objective=Objective.THROUGHPUT, concurrency=4)
    verdict = decide([eager_trial(), trial(QUICK)], race({QUICK.id: ratio}), goal)
    assert verdict.decision is Decision.KEEP_EAGER
    assert "; 4 callers at the same time" in verdict.because


@pytest.mark.parametrize("objective", [Objective.LATENCY, Objective.THROUGHPUT])
def test_a_horizon_counts_total_time_for_both(objective: Objective) -> None:
    """Four callers, 10 ms of wall time per call: 400 calls take eager 4 s, and 2x saves 2 s of them."""
    goal = Goal(objective=objective, concurrency=4 if objective is Objective.THROUGHPUT else 1)
    trials, final = [eager_trial(), trial(QUICK, cold_s=5.0)], race({QUICK.id: 2.0})
    short, long = (decide(trials, final, msgspec.structs.replace(goal, horizon_calls=n)) for n in (400, 4000))
    assert (short.decision, long.decision) == (Decision.KEEP_EAGER, Decision.USE)
    assert "over 400 calls 7.0 s in total against eager's 4.0 s: pays back after " in short.because


def test_p99_chooses_the_best_tail_among_the_faster() -> None:
    calm, jumpy = (0.006,) * 700, (0.005,) * 680 + (0.050,) * 20
    trials = [eager_trial(call_s=(0.010,) * 700), trial(QUICK, call_s=jumpy), trial(MEDIOCRE, call_s=calm)]
    final = race({QUICK.id: 2.0, MEDIOCRE.id: 1.6})
    assert decide(trials, final).chosen_id == QUICK.id
    verdict = decide(trials, final, Goal(objective=Objective.P99))
    assert verdict.chosen_id == MEDIOCRE.id
    assert "p99 6.00 ms against eager's 10.0 ms (1.67x)" in verdict.because


def test_p99_keeps_eager_when_only_the_median_is_better() -> None:
    trials = [eager_trial(call_s=(0.010,) * 700), trial(QUICK, call_s=(0.005,) * 680 + (0.050,) * 20)]
    verdict = decide(trials, race({QUICK.id: 2.0}), Goal(objective=Objective.P99))
    assert verdict.decision is Decision.KEEP_EAGER
    assert "but p99 50.0 ms against eager's 10.0 ms (0.20x)" in verdict.because


def test_p99_from_too_few_calls_falls_back_to_latency_and_says_so() -> None:
    trials = [eager_trial(call_s=(0.01,) * 100), trial(QUICK, call_s=(0.005,) * 100)]
    verdict = decide(trials, race({QUICK.id: 2.0}), Goal(objective=Objective.P99))
    assert verdict.chosen_id == QUICK.id
    assert "judged by the median: p99 needs 660 calls" in verdict.because


def test_startup_chooses_the_quickest_warm_start_among_the_faster() -> None:
    trials = [eager_trial(), trial(QUICK, cold_s=5.0), trial(SLOW_START, cold_s=60.0), trial(MEDIOCRE, cold_s=0.01)]
    verdict = decide(
        trials,
        race({QUICK.id: 2.0, SLOW_START.id: 2.0, MEDIOCRE.id: 1.0}),
        Goal(objective=Objective.STARTUP),
        warm_starts={QUICK.id: warm(4.0), SLOW_START.id: warm(0.5), MEDIOCRE.id: warm(0.01)},
    )
    assert verdict.chosen_id == SLOW_START.id
    assert "first call 0.50 s with kept artifacts" in verdict.because


def test_memory_chooses_the_smallest_that_is_not_slower() -> None:
    small, large = {"peak_rss_bytes": 500 * 2**20}, {"peak_rss_bytes": 900 * 2**20}
    trials = [eager_trial(**large), trial(QUICK, **small), trial(SLOW_START, peak_rss_bytes=100 * 2**20)]
    final = race({QUICK.id: 1.0, SLOW_START.id: 0.7})
    verdict = decide(trials, final, Goal(objective=Objective.MEMORY))
    assert verdict.chosen_id == QUICK.id
    assert "peak memory 500 MiB against eager's 900 MiB" in verdict.because


def test_memory_keeps_eager_for_less_than_the_noise_of_memory() -> None:
    trials = [eager_trial(peak_rss_bytes=1000), trial(QUICK, peak_rss_bytes=990)]
    assert decide(trials, race({QUICK.id: 2.0}), Goal(objective=Objective.MEMORY)).decision is Decision.KEEP_EAGER


# ---- for every objective -------------------------------------------------------------------------------------------

states = st.sampled_from(list(State))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0.5, 3.0), states), min_size=1, max_size=4),
    st.sampled_from(list(Objective)),
    st.none() | st.integers(1, 10**6),
)
def test_only_what_is_ok_and_not_slower_is_ever_used(
    plans: list[tuple[float, State]], objective: Objective, horizon: int | None
) -> None:
    names = [candidate(f"plan {i}") for i in range(len(plans))]
    measured = {"peak_rss_bytes": 1000, "call_s": (0.001,) * 700}
    trials = [
        eager_trial(peak_rss_bytes=2000, call_s=(0.01,) * 700),
        *(trial(who, state=state, **measured) for who, (_, state) in zip(names, plans, strict=True)),
    ]
    final = race({who.id: ratio for who, (ratio, _) in zip(names, plans, strict=True)}, pairs=10)
    verdict = decide(trials, final, Goal(objective=objective, horizon_calls=horizon))
    able = {who.id for who, (_, state) in zip(names, plans, strict=True) if state is State.OK}
    outcomes = {c.candidate_id: str(c.outcome) for c in verdict.comparisons}
    assert verdict.because
    assert set(outcomes) <= able
    if verdict.decision is Decision.USE:
        assert verdict.chosen_id in able
        assert outcomes[verdict.chosen_id] in ("faster", "no-difference" if objective is Objective.MEMORY else "faster")
    else:
        assert verdict.chosen_id == EAGER.id


def test_a_verdict_survives_json() -> None:
    verdict = decide([eager_trial(), trial(QUICK)], race({QUICK.id: 2.0}))
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=type(verdict)) == verdict
