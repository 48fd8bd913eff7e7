"""AOTInductor: make a library of native code, load a library. Checked on torch 2.13.0.

In: an exported program, or the path of a library. Out: the library's files, or a function from flat tensors to flat
tensors. torch's package is taken apart when it is made: the loader of packages would unpack it at every start (40 ms
for 47 MB) into a temporary folder that a killed process leaves behind. Loading needs no compiler, against 1.3-2.5 s
through `torch._inductor.aoti_load_package`, which imports all of Inductor. The library checks no input: whoever calls
must have guarded shape, stride and dtype.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_CODE = "/data/aotinductor/model/"  # where a package of one model has its files
_SOURCES = (".cpp", "_metadata.json")  # for readers; nothing loads them


def compile_library(program: ExportedProgram, folder: Path, configs: Mapping[str, Any]) -> tuple[str, ...]:
    """Compile a program into a library and return its files' names; takes 15-70 s and a C++ compiler.

    torch notes the machine in its configuration on the way and leaves it there, which would change the cache key of
    every later compile in this process; it is put back. Checked on torch 2.13.0.
    """
    from torch._inductor import aoti_compile_and_package, config

    with tempfile.TemporaryDirectory(dir=folder, prefix="package-") as place:
        package = Path(place) / "model.pt2"
        with config.patch({"aot_inductor.metadata": dict(config.aot_inductor.metadata)}):
            aoti_compile_and_package(program, package_path=os.fspath(package), inductor_configs=dict(configs))
        return _take_apart(package, folder)


def _take_apart(package: Path, folder: Path) -> tuple[str, ...]:
    """The library, and what it reads beside itself (`.json`: operators that it calls through torch's dispatcher).

    Their name has the library's digest: the system's loader knows a library by its path, so another one under the
    same path would not be loaded as long as the first one is.
    """
    with zipfile.ZipFile(package) as archive:
        members = {Path(name).suffix: name for name in archive.namelist() if _CODE in name and _is_loaded(name)}
        if not {".so"} <= set(members) <= {".so", ".json"}:
            raise RuntimeError(f"the package has files that are not understood: {', '.join(sorted(members.values()))}")
        with archive.open(members[".so"]) as library:
            stem = f"model-{hashlib.file_digest(library, 'sha256').hexdigest()[:16]}"  # type: ignore[arg-type]
        for suffix, member in members.items():
            with archive.open(member) as source, (folder / f"{stem}{suffix}").open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    return tuple(f"{stem}{suffix}" for suffix in members)


def _is_loaded(name: str) -> bool:
    return not name.endswith(_SOURCES)


def load_library(path: Path) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """The library as a function of a list of tensors. Checked on torch 2.13.0."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(os.fspath(path), 1).run
