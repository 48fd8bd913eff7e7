"""Fixtures shared by the unit tests: a small finished run, written by hand, that needs no model and no compiler."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from compilot.artifacts.journal import Journal
from compilot.artifacts.planfile import save_plan
from compilot.records import (
    JOURNAL_SCHEMA,
    PLAN_SCHEMA,
    Candidate,
    Check,
    Decision,
    Diagnosis,
    DiagnosisLine,
    Evidence,
    Finding,
    Fingerprint,
    Guard,
    MachineFingerprint,
    Measurement,
    ModelFingerprint,
    Plan,
    PlanEntry,
    ProcessSamples,
    Race,
    RaceLine,
    RunHeader,
    Settings,
    State,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
    WarmStartLine,
    WorkloadRef,
)
from compilot.verdict.compare import compare

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
EAGER = Candidate(settings=Settings(), label="eager", rationale="the baseline")
PLAIN = Candidate(settings=Settings(engine="inductor"), label="inductor", rationale="the yardstick")
FROZEN = Candidate(
    settings=Settings(engine="inductor", options={"freezing": True}),
    label="inductor freezing",
    rationale="weights become constants",
)
TWIN = Candidate(
    settings=Settings(engine="inductor", mode="reduce-overhead"), label="inductor reduce-overhead", rationale="graphs"
)
WRONG = Candidate(
    settings=Settings(engine="inductor", options={"cpp_wrapper": True}), label="inductor cpp_wrapper", rationale="glue"
)
REASON = "RMSE 0.031 is above the limit 0.001 at output[0] in case 'seed 1'"


def _measurement(per_call_s: float, *, cold_s: float, calls: int, runs: int = 0) -> Measurement:
    noise = random.Random(calls)
    samples = tuple(per_call_s * noise.uniform(0.98, 1.02) for _ in range(calls))
    return Measurement(
        cold_s=cold_s,
        cold_cache=True,
        cold_cpu_s=1.5 * cold_s,
        compiler_runs=runs,
        call_s=samples,
        samples_per_call=4,
        peak_rss_bytes=512 * 2**20,
        steady_rss_bytes=256 * 2**20,
    )


def _race(arms: dict[str, float], *, purpose: str, processes: int) -> Race:
    """Arms with these seconds per call (eager twice), 20 pairs per process, 2 % noise."""
    noise = random.Random(1)
    eager = next(iter(arms.items()))
    columns = [eager, *arms.items()]
    rows = tuple(tuple(s * noise.uniform(0.98, 1.02) for _, s in columns) for _ in range(20))
    sets = tuple(ProcessSamples(rounds=rows) for _ in range(processes))
    return Race(arms=tuple(name for name, _ in columns), with_aa=True, processes=sets, purpose=purpose)


def _trial(candidate: Candidate, measurement: Measurement, eager_s: float, own_s: float) -> Trial:
    check = Check(passed=True, why="9 cases within limits", reference="float64")
    return Trial(
        candidate=candidate,
        state=State.OK,
        reason=check.why,
        measurement=measurement,
        check=check,
        screening=() if candidate.is_eager else ((eager_s, own_s),) * 8,
        guard=Guard(positional=1, keywords=(), tensors=()),
    )


class SmallRun:
    """What the run is made of; `write` puts it on disk as the pipeline would."""

    header = RunHeader(
        schema=JOURNAL_SCHEMA,
        compilot="0.1.0",
        created="2026-01-02T03:04:05+00:00",
        workload=WorkloadRef(label="Net", target="/models/net.py:net"),
        fingerprint=Fingerprint(
            machine=MachineFingerprint(
                torch="2.13.0",
                python="3.11.2",
                platform="Linux-x86_64",
                glibc="glibc 2.36",
                cpu_model="Some CPU",
                cpu_isa=("avx2",),
                cores=2,
                threads=2,
            ),
            model=ModelFingerprint(
                class_name="Net",
                code_sha256="a" * 64,
                structure_sha256="b" * 64,
                parameters_sha256="c" * 64,
                parameter_count=10,
                parameter_bytes=40,
            ),
        ),
        budget_s=90.0,
    )
    finding = Finding(kind="train-mode", where="", explanation="the model is in train mode", advice="call eval()")
    confirm = _race({EAGER.id: 0.020, FROZEN.id: 0.010, PLAIN.id: 0.016}, purpose="confirm", processes=3)
    trials = (
        _trial(EAGER, _measurement(0.020, cold_s=0.03, calls=700), 0.020, 0.020),
        _trial(PLAIN, _measurement(0.016, cold_s=6.0, calls=90, runs=3), 0.020, 0.016),
        _trial(FROZEN, _measurement(0.010, cold_s=9.0, calls=140, runs=5), 0.020, 0.010),
        Trial(
            candidate=TWIN,
            state=State.PRUNED,
            reason="same program",
            same_as=PLAIN.id,
            measurement=Measurement(cold_s=2.0, cold_cache=True),
        ),
        Trial(candidate=WRONG, state=State.WRONG, reason=REASON),
    )
    verdict = Verdict(
        decision=Decision.USE,
        chosen_id=FROZEN.id,
        because="2.00x faster than eager",
        comparisons=(compare(confirm, FROZEN.id, EAGER.id),),
    )
    plan = Plan(
        schema=PLAN_SCHEMA,
        compilot="0.1.0",
        created="2026-01-02T03:05:05+00:00",
        workload=header.workload,
        fingerprint=header.fingerprint,
        because=verdict.because,
        entries=(
            PlanEntry(
                guard=Guard(positional=1, keywords=(), tensors=()),
                candidate=FROZEN,
                evidence=Evidence(versus_compile=compare(confirm, FROZEN.id, PLAIN.id), candidates_tried=4),
                sentence="2.00x faster than eager (95 % 1.98-2.02; 3 processes x 20 pairs); 4 candidates tried.",
            ),
        ),
    )

    def write(self, folder: Path, *, finished: bool = True) -> Path:
        """The run directory; unfinished: as an interruption after the trials leaves it."""
        with Journal.create(folder / "journal.jsonl", self.header) as journal:
            journal.append(DiagnosisLine(diagnosis=Diagnosis(findings=(self.finding,)), prepare_s=2.5))
            for number, trial in enumerate(self.trials):
                journal.append(TrialLine(trial=trial, at_s=float(number)))
            if finished:
                journal.append(RaceLine(race=self.confirm, at_s=30.0))
                for seconds in (0.5, 0.4, 0.9):
                    warm = _measurement(0.010, cold_s=seconds, calls=660 if seconds == 0.5 else 1)
                    journal.append(WarmStartLine(candidate_id=FROZEN.id, measurement=warm))
                journal.append(VerdictLine(verdict=self.verdict, at_s=40.0))
        if finished:
            save_plan(self.plan, folder / "plan.json")
        return folder


@pytest.fixture
def small_run() -> SmallRun:
    """A run of five candidates: eager, plain compile, the winner, a twin and a wrong one."""
    return SmallRun()


@pytest.fixture
def run_dir(small_run: SmallRun, tmp_path: Path) -> Path:
    """The finished run on disk."""
    return small_run.write(tmp_path / "run")
