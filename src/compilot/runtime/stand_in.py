"""A stand-in for a model that is not there: the face of the user's module without its weights and code.

In: a manifest. Out: an nn.Module with the model's name and the signature of its forward. Every call that no entry of
the plan takes raises NoFallback: there is nothing else that could answer. Not covered: answering (dispatch.py).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from compilot.errors import NoFallback
from compilot.records import Manifest, Parameter

_KINDS = {kind.name: kind for kind in inspect._ParameterKind}


class StandIn(nn.Module):
    """Base of every stand-in; knows no more than what the bundle says of the model."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing can answer here."""
        raise NoFallback(
            "the bundle does not take this call and there is no model to answer it; "
            "pass the model: compilot.compile(model, bundle)."
        )


def make_stand_in(manifest: Manifest, *, training: bool) -> StandIn:
    """A module that stands for the bundle's model."""
    name = manifest.label if manifest.label.isidentifier() else "Model"
    model: StandIn = type(name, (StandIn,), {"__module__": __name__})()
    model.train(training)
    signature = _signature(manifest.parameters)
    if signature is not None:
        model.forward = _with_signature(model.forward, signature)  # type: ignore[method-assign]
    return model


def describe(forward: Any) -> tuple[Parameter, ...]:
    """The parameters of a forward as records; () where Python cannot tell them."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(Parameter(name=p.name, kind=p.kind.name, default=_literal(p.default)) for p in parameters)


def _literal(value: Any) -> str | None:
    return repr(value) if value is None or type(value) in (bool, int, float, str, bytes) else None


def _signature(parameters: Sequence[Parameter]) -> inspect.Signature | None:
    try:
        return inspect.Signature([_parameter(one) for one in parameters]) if parameters else None
    except (ValueError, SyntaxError, KeyError, TypeError):
        return None  # then calls must be written as the example was


def _parameter(one: Parameter) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.default is None else ast.literal_eval(one.default)
    return inspect.Parameter(one.name, _KINDS[one.kind], default=default)


def _with_signature(forward: Any, signature: inspect.Signature) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    called.__signature__ = signature  # type: ignore[attr-defined]
    return called
