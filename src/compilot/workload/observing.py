"""Note everything that one piece of work gave and left behind.

In: a call, the copy of it that the work was done on, the answer, and the state that changed. Out: `Seen`: the output,
which inputs were mutated and to what, which outputs share memory with inputs or with each other. `Watch`: results that
do not own their memory. Not covered: doing the work and putting things back (unit.py); changes to plain attributes
(`changed_attributes` in state.py only tells that there were some).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from compilot._tree import Call
from compilot.workload.outputs import Flat, flatten, flatten_call, plain, same_values, storage_address
from compilot.workload.sharing import sharing


class Seen(NamedTuple):
    """What one piece of work gave and left behind."""

    output: Flat  # its tensors are the answer's own: their memory tells who shares it
    values: dict[str, Tensor]  # output path -> values before the state was put back
    inputs_after: dict[str, str]  # structure of the inputs afterwards
    mutated: dict[str, Tensor]  # input path -> values afterwards
    aliases: list[list[str]]  # [output path, input path] that share memory
    shared: list[list[str]]  # [output path, output path] that share memory
    state: dict[str, Tensor]  # name -> values afterwards, of what changed


def observed(call: Call, live: Call, answer: Any, changed: dict[str, Tensor], *, grad: bool) -> Seen:
    """What is to be said of an answer; live: the inputs that it was made from, copies of the call's."""
    flat, before, after = flatten(answer, "output", grad=grad), flatten_call(call), flatten_call(live)
    return Seen(
        output=flat,
        values={path: plain(tensor) for path, tensor in flat.tensors.items()},
        inputs_after=after.structure,
        mutated=_mutated(before, after),
        aliases=_aliases(flat, after),
        shared=sharing(flat.tensors),
        state=changed,
    )


class Watch:
    """Keeps the first call's results alive and tells which of them later calls overwrite."""

    def __init__(self) -> None:
        self._first: dict[str, Tensor] | None = None
        self._copies: dict[str, Tensor] = {}
        self._shared: set[str] = set()

    def see(self, tensors: dict[str, Tensor]) -> None:
        """Look at the results of one more call."""
        if self._first is None:
            self._first = dict(tensors)
            self._copies = {path: plain(tensor) for path, tensor in tensors.items()}
            return
        later = {storage_address(tensor) for tensor in tensors.values()} - {0}
        self._shared |= {path for path, tensor in self._first.items() if storage_address(tensor) in later}

    def overwritten(self) -> set[str]:
        """Paths of first results that share memory with later ones or have changed."""
        first = self._first or {}
        return self._shared | {path for path, tensor in first.items() if not same_values(tensor, self._copies[path])}


def _mutated(before: Flat, after: Flat) -> dict[str, Tensor]:
    both = ((path, tensor, after.tensors.get(path)) for path, tensor in before.tensors.items())
    return {path: plain(new) for path, old, new in both if new is not None and not same_values(old, new)}


def _aliases(output: Flat, inputs: Flat) -> list[list[str]]:
    where: dict[int, str] = {}
    for path, tensor in inputs.tensors.items():
        where.setdefault(storage_address(tensor), path)
    where.pop(0, None)
    pairs = ((path, where.get(storage_address(tensor))) for path, tensor in output.tensors.items())
    return [[path, source] for path, source in pairs if source is not None]
