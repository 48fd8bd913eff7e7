"""What the sizes of a trace mean for a model. In: a workload, its guard, counts of sizes by name. Out: `Traffic`.

Dimensions that move together are one size of the traffic: those that a call cannot have apart, and those that have one
range and were equal in every call of a trace that varies them (height and width of square images). Where two sizes or
fewer are declared all of them count, also one that the trace never varies: other sizes of it are to be served, too. Of
more only those that vary in the trace.
Calls with an empty input are counted and left out, unless empty inputs are declared. A wrong name or size is the user's
mistake, with its line. Not covered: what serves them (verdict/policies.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compilot._tree import dotted_name, parameter_names, resolve_dynamic
from compilot.errors import InputError
from compilot.inputs.alike import Group
from compilot.inputs.resizing import groups_of
from compilot.records import CallSizes, Guard, SizeCount, SizeDemand, SizePlace, Traffic, TrafficDim
from compilot.workload.variations import empty_calls, traced_sizes
from compilot.workload.workload import Workload

FEW = 2  # sizes that a choice of programs can be made for: batch and length

Counted = dict[Group, int]  # the size of each group in one call


def traffic_of(
    workload: Workload,
    counts: Sequence[SizeCount],
    guard: Guard,
    *,
    recorded: bool = False,
    requests: Sequence[CallSizes] = (),
) -> Traffic:
    """The traffic of a trace; guard: of a call, with the declared ranges; requests: calls that are replayed."""
    places, is_empty = _places(workload), empty_calls(workload)
    every = [(CallSizes(line=one.line, sizes=one.sizes, recorded=recorded), one.calls) for one in counts]
    asked = [(call, calls) for call, calls in every if not is_empty(call)]
    if counts and not asked:
        raise InputError("every call of the trace has an empty input; record calls that have something in them.")
    seen = [(_of_call(workload, call, places), calls) for call, calls in asked]
    made = [_of_call(workload, call, places) for call in requests if not is_empty(call)]
    varying = [group for group in places if len({sizes[group] for sizes, _ in seen}) > 1]
    counting = varying if len(places) > FEW else list(places)
    chosen = _together(counting, varying, [*(sizes for sizes, _ in seen), *made])
    found: dict[tuple[int, ...], int] = {}
    for sizes, calls in seen:
        key = tuple(sizes[first] for first, *_ in chosen)
        found[key] = found.get(key, 0) + calls
    demand = tuple(SizeDemand(sizes=sizes, count=calls) for sizes, calls in sorted(found.items()))
    return Traffic(
        dims=tuple(_dim(workload, groups[0], [places[group] for group in groups]) for groups in chosen),
        demand=demand,
        guard=guard,
        requests=tuple(tuple(sizes[first] for first, *_ in chosen) for sizes in made),
        empty_calls=sum(calls for call, calls in every if is_empty(call)),
    )


def _together(counting: Sequence[Group], varying: Sequence[Group], calls: Sequence[Counted]) -> list[list[Group]]:
    """The groups, those that are one size of this traffic beside each other."""
    found: list[list[Group]] = []
    for group in counting:
        alike = (own for own in found if group in varying and _always_equal(own[0], group, calls))
        if (own := next(alike, None)) is not None:
            own.append(group)
        else:
            found.append([group])
    return found


def _always_equal(one: Group, other: Group, calls: Sequence[Counted]) -> bool:
    same_range = (one.min, one.max) == (other.min, other.max)
    return same_range and all(sizes[one] == sizes[other] for sizes in calls)


def _places(workload: Workload) -> dict[Group, list[tuple[str, int]]]:
    """Where each size of a call stands, the batch first."""
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    found: dict[Group, list[tuple[str, int]]] = {}
    for place, group in groups_of(workload.call, ranges).items():
        if group.min < group.max:
            found.setdefault(group, []).append(place)
    return dict(sorted(found.items(), key=lambda item: min(dim for _, dim in item[1])))


def _of_call(workload: Workload, call: CallSizes, places: Mapping[Group, Sequence[tuple[str, int]]]) -> Counted:
    named = traced_sizes(workload, call)
    return {group: max([named[p] for p in own if p in named], default=group.size) for group, own in places.items()}


def _dim(workload: Workload, group: Group, together: Sequence[Sequence[tuple[str, int]]]) -> TrafficDim:
    roots = parameter_names(workload.model.forward, workload.call)
    [name, *also] = [f"{dotted_name(path, roots)}:{dim}" for (path, dim), *_ in together]
    places = [place for own in together for place in own]
    return TrafficDim(
        name=name,
        also=tuple(also),
        min=group.min,
        max=group.max,
        places=tuple(SizePlace(path=path, dim=dim) for path, dim in places),
    )
