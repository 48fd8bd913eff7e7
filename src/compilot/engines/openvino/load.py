"""OpenVINO, run plane: a compiled model over the files, called through requests that keep their memory.

In: a LoadRequest with the folder that build.py filled. Out: a callable. Imports openvino and torch, no frontend.
Where the build left what the plugin had made of the graph, that is taken: loading takes half to two thirds of the time.
A CPU with other instructions than the build's, or another version, refuses it, and the graph is compiled.
Small inputs are copied into memory that the request keeps, large ones share torch's; results are copied out, so they
own their memory. That is quicker than sharing everything (requests.py): on a tiny BERT 67 microseconds against 108
and the Python API's 164. Requests are kept in a pool, one per call under way, so several threads may call at once.
Not covered: forks after a call (the runtime refuses them).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from compilot._denormals import flushes_denormals
from compilot.engines.artifacts import opened, served
from compilot.engines.marshal import dtype_of
from compilot.engines.openvino._private import native_infer
from compilot.engines.openvino.importing import import_openvino
from compilot.engines.openvino.requests import SHARE_FROM_BYTES, NativeRequest, Slot, shared
from compilot.engines.openvino.signal_stack import kept_signal_stack
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest, NotTaken
from compilot.engines.sizes import size_code
from compilot.engines.structure import InputTensor, OutputTensor, Size, Structure
from compilot.errors import first_cause
from compilot.records import Precision, Settings

MODEL_NAME = "model.xml"
WEIGHTS_NAME = "model.bin"
BLOB_NAME = "model.blob"  # the graph as the plugin had rewritten it at the build, without the weights
WEIGHTLESS = {"CACHE_MODE": "OPTIMIZE_SIZE"}  # a blob refers to the file of the weights and has no copy of them
PRECISIONS = {Precision.AS_IS: "f32", Precision.BF16: "bf16", Precision.FP16: "f16"}
_LONG_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_TYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
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


class Program(NamedTuple):
    """A compiled model, and the memory that it may go on reading: its fields go from the last to the first."""

    memory: Any
    compiled: Any


def import_engine() -> None:
    """Import what `load` will need, the CPU's plugin too: a question to it loads its library."""
    with kept_signal_stack():
        import_openvino().Core().get_property("CPU", "FULL_DEVICE_NAME")


def load(request: LoadRequest) -> Loaded:
    """Compile the graph, or take what was compiled at the build, and write the marshalling code."""
    path, structure = opened(request, MODEL_NAME)
    lines, namespace = _engine_lines(structure, _program(path, request.settings))
    return served(request, structure, lines, namespace)


def _program(path: Path, settings: Settings) -> Program:
    try:
        openvino = import_openvino()
    except ImportError as error:
        raise Infeasible("openvino is not installed; pip install openvino") from error
    chosen = properties(settings)
    if chosen.get("NUM_STREAMS", 1) > (threads := chosen["INFERENCE_NUM_THREADS"]):
        raise Infeasible(f"{chosen['NUM_STREAMS']} streams need as many threads, there are {threads}")
    try:
        with kept_signal_stack():
            core = openvino.Core()
            program = _imported(openvino, core, path.parent, chosen)
            program = program or Program(None, core.compile_model(path, "CPU", chosen))
    except Exception as error:
        raise Infeasible(f"OpenVINO cannot run this graph: {first_cause(error)}") from error
    _refuse_other_precision(program.compiled, settings)
    return program


def _imported(openvino: Any, core: Any, folder: Path, chosen: dict[str, Any]) -> Program | None:
    """What was compiled at the build; None where there is nothing, or where this CPU or version refuses it.

    Whatever is wrong with it, the graph is there: if that is wrong too, its error is told.
    """
    blob = folder / BLOB_NAME
    if not blob.is_file():
        return None
    weights = {**WEIGHTLESS, "WEIGHTS_PATH": str(folder / WEIGHTS_NAME)}
    try:
        memory = np.memmap(blob, np.uint8, mode="c")  # private: the runtime wants memory that can be written
        return Program(memory, core.import_model(openvino.Tensor(memory, shared_memory=True), "CPU", chosen | weights))
    except Exception:
        return None


def _refuse_other_precision(compiled: Any, settings: Settings) -> None:
    """On a CPU without the arithmetic the hint is taken and ignored: that would be the same program once more."""
    wanted, found = PRECISIONS[settings.precision], compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if found not in (wanted, _LONG_NAMES[wanted]):
        raise Infeasible(f"OpenVINO computes in {found} on this CPU, not in {wanted}")


