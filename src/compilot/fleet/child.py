"""A process that calls one function of ours and writes down its answer.

    python -m compilot.fleet.child MODULE:FUNCTION QUESTION ANSWER

In: files. Out: `Answer` as JSON: the bytes that the function returned, or a sentence. Our own bugs are sentences here,
too, with the traceback on stderr: they must not stop a fleet's other lines.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

import msgspec

from compilot.errors import CompilotError
from compilot.files import atomic

INTERRUPTED = 130
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Answer(msgspec.Struct):
    """What a call gave."""

    result: bytes = b""
    error: str = ""


def call(function: str, payload: bytes) -> bytes:
    """Call a function by name."""
    module, _, name = function.partition(":")
    answer: bytes = getattr(import_module(module), name)(payload)
    return answer


def main(function: str, question: str, answer: str) -> int:
    """The exit code: 0 also where the answer is an error."""
    try:
        said = Answer(result=call(function, Path(question).read_bytes()))
    except KeyboardInterrupt:
        return INTERRUPTED
    except CompilotError as problem:
        said = Answer(error=str(problem))
    except Exception as problem:
        traceback.print_exc()
        said = Answer(error=f"compilot itself failed, {type(problem).__name__}: {problem}")
    atomic.write_bytes(Path(answer), msgspec.json.encode(said), atomic.PRIVATE)
    return 0


def end_with_parent() -> None:
    """Nobody waits for the answer of a process whose parent was killed: Linux interrupts it then.

    Processes that Ray starts block that signal, and so would we: a blocked signal is inherited.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


if __name__ == "__main__":
    end_with_parent()
    sys.path.insert(0, "")  # targets are named from the folder on
    sys.exit(main(*sys.argv[1:]))
