"""The C++ toolchain behind Inductor. Checked on torch 2.13.0."""

from __future__ import annotations

import contextlib
import traceback

from compilot.errors import first_cause


def try_compiler() -> str | None:
    """Compile something trivial, which builds the shared precompiled header; None, or what is wrong."""
    import torch

    def trivial(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    try:
        with torch.no_grad():
            torch.compile(trivial)(torch.ones(64))
    except Exception as error:
        with contextlib.suppress(OSError):
            traceback.print_exc()  # into the log: the whole command and all that the compiler said
        return first_cause(error)
    return None


def shutdown_compile_workers() -> None:
    """End Inductor's pool of compile workers if one was started; it starts again by itself when needed."""
    import sys

    module = sys.modules.get("torch._inductor.async_compile")
    if module is not None:
        module.shutdown_compile_workers()
