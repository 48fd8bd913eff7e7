"""Equal C++ code is compiled once: blocks that are alike give the same code with other weights. Checked on 2.13.0.

In: what torch's builder is about to compile. Out: the object file, from an earlier compile of this process where
compiler, flags and source are the same to the letter. The compiler takes most of a small block's time. Kept in memory,
the last few and small ones only: a worker builds one candidate, whose like blocks follow one another. Torch writes its
commands behind a source as comments, and the wrapper's path before it: comments at both ends do not count. Not covered:
vectors of up to eight weights (numbers in the code), links, headers.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST = 8  # object files: two for each kind of block
LARGEST = 8 << 20  # bytes of one
_kept = OrderedDict[str, bytes]()
_turn = threading.RLock()  # the builder's class is the process's
_keeping = threading.Lock()  # builds of other threads come here, too, while one has its turn


@contextmanager
def equal_code_once() -> Iterator[None]:
    """What torch's C++ builder compiles meanwhile."""
    from torch._inductor.cpp_builder import CppBuilder

    with _turn:
        build = CppBuilder.build
        CppBuilder.build = lambda self: _built(self, build)  # type: ignore[method-assign]
        try:
            yield
        finally:
            CppBuilder.build = build  # type: ignore[method-assign]


def _built(builder: Any, build: Callable[[Any], None]) -> None:
    key = _key(builder)
    if key is None:
        return build(builder)
    target = Path(builder.get_target_file_path())
    with _keeping:
        made = _kept.get(key)
        if made is not None:
            _kept.move_to_end(key)
    if made is not None:
        target.write_bytes(made)
        return None
    build(builder)
    if target.stat().st_size <= LARGEST:
        with _keeping:
            _kept[key] = target.read_bytes()
            while len(_kept) > MOST:
                _kept.popitem(last=False)
    return None


def _new_locks() -> None:
    """In a forked child: whoever had its turn is not there."""
    global _turn, _keeping
    _turn, _keeping = threading.RLock(), threading.Lock()


os.register_at_fork(after_in_child=_new_locks)


def _key(builder: Any) -> str | None:
    """Of compiler, flags and source; None: no object file of C++. Where the files lie is no part of it."""
    target = Path(builder.get_target_file_path())
    source = target.with_suffix(".cpp")
    if target.suffix != ".o" or not source.is_file():
        return None
    command = str(builder.get_command_line()).replace(str(source), "").replace(str(target), "")
    return hashlib.sha256(command.encode() + b"\0" + _code(source.read_bytes())).hexdigest()


def _code(source: bytes) -> bytes:
    lines = source.splitlines()
    while lines and (not lines[-1] or lines[-1].startswith(b"//")):
        lines.pop()
    first = next((at for at, line in enumerate(lines) if line and not line.startswith(b"//")), 0)
    return b"\n".join(lines[first:])
