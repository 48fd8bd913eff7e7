"""What is special about tuning a training: options that do not fit, and what each part of the chosen step brought.

In: the workload's record, options, trials. Out: InputError, findings, the verdict with its parts. Each part's figure is
a ratio of two screenings that differ by this part alone, or by it and the compiler's options that go with it, which are
named then; where nobody tried the step without it, there is none. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from compilot.candidates.step_parts import parts_of
from compilot.engines.arithmetic import no_arithmetic
from compilot.errors import InputError
from compilot.records import Decision, Diagnosis, Finding, Kind, PartGain, Precision, State, Trial, Verdict, WorkloadRef
from compilot.tuning.options import TuneOptions
from compilot.verdict.finalists import screening_ratio
from compilot.verdict.step_words import in_words_of, parts_words


def refuse_for_training(ref: WorkloadRef, options: TuneOptions) -> None:
    """InputError for what a training has no use for."""
    if ref.kind is not Kind.TRAINING:
        return
    if options.goal.concurrency > 1:
        raise InputError("a training step has one caller; leave out the concurrency.")
    if options.batch_sizes:
        raise InputError(
            "a training is measured with its own batches; leave out the batch sizes and change the batches."
        )
    if ref.dynamic:
        raise InputError("a training step is built for its batches' own sizes; leave out the dynamic dimensions.")


def unserved_in_training(diagnosis: Diagnosis, options: TuneOptions) -> Iterator[Finding]:
    """One finding for each precision that was allowed and that a training step cannot have here."""
    if diagnosis.step is None:
        return
    for precision in options.allow_precision:
        why = "a training step has bf16 autocast alone"
        if precision is Precision.BF16:
            why = no_arithmetic(diagnosis, precision)
        if why:
            told = f"the step cannot be trained in {precision} here: {why}"
            yield Finding(kind="precision", where="", explanation=told, advice="everything else is tried as usual")


def told_of_parts(verdict: Verdict, trials: Sequence[Trial]) -> Verdict:
    """The verdict of a training, with what each part brought."""
    verdict = msgspec.structs.replace(verdict, because=in_words_of(Kind.TRAINING, verdict.because))
    known = {trial.candidate.id: trial for trial in trials}
    chosen = known.get(verdict.chosen_id)
    if chosen is None or verdict.decision is not Decision.USE or not any(True for _ in parts_of(chosen.candidate)):
        return verdict
    if all(trial.candidate.is_eager or trial.candidate.step == chosen.candidate.step for trial in trials):
        gains: tuple[PartGain, ...] = ()
    else:
        gains = (*_own(chosen, known), *_others(chosen, known))
    told = parts_words(gains)
    because = f"{verdict.because}; {told}" if told else verdict.because
    return msgspec.structs.replace(verdict, parts=gains, because=because)


def _own(chosen: Trial, known: Mapping[str, Trial]) -> Iterator[PartGain]:
    """Each part of the chosen step: over the step without it, or else alone over eager."""
    for part in parts_of(chosen.candidate):
        without = known.get(part.without.id)
        if without is not None and (gain := _ratio(chosen, without)) is not None:
            yield PartGain(part=part.together, speedup=gain, alone=without.candidate.is_eager)
        elif (single := _alone(part.name, known)) is not None:
            yield PartGain(part=part.name, speedup=single, alone=True)


def _others(chosen: Trial, known: Mapping[str, Trial]) -> Iterator[PartGain]:
    """Parts that were tried on top of the chosen step and did not pay."""
    for trial in known.values():
        added = [part for part in parts_of(trial.candidate) if part.without.id == chosen.candidate.id]
        if added and (gain := _ratio(trial, chosen)) is not None:
            yield PartGain(part=added[0].together, speedup=gain, kept=False)


def _alone(name: str, known: Mapping[str, Trial]) -> float | None:
    for trial in known.values():
        if [part.name for part in parts_of(trial.candidate)] == [name] and trial.state is State.OK:
            return screening_ratio(trial)
    return None


def _ratio(one: Trial, other: Trial) -> float | None:
    own, base = screening_ratio(one), 1.0 if other.candidate.is_eager else screening_ratio(other)
    usable = one.state is State.OK and other.state is State.OK
    return own / base if usable and own is not None and base else None
