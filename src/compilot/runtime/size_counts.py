"""The sizes of a model's calls, counted and written down. In: calls. Out: a trace file, at most 10 s behind.

The first calls are kept in order; from then on a call of a known form and size costs one look into a dict and one step
of a counter, without a lock (size_form.py). Everything else comes here: new sizes, calls of another form, sizes beyond
what there is room for. Holds nothing of the model; writes no value and no key of an input (inputs/naming.py). A thread
writes the file, since a caller must not wait for a disk; it starts with the first call. A forked child counts from zero
into a file of its own. Nothing that goes wrong here is the problem of a call, also where warnings are errors.
Not covered: several processes with one file (the last one wins): name it with {pid}.
"""

from __future__ import annotations

import inspect
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing import util
from pathlib import Path
from typing import Any

import msgspec

from compilot._tree import Call, call_nodes
from compilot.errors import CompilotWarning, InputError
from compilot.inputs.naming import named_leaves, root_names
from compilot.records import TraceHeader
from compilot.runtime.counting import count_of
from compilot.runtime.forking import tell_after_fork
from compilot.runtime.notices import logger, warn
from compilot.runtime.size_form import Form, Node, Ticks, form_of, has_sizes, signature_of
from compilot.traces.lines import Key
from compilot.traces.reading import FIRST_CALLS, scan
from compilot.traces.tally import Tally
from compilot.traces.writing import write_trace

EVERY_S = 10.0
MOST_FORMS = 64  # calls of further forms are counted, too, but cost some microseconds
PID = "{pid}"


