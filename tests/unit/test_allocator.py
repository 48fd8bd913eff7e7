"""Freed memory is kept in the process where a plan says so: fewer page faults, said before it is done, and undone."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator

import msgspec
import pytest
import torch

import compilot
from compilot import _allocator
from compilot._allocator import can_keep_memory, keep_memory, keeps_memory
from compilot.errors import CompilotWarning
from compilot.records import Plan, ProcessSettings
from compilot.runtime.process import apply_settings, differing, tell_differing

KEPT, GIVEN_BACK = ProcessSettings(keep_memory=True), ProcessSettings(keep_memory=False)
glibc = pytest.mark.skipif(not can_keep_memory(), reason="this C library has no such switch")
SIZE = 64 << 20
USE = f"""
import resource, sys
import torch
from compilot._allocator import keep_memory

def use(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.empty({SIZE} // 4).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

torch.set_num_threads(1)
found = [use(5), resident()]
keep_memory(True)
use(30)  # aligned blocks do not fit into the gaps that they leave at first: the heap grows a few times
found += [use(5), resident()]
keep_memory(False)
found += [resident(), use(1)]
print(*found)
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    keep_memory(False)


@glibc
def test_large_blocks_cost_no_page_faults_while_memory_is_kept_and_go_back_afterwards() -> None:
    told = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=True, timeout=120)
    usual, before, kept, while_kept, afterwards, again = map(int, told.stdout.split())
    pages = SIZE // (2 << 20)  # of 2 MiB at most
    assert usual >= 5 * pages
    assert kept <= usual // 20
    assert while_kept >= before + SIZE
    assert afterwards <= while_kept - SIZE  # given back
    assert again >= pages


@glibc
def test_what_differs_is_named_and_set_on_request() -> None:
    assert differing(KEPT) == {"keep_memory": (False, True)}
    assert differing(ProcessSettings()) == differing(GIVEN_BACK) == {}
    assert apply_settings(KEPT) == {"keep_memory": (False, True)}
    assert keeps_memory()
    assert differing(KEPT) == apply_settings(KEPT) == {}
    assert apply_settings(GIVEN_BACK) == {"keep_memory": (True, False)}
    assert not keeps_memory()


@glibc
def test_a_plan_that_keeps_memory_is_told_and_not_applied_silently(small_run: object) -> None:
    plan: Plan = msgspec.structs.replace(small_run.plan, process=KEPT)  # type: ignore[attr-defined]
    plan = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    with pytest.warns(CompilotWarning, match=r"keep_memory = True \(here False\); call compilot.apply_process\(plan\)"):
        tell_differing(plan.process)
    assert not keeps_memory()
    assert compilot.apply_process(plan) == {"keep_memory": (False, True)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_differing(plan.process)


def test_another_c_library_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_allocator.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(_allocator.ctypes, "CDLL", lambda name: pytest.fail("there is nothing to call"))
    assert not can_keep_memory()
    assert differing(KEPT) == apply_settings(KEPT) == {}
    keep_memory(True)
    assert not keeps_memory()


def test_answers_are_the_same_with_memory_kept() -> None:
    x = torch.randn(512, 512)
    before = x @ x
    keep_memory(True)
    assert torch.equal(x @ x, before)
