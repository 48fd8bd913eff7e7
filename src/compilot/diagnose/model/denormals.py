"""Does the model meet denormal numbers? In: a workload. Out: yes or no.

A denormal is a number below the smallest normal one (1.2e-38 in float32); many CPUs compute with it in microcode, far
more slowly. Looked at: weights, inputs and the outputs of every submodule in one eager call. Not covered: numbers
that live only inside a submodule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compilot._tree import call_leaves, is_tensor, output_leaves

if TYPE_CHECKING:
    from torch import Tensor

    from compilot.workload import Workload

SLICE = 1 << 22  # values looked at together
FEW = 16  # single ones cost nothing that could be measured


def meets_denormals(workload: Workload) -> bool:
    """True when there are more than a few of them in one call."""
    model, total = workload.model, 0
    total += sum(count(tensor) for tensor in (*model.parameters(), *model.buffers()))
    total += sum(count(leaf.value) for leaf in call_leaves(workload.call) if is_tensor(leaf.value))
    if total > FEW:
        return True
    seen: list[int] = []

    def hook(module: Any, args: Any, output: Any) -> None:
        seen.extend(count(leaf.value) for leaf in output_leaves(output) if is_tensor(leaf.value))

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        with workload.unit(model).restored() as unit:
            unit.call()
    finally:
        for handle in handles:
            handle.remove()
    return total + sum(seen) > FEW


def count(tensor: Tensor) -> int:
    """Denormal values in a floating-point tensor of the CPU."""
    import torch

    dense = tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not (dense and tensor.dtype in (torch.float32, torch.float64)):
        return 0
    tiny, flat = torch.finfo(tensor.dtype).tiny, tensor.detach().reshape(-1)
    parts = (flat[i : i + SLICE] for i in range(0, flat.numel(), SLICE))
    return sum(int(((part.abs() < tiny) & (part != 0)).sum()) for part in parts)
