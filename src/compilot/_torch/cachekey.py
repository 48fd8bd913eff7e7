"""What torch's compile caches put into their keys, as far as a process can be asked for it. Checked on torch 2.13.0.

In: nothing. Out: changed configuration values and global state, as text. The key holds all of Inductor's configuration,
so one changed value is a miss; only values that differ from torch's defaults are told. Not covered: the graph itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def changed_config() -> dict[str, str]:
    """Configuration values of the compiler that are not torch's defaults."""
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    modules: tuple[Any, ...] = (inductor, functorch)
    found: dict[str, str] = {}
    for module in modules:
        found |= _assignments(module.codegen_config(), module.__name__)
    return found


def _assignments(text: str, module: str) -> dict[str, str]:
    short = "" if "_inductor" in module else "functorch."
    pairs = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {short + name.removeprefix(module + "."): value for name, _, value in pairs}


def global_state() -> Mapping[str, str]:
    """Switches of the process that are part of a key."""
    return {
        "default dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": _yes(torch.are_deterministic_algorithms_enabled()),
        "autocast": _autocast(),
    }


def _yes(value: bool) -> str:
    return "on" if value else "off"


def _autocast() -> str:
    if not torch.is_autocast_enabled("cpu"):
        return "off"
    return str(torch.get_autocast_dtype("cpu")).removeprefix("torch.")
