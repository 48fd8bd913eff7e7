"""The user's live thing: a model and the calls it is to be judged by.

In: an nn.Module and example inputs (or a function of a seed). Out: `Workload`, whose calls are normal (`Call`), whose
dynamic dimensions are checked against them, and which gives units of work and its own record (`ref`).
Covered: positional, keyword and nested inputs, several examples, inputs made from a seed, grad mode.
Not covered: loading a target (target.py), travelling to a child process (shipping.py), edge inputs (variations.py).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from compilot._tree import Call, call_leaves, is_tensor, resolve_dynamic
from compilot.errors import InputError
from compilot.inputs.values import vary
from compilot.records import DynamicDim, Kind, WorkloadRef
from compilot.workload.dynamic import DynamicSpec, as_dims, merge, settled, spelled_out
from compilot.workload.pad_spelling import PadSpec
from compilot.workload.padding import Sized, checked
from compilot.workload.requests import Items, Request, calls_of, check_request, judged_items, timed_items
from compilot.workload.unit import UNITS, Unit

InputFunction = Callable[[int], Any]
Drive = Callable[[Callable[..., Any]], None]


class Workload:
    """A model, its example calls and how it is run. `inputs` may be a function of a seed that returns a call.

    `loader`: a DataLoader (or any iterable of batches, or a function that returns one) that feeds the model in real
    life; the doctor then says how much of a step is spent waiting for data.

    `drive(call)` is for the doctor: it makes the calls the program really makes, one after the other, through `call`
    (which takes the model's arguments), and changes between them what the program changes: attributes, grad mode,
    threads, globals.

    `padding` says what may be put into the inputs where a call is shorter than what the model was built for, such as
    {"input_ids": 0, "attention_mask": 0}. It is used only where that is proven to change no answer.

    `request(call, item)` is what the program does for one item: prepare it, call the model through `call`, finish the
    answer. The whole of it is then timed and judged, and the model's share of it reported. `items` is a list of them,
    or a function of a seed that returns one. Without other inputs, those that the requests make are the examples.
    """

    def __init__(
        self,
        model: nn.Module,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        examples: Sequence[Any] | None = None,
        inputs: InputFunction | None = None,
        dynamic: DynamicSpec | None = None,
        seed: int = 0,
        grad: bool = False,
        label: str | None = None,
        loader: Any = None,
        drive: Drive | None = None,
        padding: PadSpec | None = None,
        request: Request | None = None,
        items: Items | None = None,
    ) -> None:
        self.model = check_model(model)
        self.seed, self.grad = seed, grad
        self.request, self._items = check_request(request, items)
        self.kind = Kind.INFERENCE if self.request is None else Kind.REQUEST  # picks the unit of work
        self.replay_order: tuple[int, ...] = ()  # of a trace: which example each one is, in order (replay.py)
        self.trace_notes: tuple[str, ...] = ()  # what the trace declared
        self.label = label or type(model).__name__
        self.loader = check_loader(loader)  # only looked at by the doctor, for how long a step waits for its data
        self.target: str | None = None  # set by load_target: how a child process rebuilds this workload
        self.payload_sha256: str | None = None  # set by ship
        self._inputs = _check_inputs(inputs)
        self.drive = _check_drive(drive)
        given = _given_examples(args, kwargs, examples)
        if given is None and inputs is None and self.request is not None:
            given = calls_of(self.request, self.items, self.model, grad=grad)
        self._examples_from_seed = given is None and inputs is not None
        self.examples = self._seeded_examples() if self._examples_from_seed else (given or [Call((), {})])
        self.dynamic = spelled_out(as_dims(dynamic), self.model.forward, self.call)
        self.padding = checked(padding, self.model.forward, self.call)
        self._check_examples()

    @property
    def call(self) -> Call:
        """The first example."""
        return self.examples[0]

    @property
    def ref(self) -> WorkloadRef:
        """The record of this workload."""
        return WorkloadRef(
            label=self.label,
            target=self.target,
            payload_sha256=self.payload_sha256,
            kind=self.kind,
            seed=self.seed,
            grad=self.grad,
            dynamic=self.dynamic,
            padding=self.padding,
        )

    @property
    def sized(self) -> Sized:
        """The example at other sizes of the declared dimensions, and what its inputs may be padded with."""
        return Sized.of(self.model.forward, self.call, self.dynamic, self.padding)

    @property
    def notes(self) -> list[str]:
        """What the user should know of the examples before measuring, one sentence each."""
        return [note for note in (self._shapes_note(), *self.trace_notes) if note]

    @property
    def input_function(self) -> InputFunction | None:
        """The user's own function of a seed, if there is one."""
        return self._inputs

    @property
    def item_function(self) -> Callable[[int], Any] | None:
        """The user's own function of a seed for items, if there is one."""
        return self._items if callable(self._items) else None

    @property
    def functions(self) -> tuple[Any, ...]:
        """The user's own functions, which travel with the model."""
        return (self.input_function, self.drive, self.request, self.item_function)

    def inputs(self, seed: int) -> Call:
        """A call made from a seed: by the user's function, or else a variation of the first example."""
        return vary(self.call, seed) if self._inputs is None else as_call(self._inputs(seed))

    @property
    def items(self) -> tuple[Any, ...]:
        """The items whose requests are timed; () without a request."""
        return () if self._items is None else timed_items(self._items, self.seed)

    @property
    def judged_items(self) -> tuple[Any, ...]:
        """The items whose answers are judged."""
        return () if self._items is None else judged_items(self._items, self.seed)

    def samples_per_call(self) -> int | None:
        """Size of the batch dimension, where all tensor inputs of the first example agree on one; for throughput.

        None for the requests of a trace, which have sizes of their own.
        """
        if self.replay_order:
            return None
        tensors = [leaf.value for leaf in call_leaves(self.call) if is_tensor(leaf.value) and leaf.value.dim()]
        sizes = {int(tensor.shape[0]) for tensor in tensors}
        return sizes.pop() if len(sizes) == 1 else None

    def unit(self, fn: Callable[..., Any]) -> Unit:
        """The unit of work with fn in the model's place."""
        return UNITS[self.kind](fn, self)

    def with_dynamic(self, dims: Sequence[DynamicDim]) -> Workload:
        """The same workload with more dynamic dimensions; of two for one dimension the new one counts, or widens it."""
        named = spelled_out(dims, self.model.forward, self.call)
        return self.replaced(dynamic=settled(merge(self.dynamic, named)))

    def replaced(
        self,
        *,
        seed: int | None = None,
        grad: bool | None = None,
        dynamic: Sequence[DynamicDim] | None = None,
        padding: PadSpec | None = None,
    ) -> Workload:
        """The same workload (and the same model object) run another way."""
        new = copy.copy(self)
        new.seed = self.seed if seed is None else seed
        new.grad = self.grad if grad is None else grad
        new.dynamic = self.dynamic if dynamic is None else tuple(dynamic)
        new.padding = self.padding if padding is None else checked(padding, self.model.forward, self.call)
        if new._examples_from_seed and new.seed != self.seed:
            new.examples = new._seeded_examples()
        new._check_examples()
        return new

    def with_examples(self, calls: Sequence[Call]) -> Workload:
        """The same model on other calls, without a request around them."""
        new = copy.copy(self)
        new.request, new._items, new.kind = None, None, Kind.INFERENCE
        new.examples, new._examples_from_seed = list(calls), False
        new._check_examples()
        return new

    def _seeded_examples(self) -> list[Call]:
        return [self.inputs(self.seed)]

    def _check_examples(self) -> None:
        for number, call in enumerate(self.examples):
            _check_binds(self.model.forward, call, "" if len(self.examples) == 1 else f" (example {number})")
            _check_sizes(self.model.forward, call, self.dynamic)

    def _shapes_note(self) -> str | None:
        if len({_shapes(call) for call in self.examples}) < 2 or self.dynamic:
            return None
        return (
            "the examples differ in shape but no dimension is declared dynamic, so compiled code may serve only the "
            'first; declare what varies, such as dynamic={"input_ids": {1: (1, 512)}}.'
        )


def as_call(value: Any) -> Call:
    """A call from what users write: a Call, a tensor, a mapping (keywords), (args, kwargs), or the arguments."""
    if isinstance(value, Call):
        return Call(tuple(value.args), dict(value.kwargs))
    if is_tensor(value):
        return Call((value,), {})
    if isinstance(value, Mapping):
        return Call((), _keywords(value))
    if not isinstance(value, tuple | list):
        raise InputError(
            f"example inputs are a {type(value).__name__}; give a tuple of arguments, one tensor or a dict of keywords."
        )
    if len(value) == 2 and isinstance(value[0], tuple | list) and isinstance(value[1], Mapping):
        return Call(tuple(value[0]), _keywords(value[1]))
    return Call(tuple(value), {})


def _keywords(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    wrong = next((key for key in mapping if not isinstance(key, str)), None)
    if wrong is not None:
        raise InputError(f"keyword arguments need names, got {wrong!r}; wrap a dict that is one argument: (inputs,).")
    return dict(mapping)


def _given_examples(args: Any, kwargs: Mapping[str, Any] | None, examples: Sequence[Any] | None) -> list[Call] | None:
    """The examples the user wrote down; None when there are none."""
    nothing = isinstance(args, tuple | list) and not args and not kwargs
    if examples is None:
        return None if nothing else [_joined(args, kwargs)]
    if not nothing:
        raise InputError("both args and examples were given; put every example into examples.")
    if not isinstance(examples, list | tuple) or not examples:
        raise InputError("examples must be a list with at least one example, such as [(x,), (y,)].")
    return [as_call(example) for example in examples]


def _joined(args: Any, kwargs: Mapping[str, Any] | None) -> Call:
    if kwargs is None:
        return as_call(args)
    call = as_call(args) if not isinstance(args, tuple | list) else Call(tuple(args), {})
    return Call(call.args, {**call.kwargs, **_keywords(kwargs)})


def check_model(model: Any) -> nn.Module:
    """The model; InputError for what is none."""
    if not isinstance(model, nn.Module):
        is_function = callable(model) and not isinstance(model, type)
        advice = "wrap it in an nn.Module whose forward calls it" if is_function else "pass an instance of nn.Module"
        kind = "a function" if inspect.isroutine(model) else f"of type {type(model).__name__}"
        raise InputError(f"the model is {kind}, not an nn.Module; {advice}.")
    if hasattr(model, "_orig_mod"):
        raise InputError("the model is already wrapped by torch.compile; pass the original model instead.")
    return model


def _check_inputs(inputs: Any) -> InputFunction | None:
    if inputs is not None and not callable(inputs):
        raise InputError("inputs must be a function of a seed; pass fixed inputs as args or examples.")
    return inputs  # type: ignore[no-any-return]


def check_loader(loader: Any) -> Any:
    """What gives batches, as it is; InputError for anything else."""
    if loader is not None and not callable(loader) and not hasattr(loader, "__iter__"):
        raise InputError("loader must be a DataLoader, another iterable of batches, or a function that returns one.")
    return loader


def _check_drive(drive: Any) -> Drive | None:
    if drive is not None and not callable(drive):
        raise InputError("drive must be a function that is given `call` and makes the calls, such as def drive(call).")
    return drive  # type: ignore[no-any-return]


def _check_binds(forward: Callable[..., Any], call: Call, which: str) -> None:
    try:  # a decorator's own signature counts, not the decorated function's: it may add arguments
        signature = inspect.signature(forward, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as problem:
        raise InputError(f"the example inputs{which} do not fit the model's forward{signature}: {problem}.") from None


def _check_sizes(forward: Callable[..., Any], call: Call, dims: Sequence[DynamicDim]) -> None:
    found = resolve_dynamic(dims, forward, call)
    for leaf in call_leaves(call):
        for dim, sizes in found.get(leaf.path, {}).items():
            size = leaf.value.shape[dim]
            if not sizes.min <= size <= sizes.max:
                raise InputError(
                    f"the example has size {size} at dimension {dim} of {leaf.path}, outside the declared range "
                    f"{sizes.min}..{sizes.max}; widen the range or give another example."
                )


def _shapes(call: Call) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((leaf.path, tuple(leaf.value.shape)) for leaf in call_leaves(call) if is_tensor(leaf.value))
