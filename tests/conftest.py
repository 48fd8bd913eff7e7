"""Shared by all tests: one compile cache for the whole run, and random numbers that are the same in every run.

No test adds to the user's own list of runs: it is a temporary one, for child processes, too.

Covered: torch, Python and numpy are seeded from COMPILOT_TEST_SEED (0 unless set) and the name of what draws: a test
module while it is imported, a test with its own fixtures, a fixture of wider scope. So no test depends on what ran
before it, and two of them never draw the same numbers. Hypothesis has the same seed. Not covered: child processes,
which seed themselves; other clocks and programs of the machine.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

collect_ignore = ["data"]  # programs and a project that tests start

# read once when Inductor's configuration is imported: skips the probe builds of every vector extension
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # threads that wait for each other leave the cores to the tests beside them
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

os.environ["COMPILOT_STATE"] = tempfile.mkdtemp(prefix="compilot-test-state-")
atexit.register(shutil.rmtree, os.environ["COMPILOT_STATE"], ignore_errors=True)

# tests beside each other do not wait for each other's timing: a test process does not take over its parent's folder
os.environ["COMPILOT_LEASES"] = os.environ["COMPILOT_STATE"]

SEED = int(os.environ.get("COMPILOT_TEST_SEED", "0"))

# how long an example takes depends on what else the machine does
hypothesis.settings.register_profile("compilot", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("compilot")


def begin_anew(name: str) -> None:
    """All generators, differently for every name."""
    import numpy as np
    import torch

    seed = zlib.crc32(f"{SEED} {name}".encode())
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        begin_anew(collector.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    begin_anew(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """A shared fixture draws the same whichever test asks first, and takes nothing from what that test draws."""
    if fixturedef.scope == "function":
        return (yield)
    import numpy as np
    import torch

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    begin_anew(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param_index', 0)}")
    try:
        return (yield)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


@pytest.fixture
def seed_for() -> Callable[[str], None]:
    """What is done before anything of this name draws; for a test that needs the same numbers twice."""
    return begin_anew


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact folder to give to `attach`; COMPILOT_TEST_CACHE keeps it between runs."""
    kept = os.environ.get("COMPILOT_TEST_CACHE")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("compile-cache")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
