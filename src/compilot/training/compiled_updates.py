"""Compiled updates: an optimizer's whole step as one program, or one small program for every parameter.

In: a live Adam, AdamW or SGD. Out: a callable that does one update with the optimizer's own state, made and named as
torch does, so that checkpoints cross over. The small program takes any number of elements: parameters are handed to it
flat, so that two programs (one element, and more) serve all of them. A program is tried on copies before it touches
anything, or is the first thing that does: an update that cannot be compiled leaves everything as it was, and the user's
own step does it, from then on. Programs that are built after an update without any count as recompiles. SGD's own
first step makes its momentum: that is a part of this way. Not covered: other optimizers (Infeasible), the arithmetic
(kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from compilot._torch import optimizers
from compilot._torch.compiling import graphs_built, import_dynamo
from compilot._torch.training import compiled_function
from compilot.engines import registry
from compilot.engines.protocol import Infeasible
from compilot.errors import PlanNotUsedWarning, first_cause
from compilot.records import OptimizerWay
from compilot.runtime.model_part import kept_code
from compilot.runtime.notices import warn
from compilot.runtime.weight_watch import after_step
from compilot.training.kernels import AdamForm, SGDForm
from compilot.training.updates import align, special

RECOMPILE_LIMIT = 64  # one program for each group and form, and for parameters that are new in a later step

Form = AdamForm | SGDForm


class Bucket(NamedTuple):
    """Parameters of one group at the same number of updates."""

    form: Form
    numbers: list[float]
    columns: tuple[list[Tensor], ...]  # parameters, gradients, one list for each tensor of the state
    steps: list[Tensor]  # the counters of updates, where the optimizer has them

    @property
    def size(self) -> int:
        """Elements of all parameters."""
        return sum(parameter.numel() for parameter in self.columns[0])


class CompiledUpdate:
    """One update by compiled code."""

    def __init__(self, optimizer: Optimizer, way: OptimizerWay, artifacts: Path | None, *, strict: bool) -> None:
        if type(optimizer) not in (Adam, AdamW, SGD):
            raise Infeasible(f"compiled updates are there for Adam, AdamW and SGD, not for {type(optimizer).__name__}")
        import_dynamo()
        self._optimizer = optimizer
        self._artifacts = artifacts
        self._run = self._whole if way is OptimizerWay.COMPILED else self._one_by_one
        self._flat = way is OptimizerWay.KERNEL
        self._programs: dict[Form, Callable[..., None]] = {}
        self._known: set[Hashable] = set()
        self._done = 0  # of the buckets of this update: moved while their program was compiled
        self._strict = strict
        self._failure: str | None = None
        self._warm = False  # an update has gone by without a new program
        self.compiles = self.recompiles = 0

    def __call__(self) -> str | None:
        """Update the parameters; returns why the user's own step did it, None: it did not."""
        reason = self._failure or special(self._optimizer) or self._unfit()
        if reason is None and self._begins():
            self._optimizer.step()  # which makes the momentum; a part of this way, and nothing to count
            return None
        if reason is None:
            before = graphs_built()
            with torch.no_grad():
                reason = self._updated()
            self._count(graphs_built() - before)
            after_step(self._optimizer)  # plans with these weights baked in hear of it, as after `step`
        if reason is not None:
            self._optimizer.step()
        return reason

    def _count(self, built: int) -> None:
        self.compiles += built
        self.recompiles += built if self._warm else 0
        self._warm = self._warm or not built

    def _unfit(self) -> str | None:
        if optimizers.has_step_hooks(self._optimizer, besides=after_step):
            return "the optimizer has hooks around its step"
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse or parameter.is_complex():
                    return "sparse gradients or complex parameters"
                if self._flat and not _is_dense(parameter):
                    return "parameters that are not dense in memory"
        return None

    def _begins(self) -> bool:
        """Whether SGD has its first gradient of some parameter, from which it makes the momentum."""
        moved = ((group, p) for group in self._optimizer.param_groups for p in group["params"] if p.grad is not None)
        state = self._optimizer.state
        return any(group.get("momentum") and state[p].get("momentum_buffer") is None for group, p in moved)

    def _updated(self) -> str | None:
        align(self._optimizer)
        buckets = sorted(self._buckets(), key=lambda bucket: -bucket.size)
        try:
            self._prepare(buckets)
        except Exception as error:
            self._failure = f"the update cannot be compiled: {first_cause(error)}"
            if self._strict:
                raise Infeasible(self._failure) from error
            warn(f"{self._failure}; the optimizer's own step is used.", PlanNotUsedWarning)
            return self._failure
        for bucket in buckets[self._done :]:
            self._run(bucket)
        for bucket in buckets:
            if bucket.steps:
                optimizers.add_one(bucket.steps)
        optimizers.note_step(self._optimizer)
        return None

    def _buckets(self) -> Iterator[Bucket]:
        """The groups' parameters with gradients, by the number of updates they have had."""
        adam = not isinstance(self._optimizer, SGD)
        for group in self._optimizer.param_groups:
            columns = optimizers.group_state(self._optimizer, group, 6 if adam else 3)
            form: Form = AdamForm.of(group) if adam else SGDForm.of(group)
            if not adam:
                kept = columns if group["momentum"] else columns[:2]
                yield Bucket(form, form.numbers(group, 0), _plain(kept), [])
                continue
            *kept, steps = columns if group["amsgrad"] else [*columns[:4], columns[5]]
            counts = [float(step) for step in steps]
            for count in dict.fromkeys(counts):
                rows = [number for number, own in enumerate(counts) if own == count]
                chosen = [[column[row] for row in rows] for column in kept]
                yield Bucket(form, form.numbers(group, count + 1), _plain(chosen), [steps[row] for row in rows])

    def _prepare(self, buckets: Sequence[Bucket]) -> None:
        """Compile what is not there yet, on copies; the largest one comes last, without: it has that update done."""
        self._done = 0
        for bucket in reversed(buckets):
            for row in self._rows(bucket):
                key = (bucket.form, tuple(self._key(column) for column in row))
                if key not in self._known:
                    real = bucket is buckets[0] and not self._flat
                    with kept_code(self._artifacts):
                        self._program(bucket.form)(*(row if real else _copied(row)), _tensor(bucket.numbers))
                    self._known.add(key)
                    self._done = int(real)

    def _rows(self, bucket: Bucket) -> Iterator[Any]:
        """What the program of a bucket is called with: once with lists, or once for each parameter."""
        if self._flat:
            yield from (tuple(map(_flat, row)) for row in zip(*bucket.columns, strict=True))
        elif bucket.columns[0]:
            yield bucket.columns

    def _key(self, column: Any) -> Hashable:
        if self._flat:
            return column.dtype, min(column.numel(), 2)
        return tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in column)

    def _whole(self, bucket: Bucket) -> None:
        if bucket.columns[0]:
            self._program(bucket.form)(*bucket.columns, _tensor(bucket.numbers))

    def _one_by_one(self, bucket: Bucket) -> None:
        program, numbers = self._program(bucket.form), _tensor(bucket.numbers)
        for row in self._rows(bucket):
            program(*row, numbers)

    def _program(self, form: Form) -> Callable[..., None]:
        """Compiled at its first call; fullgraph: it is run as a whole or not at all."""
        if form not in self._programs:
            self._programs[form] = compiled_function(
                form.update if self._flat else _for_all(form),
                backend=registry.plain_compile(),
                options={},
                dynamic=self._flat,
                recompile_limit=RECOMPILE_LIMIT,
                fullgraph=True,
            )
        return self._programs[form]


def _for_all(form: Form) -> Callable[..., None]:
    def update(*columns_and_numbers: Any) -> None:
        *columns, numbers = columns_and_numbers
        for row in zip(*columns, strict=True):
            form.update(*row, numbers)

    return update


def _plain(columns: Sequence[Sequence[Tensor]]) -> tuple[list[Tensor], ...]:
    """Tensors without gradients of their own: a program for parameters and one for copies would be two."""
    return tuple([tensor.detach() for tensor in column] for column in columns)


def _flat(tensor: Tensor) -> Tensor:
    """All elements in the order of memory; they are laid out alike in every tensor of a row."""
    return tensor.as_strided((tensor.numel(),), (1,))


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill their memory without gaps, in whichever order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _copied(row: Any) -> Any:
    return tuple(one.clone() if isinstance(one, Tensor) else [tensor.clone() for tensor in one] for one in row)


def _tensor(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)
