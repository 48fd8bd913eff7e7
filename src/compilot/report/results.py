"""What a run found, as one record. In: a run directory. Out: Results of a tuning, Bench of a comparison.

The same records are the JSON documents of `compilot tune --json` and `compilot bench --json`. Every figure is computed
again from the raw samples (data.py). Not covered: the raw samples themselves (they are in journal.jsonl).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compilot.artifacts.rundir import RunDir
from compilot.engines.of_candidate import engines_of
from compilot.measure.scatter import scatter
from compilot.records import BatchSizes, Finding, NotReached, Plan, Record, Verdict
from compilot.report.batches import batch_sizes
from compilot.report.data import Row, RunData, read_run
from compilot.report.foreseen import Foreseen, foreseen
from compilot.report.loads import SeenLoad, seen_load
from compilot.report.pareto import pareto_front
from compilot.report.sentences import arm_sentence
from compilot.report.sizes import ServedSizes, served_sizes
from compilot.report.sizes import arm_sentences as replayed_sentences
from compilot.verdict.step_words import unit_of

REPORT_SCHEMA = 1


class MissedCandidate(Record, frozen=True, kw_only=True):
    """A candidate that the budget did not suffice for."""

    candidate: str
    id: str
    engine: str
    rationale: str
    why: str  # "not tried" or "ran out of time"


class AskedLimits(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What the user allows every candidate; None: no limit of the user's own."""

    max_memory_bytes: int | None
    max_compile_s: float | None
    max_error: float | None


class Results(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a tuning run found, and what was decided."""

    schema: int
    compilot: str  # version that began the run
    run_dir: Path
    plan_file: Path | None  # None: the run has no plan yet
    sentence: str  # the honest one: what the plan brings, or why eager stays
    verdict: Verdict | None  # None: the run ended before one
    not_reached: tuple[MissedCandidate, ...]  # what a longer budget would have tried
    advised_budget_s: float | None  # that would most likely reach them; None: nothing was left out
    rows: tuple[Row, ...]  # one per candidate, in the order tried; the columns of trials.csv
    pareto: tuple[str, ...]  # ids of those that no other one is better than in latency, start and memory at once
    preset: str | None  # that some of the options came from; None: there was none
    limits: AskedLimits
    prior: Foreseen | None  # what earlier runs suggested, and whether that was right; None: nothing, or not asked
    load: SeenLoad | None  # how busy the machine was; None: not known
    findings: tuple[Finding, ...]  # what is worth knowing about the model
    plan: Plan | None
    batches: BatchSizes | None = None  # eager and the plan at each batch size; None: nobody asked
    sizes: ServedSizes | None = None  # how the trace is served; None: there was none
    unit: str = "call"  # what the figures of a row are per: "call", or "step" of a training


class Bench(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Arms that were measured side by side; nothing is decided."""

    schema: int
    compilot: str  # version that measured
    run_dir: Path
    sentence: str  # all sentences in one
    sentences: tuple[str, ...]  # one per arm beside eager, in the order of the rows
    rows: tuple[Row, ...]  # eager first; the columns of trials.csv
    pareto: tuple[str, ...]  # ids, as in Results
    load: SeenLoad | None  # how busy the machine was; None: not known
    findings: tuple[Finding, ...]  # what is worth knowing about the model
    batches: BatchSizes | None = None  # the arms at each batch size; None: nobody asked
    sizes: ServedSizes | None = None  # whole plans over the requests of a trace; None: there was none


def results_of(run_dir: Path, plan: Plan | None = None) -> Results:
    """The run in a directory; plan: where it is known already."""
    data = read_run(run_dir)
    plan = RunDir(run_dir).read_plan() if plan is None else plan
    missed = data.verdict.not_reached if data.verdict else None
    return Results(
        unit=unit_of(data.header.workload.kind),
        schema=REPORT_SCHEMA,
        compilot=data.header.compilot,
        run_dir=run_dir,
        plan_file=RunDir(run_dir).plan if plan else None,
        sentence=sentence(plan, data),
        verdict=data.verdict,
        not_reached=_missed(missed),
        advised_budget_s=missed.budget_s if missed else None,
        rows=tuple(data.rows),
        pareto=pareto_front(data.rows),
        preset=data.asked.preset,
        limits=AskedLimits(
            max_memory_bytes=data.asked.max_memory_bytes,
            max_compile_s=data.asked.max_compile_s,
            max_error=data.asked.max_error,
        ),
        prior=foreseen(data),
        load=_load(data),
        findings=data.diagnosis.findings if data.diagnosis else (),
        plan=plan,
        batches=batch_sizes(RunDir(run_dir).lines()),
        sizes=served_sizes(RunDir(run_dir).lines()),
    )


def bench_of(run_dir: Path, labels: Mapping[str, str]) -> Bench:
    """The comparison in a run directory; labels: of candidates that came from plans, by their ids."""
    data = read_run(run_dir)
    sizes = served_sizes(RunDir(run_dir).lines())
    told = arm_sentences(data, labels) if sizes is None else replayed_sentences(sizes)
    return Bench(
        schema=REPORT_SCHEMA,
        compilot=data.header.compilot,
        run_dir=run_dir,
        sentence=" ".join(told),
        sentences=told,
        rows=tuple(data.rows),
        pareto=pareto_front(data.rows),
        load=_load(data),
        findings=data.diagnosis.findings if data.diagnosis else (),
        batches=batch_sizes(RunDir(run_dir).lines()),
        sizes=sizes,
    )


def _load(data: RunData) -> SeenLoad | None:
    """With how much eager's calls varied in its own trial, computed again from the samples."""
    eager = next((trial for trial in data.trials.values() if trial.candidate.is_eager), None)
    own = scatter(eager.measurement.call_s) if eager is not None and eager.measurement is not None else None
    return seen_load(data.diagnosis.load if data.diagnosis else None, own)


def _missed(missed: NotReached | None) -> tuple[MissedCandidate, ...]:
    groups = (("not tried", missed.not_tried), ("ran out of time", missed.ran_out)) if missed else ()
    return tuple(
        MissedCandidate(
            candidate=one.label, id=one.id, engine=" + ".join(engines_of(one)), rationale=one.rationale, why=why
        )
        for why, candidates in groups
        for one in candidates
    )


def sentence(plan: Plan | None, data: RunData) -> str:
    """The honest sentence of a run: the plan's own, else why eager stays."""
    if plan is not None:
        return plan.entries[0].sentence if plan.entries else plan.because
    return data.verdict.because if data.verdict else "the run ended before a verdict."


def arm_sentences(data: RunData, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The honest sentence of each arm that ran, in the order of the table."""
    found = []
    for trial in data.trials.values():
        if trial.candidate.is_eager:
            continue
        name = trial.candidate.label
        name += f" ({labels[trial.candidate.id]})" if trial.candidate.id in labels else ""
        found.append(f"{name}: {arm_sentence(data, trial)}")
    return tuple(found)
