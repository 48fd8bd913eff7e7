"""The one door to ONNX Runtime's private names: its native session and bindings, without the Python layer above them.

In: a session. Out: what one call needs of it. The Python layer only repeats the checks, which takes 3 microseconds.
Checked on onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Native(NamedTuple):
    """The native side of a session."""

    run: Callable[[Any, Any], None]  # of a binding and run options
    binding: Callable[[], Any]  # a new one for this session
    cpu: Any  # the device that tensors are bound on


def native(session: Any) -> Native:
    """The native side of an InferenceSession."""
    from onnxruntime.capi import _pybind_state as state

    inner = session._sess
    device = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
    return Native(inner.run_with_iobinding, lambda: state.SessionIOBinding(inner), device)
