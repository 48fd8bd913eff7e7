"""Shared by all tests: one compile cache for the whole run, so that equal tiny models are compiled once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# read once when Inductor's configuration is imported: skips the probe builds of every vector extension
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact folder to give to `attach`; COMPILOT_TEST_CACHE keeps it between runs."""
    kept = os.environ.get("COMPILOT_TEST_CACHE")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("compile-cache")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
