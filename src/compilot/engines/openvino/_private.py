"""The one door to OpenVINO's private names. In: nothing, or a model. Out: the native infer; the model simplified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def native_infer() -> Callable[..., Any]:
    """`infer` of a native request: the Python layer above it copies or walks the inputs."""
    from openvino._pyopenvino import InferRequest

    found: Callable[..., Any] = InferRequest.infer
    return found


def simplify(model: Any) -> None:
    """What every start would do to the graph otherwise."""
    try:
        from openvino._offline_transformations import apply_moc_transformations
    except ImportError:  # a version that has it elsewhere: the plugin does the same at each start
        return
    apply_moc_transformations(model, cf=True)
