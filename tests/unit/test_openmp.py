"""torch's idle threads end on request, come back by themselves, and their number stays as it was set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compilot import _openmp

CODE = """
import os, torch
from compilot import _openmp

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2)
long = torch.arange(1_000_000.0)
first, end = long.cos(), _openmp.ender()
found = [threads()]
end()
found += [threads(), torch.get_num_threads()]
again = long.cos()
found.append(threads())
end(), end()
torch.set_num_threads(1)
end()
print(*found, torch.get_num_threads(), torch.equal(first, again))
"""


@pytest.mark.skipif(not _openmp._loaded(), reason="torch uses another OpenMP library here")
def test_idle_threads_end_and_come_back() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    busy, ended, count, again, one, equal = run.stdout.split()
    assert int(ended) == int(busy) - 1
    assert int(again) == int(busy)
    assert (count, one, equal) == ("2", "1", "True")


def test_without_such_a_library_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for paths in ([], ["/nowhere/libgomp.so.1"]):
        monkeypatch.setattr(_openmp, "_loaded", lambda paths=paths: paths)
        assert _openmp.ender() is None


FORK = """
import os, torch
from compilot import _openmp

torch.set_num_threads(2)
end = _openmp.ender()
torch.arange(1_000_000.0).cos()
if (child := os.fork()) == 0:
    end()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not _openmp._loaded(), reason="torch uses another OpenMP library here")
def test_a_fork_does_not_wait_for_threads_that_it_has_not() -> None:
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "7"
