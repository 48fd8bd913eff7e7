"""The correctness gate: does a candidate give what eager gives?

In: the candidate's callable, the workload, its cases and the `Reference` made from them. Out: a `Check` with the
first failure (or what was checked), the worst output of each case, and notes.
A candidate passes when on every kept case: it answers itself (NotServed where eager had to answer a call that the
candidate is meant to take) and does not raise; the outputs have eager's structure, shapes, dtypes and
devices; their numbers are close (closeness.py); inputs and buffers end as eager leaves them; no output shares memory
with an input or another output unless eager's does; results of one call are not overwritten by later ones.
Where it may be used but a user must know something, that is a caveat: it answers where eager raises, its outputs share
no memory where eager's do, or its regions leave calls with a mask to eager.
A candidate of lower precision is judged with a tolerance instead of the strict limits on its numbers; all else holds.
Special cases (NaN or Inf put into the inputs) may differ in their pattern of NaN and Inf; that is a note.
Not judged, and said so: models that are stochastic beyond seeding or keep state in attributes; cases where eager
gives only NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from compilot._tree import Call
from compilot.measure.closeness import Closeness, compare
from compilot.measure.expected import Expected, Judgeable, digest, load_expected
from compilot.measure.raising import answers_instead
from compilot.measure.reference import case_seed, coarsest_dtype, describe_error, make_reference
from compilot.records import Check, OutputCheck, Reference
from compilot.workload.observing import Seen, Watch
from compilot.workload.outputs import difference
from compilot.workload.unit import Unit
from compilot.workload.variations import Case

__all__ = ["check", "make_reference"]

NAMED = 3  # regions in a caveat; more are counted
OTHER_RANDOM = "; the model is stochastic, and this way of running draws other random numbers than eager"


class Miss(NamedTuple):
    """A call that eager answered in the candidate's place."""

    reason: str
    refused: bool = False  # the candidate turned the call down by a condition of its own; nothing failed
    regions: tuple[str, ...] = ()  # only these turned their own calls down, by their guards; the rest was the candidate


class NotServed(Exception):
    """The candidate does not answer a call that it is meant to take, so eager's answer was seen instead."""


Missed = Callable[[Call], Miss | None]  # of the call made last; None: the candidate answered it, or need not


class _Judged(NamedTuple):
    """One case's result."""

    failure: str = ""
    notes: tuple[str, ...] = ()
    worst: OutputCheck | None = None
    ratio: float = 0.0
    counts: bool = True  # False: there was nothing that could be judged
    raised: bool = False
    relative: float | None = None  # worst relative RMSE of its outputs; None: it has none
    caveats: tuple[str, ...] = ()


def check(
    fn: Callable[..., Any],
    workload: Judgeable,
    cases: Sequence[Case],
    folder: Path,
    reference: Reference,
    tolerance: float | None = None,
    missed: Missed = lambda call: None,
    takes: Callable[[Call], bool] = lambda call: True,
) -> Check:
    """Run fn on every kept case and judge it against the reference in `folder`; tolerance: as in closeness.py.

    takes: whether a call is the candidate's by its guard. NotServed: `missed` says that eager answered a case.
    """
    if refusal := _refusal(reference):
        return Check(passed=False, why=refusal, reference=reference.kind, notes=reference.notes)
    by_name, watch, results, again = {case.name: case for case in cases}, Watch(), list[_Judged](), ""
    unit, coarsest = workload.unit(fn), coarsest_dtype(workload.model)
    with torch.random.fork_rng():
        for index, name in enumerate(reference.cases):
            expected = load_expected(folder, index)
            case = by_name[name]
            seed = case_seed(workload, index, reference.seeded)
            judged = _judge_case(unit, case, expected, seed, watch, coarsest, tolerance)
            results.append(_unless_missed(judged, case, missed(case.call)))
            if results[-1].raised:  # the others would most likely raise too, after compiling as long
                break
        else:
            if len(reference.cases) == 1:
                only = by_name[reference.cases[0]]
                again = _see_again(unit, only, workload.seed, watch)
                _unless_missed(results[0], only, missed(only.call))
        found = _conclude(results, reference, again or _overwritten(watch, reference), tolerance)
        if not found.passed or not reference.raising:
            return found
        told = answers_instead(  # last: a candidate that has passed until here has nothing to lose by it
            unit,
            reference.raising,
            {name: case.call for name, case in by_name.items()},
            eager_answers=lambda call: missed(call) is not None,
            takes=takes,
        )
    return msgspec.structs.replace(found, caveats=(*found.caveats, *told))


