"""The worker process: one candidate, one interpreter. In: requests on a pipe of its own. Out: replies on another.

Run as `python -m compilot.trials.worker IN_FD OUT_FD`. What the model prints goes to the worker's log, never to the
pipe. A step that raises answers Failed and the worker lives; a step that kills the process is the parent's story to
tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from typing import BinaryIO

import msgspec

from compilot import records
from compilot.errors import CompilotError, first_cause
from compilot.records import State
from compilot.trials.protocol import Failed, Quit, Reply, decode_request

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # linux/prctl.h
NAME = "compilot worker"  # in `top`; the kernel keeps 15 characters


def main(argv: list[str]) -> int:
    """Serve requests until the parent says quit or goes away."""
    die_with_parent(NAME)
    os.umask(os.umask(0o022) | 0o022)  # what is made here is loaded later, and only if nobody else may write to it
    requests = os.fdopen(int(argv[0]), "rb")
    replies = os.fdopen(int(argv[1]), "wb", buffering=0)
    from compilot.trials import steps  # imports torch: after the pipe is ours, so that a failure can be told

    worker = steps.WorkerState()
    for line in requests:
        request = decode_request(line)
        if isinstance(request, Quit):
            break
        try:
            reply = steps.handler(worker, request)(worker, request)
        except Exception as error:
            reply = _failed(error)
        _send(replies, msgspec.structs.replace(reply, id=request.id))
    # Threads of engines may hang in their own clean-up; the parent has everything it asked for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _failed(error: Exception) -> Failed:
    """Whatever goes wrong in a step is a reply too."""
    if isinstance(error, CompilotError):
        return Failed(state=State.INFEASIBLE, reason=str(error), error=type(error).__name__)
    with contextlib.suppress(OSError):  # the log may lie on a full disk
        traceback.print_exception(error)
    return Failed(state=State.INFEASIBLE, reason=first_cause(error))


def _send(replies: BinaryIO, reply: Reply) -> None:
    data = memoryview(records.encode(reply) + b"\n")
    while data:
        data = data[replies.write(data) :]


def die_with_parent(name: str) -> None:
    """No orphans: the kernel ends this process when the parent dies (Linux; elsewhere the closed pipe does).

    name: what `top` shows.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
