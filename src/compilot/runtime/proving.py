"""One right answer from each entry of a bundle before the first answer is served.

In: a Fast made from a bundle, and the bundle's golden calls. Out: nothing, or BundleError with what is wrong: also an
engine's entry without a golden call. Each golden call goes to the entry it was made with, whichever entries before it
would take it too: an entry that is never asked at the start could answer wrongly later. What a call needs is built on
the way, so the first real call is not the slow one. Not covered: what makes an answer right (golden.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from compilot._tree import Call
from compilot.errors import BundleError, NoFallback
from compilot.records import BundleEntry, PlanEntry
from compilot.runtime import golden
from compilot.runtime.direct import Direct
from compilot.runtime.fast import Core, Fast, entry_core

if TYPE_CHECKING:
    from compilot.runtime.bundles import Opened


def prove(fast: Fast, opened: Opened) -> None:
    """Ask each entry its golden call; the variants they need are ready afterwards."""
    for number, (entry, packed) in enumerate(opened.entries):
        core = entry_core(fast, number)
        if core is not None:
            _prove_entry(core, opened, entry, packed)


def _prove_entry(core: Core, opened: Opened, entry: PlanEntry, packed: BundleEntry) -> None:
    if packed.golden is None and isinstance(core, Direct):
        return  # the model itself
    if packed.golden is None:
        raise BundleError(f"{opened.path} has no golden call for its entry {entry.candidate.label}. Pack it again.")
    call = golden.rebuild_call(entry.guard, golden.read(opened.folder / packed.golden.inputs))
    right = golden.read(opened.folder / packed.golden.outputs)
    with torch.set_grad_enabled(entry.guard.grad_enabled):
        answer = _answer(core, call, opened.path)
    problem = golden.difference(packed.golden, answer, right)
    if problem is not None:
        told = f"{opened.path} gives a wrong answer to its golden call: {problem}"
        raise BundleError(f"{told}. Pack it again on this machine.")


def _answer(core: Core, call: Call, path: Path) -> Any:
    """The entry's own answer; another entry's, or eager's, proves nothing about it."""
    before = core.stats().fast
    try:
        answer = core.call(None, *call.args, **call.kwargs)
    except NoFallback as error:
        raise BundleError(f"{path} does not answer its golden call: {error}") from error
    if core.stats().fast == before:
        reason = next(iter(core.stats().fallbacks), "the entry's guard does not take it")
        raise BundleError(f"{path} does not answer its golden call by its engine: {reason}.")
    return answer
