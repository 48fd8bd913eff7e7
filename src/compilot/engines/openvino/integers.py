"""How large do integers get? OpenVINO's CPU plugin computes many of them as 32-bit floats and says nothing.

In: an exported program. Out: for each flat input of 64- or 32-bit integers that the graph computes with, the largest
value whose every consequence has 24 bits, which a float holds; load.py turns calls beyond it down. Ranges are
followed through the graph. Infeasible: a number that depends on an input may get too large, 8- and 16-bit integers
included (they do not wrap around, as eager's do), or its range cannot be told (an operator without a rule in
ranges.py, a float turned into a wide integer). Inputs that are only looked up with (embeddings) need no limit: eager
refuses such an index itself. Casts to narrow integers wrap around as eager's do. Not covered: integers that depend on
no input, and floats that become 8- or 16-bit ones; every check sees those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from compilot._ranges import KEEP, Range
from compilot._torch import exporting as private
from compilot.engines.openvino.ranges import FRESH, JOIN_AND_PLACES, LONGEST, MERGE, PLACE, PLACES, result
from compilot.engines.protocol import Infeasible
from compilot.engines.quiet import quiet
from compilot.engines.whereabouts import line_of, operator_name

LARGEST = 2**24  # comparisons, quotients, sums and products of matrices are computed in float32: exact up to here
LIMITS = (LARGEST, 2**23, 2**20, 2**16, 2**12, 2**8, 2**4, 1)  # of inputs, tried in this order; masks fit the last
IN_24_BITS = "OpenVINO keeps 24 bits of an integer"
_WIDE = {torch.int64, torch.int32}
_SMALL = {torch.int16, torch.int8, torch.uint8}
_WHOLE = {torch.bool, *_WIDE, *_SMALL}
_EXACT = Range(-LARGEST, LARGEST)
_CASTS = {"to", "_to_copy", "type_as", "byte", "char", "short"}
_LOOK_UP = {"embedding": 1, "index_select": 2, "gather": 2, "take_along_dim": 1, "index": 1}  # where the indices stand


class _TooLarge(Exception):
    """With these limits on the inputs a number does not fit; carries the inputs that it was computed from."""

    def __init__(self, reason: str, inputs: frozenset[int]) -> None:
        super().__init__(reason)
        self.inputs = inputs


class _Written(Exception):
    """A number that depends on an input is written in place: what stands under a name changes on the way."""


def limits(program: ExportedProgram) -> dict[int, int]:
    """Number of a flat input -> the largest absolute value it may hold; inputs without a limit are left out."""
    try:
        return _limits(program)
    except _Written:  # the functional form has a name for each value; making it costs as much as an export
        with torch.no_grad(), quiet():
            return _limits(program.run_decompositions({}))


def _limits(program: ExportedProgram) -> dict[int, int]:
    """Every input as it comes; then less of those from which a number that does not fit was computed."""
    steps = dict.fromkeys(range(len(program.graph_signature.user_inputs)), 0)
    while True:
        found = {number: LIMITS[step] for number, step in steps.items()}
        try:
            return {number: found[number] for number in _Walk(program, found).computed}
        except _TooLarge as cause:
            lower = [number for number in cause.inputs if steps[number] + 1 < len(LIMITS)]
            if not lower:
                raise Infeasible(f"{IN_24_BITS}, and {cause}") from None
            steps.update({number: steps[number] + 1 for number in lower})


class _Walk:
    """One pass over the graph with these limits on its inputs."""

    def __init__(self, program: ExportedProgram, limits: Mapping[int, int]) -> None:
        self._program, self._limits = program, limits
        self._names = list(program.graph_signature.user_inputs)
        self._ranges: dict[Node, Range | None] = {}  # None: not known
        self._roots: dict[Node, frozenset[int]] = {}  # the inputs whose limits a range comes from
        self._depends: set[Node] = set()  # on the values of an input
        self._inputs: dict[Node, int] = {}  # an input, or a node that only shapes it -> the input's number
        self.computed: set[int] = set()
        for node in program.graph.nodes:
            self._visit(node)

    def _visit(self, node: Node) -> None:
        if node.op == "placeholder" and node.name in self._names:
            self._start(node)
        elif node.op == "placeholder":
            self._ranges[node] = _held(private.constant(self._program, node.name))
        elif node.op == "call_function":
            name = operator_name(node)
            self._step(node, "detach" if name == "detach_" else name)  # export puts it behind constants
        elif node.op == "output":
            self._note(node, ())

    def _start(self, node: Node) -> None:
        self._depends.add(node)
        self._ranges[node] = _of_dtype(_dtype(node))
        if _dtype(node) in _WIDE:
            number = self._names.index(node.name)
            self._inputs[node], self._roots[node] = number, frozenset({number})
            self._ranges[node] = Range(-self._limits[number], self._limits[number])

    def _step(self, node: Node, name: str) -> None:
        whole = _dtype(node) in _WIDE | _SMALL
        if name not in FRESH and any(arg in self._depends for arg in node.all_input_nodes):
            self._depends.add(node)
            if whole and name.endswith("_") and not name.endswith("__"):
                raise _Written
        source = node.args[0] if node.args else None
        if whole and name in KEEP and isinstance(source, Node) and source in self._inputs:
            self._inputs[node] = self._inputs[source]
            self._note(node, (source,))
        else:
            self._note(node, _indices(node, name))
        self._ranges[node] = self._cast(node) if name in _CASTS else self._range(node, name)
        if whole:
            self._roots[node] = frozenset().union(*(self._roots.get(arg, ()) for arg in node.all_input_nodes))
        if node in self._depends and (whole or not _is_operator(node)):
            self._judge(node, name)
        if node in self._depends and _dtype(node) is torch.bool:
            self._judge_compared(node, name)
        self._ranges[node] = _in_dtype(self._ranges[node], _dtype(node))

    def _cast(self, node: Node) -> Range | None:
        """A narrow integer wraps around as eager's does; what a float becomes in it is up to the checks."""
        found, room = self._range(node, operator_name(node)), _of_dtype(_dtype(node))
        return room if room is not None and (found is None or not _fits(found, room)) else found

    def _note(self, node: Node, harmless: tuple[Any, ...]) -> None:
        """The inputs that this node computes with, other than by looking something up."""
        if node.op == "call_function" and operator_name(node) in FRESH:
            return
        used = [arg for arg in node.all_input_nodes if arg in self._inputs and arg not in harmless]
        self.computed.update(self._inputs[arg] for arg in used)

    def _judge(self, node: Node, name: str) -> None:
        where, found, dtype = f"'{name}'{line_of(node)}", self._ranges[node], _dtype(node)
        if found is None and (dtype in _WIDE | _SMALL or any(map(self._is_wide, node.all_input_nodes))):
            raise Infeasible(f"{IN_24_BITS}, and how large those of {where} get is not known")
        if found is not None and not _fits(found, _of_dtype(dtype) or _EXACT):
            raise _TooLarge(f"those of {where} may not fit", self._roots.get(node, frozenset()))

    def _judge_compared(self, node: Node, name: str) -> None:
        """What an input is compared with must fit, too: a number of more bits would be another one."""
        others = [part for part in map(self._of, _values(node.args)) if part is not None]
        if any(map(self._is_wide, node.all_input_nodes)) and not all(_fits(o, _EXACT) for o in others):
            raise Infeasible(f"{IN_24_BITS}, and what '{name}'{line_of(node)} compares with has more")

    def _is_wide(self, node: Node) -> bool:
        return _dtype(node) in _WIDE and node in self._depends

    def _range(self, node: Node, name: str) -> Range | None:
        given: tuple[Any, ...] = (*node.args, *_fills(node))
        if name in PLACES or (name in JOIN_AND_PLACES and _dtype(node.args[0]) not in _WHOLE):
            return PLACE
        if name in FRESH or name in KEEP or name in MERGE:
            given = node.args[1:] if name in FRESH else node.args[: 1 if name in KEEP else 2]
        parts = [self._of(value) for value in _values(given)]
        known = [part for part in parts if part is not None]
        return result(node, name, known, self._size) if len(known) == len(parts) else None

    def _of(self, value: Node | int) -> Range | None:
        """The range of an argument: a node's, a size's or a plain number's."""
        if isinstance(value, int):
            return Range(value, value)
        if isinstance(value.meta.get("val"), torch.SymInt | int) and value not in self._depends:
            return Range(-LONGEST, LONGEST)
        return self._ranges.get(value)

    def _size(self, size: Any) -> int:
        return private.largest_size(self._program, size, LONGEST)


