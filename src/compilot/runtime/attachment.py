"""From a Source to a callable: its engines loaded, the user's model or a stand-in around them.

In: a plan or a bundle, every digest right, and the user's model where there is one. Out: a Fast that has not answered
anything yet, beside the model; `hand_over` puts it in the model's own place, once it is proven. Refused: bundles that
need a model and get none (NoFallback), weights that are not the baked-in ones (StalePlan, StaleBundle), a bundle's
files that an engine cannot load (BundleError). Not covered: whether its answers are right (proving.py).
"""

from __future__ import annotations

from torch import nn

from compilot.artifacts.bundle import WEIGHTS
from compilot.engines.baked import OtherWeights
from compilot.engines.protocol import Infeasible
from compilot.errors import BundleError, InputError, NoFallback, StaleBundle, StalePlan, first_cause
from compilot.runtime import golden
from compilot.runtime.fast import Fast, attach_eager, attach_parts, beside, copied_by, put_in_place
from compilot.runtime.process import tell_differing
from compilot.runtime.sources import ApplyOptions, OpenedBundle, Source
from compilot.runtime.stand_in import make_stand_in
from compilot.runtime.start_notes import note_first


def attach_source(model: nn.Module | None, source: Source, options: ApplyOptions) -> Fast:
    """The model as the plan's entries say; the model itself is not changed."""
    whole = _stand_in_for(source) if model is None else beside(model, options)
    if not source.parts:
        return _keep_eager(whole, source, options)
    tell_differing(source.plan.process)
    if model is not None:
        note_first(source.plan.entries[0], model, source.parts[0].artifacts)
    kept = options._replace(keep_model=options.keep_model and model is not None)
    try:
        return attach_parts(whole, source.parts, kept, check_again=source.check_again, stand_in=model is None)
    except OtherWeights as error:
        kind = StalePlan if source.bundle is None else StaleBundle
        raise kind(f"{source.name} is out of date: {error}.", (str(error),)) from error
    except Infeasible as error:
        if source.bundle is None:
            raise
        raise BundleError(f"{source.name} cannot be loaded: {_cause(error, model)}.") from error


def _cause(error: Infeasible, model: nn.Module | None) -> str:
    """Why, without the full stop; an operator that is missing is named with what to do."""
    from compilot._torch import operators  # here: a start that works needs none of it

    name = operators.missing_in(str(error))
    if name is None:
        return str(error).rstrip(".")
    start = "compilot.load" if model is None else "compilot.compile"
    return f"this process does not know the operator {name}; import the module that registers {name} before {start}"


def _keep_eager(model: nn.Module, source: Source, options: ApplyOptions) -> Fast:
    if not options.keep_model:
        what = f"this {'plan' if source.bundle is None else 'bundle'} keeps the model eager ({source.plan.because})"
        raise InputError(f"keep_model=False cannot be used: {what}.")
    return attach_eager(model)


def hand_over(fast: Fast, model: nn.Module | None, source: Source, options: ApplyOptions) -> Fast:
    """The proven Fast as the user gets it: perhaps in the model's own place; copies of a bundle's start it again."""
    if model is None:
        return fast
    opened = source.bundle
    if opened is not None and source.parts and options.keep_model:
        from compilot.runtime.start import start_again

        copied_by(fast, start_again, opened.path.absolute(), opened.digest, options._replace(inplace=False))
    return put_in_place(model, fast) if options.inplace else fast


def give_weights(model: nn.Module, source: Source) -> None:
    """The carried weights into the user's model: that is what carrying them is for."""
    assert source.bundle is not None
    try:
        model.load_state_dict(golden.read(source.bundle.folder / WEIGHTS), strict=True)
    except RuntimeError as error:
        raise StaleBundle(f"the carried weights do not fit the model: {first_cause(error)}.") from error


def _stand_in_for(source: Source) -> nn.Module:
    """What stands for the model where the bundle's files are all of it; NoFallback where they are not."""
    assert source.bundle is not None
    _refuse_without_model(source.bundle)
    return make_stand_in(source.bundle.manifest, training=source.plan.entries[0].guard.training)


def _refuse_without_model(opened: OpenedBundle) -> None:
    if not opened.plan.entries:
        text = "its plan keeps the model as it is, so the model itself is needed"
    elif not opened.manifest.standalone:
        text = f"its engine, {opened.manifest.engine}, runs the model's own code and weights"
    else:
        return
    path = opened.path
    raise NoFallback(f"{path} holds no whole model: {text}; call compilot.compile(model, {str(path)!r}).")
