"""A verdict is one sentence in one unit, and it says no more than was shown."""

from __future__ import annotations

import msgspec
import pytest
from verdict_fakes import candidate, eager_trial, race, trial

from compilot.records import (
    BreakEven,
    Comparison,
    Decision,
    Evidence,
    Goal,
    MachineFingerprint,
    Objective,
    Outcome,
    State,
)
from compilot.verdict import compare, decide, honest_sentence
from compilot.verdict.words import count, pays_back, shown

QUICK = candidate("default")
MACHINE = MachineFingerprint(
    torch="2.13.0",
    python="3.11",
    platform="Linux",
    glibc="2.36",
    cpu_model="Xeon",
    cpu_isa=(),
    cores=2,
    threads=2,
)
UNPROVEN = Comparison(
    candidate_id="a",
    baseline_id="eager",
    ratio=3.08,
    low=1.64,
    high=6.12,
    outcome=Outcome.NO_DIFFERENCE,
    margin=1.2,
    mde=2.0,
    aa_noise=1.2,
    processes=3,
    pairs=8,
)
NOT_PROVEN_HERE = "but eager against itself varied by 2.20x in this run: not proven; try again on a quieter machine"


def seen(outcome: Outcome, ratio: float, low: float, high: float, *, margin: float = 0.01, aa: float = 0.004) -> str:
    told = {"outcome": outcome, "ratio": ratio, "low": low, "high": high, "margin": margin, "aa_noise": aa}
    return shown(msgspec.structs.replace(UNPROVEN, **told))


def test_what_noise_hides_is_one_sentence_in_one_unit() -> None:
    assert shown(UNPROVEN) == f"looks 3.08x faster than eager (95 % 1.64-6.12), {NOT_PROVEN_HERE}"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (seen(Outcome.FASTER, 1.93, 1.88, 1.97), "1.93x faster than eager (95 % 1.88-1.97)"),
        (seen(Outcome.FASTER, 1.03, 1.02, 1.04), "1.030x faster than eager (95 % 1.020-1.040)"),
        (seen(Outcome.SLOWER, 0.5, 0.4, 0.6), "slower than eager: 0.50x (95 % 0.40-0.60)"),
        (seen(Outcome.NO_DIFFERENCE, 1.002, 0.99, 1.01), "no difference from eager shown: 1.002x (95 % 0.990-1.010)"),
        (
            seen(Outcome.NO_DIFFERENCE, 1.2, 0.9, 1.5),
            "looks 1.20x faster than eager (95 % 0.90-1.50), but the interval includes 1: not proven",
        ),
        (
            seen(Outcome.NO_DIFFERENCE, 0.8, 0.7, 0.9, margin=0.3, aa=0.3),
            "looks slower than eager: 0.80x (95 % 0.70-0.90), but eager against itself varied by 1.30x in this run: "
            "not proven; try again on a quieter machine",
        ),
        (
            seen(Outcome.NO_DIFFERENCE, 1.02, 1.005, 1.03, margin=0.02, aa=0.02),
            "looks 1.020x faster than eager (95 % 1.005-1.030), but eager against itself varied by 1.020x in this run: "
            "not proven",
        ),
        (
            seen(Outcome.NO_DIFFERENCE, 1.04, 1.02, 1.06, margin=0.03, aa=0.0),
            "looks 1.040x faster than eager (95 % 1.020-1.060), but only more than 1.030x counts as a difference: "
            "not proven",
        ),
    ],
)
def test_every_outcome_in_words(told: str, words: str) -> None:
    assert told == words


def test_no_speed_up_and_no_noise_is_a_percentage() -> None:
    for final in (race({QUICK.id: 1.5}), race({QUICK.id: 1.05}, scatter=0.4), race({QUICK.id: 0.5})):
        told = shown(compare(final, QUICK.id, final.arms[0])).replace("95 %", "")
        assert "x" in told
        assert "%" not in told


