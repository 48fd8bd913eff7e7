"""For tests of what plugs into compilot: the engines' contract, a fake runner. Light: names are imported on use.

`class TestMine(EngineContract): engine = "mine"` runs it for an engine that is registered or installed
(docs/engines.md); it needs pytest and transformers: `pip install pytest transformers`. `FakeRunner` lets a whole
`tune` run in milliseconds, with a `Fate` for each candidate.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.testing.contract import EngineContract, OfferContract
    from compilot.testing.runner import FakeRunner, Fate

_HOMES = {
    "EngineContract": "compilot.testing.contract",
    "FakeRunner": "compilot.testing.runner",
    "Fate": "compilot.testing.runner",
    "OfferContract": "compilot.testing.contract",
}
_WITH_ASSERTIONS = ("compilot.testing.contract", "compilot.testing.made", "compilot.testing.strange_numbers")

__all__ = ["EngineContract", "FakeRunner", "Fate", "OfferContract"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "pytest" in sys.modules and not any(module in sys.modules for module in _WITH_ASSERTIONS):
        sys.modules["pytest"].register_assert_rewrite(*_WITH_ASSERTIONS)  # failed comparisons are shown in full
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
