"""Recompiles: what changed, and what to do. In: what the tracer said during the drive. Out: `Recompile` records.

One change of an input makes every function after a graph break compile again; that counts as one recompile of several
functions. The same thing changing again and again counts up; sizes 0 and 1, and sizes beyond what a dynamic dimension
was compiled for, are kept apart from other sizes, because marking the dimension does not help them. A function that was
compiled too often is marked: from then on it runs eagerly, and nothing says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot.diagnose import frames
from compilot.diagnose.frames import CodeSpot
from compilot.diagnose.recompiles import fixes, guards
from compilot.diagnose.recompiles.guards import Change
from compilot.diagnose.report_records import Category, CodeFrame, Recompile

if TYPE_CHECKING:
    from compilot._torch.dynamo_events import LimitEvent, RecompileEvent

# A change of these reaches every function of the call, so one change is one finding.
_WHOLE_CALL = {
    Category.SHAPE,
    Category.STRIDE,
    Category.DTYPE,
    Category.DEVICE,
    Category.REQUIRES_GRAD,
    Category.GRAD_MODE,
    Category.THREADS,
    Category.GLOBAL_STATE,
}


class Seen(NamedTuple):
    """A recompile and the call that met it."""

    event: RecompileEvent
    call: str
    compile_s: float | None
    states: Mapping[str, Mapping[str, str]] = {}  # compile id -> torch's global state that its code was made for


def reconcile(
    seen: Iterable[Seen],
    limits: Iterable[LimitEvent],
    *,
    split: bool = False,
    root: CodeSpot | None = None,
    declared: Collection[tuple[str, int]] = (),
) -> tuple[Recompile, ...]:
    """One record per thing that changed, in the order met.

    split: breaks cut the model, whose forward is at root. declared: inputs and their dimensions that are declared
    dynamic.
    """
    found: dict[_Key, Recompile] = {}
    functions: dict[_Key, dict[_Head, str]] = {}  # everything that the change made torch.compile trace again
    roots: dict[tuple[str, Category], _Key] = {}  # (call, category) -> the first thing that changed in it
    for one in seen:
        guard, change = _change(one)
        key = _key(one, change)
        if change.category in _WHOLE_CALL:
            key = roots.setdefault((one.call, change.category), key)
        new = _record(one, guard, change, inner=split and root != _function(one.event))
        found[key] = _again(found[key], new) if key in found else new
        functions.setdefault(key, {})[one.event.file, one.event.line] = one.event.function
    over = {(limit.file, limit.line): limit.limit for limit in limits}
    records = (_limited(record, functions[key], over) for key, record in found.items())
    return tuple(_declared(record, declared) for record in records)


def _declared(record: Recompile, declared: Collection[tuple[str, int]]) -> Recompile:
    """The record, marked where the user declared the dimension: ("batch.image", 1)."""
    name = re.sub(r"\['?(.+?)'?\]", r".\1", record.name)
    if record.category is not Category.SHAPE or record.dim is None or (name, record.dim) not in declared:
        return record
    fix = f"{record.fix}; a plan of 'compilot tune' handles declared dimensions by itself"
    return msgspec.structs.replace(record, declared=True, fix=fix)


def _change(one: Seen) -> tuple[str, Change]:
    """The guard that says best why no earlier compile fits, and what it says.

    Torch names one guard per compile, the latest first. Code for size 1 serves nothing else; where the call has another
    size, the question is why the code for other sizes did not fit.
    """
    said = [(guard, _read(one, index)) for index, guard in enumerate(one.event.guards)]
    first = said[0]
    if not first[1].own_code or first[1].new in guards.OWN_CODE:
        return first
    others = [pair for pair in said if pair[1].category is Category.SHAPE and not pair[1].own_code]
    return min(others, key=lambda pair: not pair[1].dynamic, default=first)


def _read(one: Seen, index: int) -> Change:
    guard = one.event.guards[index]
    return guards.read(guard, one.event.values[index], one.states.get(guards.compile_of(guard), {}), one.event.state)


_Key = tuple[str, Category, str, str]
_Head = tuple[str, int]  # file and first line of a function


def _key(one: Seen, change: Change) -> _Key:
    where = "" if change.category in _WHOLE_CALL else f"{one.event.file}:{one.event.line}"
    return (where, change.category, change.what, change.kind)


def _function(event: RecompileEvent) -> CodeSpot:
    return CodeSpot(event.file, event.line, event.function)


def _record(one: Seen, guard: str, change: Change, *, inner: bool) -> Recompile:
    place = guards.place_of(guard)
    frame = frames.code_frame(place or one.event)
    return Recompile(
        where=frame,
        function=CodeFrame(file=one.event.file, line=one.event.line, function=one.event.function),
        category=change.category,
        what=f"{change.what} ({change.kind})" if change.kind else change.what,
        old=change.old,
        new=change.new,
        cause=_cause(change),
        fix=fixes.fix(change, frame.source, inner=inner),
        guard=guards.text_of(guard),
        call=one.call,
        resumed=one.event.resumed,
        name=change.name,
        dim=change.dim,
        compile_s=one.compile_s,
    )


def _again(known: Recompile, new: Recompile) -> Recompile:
    same_call = known.call == new.call
    took = [one.compile_s for one in (known, new) if one.compile_s is not None]
    total = sum(took) if took else None
    if same_call and known.category in _WHOLE_CALL:
        return msgspec.structs.replace(known, functions=known.functions + 1, compile_s=total)
    return msgspec.structs.replace(known, count=known.count + 1, new=new.new, call=new.call, compile_s=total)


def _limited(record: Recompile, functions: Mapping[_Head, str], over: Mapping[_Head, int]) -> Recompile:
    """The record with every function that was compiled too often because of it."""
    gave_up = {head: name for head, name in functions.items() if head in over}
    if not gave_up:
        return record
    names, limit = list(dict.fromkeys(gave_up.values())), over[next(iter(gave_up))]
    runs = f"{' and '.join(names)} {'runs' if len(names) == 1 else 'run'} in eager"
    return msgspec.structs.replace(
        record,
        limit_hit=True,
        cause=f"{record.cause}; after {limit} compiles torch.compile gave up, and {runs}",
        gave_up=tuple(f"{file}:{line}" for file, line in gave_up),
    )


def _cause(change: Change) -> str:
    if change.own_code and not change.dynamic:
        return f"{change.what} changed from {change.old} to {change.new}; sizes 0 and 1 always get code of their own"
    if change.dynamic:
        but = f"the compiled code was made for {change.old} only"
        if change.own_code:
            but = "sizes 0 and 1 always get code of their own"
        now = f"is {change.new}" if change.new.isdigit() else "changed"
        return f"{change.what} {now}: the dimension is dynamic already, but {but}"
    if change.name == "kwargs":
        return f"the number of keyword arguments changed from {change.old} to {change.new}"
    if change.old == guards.AS_COMPILED:
        return f"{change.what} is not what it was when the code was compiled"
    if change.category is Category.OTHER:
        now = "" if change.new == "changed" else f" (now {change.new})"
        return f"{change.what} no longer holds{now}"
    return (
        f"{change.what} changed from {change.old} to {change.new}, and the compiled code was made for {change.old} only"
    )
