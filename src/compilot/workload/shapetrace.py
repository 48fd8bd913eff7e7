"""What the sizes of a trace mean for a workload. In: sizes by name, the workload's declared ranges and example.

Out: `Sizes`, by path and dimension; and ranges for the dimensions that vary in the trace without being declared. A
dimension is named as it is declared, NAME:DIM; the name alone will do for an input with one declared dimension, and so
will the end of a nested name. What a line does not name keeps the example's size, or follows a named dimension that it
moves together with. `BATCH` is the first dimension of every input where it is declared. A recorded trace names every
dimension: one that is not declared must have the example's size; an input that the example lacks (an optional one) is
left out, and one that only the example has is made as there, each with a note. It has positions in place of keys of
dicts. A call is empty where a size is 0 and the range begins above. Needs no torch. Not covered: reading the file
(traces/).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from compilot.errors import InputError
from compilot.records import CallSizes, DimRange, DynamicDim

Sizes = dict[tuple[str, int], int]  # (path of the tensor, dimension) -> size
Declared = Mapping[str, Mapping[int, DimRange]]  # by path of the tensor
BATCH = "*:0"  # a call's samples, whatever the inputs are called: what batch sizes are given for


class Named(NamedTuple):
    """A workload's dimensions by the user's names of them, NAME:DIM."""

    declared: dict[str, tuple[str, int]]  # -> path and dimension
    example: dict[str, int]  # every dimension of every tensor of the example -> its size
    recorded: dict[str, str] = {}  # the name that `record` gives a dimension -> NAME:DIM, where it is another

    def own(self, name: str) -> str:
        """The user's name of a dimension that `record` named."""
        return name if name in self.example else self.recorded.get(name, name)

    def meant_by(self, name: str) -> list[str]:
        """The user's names of the dimensions that one of a trace stands for."""
        batch = [full for full, (_, dim) in self.declared.items() if dim == 0]
        return batch if name == BATCH and batch else [self.own(name)]

    def lacks(self, name: str) -> bool:
        """Whether the example has no such input."""
        owners = {full.rpartition(":")[0] for full in self.example}
        return not _meant(name, self.example) and name.rpartition(":")[0] not in owners


class TraceDims(NamedTuple):
    """Dimensions that a trace declares, and a sentence for each."""

    dims: tuple[DynamicDim, ...]
    notes: tuple[str, ...]


def named(
    declared: Declared,
    names: Mapping[str, str],
    shapes: Mapping[str, Iterable[int]],
    recorded: Mapping[str, str] | None = None,
) -> Named:
    """names: the user's name of each tensor's path; shapes: its shape in the example. recorded: name in a recorded
    trace -> path.
    """
    places = {f"{names[path]}:{dim}": (path, dim) for path, dims in declared.items() for dim in dims}
    sizes = {f"{names[path]}:{dim}": int(n) for path, shape in shapes.items() for dim, n in enumerate(shape)}
    others = {
        f"{name}:{dim}": f"{names[path]}:{dim}"
        for name, path in (recorded or {}).items()
        for dim, _ in enumerate(shapes[path])
    }
    return Named(places, sizes, others)


def resolve(call: CallSizes, declared: Declared, known: Named) -> Sizes:
    """What a line means for a workload; a wrong one is the user's mistake."""
    found: Sizes = {}
    for name, size in ((name, size) for given, size in call.sizes.items() for name in known.meant_by(given)):
        if call.recorded and known.lacks(name):
            continue
        if known.example.get(name) == size and name not in known.declared:
            continue  # a dimension that does not vary
        path, dim = known.declared[_full(name, size, known, call.line, declared)]
        allowed = declared[path][dim]
        if not allowed.min <= size <= allowed.max:
            declared_as = f"declared range {allowed.min}..{allowed.max}; widen the range or"
            if BATCH in call.sizes:
                raise InputError(f"batch size {size} is outside the {declared_as} leave it out.")
            where = f"line {call.line} of the shape trace: size {size} of {name}"
            raise InputError(f"{where} is outside its {declared_as} leave the line out.")
        found[path, dim] = size
    return found


def is_empty(call: CallSizes, declared: Declared, known: Named) -> bool:
    """Whether an input of the call has nothing in it, though its declared range begins at 1 or more, or the example
    has something there.
    """
    names = (known.own(name) for name, size in call.sizes.items() if size == 0)
    return any(_smallest(name, declared, known) > 0 for name in names)


