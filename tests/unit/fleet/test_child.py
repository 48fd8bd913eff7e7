"""The process of a job ends with whoever started it, also below processes of Ray's, which block Ctrl-C's signal."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORK = """
import time
from compilot.fleet.child import end_with_parent

end_with_parent()
try:
    print("ready", flush=True)
    time.sleep(60)
    print("slept", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
PARENT = """
import signal, subprocess, sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell lets its background jobs ignore it
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_job_is_interrupted_where_its_parent_blocked_that() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, WORK], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        assert parent.stdout.read() == "interrupted\n"
