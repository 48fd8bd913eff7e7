"""ONNX Runtime, run plane: a session over the files, called through bindings to torch's own memory.

In: a LoadRequest with the folder that build.py filled. Out: a callable. Imports onnxruntime and torch, no exporter.
Inputs are bound by address, outputs are bound to fresh torch tensors: no copy either way, and results own their
memory. Sizes that are only known after the call come back through dlpack, still without a copy. Bindings are kept in
a pool, one per call under way, so several threads may call at once. Per call on a one-tensor model: session.run with
numpy 13.9 microseconds, a new binding 11.5, a kept binding with ONNX type numbers 8.0; for bf16, which numpy has not,
the binding is the only way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from compilot._denormals import flushes_denormals
from compilot.engines.artifacts import opened, served
from compilot.engines.marshal import dtype_of, empty_code, names_of
from compilot.engines.onnxruntime._private import native
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.engines.structure import InputTensor, OutputTensor, Structure
from compilot.errors import first_cause
from compilot.records import Settings

MODEL_NAME = "model.onnx"
DATA_NAME = "model.onnx.data"
OPTIMISED_NAME = "optimised.onnx"  # as the session had rewritten it at the build: opened as it is
OPTIMISED_DATA = "optimised.data"

# numbers of onnx.TensorProto.DataType
_TYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.bfloat16: 16,
}


def input_name(index: int) -> str:
    """Name of a flat input in the graph."""
    return f"in{index}"


def output_name(index: int) -> str:
    """Name of a flat output in the graph."""
    return f"out{index}"


def import_engine() -> None:
    """Import what `load` will need."""
    import onnxruntime  # noqa: F401


def load(request: LoadRequest) -> Loaded:
    """Start the session and write the marshalling code."""
    path, structure = opened(request, _file_name(request.artifacts))
    lines, namespace = _engine_lines(structure, _session(path, request.settings, alone=request.alike is None))
    return served(request, structure, lines, namespace)


def _file_name(folder: Path | None) -> str:
    return OPTIMISED_NAME if folder is not None and (folder / OPTIMISED_NAME).is_file() else MODEL_NAME


def _session(path: Path, settings: Settings, *, alone: bool = True) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise Infeasible("onnxruntime is not installed; pip install onnxruntime") from error
    options = session_options(settings, optimised=path.name == OPTIMISED_NAME, alone=alone)
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Infeasible(f"ONNX Runtime cannot run this graph: {first_cause(error)}") from error
    return session


def session_options(settings: Settings, *, optimised: bool = False, alone: bool = True) -> Any:
    """The session options that the settings stand for; optimised: the graph has been rewritten already.

    alone: it runs the whole model. Threads of a part's session sleep unless they are told to spin: those of several
    that spin take each other's cores (twelve blocks on two cores: 114 ms instead of 12.5).
    """
    import onnxruntime as ort

    options, chosen = ort.SessionOptions(), settings.options
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = {
        "all": levels.ORT_ENABLE_ALL,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "basic": levels.ORT_ENABLE_BASIC,
        "disabled": levels.ORT_DISABLE_ALL,
    }["disabled" if optimised else str(chosen.get("graph_optimization", "all"))]
    parallel = chosen.get("execution_mode") == "parallel"
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if parallel else ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = int(chosen.get("threads", 0)) or torch.get_num_threads()
    options.enable_mem_pattern = bool(chosen.get("memory_pattern", True))
    options.enable_cpu_mem_arena = bool(chosen.get("arena", True))
    options.add_session_config_entry("session.dynamic_block_base", str(chosen.get("dynamic_block_base", 0)))
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(chosen.get("allow_spinning", alone))))
    flush = chosen.get("denormals_as_zero", flushes_denormals())  # its threads are its own: they do as this one does
    options.add_session_config_entry("session.set_denormal_as_zero", str(int(flush)))
    options.log_severity_level = 3  # errors only: its warnings are about its own passes
    return options


def _engine_lines(structure: Structure, session: Any) -> tuple[list[str], dict[str, Any]]:
    """Bind, run, hand the results over."""
    inner, nowhere = native(session), torch.empty(1)
    namespace: dict[str, Any] = {
        "_pool": [],
        "_binding": inner.binding,
        "_run": inner.run,
        "_cpu": inner.cpu,
        "_adopt": torch.utils.dlpack.from_dlpack,
        "_session": session,
        "_nowhere": nowhere.data_ptr(),  # an empty tensor has no address, and a binding needs one
        "_kept": nowhere,
    }
    names = names_of(structure)
    known = {given.name for given in session.get_inputs()}  # an input that the model does not use may be gone
    lines = ["try: _b = _pool.pop()", "except IndexError: _b = _binding()"]
    for i, (name, tensor) in enumerate(zip(names.inputs, structure.inputs, strict=True)):
        if input_name(i) not in known:
            continue
        lines.append(
            f"_b.bind_input('{input_name(i)}', _cpu, {_type(tensor)}, {name}.shape, {name}.data_ptr() or _nowhere)"
        )
    for i, (name, output) in enumerate(zip(names.outputs, structure.outputs, strict=True)):
        lines += _bind_output(i, name, output, structure, namespace)
    lines.append("_run(_b, None)")
    late = [i for i, output in enumerate(structure.outputs) if output.shape is None]
    if late:
        lines.append("_late = _b.get_outputs()")
        lines += [f"_o{i} = _adopt(_late[{i}].to_dlpack())" for i in late]
        lines.append("_b.clear_binding_outputs()")  # the memory is the result's from now on
    return [*lines, "_pool.append(_b)"], namespace


def _bind_output(
    index: int, name: str, output: OutputTensor, structure: Structure, namespace: dict[str, Any]
) -> list[str]:
    if output.shape is None:
        return [f"_b.bind_output('{output_name(index)}', _cpu)"]
    memory = f"{name} = {empty_code(structure, index, namespace)}"
    return [
        memory,
        f"_b.bind_output('{output_name(index)}', _cpu, {_type(output)}, {name}.shape, {name}.data_ptr() or _nowhere)",
    ]


def _type(tensor: InputTensor | OutputTensor) -> int:
    dtype = dtype_of(tensor)
    if dtype not in _TYPES:
        raise Infeasible(f"ONNX Runtime has no tensors of {dtype}")
    return _TYPES[dtype]
