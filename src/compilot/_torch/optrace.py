"""What one eager call does with whole numbers, operator by operator. Checked on torch 2.13.0.

In: a model's call, whose tensors must be the call's own. Out: a `Trace`: one `Step` for each value of whole numbers or
flags that depends on an input, in order, and one `Lookup` for each operator that looks something up with such a value.
Values are numbered by the memory that holds them: views share their value; a write gives the memory a new one, which
joins the old one unless all of it is overwritten. What depends on no input is `Known` with its range, and with its
numbers while those of the whole trace are few. Floats that depend on an input are `UNKNOWN`. Works without an export,
with graph breaks too. Not covered: numbers that leave torch (`item()`, `numpy()`) and come back; that some did is said.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from compilot._ranges import Range, names

INPUT, JOIN, EMPTY = "input", "join", "empty"  # names of steps that are no operators
_WHOLE = "CompositeImplicitAutograd"  # torch's mark of operators that are made of others
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
_FRESH = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "sym_size"})
_KEEP_SIZES = names(  # as large as the first argument, whatever the others are
    "copy fill zero masked_fill masked_scatter index_put index_add index_copy index_fill index_reduce scatter "
    "scatter_add scatter_reduce put"
)
_READERS = ("tolist", "numpy", "__array__", "__dlpack__")
_KEPT = 2**22  # numbers of known tensors that a trace keeps: 32 MB


class Ref(NamedTuple):
    """A tensor that shows a value. Equal ones show the same numbers at the same places."""

    value: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    view: tuple[int, ...]  # offset and strides
    wild: bool = False  # its sizes depend on the values of an input


@dataclass(frozen=True, eq=False)
class Values:
    """The numbers of a known tensor; equal to itself only, since a comparison of tensors is a tensor."""

    tensor: torch.Tensor  # int64, on the CPU


class Known(NamedTuple):
    """A tensor that depends on no input. range: of whole numbers; None: there are none, or they are floats."""

    range: Range | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    wild: bool = False
    fixed: bool = False  # one of the model's own: the same at every size of the inputs
    values: Values | None = None  # where they are not all alike; one of those that a stride of 0 repeats


class Step(NamedTuple):
    """How one value came about."""

    name: str  # of torch's operator, without overload and the "_" of those that write
    args: Mapping[str, Any]  # by the names in the operator's schema, tensors as Ref or Known
    part: int = 0  # which of the operator's outputs
    dtype: torch.dtype = torch.int64
    view: tuple[int, ...] = ()  # of the tensor that the operator gave: another one of the value may be a part of it
    column: int | None = None  # of the coordinates that "nonzero" gives
    shape: tuple[int, ...] = ()  # of that tensor
    room: int = 0  # numbers that its memory has place for
    run: Callable[..., Any] | None = None  # the operator itself


class Lookup(NamedTuple):
    """An operator that may use a value as an index."""

    name: str
    args: Mapping[str, Any]
    stack: tuple[tuple[str, int], ...]  # file and line of each frame, innermost last


class Trace(NamedTuple):
    steps: list[Step]  # numbers of values are places in this list
    lookups: list[Lookup]
    error: Exception | None = None  # that ended the call; what came before it is there
    leaks: bool = (
        False  # Python saw numbers, or sizes, that depend on an input: which parts are used may depend on them
    )


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows whole numbers through the operators that run meanwhile in this thread."""

    def __init__(self, wanted: Callable[[str], bool], fixed: Iterable[torch.Tensor]) -> None:
        """wanted: whether an operator looks things up, so that its arguments are to be kept. fixed: the model's own."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace([], [])
        self._wanted = wanted
        self._fixed = {_address(tensor) for tensor in fixed}
        self._values: dict[int, int] = {}  # address of a storage -> number of its value; -1: a float
        self._alive: list[StorageWeakRef] = []  # so that no address is used twice
        self._wild: set[int] = set()
        self._columns: dict[int, tuple[int, tuple[int, ...]]] = {}  # value of "nonzero" -> first column, strides
        self._free = _KEPT
        self.leaks = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Dynamo compiles nothing here; keeping it away would import all of it, seconds of work."""
        return False

    def start(self, path: str, tensor: torch.Tensor) -> None:
        """This tensor is an input."""
        if not _is_whole(tensor.dtype):
            self._set(tensor, -1)
        elif _address(tensor) not in self._values:
            self._set(tensor, self._add(_step(INPUT, {"path": path}, tensor)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note what becomes of whole numbers."""
        kwargs = kwargs or {}
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _WHOLE):
            with self:  # in inference mode operators come here before they are taken apart
                return func._op_dk(getattr(torch._C.DispatchKey, _WHOLE), *args, **kwargs)
        name = func._overloadpacket.__name__
        given = _by_name(func, args, kwargs)
        tensors = list(_tensors(given.values()))
        if name == "_local_scalar_dense":
            self.read(tensors[0])
        follow = any(map(self._follows, tensors)) or torch.Tag.nondeterministic_seeded in func.tags
        if not follow or name in _FRESH or name in _EMPTY:
            answer = func(*args, **kwargs)
            wild = any(_address(tensor) in self._wild for tensor in tensors)
            if wild or (name in _EMPTY and _is_whole(answer.dtype)):
                self._make(answer, _step(EMPTY if name in _EMPTY else name, {}, answer), wild)
            return answer
        written = _written(func, given)
        refs = {key: self._ref(value) for key, value in given.items()}
        before = [self._whole_storage(tensor) for tensor in written]
        name = name[:-1] if written and name.endswith("_") else name
        if self._wanted(name):
            self.trace.lookups.append(Lookup(name, refs, _stack()))
        answer = func(*args, **kwargs)
        self._note(name, func, given, refs, written, before, answer)
        return answer

    def read(self, tensor: torch.Tensor) -> None:
        """Python reads the numbers of a tensor. A flag is no size and no place: it only says which way to go."""
        self.leaks |= tensor.dtype is not torch.bool and self._follows(tensor)

    # ---- what is known of a tensor ----------------------------------------------------------------------------------

    def _follows(self, tensor: torch.Tensor) -> bool:
        address = _address(tensor)
        return address is None or address in self._values

    def _ref(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._ref(part) for part in value]
        if not isinstance(value, torch.Tensor):
            return value
        address, shape = _address(value), tuple(value.shape)
        wild = address in self._wild
        if address is None:
            return Ref(-1, shape, value.dtype, (), True)
        if address not in self._values:
            span = _range(value)
            return Known(span, shape, value.dtype, wild, address in self._fixed, self._kept(value, span))
        number, view = self._values[address], _view(value)
        return Ref(self._column(number, view), shape, value.dtype, view, wild)

    def _kept(self, tensor: torch.Tensor, span: Range | None) -> Values | None:
        if span is None or span.low == span.high:
            return None
        for dim, stride in enumerate(tensor.stride()):
            tensor = tensor.narrow(dim, 0, 1) if stride == 0 else tensor
        if tensor.numel() > self._free:
            return None
        self._free -= tensor.numel()
        return Values(tensor.detach().to("cpu", torch.int64, copy=True))

    def _column(self, number: int, view: tuple[int, ...]) -> int:
        """The value of one column where a view shows just that."""
        first, strides = self._columns.get(number, (0, ()))
        if not strides or len(view) != 2 or view[1] != strides[0]:
            return number
        return first + view[0] // max(strides[1], 1)

    def _whole_storage(self, tensor: torch.Tensor) -> Any:
        """All that the tensor's memory holds, before it is written to."""
        if not _is_whole(tensor.dtype) or (address := _address(tensor)) is None:
            return None
        if address in self._values:
            return Ref(self._values[address], (), tensor.dtype, ())
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        return Known(_range(whole), (), tensor.dtype)

    # ---- what an operator did ----------------------------------------------------------------------------------------

    def _note(
        self,
        name: str,
        func: Any,
        given: Mapping[str, Any],
        refs: Mapping[str, Any],
        written: list[torch.Tensor],
        before: list[Any],
        answer: Any,
    ) -> None:
        old = {_address(tensor): place for place, tensor in enumerate(written)}
        shared = {_address(tensor) for tensor in _tensors(given.values())}
        wild = self._makes_wild(name, func, given, refs)
        for part, tensor in enumerate(_tensors([answer])):
            address = _address(tensor)
            step = _step(name, refs, tensor)._replace(part=part, run=func)
            if address in old:
                self._write(written[old[address]], step, before[old[address]])
            elif address not in shared:
                self._make(tensor, step, wild)

    def _makes_wild(self, name: str, func: Any, given: Mapping[str, Any], refs: Mapping[str, Any]) -> bool:
        if name in _KEEP_SIZES:
            return bool(getattr(next(iter(refs.values()), None), "wild", False))
        if any(ref.wild for ref in _refs(refs.values())):
            return True
        if torch.Tag.dynamic_output_shape not in func.tags:
            return False
        return name != "index" or any(ref.dtype in (torch.bool, torch.uint8) for ref in _refs(refs["indices"]))

    def _make(self, tensor: torch.Tensor, step: Step, wild: bool) -> None:
        """A tensor with memory of its own."""
        if not _is_whole(tensor.dtype):
            number = -1
        elif step.name == "nonzero":
            number = self._add(step)
            self._columns[number] = (number + 1, tuple(tensor.stride()))
            for column in range(tensor.shape[1]):
                self._add(step._replace(column=column))
        else:
            number = self._add(step)
        self._set(tensor, number)
        if wild:
            self._wild.add(_address(tensor) or 0)
            self.leaks = True

    def _write(self, tensor: torch.Tensor, step: Step, before: Any) -> None:
        """Memory that was written to: the new value, beside the old one where only a part was overwritten."""
        if not _is_whole(tensor.dtype):
            self._set(tensor, -1)
            return
        number = self._add(step)
        if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
            new = Ref(number, (), tensor.dtype, ())
            number = self._add(Step(JOIN, {"old": before, "new": new}, dtype=tensor.dtype, room=step.room))
        self._set(tensor, number)

    def _add(self, step: Step) -> int:
        self.trace.steps.append(step)
        return len(self.trace.steps) - 1

    def _set(self, tensor: torch.Tensor, number: int) -> None:
        address = _address(tensor)
        if address is None:
            return
        if address not in self._values:
            self._alive.append(StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]
        self._values[address] = number


def record(
    call: Callable[[], Any],
    inputs: Mapping[str, torch.Tensor],
    wanted: Callable[[str], bool],
    fixed: Iterable[torch.Tensor] = (),
) -> Trace:
    """The trace of one call, up to its end or to the error that ends it."""
    recorder = Recorder(wanted, fixed)
    for path, tensor in inputs.items():
        recorder.start(path, tensor)
    failure = None
    try:
        with _readers(recorder.read), recorder:
            call()
    except Exception as error:
        failure = error
    return recorder.trace._replace(error=failure, leaks=recorder.leaks)


@contextlib.contextmanager
def _readers(note: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Meanwhile `note` is asked first where a method reads the numbers of a tensor without an operator."""
    own = {name: torch.Tensor.__dict__.get(name) for name in _READERS}

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            note(tensor)
            return method(tensor, *args, **kwargs)

        return read

    for name in own:
        setattr(torch.Tensor, name, noting(getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name, method in own.items():
            if method is None:
                delattr(torch.Tensor, name)  # a method of its base class
            else:
                setattr(torch.Tensor, name, method)


def _step(name: str, args: Mapping[str, Any], tensor: torch.Tensor) -> Step:
    """How this tensor came about."""
    return Step(name, args, dtype=tensor.dtype, view=_view(tensor), shape=tuple(tensor.shape), room=_room(tensor))


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def _address(tensor: torch.Tensor) -> int | None:
    """Of its storage; None: it has none that could be told from others (sparse, wrapped)."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def _view(tensor: torch.Tensor) -> tuple[int, ...]:
    try:
        return int(tensor.storage_offset()), *map(int, tensor.stride())
    except (NotImplementedError, RuntimeError):  # no storage, no strides
        return ()


def _room(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes() // tensor.element_size()
    except (NotImplementedError, RuntimeError):
        return 0


def _range(tensor: torch.Tensor) -> Range | None:
    if not _is_whole(tensor.dtype) or not tensor.numel():
        return None
    low, high = tensor.min(), tensor.max()
    return Range(int(low), int(high))


def _by_name(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument by its name in the schema, defaults too."""
    known = func._schema.arguments
    given = {argument.name: value for argument, value in zip(known, args, strict=False)}
    given.update(kwargs)
    return {a.name: given.get(a.name, a.default_value if a.has_default_value() else None) for a in known}


def _written(func: Any, given: Mapping[str, Any]) -> list[torch.Tensor]:
    marked = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return list(_tensors(given[name] for name in marked))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _refs(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Ref | Known):
            yield value
        elif isinstance(value, list):
            yield from _refs(value)


def _stack() -> tuple[tuple[str, int], ...]:
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(found))