class SizeCounts:
    """Counts of one model's calls; `forms` and `slow` are what the generated code uses."""

    def __init__(self, path: Path, header: TraceHeader, named: Callable[..., Any], words: frozenset[str]) -> None:
        """named: a function with the signature of the model's forward. words: keys of dicts that may be written."""
        self._given, self._header, self._named, self._words = path, header, named, words
        self.forms: dict[tuple[Any, ...], Callable[[tuple[Any, ...], dict[str, Any]], None]] = {}
        self._begin(path)
        self._continue()
        tell_after_fork(self)

    def _begin(self, path: Path) -> None:
        self.path = path.with_name(path.name.replace(PID, str(os.getpid())))
        self._lock = threading.RLock()  # an argument's own code may call the model again
        self._file_lock = threading.RLock()
        self._tally, self._first = Tally(), list[Key]()
        self._known: dict[tuple[Any, ...], Form | None] = {}
        self._ticks: Ticks = {}
        self._sizes: dict[Any, Key] = {}  # of each key of the ticks
        self._roots: dict[tuple[Any, ...], dict[str, str]] = {}  # of each written form, in the signature's order
        self._stop: threading.Event | None = None  # None: nobody writes yet
        self._written, self._warned, self._closed = -1, False, False

    def _continue(self) -> None:
        """Go on with the trace that is there already; what is no trace of this model is not overwritten."""
        if self.path.exists():
            from compilot.traces.merging import refuse_another_model

            if not self.path.is_file():
                raise InputError(f"{self.path} is no file; choose another place for the trace.")
            header = _recorded(self.path)
            if header is not None:
                refuse_another_model(header, self._header, "this", str(self.path))
                found = scan(self.path)
                self._header = msgspec.structs.replace(self._header, began=header.began)
                self._tally.add_all(found.tally)
                self._first = [tuple(call.sizes.items()) for call in found.first]
        self.write()

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count a call that the generated code did not; never the caller's problem."""
        try:
            nodes = list(call_nodes(Call(args, kwargs)))
            with self._lock:
                self._start()
                self._count(args, kwargs, nodes)
        except Exception as problem:  # whatever an odd argument does when it is looked at
            self._warn(f"a call could not be recorded ({type(problem).__name__}); it was answered, but not counted.")

    def _count(self, args: tuple[Any, ...], kwargs: dict[str, Any], nodes: list[Node]) -> None:
        key = self._key(args, kwargs)
        if key not in self._tally.counts and not self._tally.widen(key):
            self._tally.left_out += 1
            return
        if len(self._first) < FIRST_CALLS:
            self._first.append(key)
            self._tally.put(key)
            return
        form = self._form(args, kwargs, nodes)
        ticked = form.key(args, kwargs) if form is not None else None
        if ticked in self._ticks:  # another thread was quicker
            next(self._ticks[ticked])
        elif ticked is not None and len(self._tally.counts) < self._tally.most_exact:
            self._sizes[ticked] = key
            self._ticks[ticked] = itertools.count(1)
            self._tally.taken = len(self._ticks)
        else:
            self._tally.put(key)

    def _form(self, args: tuple[Any, ...], kwargs: dict[str, Any], nodes: list[Node]) -> Form | None:
        """The form of such calls, if this call has it."""
        written = (len(args), *kwargs)
        if written not in self._known:
            if len(self._known) >= MOST_FORMS:
                return None
            form = form_of(nodes, self._ticks, len(self._known))
            self._known[written] = form
            if form is not None:
                self.forms[written] = form.tick
        known = self._known[written]
        return known if known is not None and known.signature == signature_of(nodes) else None

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key:
        """The sizes of a call by name."""
        written = (len(args), *kwargs)
        if written not in self._roots:
            if len(self._roots) >= MOST_FORMS:
                self._roots.clear()
            self._roots[written] = self._in_order(root_names(self._named, Call(args, kwargs)))
        roots = self._roots[written]
        found: dict[str, list[tuple[str, int]]] = {root: [] for root in roots}
        for root, _, name, value in named_leaves(Call(args, kwargs), roots, self._words):
            if has_sizes(value):
                found[root] += [(f"{name}:{dim}", size) for dim, size in enumerate(value.shape)]
        return tuple(pair for sizes in found.values() for pair in sizes)

    def _in_order(self, roots: dict[str, str]) -> dict[str, str]:
        """Arguments as the signature has them, so that one call written in two ways has one key."""
        known = list(inspect.signature(self._named).parameters)

        def place(root: str) -> tuple[int, str]:
            owner = roots[root].split(".")[0]
            return (known.index(owner), "") if owner in known else (len(known), roots[root])

        return {root: roots[root] for root in sorted(roots, key=place)}

    def _start(self) -> None:
        """The thread that writes, and what is written at the end of the process; once in each process."""
        if self._stop is not None or self._closed:
            return
        self._header = msgspec.structs.replace(self._header, began=self._header.began or _now())
        self._stop = threading.Event()
        threading.Thread(target=_writing, args=(self, self._stop), name="compilot-record", daemon=True).start()

    def write(self) -> None:
        """Bring the file up to date, where something is new; raises InputError where that is impossible."""
        with self._file_lock:  # two who write must not overtake each other
            with self._lock:
                tally, first, header = self._summed(), list(self._first), self._header
            if tally.calls == self._written:
                return
            try:
                write_trace(self.path, header, first, tally)
            except OSError as problem:
                said = problem.strerror or str(problem)
                raise InputError(f"cannot write the trace {self.path}: {said}; choose another place.") from None
            self._written = tally.calls

    def _summed(self) -> Tally:
        """All counts; the lock is held."""
        tally = Tally()
        tally.add_all(self._tally)
        for ticked, counter in self._ticks.items():
            tally.add(self._sizes[ticked], count_of(counter))
        return tally

    def flush(self) -> None:
        """The same; what goes wrong is said once."""
        try:
            self.write()
        except InputError as problem:
            self._warn(f"{problem} Calls are counted on.")

    def close(self) -> None:
        """Write what is left and stop counting; twice is once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._stop is not None:
                self._stop.set()
            self.forms.clear()
        self.flush()

    def after_fork(self) -> None:
        """In a child: its calls are its own, and so is its file."""
        if self._closed:
            return
        self.forms.clear()  # the code's own dict: it stays
        given = self._given
        self._begin(given if PID in given.name else given.with_name(f"{given.stem}.{os.getpid()}{given.suffix}"))
        self._header = msgspec.structs.replace(self._header, began="")
        self._written = 0  # a child without calls leaves no file
        _at_the_end_of_a_child(self)

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            try:
                warn(text, CompilotWarning)
            except Exception:  # warnings are errors here; the call goes on, and so does the thread that writes
                logger.warning(text)


def _writing(counts: SizeCounts, stop: threading.Event) -> None:
    while not stop.wait(EVERY_S):
        counts.flush()


def _at_the_end_of_a_child(counts: SizeCounts) -> None:
    """Children of multiprocessing do not run what others run at their end."""
    util.register_after_fork(counts, lambda one: util.Finalize(one, one.close, exitpriority=0))


def _recorded(path: Path) -> TraceHeader | None:
    """The header of the trace that is there; None for one without calls. InputError for what is no recorded trace."""
    from compilot.traces.lines import MAX_LINE_BYTES, header_of, text_of

    try:
        with path.open("rb") as file:
            text = text_of(file.readline(MAX_LINE_BYTES + 1), 1)
            header = header_of(text, 1) if text else None
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}; choose another place for the trace.") from None
    if header is None and (text or path.stat().st_size):
        raise InputError(f"{path} is there already and is no recorded trace; choose another place.")
    return header if header is not None and header.calls else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def closed_with(owner: Any, counts: SizeCounts) -> None:
    """Close it when its owner is gone, or at the end of the process."""
    weakref.finalize(owner, counts.close)
