"""Export, tuning plane: the model as a graph from flat tensors to flat tensors, and what the run plane must know of it.

In: a BuildRequest. Out: a torch.export program and its Structure, or Infeasible with the first cause and its source
line. The model is called through a wrapper that puts the example's plain values and containers around the flat
tensors, so every input and output structure can be exported, whatever torch's own pytrees know. The model itself is
not changed. Covered: declared dynamic dimensions, data-dependent control flow and writes to inputs or buffers (both
refused). Not covered: calls with gradients, autocast or train mode, sizes that get into plain outputs: those are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from compilot._torch import exporting as private
from compilot._tree import Call, call_leaves, map_call
from compilot.engines import dimensions
from compilot.engines.baked import weights_digest
from compilot.engines.describing import Described, describe
from compilot.engines.meaning import Refusal, refuse
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.engines.quiet import quiet
from compilot.engines.rewriting import Rule, rewrite
from compilot.engines.structure import InputTensor, OutputTensor, Structure
from compilot.engines.whereabouts import cause
from compilot.inputs.layouts import fits, strides_of
from compilot.modules.clone import channels_last_clone
from compilot.records import DimRange, Guard, MemoryFormat, TensorGuard

_WRITES = {
    OutputKind.USER_INPUT_MUTATION: "the model writes into its input",
    OutputKind.BUFFER_MUTATION: "the model changes its buffer",
    OutputKind.PARAMETER_MUTATION: "the model changes its parameter",
}


class Exported(NamedTuple):
    """The graph, and the structure around it."""

    program: ExportedProgram
    structure: Structure


def as_eager_means(exported: Exported, refused: Mapping[str, Refusal], rewritten: Mapping[str, Rule]) -> Exported:
    """The same export for an engine of other meanings: what it cannot have is refused, the rest is rewritten."""
    refuse(exported.program, refused)
    with torch.no_grad(), quiet():
        return exported._replace(program=rewrite(exported.program, rewritten))


def export(request: BuildRequest, *, keep_strides: bool = False) -> Exported:
    """Export the request's model for its guard; keep_strides: the engine takes inputs laid out as in the example."""
    guard = request.guard
    _refuse_modes(guard)
    weights = weights_digest(request.model)  # first: running the model may add caches to it
    leaves = {leaf.path: leaf.value for leaf in call_leaves(request.call)}
    examples = [leaves[t.path].detach() for t in guard.tensors]
    dense = [
        keep_strides or (want.order is None and example.is_contiguous())
        for want, example in zip(guard.tensors, examples, strict=True)
    ]
    layout = request.candidate.settings.memory_format is MemoryFormat.CHANNELS_LAST
    model = channels_last_clone(request.model)[0] if layout else request.model
    flat = _Flat(model, request.call, [t.path for t in guard.tensors], layout)
    with torch.no_grad(), quiet():
        program = _export(flat, _traced(guard, examples, keep_strides), guard)
    _refuse_writes(program)
    assert flat.seen.described is not None
    tensors = _flat_inputs(program, guard, examples, dense)
    outputs = tuple(_output(meta, tensors.names) for meta in private.user_outputs(program))
    tree = flat.seen.described.tree
    return Exported(program, Structure(inputs=tensors.inputs, outputs=outputs, tree=tree, weights_sha256=weights))


def _traced(guard: Guard, examples: Sequence[torch.Tensor], keep_strides: bool) -> tuple[torch.Tensor, ...]:
    given = examples if keep_strides else [example.contiguous() for example in examples]
    grown = dimensions.grown(guard.tensors, given)
    return (
        tuple(_laid_out(want, example) for want, example in zip(guard.tensors, grown, strict=True))
        if keep_strides
        else grown
    )


def _laid_out(want: TensorGuard, example: torch.Tensor) -> torch.Tensor:
    """The example in the guard's own order of dimensions, which growing it may have changed."""
    if want.order is None or fits(example.shape, example.stride(), want.order):
        return example
    once = [size if dim in want.order else 1 for dim, size in enumerate(example.shape)]
    memory = torch.empty_strided(once, strides_of(once, want.order), dtype=example.dtype, device=example.device)
    return memory.copy_(example[tuple(slice(size) for size in once)]).expand(example.shape)


def _refuse_modes(guard: Guard) -> None:
    if guard.grad_enabled:
        raise Infeasible("an exported model computes no gradients; run the calls under torch.no_grad()")
    if guard.autocast:
        raise Infeasible("an exported model cannot follow autocast; convert the model's dtype instead")
    if guard.training:
        raise Infeasible("an exported model is for inference, not for train mode")
    if not guard.tensors:
        raise Infeasible("the call has no tensor among its inputs")
    if odd := [t.device for t in guard.tensors if t.device != "cpu"]:
        raise Infeasible(f"inputs on {odd[0]}: exported models are run on the CPU only")


