"""What a choice can use of the sizes of a trace, and what a reader is told of the rest.

In: traffic, a proof of padding, a goal. Out: the sizes that are chosen for, the padding that all of them may have,
whether calls may be cut, and sentences. Pure. Not covered: what is chosen (serving.py).
"""

from __future__ import annotations

import msgspec

from compilot.records import Goal, Objective, Padding, PaddingProof, SizeDemand, Traffic
from compilot.runtime.split_guards import can_be_cut
from compilot.tuning.size_costs import MOST_DIMS
from compilot.verdict.policies import powers_of_two
from compilot.verdict.shape_costs import Sizes
from compilot.verdict.words import count


def asked(traffic: Traffic) -> list[SizeDemand]:
    """The sizes that programs are chosen for: an empty input is eager's, or the dynamic program's."""
    return [one for one in traffic.demand if all(size >= 1 for size in one.sizes)]


def largest_of(traffic: Traffic) -> Sizes:
    """The largest declared sizes."""
    return tuple(dim.max for dim in traffic.dims)


def goal_note(goal: Goal) -> list[str]:
    """A replay knows one goal."""
    if goal.objective in (Objective.LATENCY, Objective.THROUGHPUT):
        return []
    return [f"requests are judged by the time that they take in all, and not by the objective {goal.objective}"]


def powers_note(traffic: Traffic, most: int, why: str = "a plan may have") -> list[str]:
    """What people do by hand may need more programs than a plan has."""
    demand = asked(traffic)
    if not demand or len(traffic.dims) > MOST_DIMS:
        return []
    needed = len(powers_of_two([*(one.sizes for one in demand), largest_of(traffic)], largest_of(traffic)))
    what = f"powers of two would need {count(needed, 'program')}, and {why} {most}"
    return [f"{what}: that policy is left out"] if needed > most else []


def empty_calls_note(traffic: Traffic) -> list[str]:
    """Calls with an empty input are none of a choice's; where empty inputs are not declared, they are not replayed."""
    calls = sum(one.count for one in traffic.demand if not all(size >= 1 for size in one.sizes))
    told = [f"{count(calls, 'call')} of the trace have an empty input, and no program is chosen for them"]
    out = [f"{count(traffic.empty_calls, 'call')} of the trace have an empty input and are left out"]
    return [*(told if calls else []), *(out if traffic.empty_calls else [])]


def together_note(traffic: Traffic) -> list[str]:
    """Sizes that could differ and never did count as one, which says who serves a call in which they differ."""
    others = "where they differ, a program for all sizes or padding serves the call, else eager"
    return [f"{dim.label} in every call of the trace: that is one size; {others}" for dim in traffic.dims if dim.also]


def many_sizes_note(traffic: Traffic) -> list[str]:
    """Of more than two sizes no programs for one of them are chosen."""
    names = ", ".join(dim.label for dim in traffic.dims)
    return [f"{names} vary: programs are chosen for two sizes at most"] if len(traffic.dims) > MOST_DIMS else []


def usable_padding(proof: PaddingProof, traffic: Traffic) -> Padding | None:
    """The proven padding as far as the sizes of the trace go; None: one of them may not be padded."""
    wanted = {(place.path, place.dim) for dim in traffic.dims for place in dim.places}
    if proof.padding is None:
        return None
    dims = [dim for dim in proof.padding.dims if {(one.path, one.dim) for one in dim.inputs} <= wanted]
    covered = {(one.path, one.dim) for dim in dims for one in dim.inputs}
    return msgspec.structs.replace(proof.padding, dims=tuple(dims)) if covered == wanted else None


def may_be_cut(padding: Padding | None, traffic: Traffic) -> bool:
    """Whether calls may be answered in parts: the batch alone varies, from one row on, and that is proven."""
    if padding is None or len(traffic.dims) > 1 or len(padding.dims) != 1 or traffic.dims[0].min != 1:
        return False
    [batch] = padding.dims
    return batch.in_parts and can_be_cut(traffic.guard, {one.path for one in batch.inputs})


def partly_padded_note(proof: PaddingProof, traffic: Traffic) -> list[str]:
    """Padding that holds for some of the sizes only is not used."""
    if proof.padding is None or usable_padding(proof, traffic) is not None:
        return []
    proven = {(one.path, one.dim) for dim in proof.padding.dims for one in dim.inputs}
    able = [dim.label for dim in traffic.dims if all((place.path, place.dim) in proven for place in dim.places)]
    others = ", ".join(dim.label for dim in traffic.dims if dim.label not in able)
    why = "a program for one size serves that size alone"
    return [f"{', '.join(able)} may be padded, and {others} may not: {why}"] if able and others else []


def told_of_leaks(proof: PaddingProof) -> list[str]:
    """One sentence for each size that may not be padded."""
    found = []
    for leak in proof.refused:
        who = ", ".join(leak.inputs) or "the inputs"
        found.append(f"{who} cannot be padded: {leak.why}; the other policies go on")
    return found