def properties(settings: Settings) -> dict[str, Any]:
    """The plugin properties that the settings stand for."""
    chosen = settings.options
    found: dict[str, Any] = {
        "PERFORMANCE_HINT": str(chosen.get("hint", "latency")).upper(),
        "INFERENCE_NUM_THREADS": int(chosen.get("threads", 0)) or torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": PRECISIONS[settings.precision],  # else it drops to bf16 on CPUs that have it
        "EXECUTION_MODE_HINT": "ACCURACY" if settings.precision is Precision.AS_IS else "PERFORMANCE",
    }
    if flushes_denormals():  # its threads are its own: they do as this one does
        found["CPU_DENORMALS_OPTIMIZATION"] = True
    if "pin_cpus" in chosen:
        found["ENABLE_CPU_PINNING"] = bool(chosen["pin_cpus"])
    if "partitioner" in chosen:
        found["TBB_PARTITIONER"] = str(chosen["partitioner"]).upper()
    if chosen.get("streams"):
        found["NUM_STREAMS"] = int(chosen["streams"])
    return found


def _engine_lines(structure: Structure, program: Program) -> tuple[list[str], dict[str, Any]]:
    """Copy or share the inputs, infer, copy the results."""
    compiled = program.compiled
    ports = {name: i for i, port in enumerate(compiled.inputs) for name in port.get_names()}
    used = [i for i in range(len(structure.inputs)) if input_name(i) in ports]  # an unused input may be gone
    large = [i for i in used if _is_large(structure.inputs[i])]
    kept = [i for i in used if i not in large]
    known = [i for i, output in enumerate(structure.outputs) if output.shape is not None]
    inputs = [Slot(ports[input_name(i)], _checked(structure.inputs[i])) for i in kept]
    outputs = [Slot(i, _checked(structure.outputs[i])) for i in known]
    namespace: dict[str, Any] = {
        "_pool": [],
        "_request": lambda: NativeRequest(compiled.create_infer_request(), inputs, outputs),
        "_within": within,
        "_shared": shared,
        "_infer": native_infer(),
        "_adopt": torch.from_numpy,
        "_none": {},
        "_program": program,  # the last: what the others use goes after them
    }
    lines = [f"_within(_i{i}, {t.limit}, {t.path!r})" for i, t in enumerate(structure.inputs) if t.limit is not None]
    lines += ["try: _r = _pool.pop()", "except IndexError: _r = _request()", *_fit(structure, kept, known)]
    lines += [f"_r.inputs[{at}].copy_(_i{i})" for at, i in enumerate(kept)]
    lines += [f"_r.native.set_input_tensor({ports[input_name(i)]}, _shared(_i{i}))" for i in large]
    lines.append("_infer(_r.native, _none, True, False)")
    lines += [f"_o{i} = _r.outputs[{at}].clone()" for at, i in enumerate(known)]
    late = [i for i in range(len(structure.outputs)) if i not in known]
    lines += [f"_o{i} = _adopt(_r.native.get_output_tensor({i}).data.copy())" for i in late]
    return [*lines, "_pool.append(_r)"], namespace


def within(tensor: torch.Tensor, limit: int, path: str) -> None:
    """NotTaken for integers of which the engine would lose bits; a look costs 3 microseconds."""
    if tensor.numel():
        low, high = torch.aminmax(tensor)
        if low.item() < -limit or high.item() > limit:
            raise NotTaken(f"{path} holds integers beyond {limit}, and OpenVINO keeps 24 bits of a result")


def _fit(structure: Structure, kept: list[int], known: list[int]) -> list[str]:
    """Give the request its memory when it is new or the sizes are not those of its last call."""
    names = list(dict.fromkeys(n for i in structure.inputs for n in i.shape if isinstance(n, str)))
    sizes = f"({', '.join(names)}{',' if names else ''})"
    inputs = [_shape_code(structure, structure.inputs[i].shape) for i in kept]
    outputs = [_shape_code(structure, structure.outputs[i].shape or ()) for i in known]
    return [f"if _r.sizes != {sizes}: _r.fit({sizes}, [{', '.join(inputs)}], [{', '.join(outputs)}])"]


def _shape_code(structure: Structure, shape: tuple[Size, ...]) -> str:
    return f"[{', '.join(size_code(structure, size) for size in shape)}]"


def _is_large(tensor: InputTensor) -> bool:
    numbers = [size for size in tensor.shape if isinstance(size, int)]
    fixed = len(numbers) == len(tensor.shape)
    return fixed and math.prod(numbers) * dtype_of(tensor).itemsize >= SHARE_FROM_BYTES


def _checked(tensor: InputTensor | OutputTensor) -> torch.dtype:
    dtype = dtype_of(tensor)
    if dtype not in _TYPES:
        raise Infeasible(f"OpenVINO has no tensors of {dtype} that torch could share")
    return dtype
