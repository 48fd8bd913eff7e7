"""Everything global that a compile could change, so that a test can tell what an engine left changed.

In: nothing. Out: settings by name, and those that are not what they were. Covered: torch's configuration, modes, hooks
and generator, environment, log levels, warnings. Not covered: what other libraries keep.
"""

from __future__ import annotations

import logging
import os
import warnings

import torch
from torch.nn.modules import module as torch_module

from compilot._torch.cachekey import whole_config


def settings_now() -> dict[str, object]:
    """All of them as they are."""
    return {
        **whole_config(),
        **{f"environment {key}": value for key, value in os.environ.items()},
        "threads": torch.get_num_threads(),
        "threads between operators": torch.get_num_interop_threads(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "tiny numbers": float(torch.full((1,), 2.0**-149) * 2),
        "generator": torch.get_rng_state().tolist(),
        "log level": (logging.root.level, logging.root.manager.disable, len(logging.root.handlers)),
        "warnings": list(warnings.filters),
        "hooks": [
            len(getattr(torch_module, name)) for name in vars(torch_module) if name.startswith("_global_forward")
        ],
    }


def changed(before: dict[str, object]) -> dict[str, tuple[object, object]]:
    """Settings that are not what they were: before and now."""
    after = settings_now()
    missing = object()
    found = {key: (before.get(key, missing), after.get(key, missing)) for key in before.keys() | after.keys()}
    return {key: pair for key, pair in found.items() if pair[0] != pair[1]}