class _Seen:
    """What the wrapper saw of the output; an object of its own, because export undoes writes to attributes."""

    described: Described | None = None


class _Flat(nn.Module):
    """The model with flat tensors in and out."""

    def __init__(self, model: nn.Module, call: Call, paths: Sequence[str], channels_last: bool) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self.call = call
        self.paths = paths
        self.channels_last = channels_last
        self.seen = _Seen()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Put the call together, run the model, note the structure, give back the tensors in it."""
        given = dict(zip(self.paths, map(self._laid_out, tensors), strict=True))
        call = map_call(self.call, lambda path, leaf: given.get(path, leaf))
        output = self.model(*call.args, **call.kwargs)
        self.seen.described = describe(output, tensors)
        own = {id(tensor) for tensor in (*self.parameters(), *self.buffers())}
        return tuple(self._result(tensor, own) for tensor in self.seen.described.tensors)

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self.channels_last or tensor.dim() != 4 or not tensor.is_floating_point():
            return tensor
        return tensor.contiguous(memory_format=torch.channels_last)

    def _result(self, tensor: torch.Tensor, own: set[int]) -> torch.Tensor:
        """Never a weight itself, which a caller could write to; never a layout that only our own conversion made."""
        if id(tensor) in own:
            return tensor.clone()
        return tensor.contiguous() if self.channels_last and tensor.dim() == 4 else tensor


def _export(flat: _Flat, examples: tuple[torch.Tensor, ...], guard: Guard) -> ExportedProgram:
    """Sizes that eager lets differ are their own, the others one; other guesses where the graph contradicts that."""
    first: Exception | None = None
    for shapes in dimensions.guesses(guard.tensors, examples, lambda tensors: _answers(flat, tensors)):
        try:
            return torch.export.export(flat, examples, dynamic_shapes=shapes, strict=False)
        except Infeasible:
            raise
        except Exception as error:
            first = first or error
            if not private.is_constraint_violation(error):
                break
    assert first is not None
    raise Infeasible(cause(first)) from first


def _answers(flat: _Flat, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether eager answers this call; the model's buffers end as they were."""
    kept = [(buffer, buffer.clone()) for buffer in flat.buffers()]
    try:
        flat(*tensors)
    except Exception:
        return False
    finally:
        for buffer, values in kept:
            if not torch.equal(buffer, values):
                buffer.copy_(values)
    return True


def _refuse_writes(program: ExportedProgram) -> None:
    """In-place writes only show in the functional form of the graph, which costs as much as the export to make."""
    if not private.writes_in_place(program):
        return
    with torch.no_grad(), quiet():
        functional = program.run_decompositions({})
    for spec in functional.graph_signature.output_specs:
        if spec.kind in _WRITES:
            name = (spec.target or "").removeprefix("model.")
            raise Infeasible(f"{_WRITES[spec.kind]} '{name}' during the call, which an exported model would not do")


class _FlatInputs(NamedTuple):
    inputs: tuple[InputTensor, ...]
    names: dict[Any, str]  # symbol of a varying size -> its name


def _flat_inputs(
    program: ExportedProgram, guard: Guard, examples: Sequence[torch.Tensor], dense: Sequence[bool]
) -> _FlatInputs:
    names: dict[Any, str] = {}
    rows = zip(guard.tensors, examples, private.user_inputs(program), dense, strict=True)
    inputs = tuple(
        InputTensor(path=want.path, dtype=want.dtype, shape=_shape(want, example, meta, names), dense=ready)
        for want, example, meta, ready in rows
    )
    return _FlatInputs(inputs, names)


def _shape(
    want: TensorGuard, example: torch.Tensor, meta: torch.Tensor, names: dict[Any, str]
) -> tuple[int | str, ...]:
    """Numbers, and a name for each size that varies in the guard: it must vary in the graph as well."""
    shape: list[int | str] = []
    for dim, (wanted, traced) in enumerate(zip(want.shape, meta.shape, strict=True)):
        varies = isinstance(wanted, DimRange) and wanted.min < wanted.max
        symbol = private.symbol_of(traced)
        if varies and symbol is None:
            raise Infeasible(f"dimension {dim} of {want.path} cannot vary: the model fixes it to {traced}")
        shape.append(names.setdefault(symbol, f"_n{len(names)}") if varies else int(example.shape[dim]))
    return tuple(shape)


def _output(meta: torch.Tensor, names: Mapping[Any, str]) -> OutputTensor:
    sizes = [private.size_text(size, names) for size in meta.shape]
    known = tuple(size for size in sizes if size is not None)
    return OutputTensor(dtype=str(meta.dtype), shape=known if len(known) == len(sizes) else None)
