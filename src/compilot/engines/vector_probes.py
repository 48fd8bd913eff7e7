"""Torch's probes of the CPU's vector extensions, built once per machine instead of once per cache directory.

In: a cache directory of Inductor. Out: where it had no code yet, it has the small libraries by which torch finds out
which extensions the C++ compiler can build for. In each new directory torch builds up to eight of them before it
compiles anything (2 s on a CPU with AMX); those that are there it only loads, in processes of their own. Their names
tell the compiler, its flags and torch apart. What cannot be kept or copied is built by torch as ever. Not covered:
probes that the user has decided about (cpp.vec_isa_ok), which are left alone.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from compilot._torch import compiling
from compilot.files.private import cache_home, private_directory

FOLDER = "vector-probes"


@contextlib.contextmanager
def cache_directory(folder: Path | None) -> Iterator[None]:
    """Inductor's cache in this folder meanwhile, with the probes where it has no code yet. None: left as it is."""
    with compiling.cache_directory(folder):
        if folder is not None:
            bring(folder)
        yield


def prepare() -> None:
    """Have them on this machine before somebody looks at a clock."""
    with _as_torch_otherwise():
        _kept()


def bring(folder: Path) -> None:
    """Copy this machine's probes into a cache directory that has no compiled code yet."""
    if any(folder.rglob("*.so")):
        return
    with _as_torch_otherwise():
        if (probes := _kept()) is not None:
            shutil.copytree(probes, folder, dirs_exist_ok=True)


@contextlib.contextmanager
def _as_torch_otherwise() -> Iterator[None]:
    """Whatever fails, be it no compiler or no room, is left to torch, which builds by itself and says what is wrong."""
    with contextlib.suppress(Exception):
        yield


def _kept() -> Path | None:
    """Where they are; the first process that asks builds them. None: this one knows them, or is not to ask."""
    if compiling.trusts_vector_isa():
        return None
    above = private_directory(private_directory(cache_home()) / FOLDER)
    folder = above / compiling.probes_key()
    return folder if folder.is_dir() or _built(above, folder) else None


def _built(above: Path, folder: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=above) as fresh:
        made = Path(fresh) / "made"
        made.mkdir()  # a CPU may need no probe
        with compiling.cache_directory(made):
            if not compiling.probe_vector_extensions():
                return False
        shutil.rmtree(made / "locks", ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(folder)
    return True