def _unless_missed(judged: _Judged, case: Case, miss: Miss | None) -> _Judged:
    """The case as judged, if the candidate answered; unequal sizes or bold integers that it turned down are noted.

    Regions may turn down what they are given where a mask is set: the answer is judged all the same.
    """
    if miss is None:
        return judged
    if case.masked and miss.regions:
        return judged._replace(caveats=(*judged.caveats, _in_eager(case, miss.regions)))
    if (case.mirror is not None and miss.refused) or (case.bold and (miss.refused or miss.regions)):
        return _Judged(notes=(f"such calls go to eager: {case.name} ({miss.reason})",), counts=False)
    raise NotServed(f"eager had to answer in its place (case {case.name}): {miss.reason}")


def _in_eager(case: Case, regions: Sequence[str]) -> str:
    more = f" and {len(regions) - NAMED} more" if len(regions) > NAMED else ""
    return f"calls with such a mask run {', '.join(regions[:NAMED])}{more} in eager: {case.name}"


def _refusal(reference: Reference) -> str:
    if reference.stateful:
        return (
            f"the model keeps state between calls ({reference.stateful}), so its calls cannot be compared; "
            "pass the state as an input, or switch it off"
        )
    if reference.stochastic and not reference.seeded:
        told = next((note for note in reference.notes if "stochastic" in note), "the model is stochastic")
        return f"{told}; call model.eval() or seed it"
    return ""


def _judge_case(
    unit: Unit,
    case: Case,
    expected: Expected,
    seed: int | None,
    watch: Watch,
    coarsest: torch.dtype,
    tolerance: float | None,
) -> _Judged:
    where = f"(case {case.name})"
    if digest(case.call) != expected.inputs_sha256:
        return _Judged(failure=f"the inputs are not those of the reference {where}: equal seeds must give equal inputs")
    try:
        seen = unit.run(case.call, seed)
    except Exception as error:
        return _Judged(failure=f"raises {describe_error(error)} {where}", raised=True)
    watch.see(seen.output.tensors)
    if text := difference(expected.structure, seen.output.structure):
        return _Judged(failure=f"{text} {where}")
    judged = _judge_numbers(seen, case, expected, coarsest, tolerance)
    if judged.failure:
        return judged._replace(failure=judged.failure + OTHER_RANDOM * (seed is not None))
    return judged._replace(failure=_side_effects(seen, expected, where), caveats=_copies(seen, expected))


def _judge_numbers(
    seen: Seen, case: Case, expected: Expected, coarsest: torch.dtype, tolerance: float | None
) -> _Judged:
    values = seen.values.items()
    found = [_closeness(path, tensor, case, expected, coarsest, tolerance) for path, tensor in values]
    notes = [
        f"on {case.name} inputs: {c.non_finite} at {c.check.output}" for c in found if case.special and c.non_finite
    ]
    hollow = [c.check.output for c in found if c.all_nan and not case.special]
    if hollow:
        notes.append(f"case '{case.name}' cannot be judged: eager gives only NaN at {hollow[0]}")
    worst = max(found, key=lambda c: (not c.check.passed, c.ratio), default=None)
    failure = next((text for c in found if (text := _failure(c, case))), "")
    counts = not hollow and not case.special and _has_values(expected)
    relative = max((c.relative for c in found if c.relative is not None), default=None)
    ratio = worst.ratio if worst else 0.0
    return _Judged(failure, tuple(notes), worst and worst.check, ratio, counts, relative=relative)


def _closeness(
    path: str, tensor: Tensor, case: Case, expected: Expected, coarsest: torch.dtype, tolerance: float | None
) -> Closeness:
    return compare(
        tensor,
        expected.eager[path],
        expected.exact.get(path),
        case=case.name,
        output=path,
        typical=expected.typical.get(path, 0.0),
        coarsest=coarsest,
        tolerance=tolerance,
    )