def _smallest(name: str, declared: Declared, known: Named) -> int:
    """The smallest size that is meant for a dimension; 0 where the name is unclear, which `resolve` says."""
    if len(found := _meant(name, known.declared)) == 1:
        path, dim = known.declared[found[0]]
        return declared[path][dim].min
    others = [] if found else _meant(name, known.example)
    return known.example[others[0]] if len(others) == 1 else 0


def without_inputs(calls: Collection[CallSizes], known: Named) -> list[str]:
    """A sentence where recorded calls are without inputs that the example has: they are made with them."""
    inputs = list(dict.fromkeys(full.rpartition(":")[0] for full in known.example))
    lacking = [missing for call in calls if call.recorded and (missing := set(inputs) - _inputs(call, known))]
    names = ", ".join(name for name in inputs if any(name in missing for missing in lacking))
    what = f"{len(lacking)} of {len(calls)} calls of the trace are without {names}, which the example has"
    return [f"{what}; they are made with it"] if lacking else []


def _inputs(call: CallSizes, known: Named) -> set[str]:
    """The example's inputs that a recorded call has."""
    full = [_meant(known.own(name), known.example) for name in call.sizes]
    return {found[0].rpartition(":")[0] for found in full if len(found) == 1}


def dims_of(ranges: Mapping[str, DimRange], known: Named, *, recorded: bool = False, smallest: int = 0) -> TraceDims:
    """Ranges for what varies in a trace and is not declared: from the smallest size there or in the example to the
    largest. Names that the example does not have are left to `resolve`, which knows their line; of a recorded trace
    they are noted, and refused where there are no others. smallest: no range begins below it, unless the example does.
    """
    ranges = {known.own(name): sizes for name, sizes in ranges.items()}
    dims, notes = list[DynamicDim](), _left_out(ranges, known) if recorded else []
    for name, sizes in ranges.items():
        places = [] if _meant(name, known.declared) else _meant(name, known.example)
        if len(places) != 1 or name == places[0].rpartition(":")[0]:
            continue
        example = known.example[places[0]]
        low, high = min(max(sizes.min, smallest), example), max(sizes.max, example)
        if low < high:
            owner, _, dim = places[0].rpartition(":")
            dims.append(DynamicDim(input=owner, dim=int(dim), min=low, max=high))
            notes.append(
                f"{places[0]} varies in the trace and is not declared; its range there, {low}..{high}, is used"
            )
    return TraceDims(tuple(dims), tuple(notes))


def _left_out(names: Collection[str], known: Named) -> list[str]:
    lacking = [name for name in names if known.lacks(name)]
    inputs = ", ".join(dict.fromkeys(name.rpartition(":")[0] for name in lacking))
    if lacking and len(lacking) == len(names):
        told = ", ".join(known.example) or "none"
        raise InputError(f"the trace has sizes of {inputs} only, and the example has other inputs: {told}.")
    return [f"the example lacks {inputs}, which calls of the trace have; these sizes are left out"] if lacking else []


def ranges_of(calls: Iterable[CallSizes]) -> dict[str, DimRange]:
    """The smallest and largest size of each name."""
    found: dict[str, list[int]] = {}
    for name, size in (pair for call in calls for pair in call.sizes.items()):
        found.setdefault(name, []).append(size)
    return {name: DimRange(min=min(sizes), max=max(sizes)) for name, sizes in found.items()}


def _meant(name: str, known: Iterable[str]) -> list[str]:
    """Every NAME:DIM that a name may stand for: written in full, without the dimension, or by the end of either."""
    spellings = {full: (full, full.rpartition(":")[0]) for full in known}
    exact = [full for full, written in spellings.items() if name in written]
    return exact or [full for full, written in spellings.items() if any(w.endswith(f".{name}") for w in written)]


def _full(name: str, size: int, known: Named, line: int, declared: Declared) -> str:
    """NAME:DIM of what the user wrote; what is unclear or unknown is the user's mistake."""
    meant = _meant(name, known.declared)
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise InputError(f"line {line} of the shape trace: '{name}' may be {' or '.join(meant)}; write which.")
    ranges = {full: declared[path][dim] for full, (path, dim) in known.declared.items()}
    told = ", ".join(f"{full} ({sizes.min}..{sizes.max})" for full, sizes in ranges.items()) or "none"
    if name in known.example:
        what = f"{name} is {size} there and {known.example[name]} in the example, but not declared"
        raise InputError(f"line {line} of the shape trace: {what}; declare {name}=MIN..MAX. Declared are: {told}.")
    inputs = ", ".join(known.example) or "none"
    raise InputError(
        f"line {line} of the shape trace: no dimension '{name}' is declared; declared are {told}. "
        f"The inputs have these dimensions: {inputs}."
    )
