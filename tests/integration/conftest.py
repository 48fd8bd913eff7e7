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
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packer:
    """A function from an engine to a bundle of it, packed once."""
    home = tmp_path_factory.mktemp("bundles")

    def bundle(engine: str | None, factory: str = "one", **options: Any) -> Path:
        name = "-".join([engine or "eager", factory, *options])
        path = home / f"{name}.cpbundle"
        if not path.exists():
            run = home / f"run-{engine}-{factory}"
            if not run.exists():
                tiny_run(run, engine, factory)
            pack([run], path, Options(**options), Observer())
        return path

    return bundle
