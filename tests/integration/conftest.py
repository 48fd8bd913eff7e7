"""Fixtures that integration tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
from bundle_help import tiny_run

from compilot.packing import Options, pack
from compilot.progress import Observer

Packer = Callable[..., Path]


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Packer:
    """A function from an engine to a run directory of it, made once; whoever changes it takes a copy."""
    home = tmp_path_factory.mktemp("runs")

    def run(engine: str | None, factory: str = "one") -> Path:
        folder = home / f"{engine}-{factory}"
        return folder if folder.exists() else tiny_run(folder, engine, factory)

    return run


@pytest.fixture(scope="session")
def packed(tuned: Packer, tmp_path_factory: pytest.TempPathFactory) -> Packer:
    """A function from an engine to a bundle of it, packed once."""
    home = tmp_path_factory.mktemp("bundles")

    def bundle(engine: str | None, factory: str = "one", **options: Any) -> Path:
        path = home / f"{'-'.join([engine or 'eager', factory, *options])}.cpbundle"
        if not path.exists():
            pack([tuned(engine, factory)], path, Options(**options), Observer())
        return path

    return bundle
