"""The global state of torch that compiled code is guarded on, as text. Checked on torch 2.13.0.

In: nothing. Out: name -> value now, under the names that torch's guards use when they say "GLOBAL_STATE changed: ...";
the guard itself says neither what the value was nor what it is. Not covered: function modes, switches of GPUs.
"""

from __future__ import annotations

import torch


def guarded_state() -> dict[str, str]:
    """The values now."""
    return {
        "grad_mode": _on(torch.is_grad_enabled()),
        "num_threads": str(torch.get_num_threads()),
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic_algorithms": _on(torch.are_deterministic_algorithms_enabled()),
        "autocast(cpu)_enabled": _on(torch.is_autocast_enabled("cpu")),
        "autocast(cpu)_dtype": str(torch.get_autocast_dtype("cpu")),
    }


def _on(value: bool) -> str:
    return "on" if value else "off"
