"""The calls a model is driven with. In: a workload, perhaps a shape trace. Out: calls in order, each with a name.

The order is the program's own: every example, inputs of further seeds where the user gave a function of a seed, the
smallest, largest and odd sizes of declared dynamic dimensions (or, in place of all these, the calls of a shape trace),
and last the user's own `drive`, which may change anything between its calls.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from compilot._tree import Call, call_leaves, is_tensor
from compilot.errors import first_cause
from compilot.records import CallSizes
from compilot.workload import Workload
from compilot.workload.variations import size_cases, traced_call

FURTHER_SEEDS = 3  # enough to see a shape that varies with the seed
_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
BOUNDARY = __file__  # frames above this file are the doctor's and the drive's, not the model's

Heard = Callable[[str], None]


def call_model(model: Callable[..., Any], call: Call) -> Any:
    """One call of the model; what the tracer sees below this frame is the model's own."""
    return model(*call.args, **call.kwargs)


def listed_calls(workload: Workload, trace: Sequence[CallSizes] = ()) -> Iterator[tuple[str, Call]]:
    """The calls that are known beforehand; a shape trace says them all."""
    if trace:
        yield from ((call.label, traced_call(workload, call)) for call in trace)
        return
    for number, call in enumerate(workload.examples, 1):
        yield f"example {number}", call
    if workload.input_function is not None:
        for seed in range(workload.seed + 1, workload.seed + 1 + FURTHER_SEEDS):
            yield f"seed {seed}", workload.inputs(seed)
    for case in size_cases(workload):
        yield f"{case.name} size", case.call


def drive(workload: Workload, model: Callable[..., Any], heard: Heard, trace: Sequence[CallSizes] = ()) -> list[str]:
    """Make every call; `heard` gets the name of each before it begins. What failed comes back as sentences.

    A failing call ends neither the drive nor the examination; the user's own drive ends where it raises.
    """
    failed: list[str] = []
    with torch.set_grad_enabled(workload.grad):
        for name, call in listed_calls(workload, trace):
            heard(name)
            _try(lambda call=call: call_model(model, fresh(call)), name, failed)  # type: ignore[misc]
        own = workload.drive
        if own is not None:
            _try(lambda: _own_drive(own, model, heard), "the workload's drive", failed)
    return failed


def _try(work: Callable[[], object], name: str, failed: list[str]) -> None:
    try:
        work()
    except Exception as problem:  # the user's code may raise anything
        failed.append(f"{name} failed: {first_cause(problem)}; what it would have shown is missing here")


def fresh(call: Call) -> Call:
    """The call, copied where it holds objects that a model may change (a cache of keys and values)."""
    if all(is_tensor(leaf.value) or isinstance(leaf.value, _PLAIN) for leaf in call_leaves(call)):
        return call
    try:
        return copy.deepcopy(call)
    except Exception:  # tensors within a gradient graph cannot be copied; then the call is used as it is
        return call


def _own_drive(own: Callable[[Callable[..., Any]], None], model: Callable[..., Any], heard: Heard) -> None:
    made = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        heard(f"call {made} of the drive")
        return call_model(model, Call(args, kwargs))

    own(call)
