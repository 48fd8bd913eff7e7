"""Eager, run plane: the model itself, or a clone of it in another layout or precision.

In: a LoadRequest. Out: a callable. Nothing to build, so nothing to prepare.
A clone holds copies of weights: later updates of the model's own must invalidate it.
"""

from __future__ import annotations

from compilot.engines.conversions import converted
from compilot.engines.protocol import Baked, Follows, Loaded, LoadRequest


def load(request: LoadRequest) -> Loaded:
    """The callable for these settings."""
    found = converted(request)
    return Loaded(
        call=found.around(found.model),
        frozen_weights=found.copied,
        baked=Baked.AT_LOAD,
        follows=Follows.EVERYTHING,
    )
