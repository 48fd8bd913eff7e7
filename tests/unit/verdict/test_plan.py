"""From a verdict to a plan, and the sentence that goes with it."""

from __future__ import annotations

import re

import msgspec
import pytest
from verdict_fakes import candidate, eager_trial, race, trial

from compilot.records import (
    Candidate,
    Check,
    Fingerprint,
    JournalLine,
    MachineFingerprint,
    Measurement,
    ModelFingerprint,
    Outcome,
    Plan,
    Precision,
    ProcessSettings,
    Race,
    RunHeader,
    Settings,
    State,
    Trial,
    VerdictLine,
    WorkloadRef,
    encode,
)
from compilot.verdict import decide, honest_sentence, make_plan
from compilot.verdict.plan import cpu_name, make_evidence

BEST, PLAIN = candidate("freezing"), candidate("default")
MACHINE = MachineFingerprint(
    torch="2.13.0",
    python="3.11",
    platform="Linux-x86_64",
    glibc="2.36",
    cpu_model="Intel(R) Xeon(R) Processor @ 2.10GHz",
    cpu_isa=("avx", "avx2", "avx512f"),
    cores=2,
    threads=2,
)
MODEL = ModelFingerprint(
    class_name="Net",
    code_sha256="s",
    structure_sha256="t",
    parameters_sha256="p",
    parameter_count=1,
    parameter_bytes=4,
)
HEADER = RunHeader(
    schema=1,
    compilot="0.1",
    created="2026-01-01T00:00:00Z",
    workload=WorkloadRef(label="Net"),
    fingerprint=Fingerprint(machine=MACHINE, model=MODEL),
    budget_s=60.0,
)


def planned(trials: list[Trial], final: Race | None, *, plain: str | None = PLAIN.id, aa: float | None = None) -> Plan:
    warm = {BEST.id: Measurement(cold_s=5.1, cold_cache=False)}
    verdict = decide(trials, final, warm_starts=warm)
    return make_plan(
        verdict,
        trials,
        final,
        HEADER,
        warm,
        plain_compile_id=plain,
        aa=aa,
        created="2026-01-02T00:00:00Z",
        version="0.2",
    )


def story() -> tuple[list[Trial], Race]:
    trials = [
        eager_trial(),
        trial(BEST, cold_s=11.5, peak_rss_bytes=77),
        trial(PLAIN),
        trial(candidate("x"), state=State.CRASHED),
        trial(candidate("y"), state=State.PRUNED),
    ]
    return trials, race({BEST.id: 1.93, PLAIN.id: 1.4}, pairs=80)


def test_a_plan_carries_the_evidence() -> None:
    plan = planned(*story())
    (entry,) = plan.entries
    evidence = entry.evidence
    assert entry.candidate == BEST
    assert evidence.versus_eager is not None
    assert evidence.versus_compile is not None
    assert evidence.versus_compile.outcome is Outcome.FASTER
    assert evidence.versus_compile.ratio == pytest.approx(1.93 / 1.4, rel=0.01)
    assert (evidence.cold_s, evidence.warm_s, evidence.peak_rss_bytes) == (11.5, 5.1, 77)
    assert evidence.eager_p50_s is not None
    assert evidence.p50_s == pytest.approx(evidence.eager_p50_s / 1.93, rel=0.02)
    assert evidence.candidates_tried == 3
    assert (plan.compilot, plan.created) == ("0.2", "2026-01-02T00:00:00Z")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_the_honest_sentence() -> None:
    sentence = planned(*story(), aa=0.008).entries[0].sentence
    assert re.fullmatch(
        r"1\.93x faster than eager \(95 % 1\.9\d-1\.9\d; 3 processes x 80 pairs, 2 threads, Intel Xeon AVX-512, "
        r"torch 2\.13\.0\); first call 11\.5 s cold, 5\.1 s with kept artifacts; pays back after 2\d\d\d calls "
        r"\(95 % 2\d\d\d-2\d\d\d\), with kept artifacts after 1\d\d\d \(95 % 1\d\d\d-1\d\d\d\); "
        r"eager against itself varied by 1\.008x; 3 candidates tried\.",
        sentence,
    ), sentence


