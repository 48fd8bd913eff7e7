"""Calls in parts: a call with many rows is answered by several calls with fewer of them.

In: the engine as it was loaded, behind its padding where it has one, and the entry's `SplitCalls`. Out: an engine with
the same face. A call with enough rows is cut into parts, the last of which has the rows that are left, and the answers
are joined: outputs are eager's in shape and layout, and what has no rows is that of the first part. Smaller calls are
passed on as they are. Refused with NotTaken, so that eager answers the whole call: inputs that do not agree on their
rows, answers of parts that are not made up alike. Calls beyond the proven size never come here: the guard turns them
down. Not covered: whether the parts together are the answer (measure/splitting.py proves that).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from compilot._tree import Call, map_call, output_leaves, rebuild
from compilot.engines.protocol import Loaded, NotTaken
from compilot.inputs.paths import parse
from compilot.records import SplitCalls
from compilot.runtime.padding import dense
from compilot.runtime.prepared import Prepared, standing_before


def in_parts(engine: Loaded, split: SplitCalls) -> Loaded:
    """The engine for calls with more rows, too; what it prepares, it prepares once for each size of a part."""
    return standing_before(engine, CallsInParts(engine, split))


class CallsInParts:
    """The engine's callable behind the cutting."""

    def __init__(self, engine: Loaded, split: SplitCalls) -> None:
        self._engine = engine
        self._divide = Divide(split)
        self._join = Join(split)
        self._prepared = Prepared(engine)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rows = self._divide.rows(args, kwargs)
        if rows is None:
            return self._engine.call(*args, **kwargs)
        run = self._engine.call
        return self._join([run(*part.args, **part.kwargs) for part in self._divide(args, kwargs, rows)])

    def builds(self) -> int:
        """Programs, of an engine that does not count them."""
        return self._prepared.builds()

    def is_built(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the engine has nothing to build for any part of this call."""
        return all(map(self._prepared.knows, self._parts(args, kwargs)))

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer to a call of a new size or mode; the engine builds only for new parts."""
        answers = [self._prepared.answer(part) for part in self._parts(args, kwargs)]
        return answers[0] if len(answers) == 1 else self._join(answers)

    def _parts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Call]:
        rows = self._divide.rows(args, kwargs)
        return [Call(args, kwargs)] if rows is None else list(self._divide(args, kwargs, rows))


class Divide:
    """Cuts the inputs of a call."""

    def __init__(self, split: SplitCalls) -> None:
        self._each, self._min = split.rows, split.min
        self._paths = {one.path: parse(one.path) for one in split.batch.inputs}
        self._flat = all(not path.steps for path in self._paths.values())

    def rows(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Rows of a call that is to be cut; None: it has few. NotTaken: its inputs do not agree on them."""
        found = {path.follow(args, kwargs).shape[0] for path in self._paths.values()}
        if len(found) > 1:
            raise NotTaken(f"inputs with {' and '.join(map(str, sorted(found)))} rows in one batch")
        [rows] = found
        return rows if rows >= self._min else None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int) -> Iterator[Call]:
        """The parts in order: views of the inputs, nothing is copied."""
        for first in range(0, rows, self._each):
            yield self._part(args, kwargs, first, min(self._each, rows - first))

    def _part(self, args: tuple[Any, ...], kwargs: dict[str, Any], first: int, rows: int) -> Call:
        if not self._flat:
            own = self._paths
            return map_call(Call(args, kwargs), lambda path, leaf: leaf.narrow(0, first, rows) if path in own else leaf)
        new, named = list(args), dict(kwargs)
        for path in self._paths.values():
            if isinstance(path.root, int):
                new[path.root] = new[path.root].narrow(0, first, rows)
            else:
                named[path.root] = named[path.root].narrow(0, first, rows)
        return Call(tuple(new), named)


class Join:
    """Joins the answers of parts."""

    def __init__(self, split: SplitCalls) -> None:
        self._dims = {one.path: one.dim for one in split.batch.outputs}
        self._orders = {layout.path: layout.order for layout in split.layouts}

    def __call__(self, answers: Sequence[Any]) -> Any:
        """The answer to the whole call. NotTaken: the parts' are not made up alike."""
        if isinstance(answers[0], torch.Tensor):
            return self._of("output", answers)
        found = [{leaf.path: leaf.value for leaf in output_leaves(answer)} for answer in answers]
        if any(one.keys() != found[0].keys() for one in found):
            raise NotTaken("answers to parts of the call are not made up alike")
        made: dict[int, torch.Tensor] = {}  # a tensor that is in it twice stays one

        def one(path: str, leaf: Any) -> Any:
            if id(leaf) not in made and path in self._dims:
                made[id(leaf)] = self._of(path, [part[path] for part in found])
            return made.get(id(leaf), leaf)

        return rebuild(answers[0], one, "output")

    def _of(self, path: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        dim = self._dims.get(path)
        if dim is None:
            return tensors[0]
        order = self._orders.get(path)
        if order is None:
            return dense(torch.cat(list(tensors), dim))
        back = sorted(range(len(order)), key=order.__getitem__)
        return dense(torch.cat([tensor.permute(order) for tensor in tensors], order.index(dim))).permute(back)
