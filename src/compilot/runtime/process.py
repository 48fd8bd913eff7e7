"""Settings of the whole process: threads, denormals, memory. Part of a plan, never changed silently.

In: ProcessSettings. Out: what differs from the process (to warn about), or what was changed (when told to).
"""

from __future__ import annotations

from typing import Any

import torch

from compilot._allocator import can_keep_memory, keep_memory, keeps_memory
from compilot._denormals import flushes_denormals
from compilot.errors import UnprovenSpeedWarning
from compilot.records import ProcessSettings
from compilot.runtime.notices import warn


def differing(settings: ProcessSettings) -> dict[str, tuple[Any, Any]]:
    """Settings that this process does not have: name -> (now, wanted)."""
    found: dict[str, tuple[Any, Any]] = {}
    if settings.threads is not None and settings.threads != torch.get_num_threads():
        found["threads"] = (torch.get_num_threads(), settings.threads)
    if settings.flush_denormals is not None and settings.flush_denormals != flushes_denormals():
        found["flush_denormals"] = (flushes_denormals(), settings.flush_denormals)
    if settings.keep_memory is not None and can_keep_memory() and settings.keep_memory != keeps_memory():
        found["keep_memory"] = (keeps_memory(), settings.keep_memory)
    return found


def tell_differing(settings: ProcessSettings) -> None:
    """Warn once where this process is not as the plan was measured."""
    found = differing(settings)
    if found:
        told = ", ".join(f"{name} = {wanted} (here {now})" for name, (now, wanted) in found.items())
        warn(f"the plan was measured with {told}; call compilot.apply_process(plan) to set that.", UnprovenSpeedWarning)


def apply_settings(settings: ProcessSettings) -> dict[str, tuple[Any, Any]]:
    """Set what differs; returns name -> (before, now)."""
    changed = differing(settings)
    if "threads" in changed:
        torch.set_num_threads(changed["threads"][1])
    if "flush_denormals" in changed:
        torch.set_flush_denormal(changed["flush_denormals"][1])
    if "keep_memory" in changed:
        keep_memory(changed["keep_memory"][1])
    return changed
