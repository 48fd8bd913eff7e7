"""One line of a trace, read and written. In: bytes and their line number. Out: sizes by name, and a count.

A line is one call: `input_ids:1=37 image:0=4`, or as JSON `{"input_ids:1": 37}`. Below the header that `record` writes,
the key "n" says how many calls a line stands for, and lines without it are the first calls in their order; without a
header "n" is a name like any other, and all lines are in order. Empty lines and lines
that begin with # are left out. Refused with the line number: what is no such line, a header that is not the first one,
names that come twice, sizes that are negative, or larger than any tensor's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from compilot.errors import InputError
from compilot.records import TRACE_SCHEMA, TraceHeader

Key = tuple[tuple[str, int], ...]  # names of dimensions with their sizes, in the order of the line

COUNT = "n"
HEADER = "trace"  # the type that a header says
MAX_SIZE = 2**31 - 1  # of a dimension; guards and engines count with this, too
MAX_ELEMENTS = 2**42  # of one input: 4 TB of bytes, more than any machine has for one tensor
MAX_CALLS = 2**53  # exact in every JSON reader
MAX_LINE_BYTES = 1 << 16  # a thousand dimensions; what is longer is no trace
NAMES_BYTES = MAX_LINE_BYTES - (1 << 12)  # of all names of a recorded trace: so its header is a line, and every call

_SPELLING = "write NAME:DIM=SIZE, such as input_ids:1=37, several with spaces between them"
_WORD = re.compile(r"(?P<name>[^=]+)=(?P<size>-?\d{1,30})")


def wrong(line: int, text: str) -> InputError:
    """The user's mistake in one line."""
    return InputError(f"line {line} of the shape trace: {text}.")


def text_of(raw: bytes, line: int) -> str:
    """The line without the white space around it, "" for a comment; a file may begin with a byte order mark."""
    if len(raw) > MAX_LINE_BYTES:
        raise wrong(line, f"it is longer than {MAX_LINE_BYTES} bytes; {_SPELLING}, one line per call")
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        raise wrong(line, "it is not UTF-8 text; give a text file, one call per line") from None
    return "" if text.startswith("#") else text


def header_of(text: str, line: int) -> TraceHeader | None:
    """The header that this line is; None for a line of sizes. A header of another version is refused."""
    if not text.startswith("{"):
        return None
    given = _object(text, line)
    if not isinstance(given.get("type"), str):
        return None
    if given.get("schema") != TRACE_SCHEMA:
        known = f"this compilot reads schema {TRACE_SCHEMA}; record it again, or use the compilot that wrote it"
        raise wrong(line, f"the header has the schema {given.get('schema')!r}, and {known}")
    try:
        return msgspec.convert(given, TraceHeader)
    except msgspec.ValidationError as problem:
        raise wrong(line, f"the header cannot be read: {problem}; record the trace again") from None


def parse(text: str, line: int, *, counted: bool) -> tuple[Key, int | None]:
    """The sizes of a line, and how many calls it stands for; None: one, in order. counted: the file has a header."""
    given = _object(text, line) if text.startswith("{") else _words(text, line)
    if given.get("type") == HEADER:
        merge = "add up traces with 'compilot trace merge FILE FILE -o OUT', and give that file"
        raise wrong(line, f"another recorded trace begins here; {merge}")
    if not counted or COUNT not in given:
        return key_of(given, line), None
    calls = given.pop(COUNT)
    if type(calls) is not int or not 1 <= calls <= MAX_CALLS:
        raise wrong(line, f'the count "{COUNT}" is {calls!r}; write a whole number, 1 or more')
    return key_of(given, line), calls


def key_of(given: Any, line: int) -> Key:
    """Sizes by name, checked."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and type(given[name]) is int for name in given):
        raise InputError(f'call {line} of the shape trace is {given!r}; write sizes by name, such as {{"x:0": 4}}.')
    for name, size in given.items():
        if not 0 <= size <= MAX_SIZE:
            raise wrong(line, f"the size {size} of {name} is {'negative' if size < 0 else f'beyond {MAX_SIZE}'}")
    for name, elements in _elements(given).items():
        if elements > MAX_ELEMENTS:
            raise wrong(line, f"the sizes of {name} make {elements} elements, more than any tensor has")
    return tuple(given.items())


def is_readable(key: Key) -> bool:
    """Whether a reader takes these sizes: some tensors say to be larger than any memory."""
    sizes = dict(key)
    return all(size <= MAX_SIZE for size in sizes.values()) and all(
        n <= MAX_ELEMENTS for n in _elements(sizes).values()
    )


def name_bytes(name: str) -> int:
    """What a name takes in the header with its smallest and largest size, which is more than in a call's line."""
    return len(json.dumps(name)) + len(':{"min":,"max":},') + 2 * len(str(MAX_SIZE))


def line_of(key: Key, calls: int | None = None) -> bytes:
    """The line of a recorded trace; calls=None for one call in order."""
    sizes = dict(key) if calls is None else {**dict(key), COUNT: calls}
    return json.dumps(sizes, separators=(",", ":")).encode() + b"\n"


def _elements(given: Mapping[str, int]) -> dict[str, int]:
    tensors: dict[str, list[int]] = {}
    for name, size in given.items():
        tensors.setdefault(name.rpartition(":")[0], []).append(size)
    return {name: math.prod(sizes) for name, sizes in tensors.items() if name}


def _object(text: str, line: int) -> dict[str, Any]:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, line))  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as problem:
        raise InputError(f"line {line} of the shape trace is not a JSON object: {problem}; {_SPELLING}.") from None


def _words(text: str, line: int) -> dict[str, Any]:
    found = [(word, _WORD.fullmatch(word)) for word in text.split()]
    strange = next((word for word, part in found if part is None), None)
    if strange is not None:
        raise wrong(line, f"cannot read '{strange[:80]}'; {_SPELLING}")
    return _once(((part["name"], int(part["size"])) for _, part in found if part is not None), line)


def _once(pairs: Iterable[tuple[str, Any]], line: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise wrong(line, f"'{name}' is there twice")
        found[name] = value
    return found
