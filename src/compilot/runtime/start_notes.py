"""Starts that may be cold are noted, for `compilot why-cold`.

In: the entry about to be started for a user's model, and where its files are. Out: a small file in compilot's cache
folder, for engines that compile on use; for all others nothing, and nothing is imported. Not covered: reading the notes
(cli/whycold.py).
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from compilot.engines.of_candidate import compiled_settings
from compilot.records import PlanEntry


def note_first(entry: PlanEntry, model: nn.Module, artifacts: Path | None) -> None:
    """Note the start of a plan's first entry: what its compile cache holds, and under which conditions it starts."""
    settings = compiled_settings(entry.candidate)
    if artifacts is None or settings is None:
        return
    from compilot.identity.keys import note_start  # here: other engines start without it
    from compilot.identity.model import model_fingerprint

    note_start(settings, model_fingerprint(model), artifacts)
