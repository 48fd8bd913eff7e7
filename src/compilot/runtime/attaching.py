"""From a bundle's checked files to a callable: its engines loaded, the user's model or a stand-in around them.

In: a bundle on disk, every digest right, and the user's model where there is one. Out: a Fast that has not answered
anything yet. Refused: bundles that need a model and get none (NoFallback), weights that are not the baked-in ones
(StaleBundle), files that an engine cannot load (BundleError). Not covered: whether its answers are right (proving.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from compilot.artifacts.bundle import WEIGHTS
from compilot.engines.baked import OtherWeights
from compilot.engines.protocol import Infeasible
from compilot.errors import BundleError, NoFallback, StaleBundle, first_cause
from compilot.runtime import golden
from compilot.runtime.fast import Fast, Part, Terms, attach_eager, attach_parts
from compilot.runtime.process import tell_differing
from compilot.runtime.stand_in import make_stand_in
from compilot.runtime.starts import note_first

if TYPE_CHECKING:
    from compilot.runtime.bundles import Opened, Options


def attach_bundle(model: nn.Module | None, opened: Opened, options: Options) -> Fast:
    """The model as the bundle's entries say."""
    plan = opened.plan
    if model is None:
        _refuse_without_model(opened)
    if not plan.entries:
        assert model is not None
        return attach_eager(model, inplace=options.inplace)
    tell_differing(plan.entries[0].candidate.process)
    parts = tuple(
        Part(entry.candidate, entry.guard, opened.folder / packed.folder if packed.folder else None)
        for entry, packed in opened.entries
    )
    terms = Terms(options.keep_model and model is not None, stand_in=model is None, plain_outputs=options.plain_outputs)
    if model is not None:
        note_first(plan.entries[0], model, parts[0].artifacts)
    whole = model if model is not None else make_stand_in(opened.manifest, training=plan.entries[0].guard.training)
    try:
        return attach_parts(whole, parts, terms=terms, inplace=options.inplace)
    except OtherWeights as error:
        raise StaleBundle(f"{opened.path} is stale: {error}.", (str(error),)) from error
    except Infeasible as error:
        raise BundleError(f"{opened.path} cannot be loaded: {error}.") from error


def give_weights(model: nn.Module, folder: Path) -> None:
    """The carried weights into the user's model: that is what carrying them is for."""
    try:
        model.load_state_dict(golden.read(folder / WEIGHTS), strict=True)
    except RuntimeError as error:
        raise StaleBundle(f"the carried weights do not fit the model: {first_cause(error)}.") from error


def _refuse_without_model(opened: Opened) -> None:
    if not opened.plan.entries:
        text = "its plan keeps the model as it is, so the model itself is needed"
    elif not opened.manifest.standalone:
        text = f"its engine, {opened.manifest.engine}, runs the model's own code and weights"
    else:
        return
    path = opened.path
    raise NoFallback(f"{path} holds no whole model: {text}; call compilot.compile(model, {str(path)!r}).")
