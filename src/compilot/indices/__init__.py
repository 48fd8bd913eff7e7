"""Which values of its inputs keep every index that a model makes of them in range?

In: a workload. Out: `IndexFacts`: a range for each integer input that an index depends on, or the index whose range
cannot be told. Found once per run, in eager's process, from eager calls that are followed operator by operator
(_torch/optrace.py); so models that cannot be exported are looked at, too. The guard of every candidate holds the
ranges: out of range eager raises, while a compiled model ends the process or answers with some number.
Covered: the example's sizes and the declared ones. Not covered: numbers that leave torch (`item()`, `tolist()`) and
come back; ways through the model that only other values take; tables of the model that are changed later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from compilot._torch.inner_code import INNER_CODE
from compilot._torch.optrace import Lookup, Trace, record
from compilot._tree import Call, call_leaves, map_call, resolve_dynamic
from compilot.errors import first_cause
from compilot.indices.columns import Answer, best, solved_by
from compilot.indices.lookups import is_lookup
from compilot.indices.problem import Problem
from compilot.indices.sizes import At, over_sizes
from compilot.indices.solving import Unproven
from compilot.inputs.values import can_vary, copied, is_integer, like, map_tensors, repeated
from compilot.records import IndexFacts, IndexRange
from compilot.workload.variations import size_cases

if TYPE_CHECKING:
    from compilot.workload import Workload

OTHERWISE = "where eager raises, compiled code would end the process or answer with some number"
ADVICE = "clamp it"


def find(workload: Workload) -> IndexFacts:
    """The facts about a model's indices."""
    trace = _traced(workload, workload.call)
    if trace.error is not None:
        cause = first_cause(trace.error)
        return IndexFacts(unproven=f"how the model uses its inputs as indices cannot be followed: {cause}")
    tensors = _tensors(workload.call)
    try:
        first = best(trace, tensors, _static(workload))
    except Unproven as error:
        return IndexFacts(unproven=_sentence(error.lookup))
    ranges, sized = over_sizes([At({}, first.solved)], first.columns), Problem(trace).sized()
    if workload.dynamic and trace.lookups:
        try:
            return IndexFacts(ranges=ranges, at_all_sizes=_at_declared_sizes(workload, first), sized=sized)
        except Unproven as error:
            return IndexFacts(ranges=ranges, sized=sized, unproven_sizes=_sentence(error.lookup, error.where))
    if not first.columns:
        return IndexFacts(ranges=ranges, at_all_sizes=ranges, sized=sized)
    try:  # nobody said that the number of columns stays as it is
        alike = over_sizes([At({}, solved_by(trace, tensors, {}).solved)], {})
    except Unproven:
        return IndexFacts(ranges=ranges, sized=True)
    return IndexFacts(ranges=ranges, at_all_sizes=alike, sized=sized)


def _static(workload: Workload) -> set[tuple[str, int]]:
    """The dimensions of the inputs whose size is not declared dynamic."""
    declared = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    return {(path, dim) for path, dim in _sizes(workload.call) if dim not in declared.get(path, {})}


def _at_declared_sizes(workload: Workload, first: Answer) -> dict[str, IndexRange]:
    found = [At(_sizes(workload.call), first.solved)]
    for case in size_cases(workload):
        try:
            found.append(_at(workload, case.call, first))
        except Unproven as error:
            error.where = case.name
            raise
    return over_sizes(found, first.columns)


def _at(workload: Workload, call: Call, first: Answer) -> At:
    """What is solved at the sizes of a call; where eager raises, from what it did before.

    Random values like the example's may be out of range at this size; then the example's own, then zeros.
    """
    example = _tensors(workload.call)
    calls = [call, _filled(call, lambda path, t: repeated(example[path], t.shape)), _filled(call, _zeros)]
    for tried in calls:
        try:
            solved = solved_by(_traced(workload, tried), _tensors(tried), first.columns).solved
        except Unproven:
            if tried is calls[-1]:
                raise
        else:
            return At(_sizes(call), solved)
    raise AssertionError("the last call returns or raises")


def _traced(workload: Workload, call: Call) -> Trace:
    own = map_call(call, lambda _, leaf: copied(leaf) if can_vary(leaf) else leaf)  # each input by itself
    model = workload.model
    fixed = [*model.parameters(), *model.buffers()]
    with torch.set_grad_enabled(workload.grad):
        return record(lambda: model(*own.args, **own.kwargs), _tensors(own), is_lookup, fixed)


def _tensors(call: Call) -> dict[str, torch.Tensor]:
    return {leaf.path: leaf.value for leaf in call_leaves(call) if isinstance(leaf.value, torch.Tensor)}


def _sizes(call: Call) -> dict[tuple[str, int], int]:
    return {(path, dim): size for path, tensor in _tensors(call).items() for dim, size in enumerate(tensor.shape)}


def _filled(call: Call, fill: Callable[[str, torch.Tensor], torch.Tensor]) -> Call:
    """The call with other whole numbers."""
    return map_tensors(call, lambda path, t: like(t, fill(path, t)) if is_integer(t) else t)


def _zeros(path: str, tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor)


def _sentence(lookup: Lookup, size: str = "") -> str:
    own = [f"{file}:{line}" for file, line in lookup.stack if not file.startswith(INNER_CODE)]
    where = f" at {own[-1]}" if own else ""
    if size:
        text = f"the index of '{lookup.name}'{where} may be out of range at the declared sizes '{size}'"
        return f"{text}: declare sizes that the model takes; {OTHERWISE}"
    text = f"the index of '{lookup.name}'{where} comes from numbers whose range is not known"
    return f"{text}: {ADVICE}; {OTHERWISE}"
