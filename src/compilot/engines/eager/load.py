"""Eager, run plane: the model itself, or a channels-last clone of it.

In: a LoadRequest. Out: a callable. Nothing to build, so nothing to prepare.
A channels-last clone holds copies of the 4-D weights: later updates of the model's own weights must invalidate it.
"""

from __future__ import annotations

from compilot.engines.layout import in_channels_last
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.records import MemoryFormat
from compilot.runtime.clone import channels_last_clone


def load(request: LoadRequest) -> Loaded:
    """The callable for these settings."""
    if request.settings.memory_format is not MemoryFormat.CHANNELS_LAST:
        return Loaded(call=request.model)
    clone, copied = channels_last_clone(request.model)
    return Loaded(call=in_channels_last(clone, request.guard), frozen_weights=copied)
