"""Operators that an engine computes otherwise, written as others that it computes as eager does.

In: an exported program and the rewrites that an engine needs. Out: the same program object, its graph changed in
place; what the new nodes compute is equal to eager's results: to the bit for whole numbers, to a rounding for others.
Covered: whole-number division with either rounding and its remainder, sums of 64-bit integers, `%` of floats,
attention with rows that are masked altogether, log-sigmoid and the like far from zero. Every rule works on the graphs
within the graph, too, and on whatever dtype the operator's result has. Not covered: operators that write in place
(the functional form has none); those that have no such form, which are refused by name (meaning.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from compilot.engines.whereabouts import operator_name

aten = torch.ops.aten
HALF_BITS = 2**31  # a 64-bit integer as two parts, either of which has room for a million terms in a float64

Rule = Callable[["Writer", Node], Any]  # the node that takes a node's place, None: it stays


class Writer:
    """Adds operators in front of a node and knows their results' dtypes and shapes."""

    def __init__(self, module: GraphModule, node: Node) -> None:
        self._graph, self._node = module.graph, node

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """One operator."""
        with self._graph.inserting_before(self._node):
            made = self._graph.call_function(target, args, kwargs)
        value = target(*map_arg(args, _value), **map_arg(kwargs, _value))
        made.meta = {"val": value, **{k: v for k, v in self._node.meta.items() if k in _KEPT}}
        return made

    def of_dtype(self, value: Any, dtype: torch.dtype) -> Node:
        """A tensor of this dtype from a tensor or a number."""
        if not isinstance(value, Node) or not isinstance(value.meta["val"], torch.Tensor):
            return self(aten.full.default, [], value, dtype=dtype, device=torch.device("cpu"))
        return value if value.meta["val"].dtype is dtype else self(aten._to_copy.default, value, dtype=dtype)


_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack")


def _value(node: Node) -> Any:
    return node.meta["val"]


def rewrite(program: ExportedProgram, rules: Mapping[str, Rule]) -> ExportedProgram:
    """Apply the rules, by operator name; a program that writes in place is made functional first where that matters."""
    if any(name.endswith("_") and name[:-1] in rules for name in map(operator_name, _operators(program))):
        program = program.run_decompositions({})
    for module in _modules(program):
        changed = [_rewritten(module, node, rules) for node in list(module.graph.nodes)]
        if any(changed):
            module.graph.lint()
            module.recompile()
    return program


def _rewritten(module: GraphModule, node: Node, rules: Mapping[str, Rule]) -> bool:
    rule = rules.get(operator_name(node)) if node.op == "call_function" else None
    value = node.meta.get("val")
    if rule is None or not isinstance(value, torch.Tensor):
        return False
    made = rule(Writer(module, node), node)
    if made is None:
        return False
    node.replace_all_uses_with(made)
    module.graph.erase_node(node)
    return True


def _modules(program: ExportedProgram) -> list[GraphModule]:
    return [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]


def _operators(program: ExportedProgram) -> list[Node]:
    return [node for module in _modules(program) for node in module.graph.nodes if node.op == "call_function"]


# ---- rules -----------------------------------------------------------------------------------------------------------


def _whole(node: Node) -> torch.dtype | None:
    """The dtype of a whole-number result; None for others and for flags."""
    dtype = node.meta["val"].dtype
    return None if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool else dtype


def _both(write: Writer, node: Node, dtype: torch.dtype) -> tuple[Node, Node]:
    return write.of_dtype(node.args[0], dtype), write.of_dtype(node.args[1], dtype)


def _differ(write: Writer, rest: Node, one: Node, other: Node, dtype: torch.dtype) -> Node:
    """1 where there is a rest and the signs differ."""
    signs = write(aten.ne.Tensor, write(aten.lt.Scalar, one, 0), write(aten.lt.Scalar, other, 0))
    both = write(aten.logical_and.default, write(aten.ne.Scalar, rest, 0), signs)
    return write(aten._to_copy.default, both, dtype=dtype)


def _rest(write: Writer, a: Node, b: Node, quotient: Node) -> Node:
    return write(aten.sub.Tensor, a, write(aten.mul.Tensor, quotient, b))


def floor_from_trunc(write: Writer, node: Node) -> Node | None:
    """Floor division of whole numbers, for an engine whose division cuts off."""
    dtype = _whole(node)
    if dtype is None or not _rounds(node, "floor"):
        return None
    wide = dtype if dtype in (torch.int32, torch.int64) else torch.int32  # OpenVINO's -64 * 2 is -127 in 8 bits
    a, b = _both(write, node, wide)
    quotient = write(aten.div.Tensor_mode, a, b, rounding_mode="trunc")
    rest = _rest(write, a, b, quotient)
    return write.of_dtype(write(aten.sub.Tensor, quotient, _differ(write, rest, rest, b, wide)), dtype)


def trunc_from_floor(write: Writer, node: Node) -> Node | None:
    """Division of whole numbers with a rounding mode, for an engine that computes those with floats."""
    dtype = _whole(node)
    if dtype is None or not (_rounds(node, "floor") or _rounds(node, "trunc")):
        return None
    a, b = _both(write, node, dtype)
    return write(aten.floor_divide.default, a, b) if _rounds(node, "floor") else _truncated(write, a, b, dtype)


def _truncated(write: Writer, a: Node, b: Node, dtype: torch.dtype) -> Node:
    quotient = write(aten.floor_divide.default, a, b)
    more = _differ(write, _rest(write, a, b, quotient), a, b, dtype)
    return write(aten.add.Tensor, quotient, more)


