"""The unit of work: what is timed, judged, answered for a bundle and looked at, and how its state is put back.

In: a workload and the callable in its model's place. Out: `Unit`: call() for the clock; run() and answer() of one call
on copies, from a known state and seed; save() and restore() of all that the work changes; in_double(), the same work
in float64. `UNITS` is the table from a workload's kind to its unit; a new kind of work is a new row.
Covered: inference over every example, requests over every item; module buffers, the examples' own tensors, and
torch's, Python's and numpy's random state. Not covered: state that a model keeps in plain attributes (lists, dicts,
tensors that are no buffers): a model whose answers depend on it is refused when its reference is made.
"""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from compilot._tree import Call, call_leaves, is_tensor
from compilot.errors import WorkerError
from compilot.records import Kind
from compilot.workload.copying import Convert, copy_call, copy_model, copy_nested, to_double
from compilot.workload.observing import Seen, observed
from compilot.workload.outputs import plain, same_values
from compilot.workload.requests import Item, Request, is_item
from compilot.workload.state import Kept, RandomState, seeded


class Work(Protocol):
    """What a unit needs of its workload; a unit of another kind may need more."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def examples(self) -> Sequence[Call]: ...
    @property
    def grad(self) -> bool: ...
    @property
    def request(self) -> Request | None: ...
    @property
    def items(self) -> Sequence[Any]: ...


class Saved(NamedTuple):
    """What restore() puts back."""

    state: dict[str, Kept]
    inputs: tuple[Kept, ...]
    random: RandomState
    more: Any = None  # what a kind keeps beyond these


class ModelShare(NamedTuple):
    """Seconds of one request, and of these inside the model."""

    request_s: float
    model_s: float


class _Done(NamedTuple):
    """Work that was just done, its effects still there."""

    call: Call
    live: Call  # the copy that the work was done on
    answer: Any
    changed: dict[str, Tensor]


class Unit(ABC):
    """One unit of work with fn in the model's place. A kind says what the work is; the rest is the same for all."""

    def __init__(self, fn: Callable[..., Any], workload: Work) -> None:
        self.fn, self.model, self.grad = fn, workload.model, workload.grad
        # plain tuples: the clock would see named ones being unpacked
        self.examples = tuple((call.args, call.kwargs) for call in workload.examples)
        self._convert: Convert | None = None  # of the inputs that run() and answer() are given

    @abstractmethod
    def call(self) -> None:
        """Do the work once on every example; the results are dropped. This is what the clock sees."""

    @abstractmethod
    def work(self, call: Call) -> Any:
        """Do the work of one call and give its answer."""

    def model_share(self) -> ModelShare | None:
        """How much of the work is the model's; None: all of it."""
        return None

    def begin_again(self) -> None:  # noqa: B027  # nothing to do is right for most
        """Go back to where timing begins, outside of any timer; only kinds that leave something behind do."""

    def between(self) -> None:  # noqa: B027
        """After a timed call and outside of its time: go back where a long row of calls would lead too far."""

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the work may change, by name; the model's buffers, unless a kind has more."""
        return dict(self.model.named_buffers())

    def attach(self, name: str, tensor: Tensor) -> None:
        """Make this tensor the one of that name again, where the work put another in its place."""
        owner, _, attribute = name.rpartition(".")
        setattr(reduce(getattr, owner.split(".") if owner else (), self.model), attribute, tensor)

    @property
    def calls(self) -> int:
        """How often the work of one call is done by call()."""
        return len(self.examples)

    def run(self, call: Call, seed: int | None = None) -> Seen:
        """Do the work on copies of a call's inputs and note what it gave and changed; then all is as it was."""
        with self._doing(call, seed) as done:
            return observed(done.call, done.live, done.answer, done.changed, grad=self.grad)

    def answer(self, call: Call, seed: int | None = None) -> Any:
        """As run(), but only the answer, with memory of its own."""
        with self._doing(call, seed) as done:
            return copy_nested(done.answer)

    def save(self) -> Saved:
        """A copy of everything that call() may change."""
        leaves = [leaf.value for example in self.examples for leaf in call_leaves(Call(*example))]
        inputs = tuple(Kept.of(value) for value in leaves if is_tensor(value))
        return Saved(self._save_state(), inputs, RandomState.now())

    def restore(self, saved: Saved) -> None:
        """Put everything back, in place; a tensor that did not change is not touched."""
        self._restore_state(saved.state)
        for kept in saved.inputs:
            kept.put_back()
        saved.random.put_back()

    @contextmanager
    def restored(self) -> Iterator[Self]:
        """The unit, for calls that shall leave nothing behind."""
        saved = self.save()
        try:
            yield self
        finally:
            self.restore(saved)

    def in_double(self) -> Self:
        """The model's own work on a copy of it in double precision, which makes no gradients."""
        double = copy.copy(self)
        double.fn = double.model = copy_model(self.model, to_double)
        double.grad, double._convert = False, to_double
        double.examples = copy_nested(self.examples, to_double)
        return double

    @contextmanager
    def _doing(self, call: Call, seed: int | None) -> Iterator[_Done]:
        call = call if self._convert is None else copy_call(call, self._convert)
        live, saved = copy_call(call), self._save_state()
        try:
            with seeded(seed), torch.set_grad_enabled(self.grad):
                answer = self.work(live)
            yield _Done(call, live, answer, self._changed(saved))
        finally:
            self._restore_state(saved)

    def _save_state(self) -> dict[str, Kept]:
        return {name: Kept.of(tensor) for name, tensor in self.state().items()}

    def _changed(self, saved: Mapping[str, Kept]) -> dict[str, Tensor]:
        """Values of what is new or differs from the saved values."""
        now = self.state().items()
        return {name: plain(t) for name, t in now if name not in saved or not same_values(t, saved[name].values)}

    def _restore_state(self, saved: Mapping[str, Kept]) -> None:
        """What the work added stays: a later call may rely on it."""
        now = self.state()
        for name, kept in saved.items():
            kept.put_back()
            if now.get(name) is not kept.tensor:
                self.attach(name, kept.tensor)


