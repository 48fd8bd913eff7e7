"""A shape trace: the sizes that a program's calls have, one after the other. In: a file, or mappings. Out: `CallSizes`.

One line per call: `input_ids:1=37 image:0=4`, or as JSON `{"input_ids:1": 37}`. A dimension is named as it is declared,
NAME:DIM; the name alone will do for an input with one declared dimension, and so will the end of a nested name. What a
line does not name keeps the example's size, or follows a named dimension that it moves together with. Empty lines and
lines that begin with # are left out.
Needs no torch: the parent reads the file, the child asks `resolve` what the names mean there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compilot.errors import InputError
from compilot.records import DimRange, Record

ShapeSpec = str | os.PathLike[str] | Sequence[Mapping[str, int]]
Sizes = dict[tuple[str, int], int]  # (path of the tensor, dimension) -> size

_SPELLING = "write NAME:DIM=SIZE, such as input_ids:1=37, several with spaces between them"


class CallSizes(Record, frozen=True, kw_only=True):
    """The sizes of one call, by name of the dimension."""

    line: int  # in the file, or the number of the call
    sizes: dict[str, int]

    @property
    def label(self) -> str:
        """For people: which call this is."""
        return f"{' '.join(f'{name}={size}' for name, size in self.sizes.items())} (line {self.line})"


def read_trace(given: ShapeSpec) -> tuple[CallSizes, ...]:
    """The calls of a trace, in order; a file by its path."""
    if not isinstance(given, str | os.PathLike):
        return tuple(CallSizes(line=number, sizes=_sizes(one, number)) for number, one in enumerate(given, 1))
    path = Path(given)
    try:
        lines = enumerate(path.read_text().splitlines(), 1)
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(
            f"cannot read the shape trace {path}: {problem}; give a text file, one call per line."
        ) from None
    wanted = [(number, text.strip()) for number, text in lines if text.strip() and not text.lstrip().startswith("#")]
    if not wanted:
        raise InputError(f"the shape trace {path} has no calls; {_SPELLING}, one line per call.")
    return tuple(CallSizes(line=number, sizes=_parsed(text, number)) for number, text in wanted)


def _parsed(text: str, line: int) -> dict[str, int]:
    if text.startswith("{"):
        try:
            return _sizes(json.loads(text), line)
        except ValueError as problem:
            raise InputError(f"line {line} of the shape trace is not a JSON object: {problem}; {_SPELLING}.") from None
    parts = [re.fullmatch(r"(?P<name>[^=]+)=(?P<size>\d+)", part) for part in text.split()]
    wrong = next((word for word, part in zip(text.split(), parts, strict=True) if part is None), None)
    if wrong is not None:
        raise InputError(f"line {line} of the shape trace: cannot read '{wrong}'; {_SPELLING}.")
    return {part["name"]: int(part["size"]) for part in parts if part is not None}


def _sizes(given: Any, line: int) -> dict[str, int]:
    plain = isinstance(given, Mapping) and all(
        isinstance(name, str) and isinstance(size, int) and not isinstance(size, bool) for name, size in given.items()
    )
    if not plain:
        raise InputError(f'call {line} of the shape trace is {given!r}; write sizes by name, such as {{"x:0": 4}}.')
    return dict(given)


def resolve(call: CallSizes, declared: Mapping[str, Mapping[int, DimRange]], names: Mapping[str, str]) -> Sizes:
    """What a line means for a workload; `declared` are its ranges by path, `names` the user's names of the paths."""
    known = {f"{names[path]}:{dim}": (path, dim) for path, dims in declared.items() for dim in dims}
    if not known:
        raise InputError("a shape trace needs declared dynamic dimensions: declare NAME:DIM=MIN..MAX for each.")
    found: Sizes = {}
    for name, size in call.sizes.items():
        path, dim = known[_full(name, known, call.line, declared)]
        allowed = declared[path][dim]
        if not allowed.min <= size <= allowed.max:
            raise InputError(
                f"line {call.line} of the shape trace: size {size} of {name} is outside its declared range "
                f"{allowed.min}..{allowed.max}; widen the range or leave the line out."
            )
        found[path, dim] = size
    return found


def _full(
    name: str, known: Mapping[str, tuple[str, int]], line: int, declared: Mapping[str, Mapping[int, DimRange]]
) -> str:
    """NAME:DIM of what the user wrote; what is unclear or unknown is the user's mistake."""
    spellings = {full: (full, full.rpartition(":")[0]) for full in known}
    meant = [full for full, written in spellings.items() if name in written]
    meant = meant or [full for full, written in spellings.items() if any(w.endswith(f".{name}") for w in written)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise InputError(f"line {line} of the shape trace: '{name}' may be {' or '.join(meant)}; write which.")
    ranges = {full: declared[path][dim] for full, (path, dim) in known.items()}
    told = ", ".join(f"{full} ({sizes.min}..{sizes.max})" for full, sizes in ranges.items())
    raise InputError(f"line {line} of the shape trace: no dimension '{name}' is declared; declared are {told}.")