def _values(arguments: Any) -> Iterator[Node | int]:
    """Nodes and plain numbers among arguments, in lists too; flags, dtypes and names left out."""
    for one in arguments:
        if isinstance(one, list | tuple):
            yield from _values(one)
        elif isinstance(one, Node) or (isinstance(one, int) and not isinstance(one, bool)):
            yield one


def _fills(node: Node) -> tuple[Any, ...]:
    return tuple(node.kwargs[name] for name in ("value", "min", "max", "other") if name in node.kwargs)


def _indices(node: Node, name: str) -> tuple[Any, ...]:
    at = _LOOK_UP.get(name)
    return () if at is None else tuple(_values(node.args[at : at + 1]))


def _is_operator(node: Node) -> bool:
    """One of torch's operators or plain Python; not a graph within the graph, whose numbers nobody has looked at."""
    return hasattr(node.target, "overloadpacket") or getattr(node.target, "__module__", "") == "_operator"


def _dtype(node: Any) -> torch.dtype | None:
    """Of a node that holds a tensor or several; wide integers first."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    found = [v.dtype for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, torch.Tensor)]
    return next((dtype for dtype in found if dtype in _WIDE), found[0] if found else None)


def _of_dtype(dtype: torch.dtype | None) -> Range | None:
    """What a narrow integer or a bool can hold; wide ones and floats may become anything."""
    if dtype is torch.bool:
        return Range(0, 1)
    return Range(torch.iinfo(dtype).min, torch.iinfo(dtype).max) if dtype in _SMALL else None


def _fits(found: Range, room: Range) -> bool:
    return room.low <= found.low and found.high <= room.high


def _in_dtype(found: Range | None, dtype: torch.dtype | None) -> Range | None:
    """What was computed, as far as it is known; a narrow integer or a flag holds no more than its dtype does."""
    room = _of_dtype(dtype)
    if dtype in _WIDE or room is None:
        return found if dtype in _WIDE else None
    return found if found is not None and _fits(found, room) else room


def _held(tensor: torch.Tensor | None) -> Range | None:
    """The range of a weight or constant of the model."""
    if tensor is None or tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return None
    return Range(int(tensor.min()), int(tensor.max()))
