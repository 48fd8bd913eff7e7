"""OpenVINO's package without its conversion tools.

In: nothing. Out: the package. Importing `openvino` also imports the tools that convert models, two thirds of its import
time, and reports the import over the network; a process that only runs a model needs neither. The tools are kept out
while the package is imported for the first time, and come by themselves when somebody asks for `convert_model`.
Nothing is changed where the package was imported before. Checked on openvino 2025 and 2026.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_TOOLS = "openvino.tools.ovc"
_LAZY = "convert_model"


def import_openvino() -> ModuleType:
    """The package; raises ImportError where it is not installed."""
    if "openvino" in sys.modules or _TOOLS in sys.modules:
        return importlib.import_module("openvino")
    sys.modules[_TOOLS] = None  # type: ignore[assignment]  # Python's way to say: this import fails
    try:
        package = importlib.import_module("openvino")
    finally:
        del sys.modules[_TOOLS]
    if not hasattr(package, _LAZY) and not hasattr(package, "__getattr__"):
        package.__getattr__ = _convert_model  # type: ignore[method-assign]
    return package


def _convert_model(name: str) -> Any:
    if name != _LAZY:
        raise AttributeError(f"module 'openvino' has no attribute {name!r}")
    package = sys.modules["openvino"]
    setattr(package, name, getattr(importlib.import_module(_TOOLS), name))
    return getattr(package, name)
