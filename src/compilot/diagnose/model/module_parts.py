"""Where eager's time goes in the module tree: the submodules that are worth a region of their own.

In: a workload, and its repeated blocks. Out: `ModulePart` records, and the blocks with the share of each instance. A
few calls with forward hooks and a clock (timing/submodules.py); the hooks are removed again. Shares are inclusive: a
block's is that of everything in it. A single layer of torch's own is no part: it is one operator already. Whatever goes
wrong means "not known": shares only help to choose what is tried. Not covered: GPUs, whose work runs behind the
caller's back; code of the model's own forward, which is no submodule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot._tree import call_leaves, is_tensor
from compilot.records import ModulePart, RepeatedBlock

if TYPE_CHECKING:
    from torch import nn

    from compilot.diagnose.timing.submodules import Timed
    from compilot.workload import Workload

REPEATS = 5
LONG_ENOUGH_S = 0.5  # no more repeats after this
LEAST_SHARE = 0.03  # of a call: what takes less cannot gain what a plan's margin would show
MOST_PARTS = 40  # a model of a thousand layers has no thousand bottlenecks
DIGITS = 4  # of a share


class Parts(NamedTuple):
    """Where the time goes."""

    parts: tuple[ModulePart, ...]
    repeated: tuple[RepeatedBlock, ...]

    def paths(self) -> list[str]:
        """Of every submodule in it."""
        return [*(part.path for part in self.parts), *(path for block in self.repeated for path in block.paths)]


def module_parts(workload: Workload, repeated: Sequence[RepeatedBlock]) -> Parts:
    """The parts, and the blocks with their shares; neither has any where the time cannot be taken."""
    tensors = [leaf.value for leaf in call_leaves(workload.call) if is_tensor(leaf.value)]
    if any(tensor.is_cuda for tensor in tensors):
        return Parts((), tuple(repeated))
    try:
        times = _times(workload)
    except Exception:  # the user's model may do anything when it is watched; a run does not need this
        times = {}
    rows = [(path, module) for path, module in workload.model.named_modules() if not is_single(module)]
    classes = {path: type(module).__name__ for path, module in rows}
    return Parts(parts_of(times, classes), with_shares(repeated, times))


def shares_of(times: Mapping[str, Timed]) -> dict[str, float]:
    """By path, of those that ran. Pure."""
    from compilot.diagnose.timing.submodules import with_children

    whole = with_children(times)
    return {path: round(min(1.0, whole[path] / whole[""]), DIGITS) for path in times if whole[""] > 0.0}


def is_single(module: nn.Module) -> bool:
    """True for a layer of torch's own without submodules."""
    return type(module).__module__.startswith("torch.nn.") and next(module.children(), None) is None


def _times(workload: Workload) -> dict[str, Timed]:
    from compilot.diagnose.timing.submodules import timed_submodules

    with workload.unit(workload.model).restored() as unit:
        return timed_submodules(workload.model, unit.call, REPEATS, LONG_ENOUGH_S)


def parts_of(times: Mapping[str, Timed], classes: Mapping[str, str]) -> tuple[ModulePart, ...]:
    """The largest, outermost first; classes: of those that may be parts. Pure."""
    shares, examples = shares_of(times), max(1, times[""].calls) if "" in times else 1
    found = [
        ModulePart(path=path, class_name=classes[path], share=share, calls=max(1, times[path].calls // examples))
        for path, share in shares.items()
        if path and path in classes and share >= LEAST_SHARE
    ]
    largest = sorted(found, key=lambda part: -part.share)[:MOST_PARTS]
    return tuple(sorted(largest, key=lambda part: (part.path.count("."), -part.share)))


def with_shares(repeated: Sequence[RepeatedBlock], times: Mapping[str, Timed]) -> tuple[RepeatedBlock, ...]:
    """The blocks with the share of each instance. Pure."""
    shares = shares_of(times)
    if not shares:
        return tuple(repeated)
    return tuple(
        msgspec.structs.replace(block, shares=tuple(shares.get(path, 0.0) for path in block.paths))
        for block in repeated
    )
