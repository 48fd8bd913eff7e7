"""OpenVINO, run plane: a compiled model over the files, called through tensors that share torch's memory.

In: a LoadRequest with the folder that build.py filled. Out: a callable. Imports openvino and torch, no frontend.
Inputs and outputs share torch's memory, outputs are fresh torch tensors: no copy either way, and results own their
memory. Outputs whose sizes are only known after the call are copied. Infer requests are kept in a pool, one per call
under way, so several threads may call at once; a request keeps the tensors of its last call alive. Per call on a
one-tensor model: `compiled(x)` 77 microseconds, `infer(share_inputs=True)` 140, tensors set and the native `infer`
65. Not covered: forks after a call (the runtime refuses them).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from compilot.engines import structure as structures
from compilot.engines.baked import refuse_other_weights
from compilot.engines.files import artifact_path
from compilot.engines.marshal import dtype_of, empty_code, make_call, names_of, no_builds
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.engines.structure import InputTensor, OutputTensor, Structure
from compilot.errors import first_cause
from compilot.records import Settings

MODEL_NAME = "model.xml"
WEIGHTS_NAME = "model.bin"
_SHARED = (  # what numpy can wrap as it is
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def input_name(index: int) -> str:
    """Name of a flat input in the graph."""
    return f"in{index}"


def load(request: LoadRequest) -> Loaded:
    """Compile the graph and write the marshalling code."""
    path = artifact_path(request.artifacts, MODEL_NAME)
    structure = structures.read(path.parent)
    refuse_other_weights(request.model, structure.weights_sha256)
    compiled = _compiled(path, request.settings)
    lines, namespace = _engine_lines(structure, compiled)
    call = make_call(request.guard, structure, request.model, lines, namespace)
    return Loaded(call=call, frozen_weights=True, concurrent=True, builds=no_builds)


def _compiled(path: Path, settings: Settings) -> Any:
    try:
        import openvino
    except ImportError as error:
        raise Infeasible("openvino is not installed; pip install 'compilot[openvino]'") from error
    try:
        return openvino.Core().compile_model(path, "CPU", properties(settings))
    except Exception as error:
        raise Infeasible(f"OpenVINO cannot run this graph: {first_cause(error)}") from error


def properties(settings: Settings) -> dict[str, Any]:
    """The plugin properties that the settings stand for."""
    chosen = settings.options
    found: dict[str, Any] = {
        "PERFORMANCE_HINT": str(chosen.get("hint", "latency")).upper(),
        "INFERENCE_NUM_THREADS": int(chosen.get("threads", 0)) or torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",  # else it may drop to bf16 on CPUs that have it
        "EXECUTION_MODE_HINT": "ACCURACY",
    }
    if "pin_cpus" in chosen:
        found["ENABLE_CPU_PINNING"] = bool(chosen["pin_cpus"])
    return found


def _engine_lines(structure: Structure, compiled: Any) -> tuple[list[str], dict[str, Any]]:
    """Set the tensors, infer, hand the results over."""
    import openvino
    from openvino._pyopenvino import InferRequest

    ports = {name: i for i, port in enumerate(compiled.inputs) for name in port.get_names()}
    namespace: dict[str, Any] = {
        "_pool": [],
        "_request": compiled.create_infer_request,
        "_tensor": openvino.Tensor,
        "_bf16": openvino.Type.bf16,
        "_int16": torch.int16,
        "_set_input": InferRequest.set_input_tensor,
        "_set_output": InferRequest.set_output_tensor,
        "_infer": InferRequest.infer,  # the Python layer above it copies or walks the inputs
        "_adopt": torch.from_numpy,
        "_none": {},
    }
    names = names_of(structure)
    lines = ["try: _r = _pool.pop()", "except IndexError: _r = _request()"]
    for i, (name, tensor) in enumerate(zip(names.inputs, structure.inputs, strict=True)):
        if input_name(i) in ports:
            lines.append(f"_set_input(_r, {ports[input_name(i)]}, {_wrapped(name, tensor)})")
    for i, (name, output) in enumerate(zip(names.outputs, structure.outputs, strict=True)):
        if output.shape is not None:
            lines.append(f"{name} = {empty_code(structure, i, namespace)}")
            lines.append(f"_set_output(_r, {i}, {_wrapped(name, output)})")
    lines.append("_infer(_r, _none, True, False)")
    late = [i for i, output in enumerate(structure.outputs) if output.shape is None]
    lines += [f"_o{i} = _adopt(_r.get_output_tensor({i}).data.copy())" for i in late]
    return [*lines, "_pool.append(_r)"], namespace


def _wrapped(name: str, tensor: InputTensor | OutputTensor) -> str:
    """The engine's tensor over torch's memory; a gradient flag on an input does not matter here."""
    dtype = dtype_of(tensor)
    plain = f"{name}.detach()" if isinstance(tensor, InputTensor) else name
    if dtype is torch.bfloat16:  # numpy has no such type
        return f"_tensor({plain}.view(_int16).numpy(), {name}.shape, _bf16)"
    if dtype not in _SHARED:
        raise Infeasible(f"OpenVINO has no tensors of {dtype} that torch could share")
    return f"_tensor({plain}.numpy(), True)"
