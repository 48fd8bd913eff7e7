"""What torch keeps per thread. In: the thread that asks. Out: a context in which another thread is like it.

Covered: grad and inference mode, autocast, the default device, threads and denormals of a candidate. torch's
configuration lies in context variables, which `measure.callers` copies. Not covered: modes of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch

from compilot.records import ProcessSettings
from compilot.runtime.process import apply_settings

DEVICES = ("cpu", "cuda")  # that compilot runs models on


def like_this_thread(process: ProcessSettings) -> Callable[[], AbstractContextManager[None]]:
    """Contexts for other threads, each to be entered once, with the state that this thread has now."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    autocast = {d: torch.get_autocast_dtype(d) for d in DEVICES if torch.is_autocast_enabled(d)}
    device = torch.get_default_device()

    @contextmanager
    def alike() -> Iterator[None]:
        apply_settings(process)
        with ExitStack() as entered:
            if inference:
                entered.enter_context(torch.inference_mode())
            if device != torch.get_default_device():  # a default device costs time in every call of torch
                entered.enter_context(device)
            for kind, dtype in autocast.items():
                entered.enter_context(torch.autocast(kind, dtype))
            entered.enter_context(torch.set_grad_enabled(grad))
            yield

    return alike
