"""One right answer from each entry of a bundle before the first answer is served.

In: a Fast made from a bundle, and the bundle's golden calls. Out: nothing, or BundleError with what is wrong: also an
engine's entry without a golden call. A bundle that runs on the weights of the user's model is right when it answers as
that model does, whatever it was trained to since; every other one has to give the answer that was kept when it was
packed. Each golden call goes to the entry it was made with, whichever entries before it would take it too: an entry
that is never asked at the start could answer wrongly later. What a call needs is built on the way, so the first real
call is not the slow one. No user made these calls, so the statistics leave them out. Not covered: what makes an answer
right (golden.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from compilot._tree import Call
from compilot.errors import BundleError, NoFallback
from compilot.records import Golden, PlanEntry, Weights
from compilot.runtime import golden
from compilot.runtime.eager import EagerCore
from compilot.runtime.fast import Core, Fast, entry_core
from compilot.runtime.sources import OpenedBundle


def prove(fast: Fast, opened: OpenedBundle, *, by_model: bool = False) -> None:
    """Ask each entry its golden call; the variants they need are ready afterwards.

    by_model: the model's own answer is the right one, whatever was kept.
    """
    judge = fast._compilot_plain if by_model else _judge(fast, opened)
    for number, (entry, packed) in enumerate(opened.entries):
        core = entry_core(fast, number)
        if core is not None and packed.golden is not None:
            with torch.set_grad_enabled(entry.guard.grad_enabled):
                _prove_entry(core, opened, entry, packed.golden, judge)
            core.forget_calls()
        elif core is not None and not isinstance(core, EagerCore):  # EagerCore is the model itself
            raise BundleError(f"{opened.path} has no golden call for its entry {entry.candidate.label}. Pack it again.")


def _judge(fast: Fast, opened: OpenedBundle) -> nn.Module | None:
    """The user's model, where its weights are the bundle's own and nothing froze them; it knows the right answer."""
    manifest, model = opened.manifest, fast._compilot_plain
    is_own = manifest.weights is Weights.MODEL and manifest.fingerprint.model.weights_sha256 is None
    return model if is_own and not any(weight.is_meta for weight in model.parameters()) else None


def _prove_entry(core: Core, opened: OpenedBundle, entry: PlanEntry, known: Golden, judge: nn.Module | None) -> None:
    inputs, right = (golden.read(opened.folder / name) for name in (known.inputs, known.outputs))
    if judge is not None:
        call = golden.rebuild_call(entry.guard, inputs)
        with golden.seeded():
            known, right = golden.as_judged(known, right, judge(*call.args, **call.kwargs))
    with golden.seeded():
        answer = _answer(core, golden.rebuild_call(entry.guard, inputs), opened.path)
    problem = golden.difference(known, answer, right)
    if problem is not None:
        told = f"{opened.path} gives a wrong answer to its golden call: {problem}"
        raise BundleError(f"{told}. Pack it again on this machine.")


def _answer(core: Core, call: Call, path: Path) -> Any:
    """The entry's own answer; another entry's, or eager's, proves nothing about it."""
    before = _answered(core)
    try:
        answer = core.call(None, *call.args, **call.kwargs)
    except NoFallback as error:
        raise BundleError(f"{path} does not answer its golden call: {error}") from error
    if _answered(core) == before:
        reason = next(iter(core.stats().fallbacks), "the entry's guard does not take it")
        raise BundleError(f"{path} does not answer its golden call by its engine: {reason}.")
    for region, own in core.stats().regions.items():
        for reason in own.fallbacks:
            raise BundleError(f"{path} does not answer its golden call by the engine of {region}: {reason}.")
    return answer


def _answered(core: Core) -> int:
    """Calls that the entry answered itself."""
    found = core.stats()
    return found.calls if isinstance(core, EagerCore) else found.fast
