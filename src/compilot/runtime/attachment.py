"""From a bundle's checked files to a callable: its engines loaded, the user's model or a stand-in around them.

In: a bundle on disk, every digest right, and the user's model where there is one. Out: a Fast that has not answered
anything yet, beside the model; `hand_over` puts it in the model's own place, once it is proven. Refused: bundles that
need a model and get none (NoFallback), weights that are not the baked-in ones (StaleBundle), files that an engine
cannot load (BundleError). Not covered: whether its answers are right (proving.py).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from compilot.artifacts.bundle import WEIGHTS
from compilot.artifacts.unpack import check_again
from compilot.engines.baked import OtherWeights
from compilot.engines.protocol import Infeasible
from compilot.errors import BundleError, InputError, NoFallback, StaleBundle, first_cause
from compilot.records import Plan
from compilot.runtime import golden
from compilot.runtime.clone import alias
from compilot.runtime.fast import (
    Fast,
    Part,
    Terms,
    attach_eager,
    attach_parts,
    copied_by,
    put_in_place,
    refuse_both,
)
from compilot.runtime.process import tell_differing
from compilot.runtime.stand_in import make_stand_in
from compilot.runtime.start_notes import note_first

if TYPE_CHECKING:
    from compilot.runtime.bundles import Opened, Options


def attach_bundle(model: nn.Module | None, opened: Opened, options: Options) -> Fast:
    """The model as the bundle's entries say; the model itself is not changed."""
    plan = opened.plan
    if model is None:
        _refuse_without_model(opened)
    elif options.inplace:
        refuse_both(options.keep_model)
        model = alias(model, type(model))  # eager behind it, when the model's own class is exchanged
    if not plan.entries:
        assert model is not None
        return _keep_eager(model, plan, options)
    tell_differing(plan.process)
    parts = tuple(
        Part(
            entry.candidate,
            entry.guard,
            opened.folder / packed.folder if packed.folder else None,
            entry.weights_sha256,
            entry.caveats,
        )
        for entry, packed in opened.entries
    )
    terms = Terms(
        options.keep_model and model is not None,
        stand_in=model is None,
        plain_outputs=options.plain_outputs,
        before_refresh=partial(check_again, opened.folder, opened.manifest),
        check_indices=options.check_indices,
        strict_weights=options.strict_weights,
    )
    if model is not None:
        note_first(plan.entries[0], model, parts[0].artifacts)
    whole = model if model is not None else make_stand_in(opened.manifest, training=plan.entries[0].guard.training)
    try:
        return attach_parts(whole, parts, terms=terms)
    except OtherWeights as error:
        raise StaleBundle(f"{opened.path} is stale: {error}.", (str(error),)) from error
    except Infeasible as error:
        raise BundleError(f"{opened.path} cannot be loaded: {_cause(error, model)}.") from error


def _cause(error: Infeasible, model: nn.Module | None) -> str:
    """Why, without the full stop; an operator that is missing is named with what to do."""
    from compilot._torch import operators  # here: a start that works needs none of it

    name = operators.missing_in(str(error))
    if name is None:
        return str(error).rstrip(".")
    start = "compilot.load" if model is None else "compilot.compile"
    return f"this process does not know the operator {name}; import the module that registers {name} before {start}"


def _keep_eager(model: nn.Module, plan: Plan, options: Options) -> Fast:
    if not options.keep_model:
        raise InputError(f"keep_model=False cannot be used: this bundle keeps the model eager ({plan.because}).")
    return attach_eager(model)


def hand_over(fast: Fast, model: nn.Module | None, opened: Opened, options: Options) -> Fast:
    """The proven Fast as the user gets it: perhaps in the model's own place; its copies start the bundle again."""
    if model is None:
        return fast
    if opened.plan.entries and options.keep_model:
        from compilot.runtime.bundles import start_again

        copied_by(fast, start_again, opened.path.absolute(), opened.digest, options._replace(inplace=False))
    return put_in_place(model, fast) if options.inplace else fast


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
