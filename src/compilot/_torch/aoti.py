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

from compilot._torch.objects import equal_code_once

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_CODE = "/data/aotinductor/model/"  # where a package of one model has its files
_UNUSED = (".cpp", "_metadata.json", "/kernel_information.json")  # for readers; nothing loads them
_MADE = "model-*"


def compile_library(program: ExportedProgram, folder: Path, configs: Mapping[str, Any]) -> tuple[str, ...]:
    """Compile a program into a library and return its files' names; takes 15-70 s and a C++ compiler.

    torch notes the machine in its configuration on the way and leaves it there, which would change the cache key of
    every later compile in this process; it is put back. Checked on torch 2.13.0.
    """
    from torch._inductor import aoti_compile_and_package, config

    for old in folder.glob(_MADE):
        old.unlink()  # of a build that was interrupted; the same model gives other bytes each time
    with tempfile.TemporaryDirectory(dir=folder, prefix="package-") as place:
        package = Path(place) / "model.pt2"
        with config.patch({"aot_inductor.metadata": dict(config.aot_inductor.metadata)}), equal_code_once():
            aoti_compile_and_package(program, package_path=os.fspath(package), inductor_configs=dict(configs))
        made = take_apart(package, Path(place))
        for path in made:
            path.rename(folder / path.name)
        return tuple(path.name for path in made)


def take_apart(package: Path, folder: Path) -> list[Path]:
    """The library, and the list of operators that it calls through torch's dispatcher, if there are any.

    Their name has the library's digest: the system's loader knows a library by its path, so another one under the
    same path would not be loaded as long as the first one is.
    """
    with zipfile.ZipFile(package) as archive:
        members = [name for name in archive.namelist() if _CODE in name and not name.endswith(_UNUSED)]
        library = next((name for name in members if name.endswith(".so")), "")
        operators = library.removesuffix(".so") + ".json"
        if not library or not {library} <= set(members) <= {library, operators}:
            raise RuntimeError(f"the package has files that are not understood: {', '.join(members) or 'no library'}")
        with archive.open(library) as code:
            stem = f"model-{hashlib.file_digest(code, 'sha256').hexdigest()[:16]}"  # type: ignore[arg-type]
        return [_extract(archive, name, folder / f"{stem}{Path(name).suffix}") for name in sorted(members)]


def _extract(archive: zipfile.ZipFile, name: str, place: Path) -> Path:
    with archive.open(name) as source, place.open("xb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return place


def calls_back(library: Path) -> bool:
    """Whether it calls operators through torch's dispatcher, which may be written in Python."""
    return library.with_suffix(".json").is_file()


def load_library(path: Path) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """The library as a function of a list of tensors. Checked on torch 2.13.0."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(os.fspath(path), 1).run
