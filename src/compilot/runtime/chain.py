"""Several plan entries behind one face: each call goes to the first entry whose guard takes it, else to eager.

In: one Dispatcher per entry, in the plan's order. Out: what fast.py needs of a core. Entries that differ in sizes are
found by the shapes of a call in one look-up, however many there are: those of one size from the start, those of ranges
after the first call of a size, and as many sizes are remembered as `MAX_SIZES`, the newest. Every entry still checks
all of its guard; what the one that was found does not take, or takes and cannot answer, is offered to the others that
the sizes fit. Entries whose calls have other forms are asked one after the other. Not covered: how an entry answers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from compilot._tree import Call
from compilot.errors import CompilotError
from compilot.inputs.paths import Path, parse
from compilot.records import DimRange, Guard
from compilot.runtime import codegen
from compilot.runtime.dispatch import PASSED, Dispatcher, Why
from compilot.runtime.forking import tell_after_fork
from compilot.runtime.matching import sizes_fit
from compilot.runtime.notices import Fallbacks, Stats, added

MAX_SIZES = 1 << 13  # remembered, about 0.4 kB each; a size that was forgotten is looked for again
Answer = Callable[..., Any]
Key = torch.Size | tuple[torch.Size, ...]  # bare where one input tells the entries apart, as the generated code asks


class Chain:
    """Dispatchers in the plan's order."""

    def __init__(self, links: Sequence[Dispatcher], names: Sequence[str] = ()) -> None:
        self._links = links
        self._names = [name or f"entry {number}" for number, name in enumerate(names or [""] * len(links))]
        self._untaken = Fallbacks()  # of calls that are no entry's
        for link in links:
            link.otherwise = self._another
            link.fast_elsewhere = partial(_fast_calls_of, [other for other in links if other is not link])
        self._rows = _by_size(links)
        self.call: Answer = links[0].call if self._rows is None else self._rows.call

    def _another(self, asked: Dispatcher, why: Why, call: Call) -> Any:
        """The answer of the first other entry that has one, else eager's: for the reason of the one asked first."""
        for link in self._links if self._rows is None else self._rows.fitting(call):
            if link is not asked and (answer := link.offered(call)) is not PASSED:
                return answer
        return asked.eager(why.reason, call, said=why.said, counted=None if why.taken else self._untaken)

    def prepare(self, call: Call) -> None:
        """Build what this call needs now, in the entry that takes it."""
        taking = next((link for link in self._links if link.takes(call)), self._links[0])
        taking.prepare(call)

    def refresh(self) -> None:
        """Load every entry again; one that cannot be does not keep the others from it."""
        failed: list[CompilotError] = []
        for link in self._links:
            try:
                link.refresh()
            except CompilotError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    @property
    def frozen_weights(self) -> bool:
        """Whether weight values are baked in anywhere."""
        return any(link.frozen_weights for link in self._links)

    def forget_calls(self) -> None:
        """The calls so far were not the user's: leave them out of the statistics."""
        self._untaken = Fallbacks()
        for link in self._links:
            link.forget_calls()

    def stats(self) -> Stats:
        """How the calls went, over all entries and by entry."""
        each = [link.stats() for link in self._links]
        untaken = self._untaken.snapshot()
        whole = added([*each, Stats(sum(untaken.values()), 0, untaken, 0)])
        return whole._replace(entries=dict(zip(self._names, each, strict=True)))


def _fast_calls_of(links: Sequence[Dispatcher]) -> int:
    return sum(link.fast_calls() for link in links)


def _by_size(links: Sequence[Dispatcher]) -> _Rows | None:
    """What finds the entry by its sizes; None: sizes do not tell these entries apart."""
    first = links[0].guard
    keyed = _telling_apart([link.guard for link in links])
    source = codegen.row_source(first, keyed) if keyed and all(map(partial(_same_form, first), links)) else None
    return None if source is None else _Rows(links, keyed, source)


def _same_form(one: Guard, link: Dispatcher) -> bool:
    other = link.guard
    same = one.positional == other.positional and one.keywords == other.keywords
    return same and [tensor.path for tensor in one.tensors] == [tensor.path for tensor in other.tensors]