def test_a_break_even_is_said_only_where_a_gain_is_shown() -> None:
    evidence = Evidence(versus_eager=UNPROVEN, cold_s=5.0, break_even=BreakEven(cold_calls=464, warm_calls=2))
    told = honest_sentence(evidence, MACHINE)
    assert "pays back" not in told
    assert told.count("eager against itself") == 1
    size = "3 processes x 8 pairs, 2 threads, Xeon, torch 2.13.0"
    assert told.startswith(
        f"looks 3.08x faster than eager (95 % 1.64-6.12; {size}), {NOT_PROVEN_HERE}; first call 5.0 s"
    )
    faster = msgspec.structs.replace(UNPROVEN, outcome=Outcome.FASTER)
    assert "pays back after 464 calls" in honest_sentence(
        msgspec.structs.replace(evidence, versus_eager=faster), MACHINE
    )


@pytest.mark.parametrize(
    ("even", "told"),
    [
        (
            BreakEven(cold_calls=870, warm_calls=12, cold_low=790, cold_high=980, warm_low=11, warm_high=14),
            "pays back after 870 calls (95 % 790-980), with kept artifacts after 12 (95 % 11-14)",
        ),
        (
            BreakEven(cold_calls=870, warm_calls=None, cold_low=790),
            "pays back after 870 calls (95 % at least 790 calls)",
        ),
        (
            BreakEven(cold_calls=1, warm_calls=1, cold_low=1, cold_high=1),
            "pays back after 1 call, with kept artifacts after 1",
        ),
        (BreakEven(cold_calls=870, warm_calls=None), "pays back after 870 calls"),
        (BreakEven(cold_calls=None, warm_calls=3), "never pays back a cold start"),
        (None, "never pays back a cold start"),
    ],
)
def test_a_break_even_in_words(even: BreakEven | None, told: str) -> None:
    assert pays_back(even) == told


def test_an_undecided_comparison_names_each_doubt_once() -> None:
    undecided = msgspec.structs.replace(UNPROVEN, outcome=Outcome.UNDECIDED, doubts=("one process",))
    told = honest_sentence(Evidence(versus_eager=undecided), MACHINE)
    assert told.startswith("undecided against eager; one process; ")
    assert told.count("one process") == 1


def test_a_plan_chosen_for_its_memory_has_no_break_even_without_a_gain() -> None:
    trials = [eager_trial(peak_rss_bytes=2**30), trial(QUICK, peak_rss_bytes=2**20)]
    verdict = decide(trials, race({QUICK.id: 1.0}), Goal(objective=Objective.MEMORY))
    assert (verdict.decision, verdict.break_even) == (Decision.USE, None)


def test_one_is_one_and_more_are_more() -> None:
    assert [count(n, "candidate") for n in (0, 1, 2)] == ["0 candidates", "1 candidate", "2 candidates"]
    assert count(1, "process", "es") == "1 process"
    tried = [eager_trial(), trial(QUICK), trial(candidate("other"))]
    assert decide(tried[:2], None).because.startswith("1 candidate passed")
    assert decide(tried, None).because.startswith("2 candidates passed")
    assert decide([eager_trial(), trial(QUICK, state=State.WRONG)], None).because.endswith(": 1 wrong")


def test_pairs_are_said_as_they_were_used() -> None:
    """Time may end one set of processes long before another."""
    whole = race({QUICK.id: 1.5}, pairs=60)
    lengths = zip(whole.processes, (8, 58, 60), strict=True)
    cut = tuple(msgspec.structs.replace(process, rounds=process.rounds[:kept]) for process, kept in lengths)
    final = msgspec.structs.replace(whole, processes=cut)
    versus = compare(final, QUICK.id, final.arms[0])
    assert (versus.processes, versus.pairs, versus.all_pairs) == (3, 8, 126)
    assert "; 126 pairs in 3 processes, at least 8 in each, 2 threads" in honest_sentence(
        Evidence(versus_eager=versus), MACHINE
    )
    even = compare(whole, QUICK.id, whole.arms[0])
    assert "; 3 processes x 60 pairs, 2 threads" in honest_sentence(Evidence(versus_eager=even), MACHINE)
