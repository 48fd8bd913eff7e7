"""What the options of a candidate mean to torch's compiler, where one of ours is several of torch's.

In: the options of a candidate for torch.compile or AOTInductor. Out: torch's own, ready to be handed over. Run plane:
no search code is imported. Not covered: options that are no business of the compiler (freezing, guards: load.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compilot.records import OptionValue

SIZES = "sizes"  # option of torch.compile candidates: how declared sizes are told to torch
ONEDNN_PRODUCTS = "onednn_products"  # fp32 matrix products by oneDNN, not by the math library

_SEVERAL: dict[tuple[str, OptionValue], dict[str, OptionValue]] = {
    ("asserts", True): {},
    ("asserts", False): {"size_asserts": False, "alignment_asserts": False},
    # alone it changes nothing: what shares no memory scores 0, and torch 2.13 fuses from 10 on
    ("aggressive_fusion", True): {"aggressive_fusion": True, "score_fusion_memory_threshold": 0},
}


def torchs_own(options: Mapping[str, OptionValue]) -> dict[str, Any]:
    """The options as torch names them."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == ONEDNN_PRODUCTS:
            found |= _products_by_onednn() if value else {}
        else:
            found |= _SEVERAL.get((name, value), {name: value})
    return found


def _products_by_onednn() -> dict[str, Any]:
    from compilot._torch import products
    from compilot.engines.protocol import Infeasible

    if not products.can_use_onednn():
        raise Infeasible(f"{ONEDNN_PRODUCTS} needs oneDNN, which this torch does not have or was told not to use")
    return {"post_grad_custom_post_pass": products.graph_pass()}
