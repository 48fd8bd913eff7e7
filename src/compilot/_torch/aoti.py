"""AOTInductor: make a package, load a package. Checked on torch 2.13.0.

In: an exported program, or the path of a package. Out: the package file, or a function from flat tensors to flat
tensors. Loading goes through the C++ loader: 16 ms and no compiler, against 1.3-2.5 s through
`torch._inductor.aoti_load_package`, which imports all of Inductor. The loader checks no input: whoever calls must
have guarded shape, stride and dtype.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_MODEL = "model"  # the name that aoti_compile_and_package gives to the one model in a package


def compile_package(program: ExportedProgram, path: Path, configs: Mapping[str, Any]) -> None:
    """Compile a program into a package; takes 15-70 s and a C++ compiler. Checked on torch 2.13.0.

    torch notes the machine in its configuration on the way and leaves it there, which would change the cache key of
    every later compile in this process; it is put back.
    """
    from torch._inductor import aoti_compile_and_package, config

    with config.patch({"aot_inductor.metadata": dict(config.aot_inductor.metadata)}):
        aoti_compile_and_package(program, package_path=os.fspath(path), inductor_configs=dict(configs))


def load_package(path: Path) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """The package as a function that takes and empties a list of tensors. Checked on torch 2.13.0."""
    loader = torch._C._aoti.AOTIModelPackageLoader(os.fspath(path), _MODEL, False, 1, -1)
    return loader.boxed_run
