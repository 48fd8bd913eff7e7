"""Recompiles: what changed, and what to do. In: what the tracer said during the drive. Out: `Recompile` records.

One change of an input makes every function after a graph break compile again; that counts as one recompile of several
functions. The same thing changing again and again counts up; sizes 0 and 1, and sizes beyond what a dynamic dimension
was compiled for, are told apart from other sizes, because marking the dimension does not help them. A function that was
compiled too often is marked: from then on it runs eagerly, and nobody is told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot.diagnose import frames, guards
from compilot.diagnose.guards import Change, Place
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
    root: Place | None = None,
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
    fix = f"{record.fix}; a plan of 'compilot tune' sees to declared dimensions by itself"
    return msgspec.structs.replace(record, declared=True, fix=fix)


def _change(one: Seen) -> tuple[str, Change]:
    """The guard that tells best why no earlier compile fits, and what it says.

    Torch names one guard per compile, the latest first. Code for size 1 serves nothing else; where the call has another
    size, the question is why the code for other sizes did not fit.
    """
    told = [(guard, _read(one, index)) for index, guard in enumerate(one.event.guards)]
    first = told[0]
    if not first[1].own_code or first[1].new in guards.OWN_CODE:
        return first
    others = [pair for pair in told if pair[1].category is Category.SHAPE and not pair[1].own_code]
    return min(others, key=lambda pair: not pair[1].dynamic, default=first)


def _read(one: Seen, index: int) -> Change:
    guard = one.event.guards[index]
    return guards.read(guard, one.event.values[index], one.states.get(guards.compile_of(guard), {}), one.event.state)


_Key = tuple[str, Category, str, str]
_Head = tuple[str, int]  # file and first line of a function


def _key(one: Seen, change: Change) -> _Key:
    where = "" if change.category in _WHOLE_CALL else f"{one.event.file}:{one.event.line}"
    return (where, change.category, change.what, change.kind)


def _function(event: RecompileEvent) -> Place:
    return Place(event.file, event.line, event.function)


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
        fix=_inner_fix(change) if inner and change.category in _TENSORS else _fix(change, frame.source),
        guard=guards.text_of(guard),
        call=one.call,
        resumed=one.event.resumed,
        name=change.name,
        dim=change.dim,
        compile_s=one.compile_s,
    )


def _again(known: Recompile, new: Recompile) -> Recompile:
    same_call = known.call == new.call
    total = (known.compile_s or 0.0) + (new.compile_s or 0.0)
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
        return f"{change.what} no longer holds: {change.old}"
    return (
        f"{change.what} changed from {change.old} to {change.new}, and the compiled code was made for {change.old} only"
    )


def _fix(change: Change, source: str) -> str:
    if change.category is Category.SHAPE and change.dim is not None:
        return _shape_fix(change)
    if change.name.endswith(".training"):
        return "do not switch between train and eval mode with one compiled model: compile one for each"
    if change.category in _NUMBERS and not change.old.lstrip("-").replace(".", "", 1).isdigit():
        return (
            f"keep {change.name} the same for one compiled model: fix it in __init__ and compile one model per value; "
            "if there are many values, do what depends on it before the call and pass the result as a tensor"
        )
    if change.category is Category.CONTAINER_LENGTH and ".append(" in source:
        return f"do not let {change.name} grow inside forward: return the value and append it outside"
    if change.name == "kwargs":
        return "pass the same keyword arguments in every call (None counts as another kind)"
    if change.category is Category.CONTAINER_LENGTH and "keys" in change.what:
        return f"give {change.name} the same keys in every call (zeros for what is missing)"
    if change.what.startswith("the type of ") and "None" not in change.old + change.new:
        return f"give {change.name} the same type in every call, and compile one model for each type if there are two"
    return _FIXES[change.category].format(name=change.name, old=change.old, new=change.new)


def _shape_fix(change: Change) -> str:
    if change.own_code:
        return _own_code_fix(change)
    if re.search(r"past_key_values|cache", change.name):
        return "use a cache of fixed size (transformers: StaticCache), so that its shape does not grow with every token"
    if change.dynamic:
        return _RELATION.format(what=change.what, old=change.old)
    mark = f"torch._dynamo.mark_dynamic({change.name}, {change.dim})"
    if guards.STACK_VALUE in change.name:
        return "mend the graph break first, or mark the input dimension it comes from as dynamic"
    return f"call {mark} before the first call; if only a few sizes occur, pad to those instead"


def _own_code_fix(change: Change) -> str:
    """Marking the dimension dynamic does not help sizes 0 and 1."""
    if change.new not in guards.OWN_CODE:  # and nothing but code for 0 or 1 is there
        return (
            f"make the first call with size 2 or more if that is what most calls have; where both occur, each has its "
            f"code: warm up with one call of each, or pad {change.name} to 2"
        )
    unbacked = f"torch._dynamo.decorators.mark_unbacked({change.name}, {change.dim})"
    return (
        f"let size {change.new} have its own code (one more compile, once), or pad {change.name} to 2; if nothing in "
        f"the model asks for this size, {unbacked} before the first call lets one program serve it, too"
    )


def _inner_fix(change: Change) -> str:
    """Of a value in the middle of the model, which only graph breaks make torch.compile guard."""
    return _BREAK_FIRST if change.own_code or change.dynamic else f"{_BREAK_FIRST}; {_THEN_MARK}"


_RELATION = (
    "keep {what} within what the code was made for ({old}): pad, or warm up with one call of each kind; two sizes that "
    "are only by chance the same must differ in the first call"
)
_TENSORS = (Category.SHAPE, Category.STRIDE, Category.DTYPE)
_BREAK_FIRST = "mend the graph breaks first: they make torch.compile guard this value in the middle of the model"
_THEN_MARK = "then mark the input's dimension with torch._dynamo.mark_dynamic"
_NUMBERS = (Category.ATTRIBUTE, Category.ARGUMENT_VALUE, Category.GLOBAL_VALUE, Category.CLOSURE_VALUE)
_FIXES = {
    Category.SHAPE: "give {name} always the same number of dimensions (unsqueeze or flatten before the call)",
    Category.STRIDE: "call .contiguous() on {name} before the model, so that its layout is always the same",
    Category.DTYPE: "convert {name} to one dtype before the call: {name}.to({old})",
    Category.DEVICE: "keep {name} on one device",
    Category.REQUIRES_GRAD: "detach {name} before the call, or let it need gradients in every call",
    Category.ATTRIBUTE: "make {name} a buffer (self.register_buffer with a tensor), or a constant set once in __init__",
    Category.GLOBAL_VALUE: "pass {name} to forward as a tensor argument instead of reading the global",
    Category.CLOSURE_VALUE: "pass {name} as an argument, or capture a tensor and change its content",
    Category.ARGUMENT_VALUE: "pass {name} as a tensor: torch.tensor({new})",
    Category.ARGUMENT_KIND: "always pass {name} (an all-ones mask or an empty tensor stands for None)",
    Category.CONTAINER_LENGTH: "stack the items into one tensor with a dynamic dimension, or pad {name} to one make-up",
    Category.OBJECT_IDENTITY: "reuse the same object for {name} instead of making a new one for each call",
    Category.GRAD_MODE: "make all calls in the same grad mode, or warm up both before serving",
    Category.THREADS: "set the number of threads once, before the first call",
    Category.GLOBAL_STATE: "set it once, before the first call, and keep it",
    Category.OTHER: "keep it the same between calls",
}
