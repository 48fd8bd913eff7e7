"""What torch's compile caches put into their keys, as far as a process can be asked for it. Checked on torch 2.13.0.

In: nothing. Out: changed configuration values and global state, as text. The key holds all of Inductor's configuration,
so one changed value is a miss; only values that differ from torch's defaults are told. Not covered: the graph itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_PLAIN = (bool, int, float, str, tuple, list, dict, type(None))  # others have addresses in their text


def changed_config() -> dict[str, str]:
    """Configuration values of the compiler that are not torch's defaults."""
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    return {**_changed(inductor), **{f"functorch.{name}": value for name, value in _changed(functorch).items()}}


def whole_config() -> dict[str, object]:
    """Every value of the compiler's configuration by its full name, and torch's stance towards compiling."""
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    configs = (torch._dynamo.config, torch._inductor.config, torch._functorch.config)
    found = {f"{config.__name__}.{key}": value for config in configs for key, value in config.get_config_copy().items()}
    return found | {"stance": str(torch._dynamo.eval_frame._stance)}


def _changed(module: Any) -> dict[str, str]:
    """By value: torch calls a setting changed once it was set at all, even to its default."""
    values = module.save_config_portable()
    defaults = {name: module._config[name].default for name in values if name in module._config}
    return {
        name: repr(values[name])
        for name, default in defaults.items()
        if values[name] != default and isinstance(values[name], _PLAIN)
    }


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
