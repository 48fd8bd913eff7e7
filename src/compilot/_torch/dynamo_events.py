"""What torch.compile says while it traces. Checked on torch 2.13.0.

In: a listener. Out: events, told to it as they happen: graph breaks (with torch's type, its number and the
stack of the traced code), compiles, recompiles (with the value that no longer fits), limits hit.
The structured trace speaks only while its logger has a handler, so listening costs nothing outside the context. It is
emitted inside torch's own `except` blocks, where the exception behind the text can be asked for its type and stack.
Not covered: what any of it means (`compilot.diagnose`).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torch._dynamo import config, exc
from torch._guards import CompileContext

from compilot._torch.guarded_state import guarded_state

_TRACE = "torch.__trace"
_LIMITS = "torch._dynamo.convert_frame"  # warns when a function was compiled too often
_COMPILING = "_compile"
_BREAKING = "log_graph_break"
_RECOMPILING = "get_and_maybe_log_recompilation_reasons"
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
_LINK = re.compile(r"https?://\S+/(gb\d+)\.html", re.IGNORECASE)
_LONGEST_VALUE = 80
SOFT = (exc.Unsupported, exc.UserError)  # torch.compile goes on after these; anything else it raises to the user


class Frame(NamedTuple):
    """One frame of the traced code."""

    file: str
    line: int
    function: str
    source: str


class FunctionPart(NamedTuple):
    """What one compile makes a graph of: a function up to its first break, or the rest of it after one."""

    function: str  # file and qualified name, the same for all parts of a function
    resumed: bool


class BreakEvent(NamedTuple):
    """The tracer stopped."""

    compile_id: str
    gb_type: str
    gb_id: str
    link: str
    message: str
    stack: tuple[Frame, ...]  # outermost first
    skipped: str  # the function that runs eagerly as a whole because of it, "Net.forward"; "" where none does
    fatal: bool  # without error suppression the user's call would raise
    part: FunctionPart = FunctionPart("", resumed=False)  # what was being compiled


class CompileEvent(NamedTuple):
    """A function was traced to its end or to its first break."""

    compile_id: str
    function: str
    file: str
    line: int
    wall_s: float
    state: Mapping[str, str] = {}  # torch's global state that the code is made for


class RecompileEvent(NamedTuple):
    """No earlier compile of a function fits this call."""

    compile_id: str
    function: str
    file: str
    line: int
    resumed: bool  # it is the rest of a function after a graph break
    guards: tuple[str, ...]  # why not, one per earlier compile, the latest first
    values: tuple[str, ...]  # what the call has instead, "" where it cannot be told
    state: Mapping[str, str] = {}  # torch's global state in this call


class LimitEvent(NamedTuple):
    """A function was compiled too often: from now on it runs eagerly unless an earlier compile fits."""

    function: str
    file: str
    line: int
    limit: int
    guard: str


Event = BreakEvent | CompileEvent | RecompileEvent | LimitEvent


@contextmanager
def listening(told: Callable[[Event], None]) -> Iterator[None]:
    """Call `told` with each event meanwhile; errors of the compiler become events, and eager answers the call."""
    taps = [(logging.getLogger(_TRACE), _TraceTap(told)), (logging.getLogger(_LIMITS), _LimitTap(told))]
    for logger, tap in taps:
        logger.addHandler(tap)
    try:
        with config.patch(suppress_errors=True):
            yield
    finally:
        for logger, tap in taps:
            logger.removeHandler(tap)


def current_compile_id() -> str:
    """Which compile is under way, "" for none; for backends, which are called within one."""
    found = CompileContext.current_compile_id()
    return str(found) if found is not None else ""


def compiled_self() -> Any:
    """The object whose method is being compiled right now, None for a plain function; for backends."""
    frame = _local_at_hand(_COMPILING, "frame")
    return frame.f_locals.get("self") if frame is not None else None


def compiled_part() -> FunctionPart:
    """Which part of which function is being compiled right now; for backends."""
    code = _local_at_hand(_COMPILING, "code")
    if not isinstance(code, CodeType):
        return FunctionPart("", resumed=False)
    return FunctionPart(f"{code.co_filename}:{_compiled_function()}", bool(_RESUMED.fullmatch(code.co_name)))


def _compiled_function() -> str:
    code = _local_at_hand(_COMPILING, "code")
    return _RESUMED.sub(r"\1", code.co_qualname) if isinstance(code, CodeType) else "the function"


class _TraceTap(logging.Handler):
    def __init__(self, told: Callable[[Event], None]) -> None:
        super().__init__()
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        compile_id = f"{metadata.get('frame_id')}/{metadata.get('frame_compile_id')}"
        artifact = metadata.get("artifact", {}).get("name")
        payload = getattr(record, "payload", None) or ""
        for event in _events(compile_id, artifact, payload, metadata.get("compilation_metrics")):
            self._told(event)


def _events(compile_id: str, artifact: str | None, payload: str, metrics: dict[str, Any] | None) -> Iterator[Event]:
    if artifact in ("dynamo_graph_break_reason", "dynamo_error"):
        yield from _break_event(compile_id, payload, skipped=artifact == "dynamo_error")
    elif artifact == "recompile_reasons":
        yield _recompile_event(compile_id, payload)
    elif metrics is not None:
        yield from _compile_event(compile_id, metrics)


class _LimitTap(logging.Handler):
    def __init__(self, told: Callable[[Event], None]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith("torch._dynamo hit config."):
            return
        _, limit, function, guard, _ = record.args  # type: ignore[misc]
        match = re.fullmatch(r"'(.+)' \((.+):(\d+)\)", str(function))
        if match is not None:
            name, file, line = match.groups()
            self._told(LimitEvent(plain_name(name), file, int(line), int(str(limit)), str(guard)))


def _break_event(compile_id: str, payload: str, *, skipped: bool) -> Iterator[BreakEvent]:
    problem = sys.exc_info()[1] or _local_at_hand(_BREAKING, "exc")
    if not isinstance(problem, BaseException) or isinstance(problem, exc.SkipFrame):
        return
    message = str(getattr(problem, "msg", "") or problem)
    gb_type = str(getattr(problem, "gb_type", "") or "")
    link = _LINK.search(message)
    yield BreakEvent(
        compile_id=compile_id,
        gb_type=gb_type or type(problem).__name__,
        gb_id=registered_id(gb_type) or (link[1].upper() if link else ""),
        link=link[0] if link else "",
        message=message or payload,
        stack=_stack(problem),
        skipped=_compiled_function() if skipped else "",
        fatal=not isinstance(problem, SOFT),
        part=compiled_part(),
    )


def registered_id(gb_type: str) -> str:
    """torch's number of a kind of break, "" for one its registry does not have."""
    return str(exc._load_gb_type_to_gb_id_map().get(gb_type) or "")


