"""Do the columns of an input have ranges of their own, and along which dimension are they counted?

In: a trace and its call. Out: what is solved, with the dimension of each input whose columns were told apart. One
tensor often holds ids of several tables (`ids[:, k]`), or is moved by an offset per column into one large table
(`ids + offsets`). Dimensions are tried where some operator treats one position unlike another; the answer with the
widest ranges is taken, and without columns if those gain nothing. Not covered: two dimensions of one input at once;
dimensions whose size is declared dynamic; more than `MOST` positions; models that read numbers or sizes which depend on
an input in Python (`ids[:, :int(lengths.max())]`): which columns they use may be others in another call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch

from compilot._torch.optrace import Trace
from compilot.indices.places import LARGEST, MOST, Columns
from compilot.indices.problem import Problem
from compilot.indices.solving import Solved, Unproven, solve

_UNLIMITED = 64.0  # bits
_MOST_TRIES = 8  # combinations of dimensions: nearly all models have one


class Answer(NamedTuple):
    """What was solved, for each column of those inputs whose columns were told apart."""

    solved: Mapping[str, list[Solved]]
    columns: Mapping[str, Columns]


Tensors = Mapping[str, torch.Tensor]  # the tensors of a call, by path


def best(trace: Trace, tensors: Tensors, static: Collection[tuple[str, int]]) -> Answer:
    """The answer with the widest ranges; static: dimensions of inputs that have this size in every call."""
    problem = Problem(trace)
    able = [] if trace.leaks else _combinations(trace, problem, static)
    answers, failures = list[Answer](), list[Unproven]()
    for columns in [{}, *able]:
        try:
            answers.append(solved_by(trace, tensors, columns))
        except Unproven as error:
            failures.append(error)
    if not answers:
        raise failures[0]
    return max(answers, key=lambda answer: _width(answer, problem))


def solved_by(trace: Trace, tensors: Tensors, columns: Mapping[str, Columns]) -> Answer:
    """What is solved with these columns; where they cannot be told apart, all of them share one range."""
    if trace.leaks:
        columns = {path: Columns(one.dim, (0,) * len(one.groups)) for path, one in columns.items()}
    problem = Problem(trace, columns)
    found = solve(problem, {path: _seen(tensors[path], columns.get(path)) for path in problem.inputs})
    able = {path: one for path, one in columns.items() if path in found}
    spread = {path: [found[path][group] for group in one.groups] for path, one in able.items()}
    return Answer({**found, **spread}, able)


def _combinations(
    trace: Trace, problem: Problem, static: Collection[tuple[str, int]]
) -> Iterator[Mapping[str, Columns]]:
    """One dimension for each input that has any worth trying."""
    options = {path: _options(trace, problem, path, static) for path in problem.inputs}
    able = {path: columns for path, columns in options.items() if columns}
    if able:
        tries = itertools.islice(itertools.product(*able.values()), _MOST_TRIES)
        yield from (dict(zip(able, columns, strict=True)) for columns in tries)


def _options(trace: Trace, problem: Problem, path: str, static: Collection[tuple[str, int]]) -> list[Columns]:
    """The dimensions of an input along which its columns differ."""
    found, step = list[Columns](), problem.inputs[path]
    for dim, size in enumerate(step.shape):
        if not 1 < size <= MOST or step.room > LARGEST or (path, dim) not in static:
            continue
        single = Problem(trace, {path: Columns.each(dim, size)})
        groups = single.groups(path) if single.split else (0,)
        if len(set(groups)) > 1:
            found.append(Columns(dim, groups))
    return found


def _seen(tensor: torch.Tensor, columns: Columns | None) -> list[set[int]]:
    """The values of each group of columns."""
    if columns is None:
        return [set(torch.unique(tensor).tolist())]
    found = [set[int]() for _ in set(columns.groups)]
    for group, column in zip(columns.groups, tensor.unbind(columns.dim), strict=True):
        found[group].update(torch.unique(column).tolist())
    return found


def _width(answer: Answer, problem: Problem) -> float:
    """How much the answer lets through, in bits: the mean over the columns of an input, summed over the inputs."""
    total = 0.0
    for path in problem.inputs:
        widths = [math.log2(one.range.high - one.range.low + 1) for one in answer.solved.get(path, ())]
        total += sum(widths) / len(widths) if widths else _UNLIMITED
    return round(total, 6)  # equal ones are equal in whatever order they were added up
