"""May a call be answered in parts? Proven in float64, for a batch whose rows are proven to be independent.

In: the model, asked in float64; the batch's `PaddedDim`; calls of any number of rows. Out: whether answers to parts,
joined as the run plane joins them (runtime/splitting.py), are the answer to the whole call: at a few rows and at the
most, in equal parts and with a rest. Not so where single rows were not proven to stand alone (a batch that begins above
1), where an output has rows in two dimensions (each row against each other one), or where parts cannot be joined.
Not covered: the proof about rows (padding.py); the engine, whose joined answers are compared when a plan is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compilot._tree import Call
from compilot.engines.protocol import NotTaken
from compilot.measure.padded_answers import Asked, Leak
from compilot.measure.padding_engine import Pair
from compilot.records import OutputLayout, PaddedDim, SplitCalls

FEW = 5  # rows: two equal parts and a rest


def holds_in_parts(asked: Asked, dim: PaddedDim, layouts: tuple[OutputLayout, ...], at: Callable[[int], Call]) -> bool:
    """Whether calls of up to dim.size rows are the same in parts; at: a call with so many rows."""
    outputs = [one.path for one in dim.outputs]
    if dim.min > 1 or dim.size < 2 or len(set(outputs)) < len(outputs):
        return False
    try:
        for rows, each in _tried(dim.size):
            split = SplitCalls(rows=each, min=each + 1, batch=dim, layouts=layouts)
            call = at(rows)
            asked.alike(asked.in_parts(call, split), asked.answer(call), Pair(each, rows), "the call is cut into parts")
    except (Leak, NotTaken):
        return False
    return True


def _tried(most: int) -> Iterator[tuple[int, int]]:
    """Rows of a call, and of its parts."""
    for rows in dict.fromkeys((min(FEW, most), most)):
        for each in dict.fromkeys((1 if rows <= FEW else rows // 3, rows // 2)):
            if 1 <= each < rows:
                yield rows, each
