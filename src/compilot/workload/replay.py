"""The requests of a trace as the unit of work. In: a workload, and sizes of calls in the order they are made.

Out: `replayed`: the same workload whose unit, `Replay`, makes these calls: call() is one pass over all of them, for the
clock; time_some() is a part of it with the seconds of each, in order. Arms that replay the same sizes with the
same seed make the same calls in the same order, so their seconds are paired request by request. Equal sizes share one
call's tensors. The workload's own first example stays its first: guards and builds begin there. Dimensions that vary
in the trace without being declared are declared by it, from 1 on, with a note each (`Workload.notes`). Calls with an
empty input are left out. A request around the model is not replayed, and a note says so.
Not covered: which calls (traces/sampling.py), what the times mean (verdict/).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from compilot.errors import InputError
from compilot.records import CallSizes, DimRange, Kind
from compilot.workload.unit import UNITS, Inference, Work
from compilot.workload.variations import empty_calls, traced_call, traced_dims
from compilot.workload.workload import Workload

SMALLEST = 1  # size that a trace declares: an empty call now and then is no reason to build for empty inputs
WITHOUT_REQUEST = "the request around the model is not replayed: calls of a trace are timed without it"


class Replaying(Work, Protocol):
    """What a replay needs of its workload."""

    @property
    def replay_order(self) -> Sequence[int]: ...  # which example each request is, in order


class Replay(Inference):
    """The requests of a trace, one after the other, under the workload's grad mode."""

    def __init__(self, fn: Callable[..., Any], workload: Replaying) -> None:
        super().__init__(fn, workload)
        self._order = tuple(workload.replay_order)

    @property
    def calls(self) -> int:
        """How many requests a pass has."""
        return len(self._order)

    def call(self) -> None:
        """One pass over all requests."""
        fn, examples = self.fn, self.examples
        with torch.set_grad_enabled(self.grad):
            for number in self._order:
                args, kwargs = examples[number]
                fn(*args, **kwargs)

    def once(self) -> None:
        """Every size of the trace once."""
        with torch.set_grad_enabled(self.grad):
            for number in dict.fromkeys(self._order):
                args, kwargs = self.examples[number]
                self.fn(*args, **kwargs)

    def time_some(
        self, first: int, count: int, passes: int = 1, clock: Callable[[], float] = time.perf_counter
    ) -> tuple[float, ...]:
        """The mean seconds of each of some requests over passes in their order.

        The one before them is made first, and is not timed.
        """
        fn, calls = self.fn, [self.examples[number] for number in self._order[first : first + count]]
        seconds = [0.0] * len(calls)
        with torch.set_grad_enabled(self.grad):
            args, kwargs = self.examples[self._order[first - 1]]
            fn(*args, **kwargs)
            for _ in range(passes):
                for place, (args, kwargs) in enumerate(calls):
                    begin = clock()
                    fn(*args, **kwargs)
                    seconds[place] += clock() - begin
        return tuple(one / passes for one in seconds)


UNITS[Kind.TRACE] = Replay


def declared_by(
    workload: Workload, calls: Sequence[CallSizes], ranges: Mapping[str, DimRange] | None = None
) -> Workload:
    """The workload with the dimensions that vary in a trace declared. ranges: of the whole trace."""
    if not calls:
        raise InputError("there are no calls to replay; give a trace with calls.")
    found = traced_dims(workload, calls, ranges, SMALLEST)
    new = copy.copy(workload.with_dynamic(found.dims) if found.dims else workload)
    new.trace_notes = (*found.notes, *([WITHOUT_REQUEST] if workload.kind is Kind.REQUEST else []))
    return new


def replayed(workload: Workload, calls: Sequence[CallSizes], ranges: Mapping[str, DimRange] | None = None) -> Workload:
    """The workload with the calls of a trace as its work. ranges: of the whole trace, where calls are a part of it."""
    new = declared_by(workload, calls, ranges)
    is_empty = empty_calls(new)
    calls = [call for call in calls if not is_empty(call)]
    if not calls:
        raise InputError("every call of the trace has an empty input; there is nothing to replay.")
    first = {_key(call): call for call in reversed(calls)}  # of equal ones the first, which names its line
    distinct = dict.fromkeys(map(_key, calls))
    places = {key: number for number, key in enumerate(distinct, 1)}
    new.examples = [new.call, *(traced_call(new, first[key]) for key in distinct)]
    new.replay_order = tuple(places[_key(call)] for call in calls)
    new.kind, new._examples_from_seed = Kind.TRACE, False
    return new


def _key(call: CallSizes) -> tuple[tuple[str, int], ...]:
    return tuple(call.sizes.items())