def _stack(problem: BaseException) -> tuple[Frame, ...]:
    """The real Python stack above the tracer, then what was traced; resumed halves of a function count as one."""
    traced = getattr(problem, "real_stack", None) or []
    whole = exc.collapse_resume_frames([*exc.get_stack_above_dynamo(), *traced])
    return tuple(_frame(summary) for summary in whole)


def _frame(summary: traceback.FrameSummary) -> Frame:
    return Frame(summary.filename, summary.lineno or 0, plain_name(summary.name), (summary.line or "").strip())


def plain_name(function: str) -> str:
    """The user's name of a function that torch resumed halfway."""
    match = _RESUMED.fullmatch(function)
    return match[1] if match else function


def _compile_event(compile_id: str, metrics: dict[str, Any]) -> Iterator[CompileEvent]:
    if metrics.get("is_forward") is False:
        return
    took_us = metrics.get("dynamo_cumulative_compile_time_us") or metrics.get("duration_us") or 0
    yield CompileEvent(
        compile_id=compile_id,
        function=plain_name(str(metrics.get("co_name") or "")),
        file=str(metrics.get("co_filename") or ""),
        line=int(metrics.get("co_firstlineno") or 0),
        wall_s=took_us / 1e6,
        state=guarded_state(),
    )


def _recompile_event(compile_id: str, payload: str) -> RecompileEvent:
    frame = _local_at_hand(_RECOMPILING, "frame")
    code: CodeType | None = getattr(frame, "f_code", None)
    guards = _guards(payload)
    return RecompileEvent(
        compile_id=compile_id,
        function=plain_name(code.co_name) if code else "",
        file=code.co_filename if code else "",
        line=code.co_firstlineno if code else 0,
        resumed=bool(code and _RESUMED.fullmatch(code.co_name)),
        guards=guards,
        values=tuple(_value_now(guard, frame) for guard in guards),
        state=guarded_state(),
    )


def _guards(payload: str) -> tuple[str, ...]:
    try:
        found = json.loads(payload)
    except ValueError:
        found = payload
    return tuple(str(guard) for guard in (found if isinstance(found, list) else [found]))


def _local_at_hand(function: str, name: str) -> Any:
    """A local variable of the function of torch's that is telling us this; None where it is not on the stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame.f_locals.get(name) if frame is not None else None


def _value_now(guard: str, frame: Any) -> str:
    """What this call has in the guard's place: the size or the type it is about, or what stands left of its ==."""
    text = guard.partition(": ")[2].partition("  #")[0].partition("\n")[0].strip()
    asked = next((match[1] for pattern in _ASKS if (match := pattern.search(text))), None)
    if asked is None or frame is None:
        return ""
    try:
        value = eval(asked, dict(frame.f_globals), _namespace(frame))  # guards are evaluated by torch the same way
    except Exception:  # a name that only torch's guards know
        return ""
    return type(value).__name__ if text.startswith(_TYPE_CHECK) else _short(value)


_TYPE_CHECK = "___check_type_id("
_ASKS = (  # of a relation between sizes, the first size
    re.compile(re.escape(_TYPE_CHECK) + r"(.+?), \d+\)"),
    re.compile(r"([\w.\[\]'\"]+\.(?:size|stride)\(\)\[\d+\])"),
    re.compile(r"^(.+?) == "),
)


def _namespace(frame: Any) -> dict[str, Any]:
    """The names that guards are written in."""
    return {"L": frame.f_locals, "G": frame.f_globals, "___dict_length": len, **frame.f_locals}


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
