"""Fixtures that integration tests share."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
from bundle_help import tiny_run

import compilot
from compilot._allocator import keeps_memory
from compilot._denormals import flushes_denormals
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import Plan, ProcessSettings
from compilot.runtime.process import apply_settings

Packer = Callable[..., Path]


@pytest.fixture
def as_measured() -> Iterator[Callable[[Plan], object]]:
    """A function that gives this process a plan's settings, whatever the search found best; they are undone after."""
    before = ProcessSettings(
        threads=torch.get_num_threads(), flush_denormals=flushes_denormals(), keep_memory=keeps_memory()
    )
    yield compilot.apply_process
    apply_settings(before)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the whole run of pytest: with xdist all its processes see the same one."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once"
    folder.mkdir(exist_ok=True)
    return folder


def once(path: Path, make: Callable[[], object]) -> Path:
    """The path, made by whoever asks for it first; the others wait."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            try:
                with torch.random.fork_rng(devices=[]):  # whoever asks first draws as the others do
                    make()
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)  # half-made: the next one tries again
                raise
        fcntl.flock(lock, fcntl.LOCK_UN)
    return path


@pytest.fixture(scope="session")
def tuned(made_once: Path) -> Packer:
    """A function from an engine to a run directory of it, made once; whoever changes it takes a copy."""

    def run(engine: str | None, factory: str = "one") -> Path:
        folder = made_once / f"{engine}-{factory}"
        return once(folder, lambda: tiny_run(folder, engine, factory))

    return run


@pytest.fixture(scope="session")
def packed(tuned: Packer, made_once: Path) -> Packer:
    """A function from an engine to a bundle of it, packed once."""

    def bundle(engine: str | None, factory: str = "one", **options: Any) -> Path:
        path = made_once / f"{'-'.join([engine or 'eager', factory, *options])}.cpbundle"
        return once(path, lambda: pack([tuned(engine, factory)], path, PackOptions(**options), Observer()))

    return bundle
