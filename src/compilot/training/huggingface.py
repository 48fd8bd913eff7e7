"""A plan for Hugging Face's Trainer: a callback.

In: a plan of a training whose loss is the model's own (`model(**batch).loss`). Out: `PlanCallback`: when the training
begins the plan's parts are put in place for Trainer's model and optimizer (applied.py), and taken out when it ends;
what Trainer saves is as without it. Needs the package transformers. Not covered: Trainer's own `torch_compile=True`,
which would compile twice and is refused.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from compilot.errors import InputError
from compilot.records import Plan
from compilot.runtime.notices import Stats
from compilot.training.applied import Applied, apply_parts


class PlanCallback(TrainerCallback):
    """Trainer(..., callbacks=[PlanCallback(plan)]): trains as the plan says."""

    def __init__(self, plan: Plan | str | os.PathLike[str], *, allow_stale: bool = False) -> None:
        self._plan = plan
        self._allow_stale = allow_stale
        self._applied: Applied | None = None
        self._stats: Stats | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """Put the plan's parts in place."""
        if args.torch_compile:
            raise InputError("TrainingArguments(torch_compile=True) would compile the model twice; leave it out.")
        self._end()  # an earlier training that was interrupted: Trainer does not say so
        self._applied = apply_parts(model, optimizer, self._plan, allow_stale=self._allow_stale)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Model and optimizer as they were."""
        self._end()

    def stats(self) -> Stats | None:
        """How the model's calls went, in this training or the last one; None: there was none."""
        return self._stats if self._applied is None else self._applied.stats()

    def _end(self) -> None:
        if self._applied is not None:
            self._stats = self._applied.stats()
            self._applied.undo()
            self._applied = None