class Inference(Unit):
    """One call of the model for each example, under the workload's grad mode."""

    def call(self) -> None:
        """Call fn on the examples themselves."""
        fn = self.fn
        with torch.set_grad_enabled(self.grad):
            for args, kwargs in self.examples:
                fn(*args, **kwargs)

    def work(self, call: Call) -> Any:
        """Call fn."""
        return self.fn(*call.args, **call.kwargs)


class Requests(Unit):
    """One request for each item, with fn in the model's place; a call of the model alone is judged as it is."""

    def __init__(self, fn: Callable[..., Any], workload: Work) -> None:
        super().__init__(fn, workload)
        if workload.request is None:
            raise WorkerError("this workload has no request.")
        self.request: Request = workload.request
        self.examples = tuple(((Item(item),), {}) for item in workload.items)

    def call(self) -> None:
        """Do every item's request; fn is called as the user's program will call it."""
        fn, request = self.fn, self.request
        with torch.set_grad_enabled(self.grad):
            for (item,), _ in self.examples:
                request(fn, item.value)

    def work(self, call: Call) -> Any:
        """The answer to a request, or to a call of the model."""
        if is_item(call):
            return self.request(self._called, call.args[0].value)
        return self.fn(*call.args, **call.kwargs)

    def model_share(self) -> ModelShare:
        """Each request once more, with a clock around the model."""
        inside = [0.0]

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return self.fn(*args, **kwargs)
            finally:
                inside[0] += time.perf_counter() - begin

        begin = time.perf_counter()
        with torch.set_grad_enabled(self.grad):
            for (item,), _ in self.examples:
                self.request(timed, item.value)
        whole_s = time.perf_counter() - begin
        return ModelShare(whole_s / self.calls, inside[0] / self.calls)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        """fn, with what a request prepared in the precision of the work."""
        if self._convert is None:
            return self.fn(*args, **kwargs)
        call = copy_call(Call(args, kwargs), self._convert)
        return self.fn(*call.args, **call.kwargs)


UNITS: dict[Kind, type[Unit]] = {Kind.INFERENCE: Inference, Kind.REQUEST: Requests}
