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
from compilot.records import Plan, ProcessSettings
from compilot.runtime import CompilotWarning
from compilot.runtime.process import apply_settings, differing, tell_differing

KEPT, GIVEN_BACK = ProcessSettings(keep_memory=True), ProcessSettings(keep_memory=False)
glibc = pytest.mark.skipif(not can_keep_memory(), reason="this C library has no such switch")
SIZE = 32 << 20
FAULTS = f"""
import resource, sys
import torch
from compilot._allocator import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.empty({SIZE} // 4).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
found = []
for wanted in (False, True, False):
    keep_memory(wanted)
    for _ in range(5):
        faults()  # aligned blocks do not fit into the gaps that they leave at first: the heap grows a few times
    found.append(faults())
print(*found)
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    keep_memory(False)


@glibc
def test_large_blocks_cost_no_page_faults_while_memory_is_kept_and_do_again_afterwards() -> None:
    told = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, timeout=120)
    usual, kept, again = map(int, told.stdout.split())
    assert usual >= 5 * SIZE // (2 << 20)  # one for each page, and these are of 2 MiB at most
    assert again >= 5 * SIZE // (2 << 20)
    assert kept <= usual // 20


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
