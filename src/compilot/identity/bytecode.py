"""What a code object does, whatever file it was written in and however that is laid out.

In: a code object. Out: its `Code`: a token of its instructions with constants and names in them, and what it reads from
outside: globals (with the attributes that are read from them at once), names and imports. Not part of it: line numbers,
file names, docstrings, its own name, annotations that are only notes, how many constants there are besides. Covered:
code inside of it (lambdas, comprehensions, local classes). Not covered: what the globals are (reach.py).
"""

from __future__ import annotations

import bisect
import functools
import inspect
import opcode
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from compilot.identity.tokens import SCALARS, joined, text

# of a code's flags those that say how it is called; the others say where it was written
_FLAGS = (
    inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
)  # fmt: skip
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_SINCE_312 = sys.version_info >= (3, 12)
_FLAG_BITS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": int(_SINCE_312), "LOAD_SUPER_ATTR": 2}  # below the index of the name
_NO_MEANING = frozenset({"CACHE", "NOP", "EXTENDED_ARG"})  # NOPs are left for debuggers where a line has no code
# what a local class says of itself and where it was written
_NOTES = frozenset({"__doc__", "__qualname__", "__module__", "__firstlineno__", "__static_attributes__"})


class Instruction(NamedTuple):
    """One instruction with its whole argument."""

    offset: int
    name: str
    argument: int
    after: int  # the offset behind it and its caches, where relative jumps begin


class Import(NamedTuple):
    """An import inside of a function."""

    module: str
    level: int  # dots in front of it


class Code(NamedTuple):
    """What is to be known of a code object."""

    token: bytes
    reads: tuple[tuple[str, ...], ...]  # ("helpers", "scale"): a global, and the attributes read from it at once
    names: frozenset[str]  # all names in it, and texts that could be one
    imports: tuple[Import, ...]


@functools.lru_cache(maxsize=8192)
def read_code(code: CodeType) -> Code:
    """What a code object does and what it reads."""
    inner = [read_code(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    kept = [*_without_notes(code, [*_instructions(code)])]
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS)
    variables = (*code.co_varnames, "", *code.co_cellvars, "", *code.co_freevars)
    token = joined(
        "code",
        [
            repr(shape).encode(),
            joined("names", map(text, variables)),
            joined("steps", _steps(code, kept)),
            repr([*_handlers(code, kept)]).encode(),
        ],
    )
    texts = {value for value in code.co_consts if isinstance(value, str) and value.isidentifier()}
    return Code(
        token=token,
        reads=tuple(dict.fromkeys([*_reads(code, kept), *(read for one in inner for read in one.reads)])),
        names=frozenset({*code.co_names} | texts).union(*(one.names for one in inner)),
        imports=tuple(dict.fromkeys([*_imports(code, kept), *(found for one in inner for found in one.imports)])),
    )


def constant_token(value: Any) -> bytes:
    """The token of a constant, as code objects hold them."""
    known = SCALARS.get(type(value))
    if known is not None:
        return known(value)
    if isinstance(value, CodeType):
        return read_code(value).token
    if isinstance(value, slice):
        return joined("slice", map(constant_token, (value.start, value.stop, value.step)))
    parts = map(constant_token, value)
    return joined("frozenset", sorted(parts)) if isinstance(value, frozenset) else joined("tuple", parts)


def _instructions(code: CodeType) -> Iterator[Instruction]:
    raw, high, start = code.co_code, 0, None
    for offset in range(0, len(raw), 2):
        name, argument = opcode.opname[raw[offset]], raw[offset + 1] | high
        high = argument << 8 if name == "EXTENDED_ARG" else 0
        start = offset if start is None else start  # a jump to an instruction leads to the prefix of its argument
        if name == "EXTENDED_ARG":
            continue
        if name not in _NO_MEANING:
            after = offset + 2
            while after < len(raw) and raw[after] == 0:
                after += 2
            yield Instruction(start, name, argument, after)
        start = None


def _without_notes(code: CodeType, found: list[Instruction]) -> Iterator[Instruction]:
    """Leave out what a class body notes of itself: a value is loaded and stored under one of those names."""
    skip = False
    for one, following in zip(found, [*found[1:], None], strict=True):
        if skip:
            skip = False
        elif following is not None and following.name == "STORE_NAME" and _name(code, following) in _NOTES:
            skip = True
        else:
            yield one


def _steps(code: CodeType, kept: list[Instruction]) -> Iterator[bytes]:
    position = _positions(kept)
    for one in kept:
        op = opcode.opmap[one.name]
        if op in opcode.hasconst:
            argument = constant_token(code.co_consts[one.argument])
        elif op in opcode.hasname:
            flags = one.argument & ((1 << _FLAG_BITS.get(one.name, 0)) - 1)
            argument = b"%d%s" % (flags, text(_name(code, one)))
        elif op in opcode.hasjrel:
            distance = -2 * one.argument if "BACKWARD" in one.name else 2 * one.argument
            argument = b"%d" % position(one.after + distance)
        else:
            argument = b"%d" % one.argument
        yield one.name.encode() + b" " + argument


def _positions(kept: list[Instruction]) -> Callable[[int], int]:
    """From an offset to the number of the first instruction there or behind it."""
    offsets = [one.offset for one in kept]
    return functools.partial(bisect.bisect_left, offsets)


def _handlers(code: CodeType, kept: list[Instruction]) -> Iterator[tuple[int, ...]]:
    """Which instructions are under which exception handler."""
    position, numbers = _positions(kept), _numbers(code.co_exceptiontable)
    for start, length, target, depth in zip(numbers, numbers, numbers, numbers, strict=True):
        yield position(2 * start), position(2 * (start + length)), position(2 * target), depth


def _numbers(table: bytes) -> Iterator[int]:
    """Numbers of six bits per byte, the highest first; bit 6: more bytes follow. Bit 7 begins an entry."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def _name(code: CodeType, one: Instruction) -> str:
    return code.co_names[one.argument >> _FLAG_BITS.get(one.name, 0)]


def _reads(code: CodeType, kept: list[Instruction]) -> Iterator[tuple[str, ...]]:
    for number, one in enumerate(kept):
        if one.name in _GLOBAL:
            chain = [_name(code, one)]
            for following in kept[number + 1 :]:
                if following.name not in _ATTRIBUTE:
                    break
                chain.append(_name(code, following))
            yield tuple(chain)


def _imports(code: CodeType, kept: list[Instruction]) -> Iterator[Import]:
    for number, one in enumerate(kept):
        if one.name == "IMPORT_NAME":
            level = code.co_consts[kept[number - 2].argument] if number >= 2 else 0
            yield Import(_name(code, one), level if isinstance(level, int) else 0)