def _telling_apart(guards: Sequence[Guard]) -> list[str]:
    """Paths of the inputs that have other sizes in another entry, or sizes of a range."""
    shapes: dict[str, set[tuple[int | DimRange, ...]]] = {}
    for tensor in (tensor for guard in guards for tensor in guard.tensors):
        shapes.setdefault(tensor.path, set()).add(tensor.shape)
    ranged = {path for path, found in shapes.items() if any(isinstance(n, DimRange) for shape in found for n in shape)}
    return [path for path, found in shapes.items() if len(found) > 1 or path in ranged]


class _Rows:
    """Which entry is for which sizes."""

    def __init__(self, links: Sequence[Dispatcher], keyed: Sequence[str], source: str) -> None:
        """source: of the generated `__call__`."""
        self._links = links
        self._paths: list[Path] = [parse(path) for path in keyed]
        self._shapes = [{tensor.path: tensor.shape for tensor in link.guard.tensors} for link in links]
        self._wanted = [[shapes[path] for path in keyed] for shapes in self._shapes]
        self._rows: dict[Key, Answer] = {}
        self._nobodys: Answer = self._of_nobody  # one object, to be known again
        self._learned: deque[Key] = deque()
        self.after_fork()
        for shapes in self._wanted:
            if not any(isinstance(size, DimRange) for shape in shapes for size in shape):
                key = _key([torch.Size(shape) for shape in shapes])  # type: ignore[arg-type]
                self._rows[key] = self._first_for(key)
        names = codegen.hot_globals() | {"_rows": self._rows, "_unknown": self._unknown, "_odd": self._odd}
        self.call: Answer = codegen.compile_call(source, names)
        tell_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child: the thread that held the lock is not there any more."""
        self._lock = threading.Lock()

    def fitting(self, call: Call) -> Sequence[Dispatcher]:
        """The entries that may take this call, as far as sizes go; of a call that has none: all of them."""
        key = self._key_of(call.args, call.kwargs)
        if key is None:
            return self._links
        return () if self._rows.get(key) is self._nobodys else self._fits(key)

    def _unknown(self, _self: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Answer a call whose sizes are new, or that is not even a call of the plan's form."""
        return self._odd(args, kwargs)

    def _odd(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same of a call that may have more arguments."""
        given = tuple([value for value in args if value is not codegen.MISSING])
        named = {key: value for key, value in kwargs.items() if value is not codegen.MISSING}
        return self._for(given, named)(None, *given, **named)

    def _for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
        key = self._key_of(args, kwargs)
        if key is None:
            return self._links[-1].call
        return self._rows.get(key) or self._learn(key)

    def _key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
        """The sizes that entries are told apart by; None: a call of another form, or one without sizes."""
        call = self._links[0].in_form(args, kwargs)
        try:  # an array of another library has a shape as well: a plain tuple
            return None if call is None else _key([torch.Size(path.follow(*call).shape) for path in self._paths])
        except Exception:  # whatever an odd argument does when it is looked at
            return None

    def _learn(self, key: Key) -> Answer:
        found = self._first_for(key)
        with self._lock:
            if key not in self._rows:
                while len(self._learned) >= MAX_SIZES:
                    del self._rows[self._learned.popleft()]
                self._rows[key] = found
                self._learned.append(key)
        return found

    def _first_for(self, key: Key) -> Answer:
        """The call of the first entry that takes these sizes, as far as sizes go."""
        fitting = self._fits(key)
        return fitting[0].call if fitting else self._nobodys

    def _fits(self, key: Key) -> list[Dispatcher]:
        shapes = [key] if isinstance(key, torch.Size) else list(key)
        entries = zip(self._links, self._wanted, strict=True)
        return [link for link, wanted in entries if all(map(sizes_fit, shapes, wanted))]

    def _of_nobody(self, _self: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Answer a call of which sizes say that no entry takes it: the last one says why."""
        return self._links[-1].call(_self, *args, **kwargs)


def _key(shapes: Sequence[torch.Size]) -> Key:
    return shapes[0] if len(shapes) == 1 else tuple(shapes)
