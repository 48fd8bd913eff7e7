"""CUDA graphs, run plane: inputs copied to fixed memory, the recording replayed, results copied out.

In: a LoadRequest. Out: a callable that records in `prepare`. Results own their memory; one call at a time. The weights
are read where they are, so updates in place are seen and a weight that moves is not: it counts as frozen. Every tensor
input must be on a GPU: the recording would go on using the values that others had when it was made. Unproven: written
without a GPU at hand. Not covered: models that synchronise or allocate on the CPU meanwhile; recording those
fails and the candidate is infeasible.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn

from compilot._tree import Call, call_leaves, map_call, rebuild
from compilot.engines.protocol import Baked, Infeasible, Loaded, LoadRequest

WARM_UP_CALLS = 3  # libraries choose their algorithms and allocate their workspaces in the first calls


def load(request: LoadRequest) -> Loaded:
    """The callable; nothing is recorded yet."""
    if elsewhere := [t for t in request.guard.tensors if not t.device.startswith("cuda")]:
        where = f"{elsewhere[0].path} is on the {elsewhere[0].device}"
        raise Infeasible(f"{where}: a recording would go on using the values it was made with; move it to the GPU")
    if not torch.cuda.is_available():
        raise Infeasible("cudagraphs needs a CUDA GPU")
    if request.guard.grad_enabled:
        raise Infeasible("a recording computes no gradients; run the calls under torch.no_grad()")
    recording = _Recording(request.model)
    return Loaded(call=recording.replay, prepare=recording.record, frozen_weights=True, baked=Baked.AT_PREPARE)


class _Recording:
    """One graph with its own inputs and outputs; one thread at a time makes it, fills it or reads it."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._lock = threading.RLock()
        self._graph: Any = None
        self._inputs: list[torch.Tensor] = []
        self._output: Any = None

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the work of one call, then answer it by replaying."""
        with self._lock:
            with torch.inference_mode(False), torch.no_grad():  # else the memory could not be written to outside of it
                self._record(Call(args, kwargs))
            return self.replay(*args, **kwargs)

    def _record(self, call: Call) -> None:
        held = map_call(call, lambda path, leaf: leaf.clone() if _on_gpu(leaf) else leaf)
        self._inputs = _tensors(held)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                self._model(*held.args, **held.kwargs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = self._model(*held.args, **held.kwargs)

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        """Copy the inputs in, replay, copy the results out."""
        with self._lock:
            return self._replay(Call(args, kwargs))

    def _replay(self, call: Call) -> Any:
        for held, given in zip(self._inputs, _tensors(call), strict=True):
            held.copy_(given)
        self._graph.replay()
        return rebuild(self._output, lambda path, leaf: leaf.clone() if _on_gpu(leaf) else leaf, "output")


def _on_gpu(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_cuda


def _tensors(call: Call) -> list[torch.Tensor]:
    return [leaf.value for leaf in call_leaves(call) if _on_gpu(leaf.value)]
