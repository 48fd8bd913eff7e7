"""Loading an engine once more, with the weights and hooks that the model has now.

In: how the engine is loaded, and the gate before it. Out: the engine anew and the weights as they were just before; the
gate is shut and its hooks are the present ones. Covered: files that hold other weights than the model has now, an
engine that cannot be loaded again, a model that was let go: each refused in words, and eager goes on answering. It is
imported at the first refresh: most programs need none. Not covered: what was prepared before (dispatch.py forgets it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from torch import nn

from compilot._torch.hooks import hooks_on
from compilot.engines.baked import OtherWeights
from compilot.engines.protocol import Infeasible, Loaded
from compilot.errors import NoFallback, PlanError, StalePlan
from compilot.runtime.frozen import WeightWatch
from compilot.runtime.gate import FILES_OUTDATED, TUNE_AGAIN, Gate
from compilot.runtime.notices import DROPPED

Load = Callable[[], Loaded]


def loaded_anew(plain: nn.Module, load: Load | None, gate: Gate) -> tuple[Loaded, WeightWatch | None]:
    """The engine anew. StalePlan: its files hold other weights. PlanError: it cannot be. NoFallback: no model."""
    if load is None:
        raise NoFallback(f"{DROPPED}, so there is nothing to refresh from; compile the new model instead.")
    hooks, watch = hooks_on(plain), gate.snapshot()
    loaded = _load(load, gate)
    gate.shut()
    if not gate.loaded.in_files:
        gate.accept_hooks(hooks)
    return loaded, watch


def _load(load: Load, gate: Gate) -> Loaded:
    try:
        _refuse_unknown_weights(gate)
        return load()
    except OtherWeights as error:
        _refuse_other_weights(gate, error)
    except Infeasible as error:
        gate.close(f"engine could not be loaded again: {error}")
        raise PlanError(f"the compiled model cannot be refreshed: {error}. Until then eager answers.") from error


def _refuse_unknown_weights(gate: Gate) -> None:
    """OtherWeights where the weights in the files have no digest to compare with, and the model's have changed."""
    loaded, watch = gate.loaded, gate.watch
    if not loaded.in_files or loaded.weights_sha256 is not None or watch is None:
        return
    if gate.closed == FILES_OUTDATED or watch.changed():
        raise OtherWeights(FILES_OUTDATED)


def _refuse_other_weights(gate: Gate, error: OtherWeights) -> NoReturn:
    gate.close(FILES_OUTDATED)
    text = "the compiled model cannot be refreshed: its files hold other weights than the model has now"
    raise StalePlan(f"{text}; {TUNE_AGAIN}. Until then eager answers.", (FILES_OUTDATED,)) from error