def _failure(close: Closeness, case: Case) -> str:
    """Why one output is refused. On special inputs only numbers that had the chance to be equal count."""
    if close.non_finite:
        return "" if case.special else f"{close.non_finite} at {close.check.output} (case {case.name})"
    exact = close.check.limit == 0.0  # integers: an argmax over NaN may be anything
    if close.check.passed or (case.special and exact):
        return ""
    return f"{close.check.why} at {close.check.output} (case {case.name})"


def _has_values(expected: Expected) -> bool:
    """True when the case has anything to compare: an empty tensor alone proves nothing."""
    if any(tensor.numel() for tensor in [*expected.eager.values(), *expected.mutated.values()]):
        return True
    return not expected.eager and not expected.mutated


def _side_effects(seen: Seen, expected: Expected, where: str) -> str:
    """What the call did to its inputs and the model that eager does not do, "" for nothing."""
    if text := difference(expected.inputs_after, seen.inputs_after):
        return f"the inputs end up otherwise: {text} {where}"
    if text := _changes("input", expected.mutated, seen.mutated):
        return f"{text} {where}"
    if text := _changes("buffer", expected.state, seen.state):
        return f"{text} {where}"
    extra = [pair for pair in seen.aliases if pair not in expected.aliases]
    if extra:
        return f"{extra[0][0]} shares memory with input {extra[0][1]}, eager's does not {where}"
    joined = [pair for pair in seen.shared if pair not in expected.shared]
    return f"{joined[0][1]} shares memory with {joined[0][0]}, eager's does not {where}" if joined else ""


def _copies(seen: Seen, expected: Expected) -> tuple[str, ...]:
    """Outputs that own their memory where eager's are views: right numbers, but a write does not go through."""
    apart = [(one, f"input {other}") for one, other in expected.aliases if [one, other] not in seen.aliases]
    apart += [(other, one) for one, other in expected.shared if [one, other] not in seen.shared]
    return tuple(f"{path} has memory of its own; eager's shares it with {other}" for path, other in apart)


def _changes(what: str, expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    for name in [*expected, *(name for name in found if name not in expected)]:
        if name not in found:
            return f"{what} {name} is left alone, eager changes it"
        if name not in expected:
            return f"{what} {name} is changed, eager leaves it alone"
        if found[name].shape != expected[name].shape or found[name].dtype != expected[name].dtype:
            return f"{what} {name} ends with another shape or dtype than eager's"
        close = compare(found[name], expected[name], None, case="", output=name, typical=0.0, coarsest=torch.float64)
        if not close.check.passed or close.non_finite:
            return f"{what} {name} ends otherwise than eager's: {close.check.why or close.non_finite}"
    return ""


def _see_again(unit: Unit, case: Case, seed: int, watch: Watch) -> str:
    """With a single case, one more call shows whether results share memory; returns why it failed, if it did."""
    try:
        watch.see(unit.run(case.call, seed).output.tensors)
    except Exception as error:
        return f"raises {describe_error(error)} when called again (case {case.name})"
    return ""


def _overwritten(watch: Watch, reference: Reference) -> str:
    extra = sorted(watch.overwritten() - set(reference.overwritten))
    return (
        f"{extra[0]} of an earlier call is overwritten by later calls: results do not own their memory" if extra else ""
    )


def _conclude(results: list[_Judged], reference: Reference, afterwards: str, tolerance: float | None) -> Check:
    failure = next((result.failure for result in results if result.failure), "") or afterwards
    judged = [result for result in results if result.counts]
    if not failure and not judged:
        failure = "cannot be judged: no case has outputs that could be compared"
    worst = max((result.ratio for result in judged), default=0.0)
    agree = "1 case agrees" if len(judged) == 1 else f"{len(judged)} cases agree"
    relative = max((result.relative for result in judged if result.relative is not None), default=None)
    if relative is not None and tolerance is not None:
        told = f"relative error {relative:.2%}, tolerance {tolerance:.2%}"
        failure = f"{failure}; {told}" if failure else ""
    else:
        told = f"worst {worst:.1g}x of the limit"
    return Check(
        passed=not failure,
        why=failure or f"{agree} with {reference.kind} ({told})",
        reference=reference.kind,
        tolerance=tolerance,
        relative_error=relative,
        worst=tuple(result.worst for result in results if result.worst is not None),
        notes=(*reference.notes, *(note for result in results for note in result.notes)),
        caveats=tuple(dict.fromkeys(caveat for result in results for caveat in result.caveats)),
    )
