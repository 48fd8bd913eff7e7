"""A plan for Lightning: a callback.

In: a plan of a training, and where its model is in the LightningModule. Out: `PlanCallback`: the plan's parts are in
place from the start of a training to its end (applied.py), also where it ends with an error; checkpoints are as
without it. Needs the package lightning. Not covered: several optimizers (the model's part alone is applied then).
"""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch.callbacks import Callback

from compilot.records import Plan
from compilot.runtime.notices import Stats
from compilot.training.applied import Applied, apply_parts


class PlanCallback(Callback):
    """Trainer(callbacks=[PlanCallback(plan, module="model")]): trains as the plan says."""

    def __init__(self, plan: Plan | str | os.PathLike[str], *, module: str = "", allow_stale: bool = False) -> None:
        """module: path of the tuned model in the LightningModule; "": that itself."""
        self._plan = plan
        self._module = module
        self._allow_stale = allow_stale
        self._applied: Applied | None = None
        self._stats: Stats | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Put the plan's parts in place."""
        model = pl_module.get_submodule(self._module)
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self._applied = apply_parts(model, optimizer, self._plan, allow_stale=self._allow_stale)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Model and optimizer as they were."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The same where the training ends with an error."""
        self._end()

    def stats(self) -> Stats | None:
        """How the model's calls went, in this training or the last one; None: there was none."""
        return self._stats if self._applied is None else self._applied.stats()

    def _end(self) -> None:
        if self._applied is not None:
            self._stats = self._applied.stats()
            self._applied.undo()
            self._applied = None
