"""From a verdict to the plan file's contents and the honest sentence.

In: verdict, trials, confirming race, run header, warm starts. Out: a Plan; without entries when eager is kept.
Covered: evidence, the sentence printed with each result. Not covered: reading and writing files (artifacts.planfile),
bundles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Comparison,
    Decision,
    Evidence,
    MachineFingerprint,
    Measurement,
    Outcome,
    Plan,
    PlanEntry,
    Precision,
    ProcessSettings,
    Race,
    RunHeader,
    Settings,
    State,
    Trial,
    Verdict,
)
from compilot.verdict.boundary_words import repair_words
from compilot.verdict.compare import compare
from compilot.verdict.contenders import column_median
from compilot.verdict.step_words import in_words_of
from compilot.verdict.words import count, pays_back, seconds, shown, size, varied

# Best first; a CPU is named by the widest extension that code generators use.
ISA_NAMES = (("amx", "AMX"), ("avx512", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX"), ("sve", "SVE"), ("neon", "NEON"))


def make_plan(
    verdict: Verdict,
    trials: Sequence[Trial],
    race: Race | None,
    header: RunHeader,
    warm_starts: Mapping[str, Measurement],
    *,
    plain_compile_id: str | None,
    created: str,
    version: str,
    aa: float | None = None,
    artifacts_dir: str = "",
) -> Plan:
    """The plan for a verdict; `aa` replaces the race's own A/A noise in the sentence where a better figure is known."""
    entries: tuple[PlanEntry, ...] = ()
    process = ProcessSettings()
    if verdict.decision is Decision.USE and race is not None:
        trial = next(t for t in trials if t.candidate.id == verdict.chosen_id and t.state is State.OK)
        evidence = make_evidence(verdict, trial, trials, race, warm_starts.get(verdict.chosen_id), plain_compile_id)
        evidence = msgspec.structs.replace(evidence, callers=header.concurrency)
        sentence = honest_sentence(evidence, header.fingerprint.machine, trial.candidate, aa=aa)
        sentence = in_words_of(header.workload.kind, sentence)
        entries = (_entry(verdict, trial, evidence, sentence, artifacts_dir),)
        process = trial.candidate.process
    return Plan(
        schema=PLAN_SCHEMA,
        compilot=version,
        created=created,
        workload=header.workload,
        fingerprint=header.fingerprint,
        because=verdict.because,
        process=process,
        entries=entries,
    )


def _entry(verdict: Verdict, trial: Trial, evidence: Evidence, sentence: str, artifacts_dir: str) -> PlanEntry:
    if trial.guard is None:
        raise ValueError(f"trial {trial.candidate.id} is ok but has no guard")  # a bug of ours, not of the candidate
    return PlanEntry(
        name=verdict.entry,
        guard=trial.guard,
        candidate=trial.candidate,
        evidence=evidence,
        sentence=sentence,
        artifacts=trial.artifacts,
        artifacts_dir=artifacts_dir,
        frozen_weights=trial.frozen_weights,
        weights_sha256=trial.weights_sha256,
        caveats=(*(trial.check.caveats if trial.check else ()), *map(repair_words, verdict.repairs)),
    )


def make_evidence(
    verdict: Verdict,
    trial: Trial,
    trials: Sequence[Trial],
    race: Race,
    warm: Measurement | None,
    plain_compile_id: str | None,
) -> Evidence:
    """The figures behind the chosen candidate; medians over all processes of the confirming race."""
    chosen, measured = verdict.chosen_id, trial.measurement
    lasting = warm if warm and warm.peak_rss_bytes else measured  # a trial's own process has also built and checked
    plain = plain_compile_id if plain_compile_id in race.arms and plain_compile_id != chosen else None
    return Evidence(
        versus_eager=compare(race, chosen, race.arms[0]),
        versus_compile=compare(race, chosen, plain) if plain else None,
        eager_p50_s=column_median(race, 0),
        p50_s=column_median(race, race.arms.index(chosen)),
        cold_s=measured.cold_s if measured else None,
        warm_s=warm.cold_s if warm else None,
        peak_rss_bytes=lasting.peak_rss_bytes if lasting else None,
        steady_rss_bytes=lasting.steady_rss_bytes if lasting else None,
        break_even=verdict.break_even,
        candidates_tried=sum(t.state is not State.PRUNED and not t.candidate.is_eager for t in trials),
        check=trial.check.why if trial.check else "",
        tolerance=trial.check.tolerance if trial.check else None,
        relative_error=trial.check.relative_error if trial.check else None,
    )


def honest_sentence(
    evidence: Evidence, machine: MachineFingerprint, candidate: Candidate | None = None, *, aa: float | None = None
) -> str:
    """Everything a reader needs to believe or doubt the figure, in one sentence; candidate: the way it was run."""
    settings = candidate.settings if candidate else Settings()
    process = candidate.process if candidate else ProcessSettings()
    versus = evidence.versus_eager
    if versus is None:
        return f"not compared with eager; {count(evidence.candidates_tried, 'candidate')} tried."
    place = _place(machine, process.threads or machine.threads, evidence.callers)
    timed = size(versus.processes, versus.pairs, versus.all_pairs or versus.processes * versus.pairs)
    speed, noise = shown(versus, setting=f"{timed}, {place}"), _noise(versus, aa)
    parts = [
        speed,
        precision_words(settings.precision, evidence.relative_error, evidence.tolerance),
        "denormal numbers taken as zero" if process.flush_denormals else "",
        "freed memory kept" if process.keep_memory else "",
        _starts(evidence),
        pays_back(evidence.break_even) if versus.outcome is Outcome.FASTER else "",
        noise if noise not in speed else "",
        *(versus.doubts if versus.outcome is not Outcome.UNDECIDED else ()),  # an undecided one has named them
        f"{count(evidence.candidates_tried, 'candidate')} tried",
    ]
    return "; ".join(part for part in parts if part) + "."


def _place(machine: MachineFingerprint, threads: int, callers: int) -> str:
    """ "4 callers, 2 threads, Intel Xeon AVX-512, torch 2.13.0"; a single caller is not worth a word."""
    words = [count(callers, "caller")] if callers > 1 else []
    return ", ".join([*words, count(threads, "thread"), cpu_name(machine), f"torch {machine.torch}"])


def precision_words(precision: Precision, error: float | None, tolerance: float | None) -> str:
    """ "in int8-dynamic: relative error 1.2 % (tolerance 5.0 %)"; "" for a model that computes as it is."""
    if precision is Precision.AS_IS:
        return ""
    if error is None or tolerance is None:
        return f"in {precision}: error not measured"
    return f"in {precision}: relative error {error * 100:.2g} % (tolerance {tolerance * 100:.2g} %)"


def cpu_name(machine: MachineFingerprint) -> str:
    """Short CPU name with its widest vector extension: "Intel Xeon AVX-512"."""
    plain = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", " ", machine.cpu_model, flags=re.IGNORECASE)
    best = next((name for prefix, name in ISA_NAMES if any(i.startswith(prefix) for i in machine.cpu_isa)), "")
    return " ".join([*plain.split(), best]).strip() or "unknown CPU"


def _starts(evidence: Evidence) -> str:
    if evidence.cold_s is None:
        return ""
    warm = f", {seconds(evidence.warm_s)} with kept artifacts" if evidence.warm_s is not None else ""
    return f"first call {seconds(evidence.cold_s)} cold{warm}"


def _noise(versus: Comparison, aa: float | None) -> str:
    known = versus.aa_noise if aa is None else aa
    return varied(known) if known > 0.0 else ""
