"""Traces of several processes or days as one. In: files. Out: one trace file.

The first calls in order are the first trace's. Refused: recorded traces of different models.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from compilot.errors import InputError
from compilot.records import TRACE_SCHEMA, TraceHeader
from compilot.traces.reading import Scan, scan
from compilot.traces.tally import Tally
from compilot.traces.writing import write_trace


def merge(paths: Sequence[str | os.PathLike[str]], out: Path) -> None:
    """Add up the traces and write the sum."""
    if not paths:
        raise InputError("no traces to merge; name at least one file.")
    if out.exists():
        raise InputError(f"{out} is there already; choose another file for the merged trace, or remove it.")
    scans = [scan(path) for path in paths]
    header = _header(scans)
    tally = Tally()
    for one in scans:
        tally.add_all(one.tally)
    try:
        write_trace(out, header, [tuple(call.sizes.items()) for call in scans[0].first], tally)
    except OSError as problem:
        raise InputError(f"cannot write {out}: {problem.strerror}; choose another place.") from None


def _header(scans: Sequence[Scan]) -> TraceHeader:
    """The first one's, with the earliest start; all must be of the same model."""
    recorded = [(one, one.header) for one in scans if one.header is not None]
    if not recorded:
        return TraceHeader(schema=TRACE_SCHEMA, model="")
    origin, header = recorded[0]
    for one, other in recorded[1:]:
        refuse_another_model(header, other, f"{one.path}", f"{origin.path}")
        if header.sampling != other.sampling:
            raise InputError(f"{one.path} and {origin.path} count different shares of the calls; merge equal ones.")
    began = min((other.began for _, other in recorded if other.began), default="")
    return msgspec.structs.replace(header, began=began)


def refuse_another_model(header: TraceHeader, other: TraceHeader, path: str, origin: str) -> None:
    """InputError where two traces are of different models."""
    both = [(header.model, other.model), (header.parameters_sha256, other.parameters_sha256)]
    if any(one and another and one != another for one, another in both):
        raise InputError(
            f"{path} is the trace of another model ({other.model}) than {origin} ({header.model}); "
            "keep a trace for each model."
        )