def fmod_from_floor(write: Writer, node: Node) -> Node | None:
    """What whole-number division with truncation leaves."""
    dtype = _whole(node)
    if dtype is None:
        return None
    a, b = _both(write, node, dtype)
    return _rest(write, a, b, _truncated(write, a, b, dtype))


def remainder_from_fmod(write: Writer, node: Node) -> Node | None:
    """`%` of floats, for an engine whose fmod is exact and whose remainder is not."""
    dtype = node.meta["val"].dtype
    if not dtype.is_floating_point:
        return None
    a, b = _both(write, node, dtype)
    rest = write(aten.fmod.Tensor, a, b)
    signs = write(aten.ne.Tensor, write(aten.lt.Scalar, rest, 0), write(aten.lt.Scalar, b, 0))
    off = write(aten.logical_and.default, write(aten.ne.Scalar, rest, 0), signs)
    return write(aten.where.self, off, write(aten.add.Tensor, rest, b), rest)


def sum_in_parts(write: Writer, node: Node) -> Node | None:
    """A sum of 64-bit integers, for an engine that adds them up in float64: of two halves, put together again."""
    source = node.args[0]
    if node.meta["val"].dtype is not torch.int64 or not isinstance(source, Node):
        return None
    if source.meta["val"].dtype is not torch.int64:
        return None
    high = write(aten.floor_divide.default, source, write.of_dtype(HALF_BITS, torch.int64))
    low = write(aten.sub.Tensor, source, write(aten.mul.Scalar, high, HALF_BITS))
    sums = [write(node.target, part, *node.args[1:], **node.kwargs) for part in (high, low)]
    return write(aten.add.Tensor, write(aten.mul.Scalar, sums[0], HALF_BITS), sums[1])


def smaller_by_comparing(write: Writer, node: Node) -> Node | None:
    """The smaller of 64-bit integers, for an engine that takes 2**31 for less than 60 there and not in comparisons."""
    return _chosen(write, node, aten.lt.Tensor)


def larger_by_comparing(write: Writer, node: Node) -> Node | None:
    """The larger of 64-bit integers, for the same engine."""
    return _chosen(write, node, aten.gt.Tensor)


def _chosen(write: Writer, node: Node, better: Any) -> Node | None:
    if node.meta["val"].dtype is not torch.int64 or len(node.args) < 2:  # of one tensor: all its numbers
        return None
    a, b = _both(write, node, torch.int64)
    return write(aten.where.self, write(better, a, b), a, b)


def clamped_by_comparing(write: Writer, node: Node) -> Node | None:
    """A clamp of 64-bit integers, for the same engine."""
    if node.meta["val"].dtype is not torch.int64:
        return None
    given = dict(zip(_BOUNDS[operator_name(node)], node.args[1:], strict=False)) | node.kwargs
    found = write.of_dtype(node.args[0], torch.int64)
    for name, beyond in (("min", aten.lt.Tensor), ("max", aten.gt.Tensor)):
        if given.get(name) is not None:
            bound = write.of_dtype(given[name], torch.int64)
            found = write(aten.where.self, write(beyond, found, bound), bound, found)
    return found


_BOUNDS = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}


def sign_by_comparing(write: Writer, node: Node) -> Node | None:
    """The sign of 64-bit integers, for the same engine."""
    if node.meta["val"].dtype is not torch.int64:
        return None
    source = node.args[0]
    above, below = (write.of_dtype(write(test, source, 0), torch.int64) for test in (aten.gt.Scalar, aten.lt.Scalar))
    return write(aten.sub.Tensor, above, below)


def attention_of_masked_rows(write: Writer, node: Node) -> Node | None:
    """Attention with a mask, for an engine whose softmax of nothing is not eager's: a row that sees nothing is zero."""
    mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    if not isinstance(mask, Node):
        return None
    seen = mask if mask.meta["val"].dtype is torch.bool else write(aten.ne.Scalar, mask, -math.inf)
    rows = write(aten.any.dim, seen, -1, True)
    result = write(node.target, *node.args, **node.kwargs)
    return write(aten.where.self, rows, result, write.of_dtype(0.0, result.meta["val"].dtype))


def after_cast(write: Writer, node: Node) -> Node | None:
    """The dtype of the result first, for an engine that computes in the argument's: it rounds a float to clamp by."""
    source, dtype = node.args[0], node.meta["val"].dtype
    if not isinstance(source, Node) or source.meta["val"].dtype is dtype:
        return None
    return write(node.target, write.of_dtype(source, dtype), *node.args[1:], **node.kwargs)


def log_sigmoid_from_softplus(write: Writer, node: Node) -> Node:
    """The logarithm of a sigmoid that never gets as small as zero."""
    source = node.args[0]
    return write(aten.neg.default, write(aten.softplus.default, write(aten.neg.default, source)))


def logaddexp_from_softplus(write: Writer, node: Node) -> Node:
    """The larger one, and what the other adds to it: no exponential overflows."""
    a, b = _both(write, node, node.meta["val"].dtype)
    apart = write(aten.abs.default, write(aten.sub.Tensor, a, b))
    more = write(aten.softplus.default, write(aten.neg.default, apart))
    return write(aten.add.Tensor, write(aten.maximum.default, a, b), more)


def _rounds(node: Node, mode: str) -> bool:
    name = operator_name(node)
    return mode == "floor" if name == "floor_divide" else node.kwargs.get("rounding_mode") == mode