def test_the_sentence_names_doubts_and_the_plans_own_threads() -> None:
    one_thread = Candidate(settings=Settings(), process=ProcessSettings(threads=1), label="1 thread", rationale="test")
    trials = [eager_trial(), trial(one_thread)]
    plan = planned(trials, race({one_thread.id: 1.5}, processes=1, load="busy"))
    assert plan.process == one_thread.process  # one for all entries
    sentence = plan.entries[0].sentence
    assert "1 process x 40 pairs, 1 thread," in sentence
    assert "; one process; busy; " in sentence


def test_the_sentence_names_the_precision_the_error_and_denormals() -> None:
    settings = Settings(engine="onnxruntime", precision=Precision.INT8_DYNAMIC)
    process = ProcessSettings(flush_denormals=True)
    small = Candidate(settings=settings, process=process, label="onnxruntime int8-dynamic", rationale="test")
    check = Check(passed=True, why="fine", reference="float64", tolerance=0.05, relative_error=0.0123)
    trials = [eager_trial(), msgspec.structs.replace(trial(small), check=check)]
    (entry,) = planned(trials, race({small.id: 1.5})).entries
    assert "; in int8-dynamic: relative error 1.2 % (tolerance 5 %); denormal numbers taken as zero; " in entry.sentence
    assert (entry.evidence.relative_error, entry.evidence.tolerance) == (0.0123, 0.05)


def test_an_entry_has_the_name_that_its_verdict_is_about() -> None:
    trials, final = story()
    verdict = msgspec.structs.replace(decide(trials, final), entry="batch 8")
    told = {"plain_compile_id": None, "created": "", "version": ""}
    (entry,) = make_plan(verdict, trials, final, HEADER, {}, **told).entries  # type: ignore[arg-type]
    assert (entry.name, entry.module) == ("batch 8", "")
    line = VerdictLine(verdict=verdict, at_s=1.0)
    assert msgspec.json.decode(encode(line), type=JournalLine) == line


def test_memory_is_that_of_a_fresh_process_where_it_was_measured() -> None:
    trials, final = story()
    warm = {BEST.id: Measurement(cold_s=5.1, cold_cache=False, peak_rss_bytes=50, steady_rss_bytes=40)}
    evidence = make_evidence(decide(trials, final), trials[1], trials, final, warm[BEST.id], None)
    assert (evidence.peak_rss_bytes, evidence.steady_rss_bytes) == (50, 40)


def test_plain_compile_is_compared_only_where_it_raced_and_is_another_plan() -> None:
    trials, final = story()
    for plain in (None, BEST.id, "not raced"):
        assert planned(trials, final, plain=plain).entries[0].evidence.versus_compile is None


def test_keeping_eager_makes_a_plan_without_entries_but_with_a_reason() -> None:
    for plan in (planned([eager_trial()], None), planned([eager_trial(), trial(BEST)], race({BEST.id: 1.0}))):
        assert plan.entries == ()
        assert plan.because


def test_an_ok_trial_without_a_guard_is_our_bug() -> None:
    trials, final = story()
    bare = [msgspec.structs.replace(t, guard=None) for t in trials]
    with pytest.raises(ValueError, match="no guard"):
        planned(bare, final)


def test_a_result_that_was_not_compared_says_so() -> None:
    evidence = msgspec.structs.replace(planned(*story()).entries[0].evidence, versus_eager=None)
    assert honest_sentence(evidence, MACHINE).startswith("not compared with eager")


@pytest.mark.parametrize(
    ("model", "isa", "name"),
    [
        ("AMD EPYC 7B13", ("avx", "avx2"), "AMD EPYC 7B13 AVX2"),
        ("Intel(R) Core(TM) i7 CPU @ 3GHz", (), "Intel Core i7"),
        ("", (), "unknown CPU"),
        ("Neoverse-V1", ("neon", "sve"), "Neoverse-V1 SVE"),
    ],
)
def test_cpu_names_are_short(model: str, isa: tuple[str, ...], name: str) -> None:
    assert cpu_name(msgspec.structs.replace(MACHINE, cpu_model=model, cpu_isa=isa)) == name


def test_what_a_user_must_know_goes_from_the_check_into_the_plan():
    caveats = ("checks inside the model are not part of its compiled form: net.py:12",)
    check = Check(passed=True, why="3 cases agree", reference="float64", caveats=caveats)
    known = msgspec.structs.replace(trial(BEST), check=check)
    [entry] = planned([eager_trial(), known], race({BEST.id: 1.5})).entries
    assert entry.caveats == caveats
