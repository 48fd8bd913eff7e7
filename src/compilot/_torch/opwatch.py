"""One eager call, operator by operator: time, floating-point operations, bytes. Checked on torch 2.13.0.

In: a function to run inside the context. Out: one `Op` per operator that reached a kernel, in order. torch.profiler
gives times too, but neither dtypes nor storages, so bytes could not be told; the mode sees the tensors themselves.
Bytes are what the operator must read and write if nothing is in a cache; views move none; look-ups read what they
return, not the whole table. The times hold the dispatch and the watching, measured apart by `dispatch_cost`.
"""

from __future__ import annotations

import enum
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "_embedding_bag", "slice"})
_VIEWS = frozenset({"_unsafe_view", "detach", "alias", "_reshape_alias", "lift_fresh"})
_DISPATCH_SAMPLES = 200
_AT_ONCE = 10  # operators per plain sample: the clock itself costs a tenth of an operator


_CONVOLUTIONS = re.compile(r"conv(olution|\d|_)")
_PRODUCTS = re.compile(
    r"(^|_)((add|b|badd|addb)?(b?mm|mv)|matmul|linear|bilinear|dot|einsum|lstm|gru|rnn)($|_)|attention|transformer"
)


class Class(enum.StrEnum):
    """What an operator mostly does."""

    CONVOLUTION = "convolution"
    PRODUCT = "product"  # of matrices: attention and recurrent layers too
    OTHER = "other"


class Op(NamedTuple):
    """One operator call."""

    name: str  # "aten.addmm"
    before_s: float  # Python and dispatch since the operator before it, the watching included
    wall_s: float
    flops: float
    reads: tuple[tuple[int, int], ...]  # (storage address, bytes)
    written: int  # bytes

    @property
    def bytes(self) -> int:
        """Read and written."""
        return sum(size for _, size in self.reads) + self.written

    @property
    def kind(self) -> Class:
        """By its name: what it mostly does."""
        short = self.name.rpartition(".")[2]
        if _CONVOLUTIONS.search(short):
            return Class.CONVOLUTION
        return Class.PRODUCT if _PRODUCTS.search(short) else Class.OTHER


def each_quickest(ops: list[Op], again: list[Op]) -> list[Op]:
    """Two runs of the same operators as one; where they differ, the later one."""
    if [op.name for op in ops] != [op.name for op in again]:
        return again
    return [
        new._replace(before_s=min(old.before_s, new.before_s), wall_s=min(old.wall_s, new.wall_s))
        for old, new in zip(ops, again, strict=True)
    ]


class Dispatch(NamedTuple):
    """What one operator costs when there is nothing to compute."""

    watched_s: float  # as `Op.wall_s`
    between_s: float  # as `Op.before_s`
    plain_s: float  # without watching


class OpWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the operators that run meanwhile in this thread."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []
        self._left = time.perf_counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Dynamo compiles nothing here; keeping it away would import all of it, seconds of work."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note what it did."""
        kwargs = kwargs or {}
        begin = time.perf_counter()
        out = func(*args, **kwargs)
        wall_s = time.perf_counter() - begin
        self.ops.append(_op(func, args, kwargs, out, wall_s)._replace(before_s=begin - self._left))
        self._left = time.perf_counter()
        return out


def watch(call: Callable[[], Any]) -> tuple[list[Op], Any]:
    """The operators of one call, and its answer."""
    with OpWatch() as watching:
        answer = call()
    return watching.ops, answer


def dispatch_cost() -> Dispatch:
    """Measured with an operator on one number, watched and not."""
    one = torch.ones(1)
    with torch.no_grad():
        with OpWatch() as watching:
            for _ in range(_DISPATCH_SAMPLES):
                torch.add(one, one)
        plain_s = statistics.median(_plain_s(one) for _ in range(_DISPATCH_SAMPLES // _AT_ONCE))
    walls, gaps = (
        statistics.median(column) for column in zip(*((op.wall_s, op.before_s) for op in watching.ops), strict=True)
    )
    return Dispatch(walls, gaps, plain_s)


def _plain_s(one: torch.Tensor) -> float:
    begin = time.perf_counter()
    for _ in range(_AT_ONCE):
        torch.add(one, one)
    return (time.perf_counter() - begin) / _AT_ONCE


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def storage_address(tensor: torch.Tensor) -> int:
    """Where the tensor's memory lies; 0 where it has none of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


def _op(func: Any, args: Any, kwargs: Any, out: Any, wall_s: float) -> Op:
    name = str(func._overloadpacket)
    short = name.rpartition(".")[2]
    if func.is_view or short in _VIEWS:
        return Op(name, 0.0, wall_s, 0.0, (), 0)
    written = sum(map(_size, tensors_in(out)))
    inputs = list(tensors_in([args, kwargs]))
    if short in _LOOKUPS:
        reads = [(storage_address(tensor), min(_size(tensor), written)) for tensor in inputs]
    else:
        reads = [(storage_address(tensor), _size(tensor)) for tensor in inputs]
    return Op(name, 0.0, wall_s, _flops(func, args, kwargs, out), tuple(reads), written)


def _size(tensor: torch.Tensor) -> int:
    """Bytes that must move; an expanded dimension is read once."""
    try:
        strides = tensor.stride()
    except RuntimeError:  # sparse and other layouts
        return tensor.numel() * tensor.element_size()
    count = 1
    for size, stride in zip(tensor.shape, strides, strict=True):
        count *= size if stride or size == 0 else 1
    return count * tensor.element_size()


def _flops(func: Any, args: Any, kwargs: Any, out: Any) -> float:
    formula = flop_registry.get(func._overloadpacket) or _FORMULAS.get(func._overloadpacket)
    if formula is None:  # an elementwise operator or a reduction: one for each element is near enough
        sizes = [tensor.numel() for tensor in tensors_in([args, kwargs, out])]
        return float(max(sizes, default=0)) if _computes(func) else 0.0
    try:
        return float(formula(*args, **kwargs, out_val=out))
    except Exception:  # a formula that does not know this form of the call
        return 0.0


def _recurrent_flops(rows: torch.Tensor, weight: torch.Tensor, recurrent: torch.Tensor, *_: Any, out_val: Any) -> int:
    """One direction of one recurrent layer: every row of the sequence meets both matrices, for all gates."""
    return 2 * (rows.numel() // rows.shape[-1]) * (weight.numel() + recurrent.numel())


_FORMULAS: dict[Any, Callable[..., Any]] = {  # operators of the CPU that torch's own table does not have
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        torch.ops.aten._scaled_dot_product_flash_attention
    ],
    torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops,
}


def _computes(func: Any) -> bool:
    name = str(func._overloadpacket).rpartition(".")[2]
    return not name.startswith(("empty", "copy", "clone", "_to_copy", "zeros", "ones", "full", "cat", "embedding"))
