"""The building child of bench/serving_app.py, which can be held: started, bounded and watched as a Swap's own is.

In: a model and an example. Out: a thread of the server that has `compilot.serve`'s child build the same bundle again
and again; `hold()` stops the child's whole process tree, `go_on()` continues it. sleeps: a process that does nothing in
its place, watched in the same way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from compilot._tree import Call
from compilot.identity.machine import machine_fingerprint
from compilot.serve import processes, watching
from compilot.serve.bringing import _shipped
from compilot.serve.keeping import KeptCall
from compilot.serve.records import Bounds, BuildJob
from compilot.serve.staying import Closing

SLEEPING = "import time\nwhile True: time.sleep(1)\n"
REAL_ENDED = watching._ended


class Held:
    """One child after the other, in a thread."""

    def __init__(self, model: torch.nn.Module, image: torch.Tensor, *, sleeps: bool) -> None:
        self._model, self._example = model, KeptCall(Call((image,), {}), False)
        self._held, self._stop = threading.Event(), threading.Event()
        self._child = watching.Child(Bounds())
        self.builds = 0
        self.problem = ""
        watching._ended = self._ended
        if sleeps:
            watching._started = sleeping
        self._thread = threading.Thread(target=self._build_all, daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Stop the whole tree; the thread that would continue it waits."""
        self._held.set()
        time.sleep(2 * watching.LOOK_S)
        for _ in range(2):  # what was started meanwhile
            self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue it."""
        self._send(signal.SIGCONT)
        self._held.clear()

    def close(self) -> None:
        """End it."""
        self._stop.set()
        self.go_on()
        self._thread.join(30)

    def _ended(self, process: Any, brake: Any, stop: threading.Event) -> bool:
        while self._held.is_set() and not stop.is_set():
            time.sleep(0.05)
        return REAL_ENDED(process, brake, stop)

    def _send(self, number: int) -> None:
        pid = self._child.pid
        for one in processes.tree(pid) if pid is not None else ():
            with contextlib.suppress(OSError):
                os.kill(one, number)

    def _build_all(self) -> None:
        try:
            while not self._stop.is_set():
                self._build()
                self.builds += 1
        except Closing:
            pass
        except Exception as problem:
            self.problem = f"{type(problem).__name__}: {problem}"

    def _build(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            work = Path(place) / "job-0"
            work.mkdir()
            job = BuildJob(
                folder=str(work),
                out=f"{place}/out",
                result=f"{place}/result",
                threads=torch.get_num_threads(),
                machine=machine_fingerprint(compiler=False),
                shipment=_shipped(self._model, self._example, work),
            )
            ran = self._child.run(job, 0, self._stop)
            if not ran.result.ok:
                raise RuntimeError(ran.result.reason)


def sleeping(job_file: Path, bounds: Bounds, log: int) -> subprocess.Popen[bytes]:
    """In place of the child; it has taken its job."""
    job_file.unlink()
    return subprocess.Popen([sys.executable, "-c", SLEEPING], process_group=0)
