"""One training step as the unit of work. In: a Training and a `Loop` (or the model, for eager's own). Out: `Steps`.

call() is a whole step: its micro-batches (with a loader: fetched from it), the update, the scheduler. State and the
place in the data are saved and put back outside the timer, by `begin_again`, the same way for every arm. `model_share`:
how much of a step is the step itself; the rest is waiting for data.
Covered: batches of a list one after the other, loaders that end and begin again, and whose last batch is smaller: that
one is passed over. Not covered: the judge, which drives a loop by itself (measure/step_*.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, cast

from torch import Tensor

from compilot._tree import Call, call_leaves
from compilot.errors import WorkerError
from compilot.records import Kind
from compilot.workload.copying import copy_model, copy_nested, to_double
from compilot.workload.loop import Loop, Trains
from compilot.workload.state import RandomState
from compilot.workload.unit import UNITS, ModelShare, Saved, Unit, Work

AT_MOST = 64  # steps in a row


class Steps(Unit):
    """One step for each call."""

    def __init__(self, fn: Callable[..., Any], workload: Work) -> None:
        super().__init__(fn, workload)
        trains = cast(Any, workload)
        self.loop = fn if isinstance(fn, Loop) else Loop(cast(Trains, workload))
        self.batches: Sequence[Any] = trains.batches
        self._loader = trains.loader
        self._sizes = sizes_of(trains.batches[0]) if trains.one_size else None  # None: all are taken
        self._place = 0
        self._flow: Iterator[Any] | None = None
        self._begin: Saved | None = None
        self._since = 0  # steps since `begin_again`

    @property
    def calls(self) -> int:
        """One step is one call."""
        return 1

    def call(self) -> None:
        """One step, with its data where there is a loader."""
        loop, next_ = self.loop, self._next
        step = loop.step
        for _ in range(loop.rules.accumulate):
            step(next_())
        loop.advance()

    def work(self, call: Call) -> Any:
        """A training step has no answer to one call of the model."""
        raise WorkerError("a training step is judged as a whole, not call by call.")

    def model_share(self) -> ModelShare | None:
        """A step with a clock around its data; None without a loader: its batches are at hand."""
        if self._loader is None:
            return None
        loop, waited = self.loop, 0.0
        begin = time.perf_counter()
        for _ in range(loop.rules.accumulate):
            before = time.perf_counter()
            batch = self._next()
            waited += time.perf_counter() - before
            loop.step(batch)
        loop.advance()
        whole = time.perf_counter() - begin
        return ModelShare(whole, whole - waited)

    # -------------------------------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Tensor]:
        """Everything that a step may change."""
        return self.loop.tensors()

    def save(self) -> Saved:
        """A copy of everything that a step may change, and the place in the data."""
        state = self.loop.save()
        return Saved({}, (), state.random or RandomState.now(), (state, self._place))

    def restore(self, saved: Saved) -> None:
        """Put everything back, in place."""
        state, self._place = saved.more
        self.loop.restore(state)

    def begin_here(self) -> None:
        """What is now is what `begin_again` goes back to."""
        self._begin = self.save()

    def begin_again(self) -> None:
        """Everything as it was, in place; outside of any timer. A loader goes on: its data is as good as any."""
        if self._begin is None:
            self.begin_here()
        else:
            self.restore(self._begin)
        self._since = 0

    def between(self) -> None:
        """Go back after some steps: a model that trains for thousands of them on a few batches is another one."""
        self._since += 1
        if self._since >= AT_MOST:
            self.begin_again()

    def in_double(self) -> Self:
        """The same training of a copy in double precision, with a loop of its own."""
        raise WorkerError("the float64 twin of a training is made by in_double_loop.")

    def _next(self) -> Any:
        if self._loader is None:
            batch = self.batches[self._place]
            self._place = (self._place + 1) % len(self.batches)
            return batch
        if self._flow is None:
            self._flow = self._flowing()
        return next(self._flow)

    def _flowing(self) -> Iterator[Any]:
        while True:
            given = False
            for batch in loader_batches(self._loader):
                if self._sizes is None or sizes_of(batch) == self._sizes:
                    given = True
                    yield batch
            if not given:
                raise WorkerError(
                    "the loader gave no batch of the first one's sizes once more; if it can be read only once, pass a "
                    "function that returns a new one."
                )


def sizes_of(batch: Any) -> tuple[Any, ...]:
    """Sizes and dtypes of a batch's tensors, by their places."""
    leaves = call_leaves(Call((batch,), {}))
    return tuple((path, leaf.shape, leaf.dtype) for path, leaf in leaves if isinstance(leaf, Tensor))


def loader_batches(loader: Any) -> Iterator[Any]:
    """The batches of a loader, once through; a function that returns one is called."""
    made = loader() if callable(loader) and not hasattr(loader, "__iter__") else loader
    return iter(made)


def double_loop(workload: Trains) -> Loop:
    """The same training in float64; its optimizer must be made of the parameters that the factory is given."""
    loop = Loop(workload, model=copy_model(workload.model, to_double))
    own = {id(parameter) for parameter in loop.model.parameters()}
    if any(id(parameter) not in own for parameter in loop.parameters):
        raise WorkerError("the optimizer's factory does not use the parameters that it is given")
    return loop


def in_double(batch: Any) -> Any:
    """A batch in float64."""
    return copy_nested(batch, to_double)


UNITS[Kind.TRAINING] = Steps
