"""One start, whatever the user gave: Source, engines loaded, golden calls right, ready.

In: a plan with its folder, or a bundle's path, and the user's model where there is one. Out: a Fast; of a bundle it has
already given one right answer per entry, and its `startup` says what each step took. `start` is the whole story; its
steps are in plans.py and bundles.py (trust, fit, digests: a Source), attachment.py (engines) and proving.py (golden
calls). What fails raises, and the model is as it was. Not covered: eager in place of what failed (apply.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from compilot._collector import no_collector
from compilot.artifacts.bundle_trust import Trust
from compilot.records import Weights
from compilot.runtime.bundles import bundle_source
from compilot.runtime.sources import ApplyOptions, Source

if TYPE_CHECKING:
    from compilot.runtime.fast import Fast
    from compilot.runtime.plans import PlanFolder


class Clock:
    """How long each step of the start took."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, step: str) -> None:
        """The step that ends now."""
        now = time.perf_counter()
        self.steps[step] = now - self._last
        self._last = now


def load(
    path: str | os.PathLike[str],
    *,
    trusted_keys: Sequence[str | os.PathLike[str]] = (),
    require_signature: bool = False,
    allow_stale: bool = False,
    plain_outputs: bool = False,
    check_indices: bool = True,
    record: str | os.PathLike[str] | None = None,
) -> Fast:
    """The bundle's model without a model object; every call that it does not take raises NoFallback.

    check_indices=False saves the look at the values of inputs that are used as indices: see compilot.compile.
    record is a file in which the sizes of all calls are counted: see compilot.record.
    """
    trust = Trust(trusted_keys, require_signature)
    options = ApplyOptions(trust, allow_stale=allow_stale, plain_outputs=plain_outputs, check_indices=check_indices)
    fast = start(None, Path(path), options)
    if record is None:
        return fast
    from compilot.runtime.recording import recorded  # here: most do not record

    return cast("Fast", recorded(fast, record))


def start(model: nn.Module | None, given: PlanFolder | Path, options: ApplyOptions, *, copy_of: str = "") -> Fast:
    """Open, check, load, run the golden calls; raises where any of it fails. The model's class is changed last.

    given: a path is a bundle's. copy_of: the digest of the bundle that a copied model was started from.
    """
    clock = Clock()
    with no_collector(), _undone_on_failure(model) as keep_weights:
        source = _opened(model, given, options, clock, copy_of)
        from compilot.runtime import attachment  # here: imported while a bundle's files were checked

        if model is not None and _carries_weights(source) and not copy_of:
            keep_weights()
            attachment.give_weights(model, source)
        fast = attachment.attach_source(model, source, options)
        clock.mark("load")
        if source.bundle is not None:
            from compilot.runtime import proving

            proving.prove(fast, source.bundle, by_model=bool(copy_of))  # a copy's weights may have changed since
            clock.mark("golden call")
    fast = attachment.hand_over(fast, model, source, options)
    if source.bundle is not None:
        fast.startup.update(clock.steps)
    return fast


def _opened(
    model: nn.Module | None, given: PlanFolder | Path, options: ApplyOptions, clock: Clock, copy_of: str
) -> Source:
    if isinstance(given, Path):
        return bundle_source(given, model, options, clock.mark, copy_of=copy_of)
    from compilot.runtime.plans import plan_source  # here: a bundle's start does not pay for it

    assert model is not None  # a plan's files are not the whole model
    return plan_source(given, model, options.allow_stale)


def start_again(model: nn.Module, path: Path, digest: str, options: ApplyOptions) -> Fast:
    """What copies and pickles of a Fast are made with: the same bundle, started again for the copied model."""
    return start(model, path, options, copy_of=digest)


def _carries_weights(source: Source) -> bool:
    return source.bundle is not None and source.bundle.manifest.weights is Weights.CARRIED


@contextmanager
def _undone_on_failure(model: nn.Module | None) -> Iterator[Callable[[], None]]:
    """Whatever fails on the way, the user's model has afterwards the weights that were kept."""
    kept: dict[str, torch.Tensor] = {}

    def keep_weights() -> None:
        if model is not None:
            kept.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})

    try:
        yield keep_weights
    except BaseException:
        if model is not None and kept:
            model.load_state_dict(kept)
        raise
