"""Loading an engine behind a gate that is there already, with the weights and hooks that the model has now.

In: how the engine is loaded, and the gate before it. Out: the engine and the weights as they were just before; the
hooks are the present ones. `loaded_behind` is for another engine, `loaded_anew` for the same one. Covered: files that
hold other weights than the model has now, an engine that cannot be loaded again, a model that was let go: each refused
in words, and eager goes on answering. Not covered: what
was prepared before (dispatch.py forgets it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

from torch import nn

from compilot._torch.hooks import hooks_on
from compilot.engines.baked import OtherWeights
from compilot.engines.protocol import Infeasible, Loaded
from compilot.errors import NoFallback, PlanError, StalePlan
from compilot.runtime.gate import FILES_OF_OTHER_CODE, FILES_OUTDATED, TUNE_AGAIN, Gate
from compilot.runtime.unreadable import Unreadable, unreadable_in
from compilot.runtime.weight_watch import WeightWatch

Load = Callable[[], Loaded]


class Anew(NamedTuple):
    """The engine, and the model as it was just before the engine read it."""

    loaded: Loaded
    watch: WeightWatch | None
    unreadable: Unreadable | None
    hooks: list[Any] | None = None  # that the engine runs with the model; None: those that were known before


def loaded_behind(plain: nn.Module, load: Load, gate: Gate) -> Anew:
    """The engine; what load raises goes on, and nothing has changed."""
    hooks, watch = hooks_on(plain), gate.snapshot()
    unreadable = unreadable_in(plain) if gate.has_unreadable() else None
    loaded = load() if watch is None else watch.running(load)
    gate.refuse_unwatchable(loaded, watch)
    return Anew(loaded, watch, unreadable, None if loaded.in_files else hooks)


def loaded_anew(plain: nn.Module, load: Load | None, gate: Gate, no_eager: str) -> Anew:
    """The engine, loaded again. StalePlan: its files hold other weights. PlanError: it cannot be. NoFallback: no model.

    no_eager: why there is no model, where there is none.
    """
    if load is None:
        raise NoFallback(f"{no_eager}, so there is nothing to refresh from; compile the new model instead.")
    return loaded_behind(plain, partial(_load, load, gate), gate)


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
    """OtherWeights where the files were made from other code, or hold other weights and no digest to compare with."""
    loaded, watch = gate.loaded, gate.watch
    if not loaded.in_files or watch is None:
        return
    if gate.is_rebuilt():
        raise OtherWeights(FILES_OF_OTHER_CODE)
    if loaded.weights_sha256 is None and (gate.closed == FILES_OUTDATED or watch.changed()):
        raise OtherWeights(FILES_OUTDATED)


def _refuse_other_weights(gate: Gate, error: OtherWeights) -> NoReturn:
    reason = FILES_OF_OTHER_CODE if str(error) == FILES_OF_OTHER_CODE else FILES_OUTDATED
    gate.close(reason)
    what = "weights" if reason == FILES_OUTDATED else "code or attributes"
    text = f"the compiled model cannot be refreshed: its files were made from other {what} than the model has now"
    raise StalePlan(f"{text}; {TUNE_AGAIN}. Until then eager answers.", (reason,)) from error
