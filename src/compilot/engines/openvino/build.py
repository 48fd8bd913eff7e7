"""OpenVINO, tuning plane: convert the exported model and offer the performance hints.

In: a BuildRequest. Out: `model.xml` (graph), `model.bin` (weights, full precision), `structure.json` and mostly
`model.blob` (what the plugin makes of the graph: saving.py), or Infeasible. The frontend is called directly:
`openvino.convert_model` does the same but reports each use to its makers. Shapes are set to the guard's own, numbers or
ranges, because the converted model accepts any size and is slower for it. Options (all read by load.py): `hint`
"latency" | "throughput"; `threads` (0: torch's count at load); `pin_cpus`. Arithmetic is pinned to float32, or to the
precision that was asked for (load.py). Not covered: other devices than the CPU. Of its integers 24 bits count: the
structure says which values of wide inputs are safe (integers.py). Operators that it computes otherwise than eager are
rewritten or refused (means.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from compilot.engines import structure as structures
from compilot.engines.arithmetic import EXTENSIONS, no_arithmetic
from compilot.engines.exporting import Exported, export
from compilot.engines.files import artifact_files
from compilot.engines.needs import installed, misfit, not_for_exports
from compilot.engines.openvino._private import simplify
from compilot.engines.openvino.integers import limits
from compilot.engines.openvino.load import BLOB_NAME, MODEL_NAME, WEIGHTS_NAME, input_name
from compilot.engines.openvino.means import as_eager_means
from compilot.engines.openvino.saving import save
from compilot.engines.protocol import Availability, BuildRequest, Infeasible, Lower
from compilot.engines.quiet import quiet
from compilot.engines.structure import Structure
from compilot.engines.whereabouts import cause
from compilot.records import (
    ArtifactFile,
    Candidate,
    Diagnosis,
    DimRange,
    Guard,
    OptionValue,
    Precision,
    Settings,
    Shapes,
)

OPTIONS: dict[str, tuple[OptionValue, ...] | type] = {
    "hint": ("latency", "throughput"),
    "threads": int,
    "pin_cpus": bool,
}


def available() -> Availability:
    """One package converts and runs."""
    return installed("openvino", ("openvino",))


def offer(diagnosis: Diagnosis) -> Sequence[Candidate]:
    """All cores on one call first; then several streams, which small models sometimes prefer."""
    if not_for_exports(diagnosis):
        return ()
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    return (
        _candidate("latency", "every thread works on the one call", shapes, hint="latency"),
        _candidate("throughput", "few threads per call: less to coordinate in small models", shapes, hint="throughput"),
    )


def _candidate(label: str, rationale: str, shapes: Shapes, **options: OptionValue) -> Candidate:
    settings = Settings(engine="openvino", shapes=shapes, options=options)
    return Candidate(settings=settings, label=f"openvino {label}", rationale=rationale)


def offer_precision(diagnosis: Diagnosis, precision: Precision) -> Lower:
    """The same files, computed in bf16 or fp16 where the CPU has it."""
    if not_for_exports(diagnosis):
        return Lower(why="openvino runs inference on the CPU only")
    if precision not in EXTENSIONS:
        return Lower(why="openvino would need the package nncf to quantise weights")
    if why := no_arithmetic(diagnosis, precision):
        return Lower(why=why)
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    found = _candidate("latency", "", shapes, hint="latency")
    settings = msgspec.structs.replace(found.settings, precision=precision)
    why = f"the CPU plugin computes in {precision}; inputs and outputs stay as they are"
    return Lower((Candidate(settings=settings, label=f"openvino {precision}", rationale=why),))


def refine(best: Candidate, diagnosis: Diagnosis) -> Sequence[Candidate]:
    """Threads bound to cores, once the rest is known to be good."""
    settings = msgspec.structs.replace(best.settings, options={**best.settings.options, "pin_cpus": True})
    why = "the best so far with its threads bound to cores: no migrations"
    return (msgspec.structs.replace(best, settings=settings, label=f"{best.label}, pinned", rationale=why),)


def validate(settings: Settings) -> str | None:
    """Only the options above; the engine chooses layouts itself."""
    return misfit(settings, OPTIONS, (Precision.BF16, Precision.FP16))


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Export, convert and save."""
    if problem := validate(request.candidate.settings):
        raise Infeasible(problem)
    exported = export(request)
    structure = _limited(exported)  # of the graph as the model wrote it: it knows that a rest is small
    exported = as_eager_means(exported)
    with torch.no_grad(), quiet():
        try:
            converted = _convert(exported, request.guard)
            simplify(converted)
        except Exception as error:
            raise Infeasible(f"no OpenVINO form of the model: {cause(error, exported.program)}") from error
        save(converted, request.workspace, request.candidate.settings)
    structures.write(structure, request.workspace)
    blob = [BLOB_NAME] if (request.workspace / BLOB_NAME).exists() else []
    return artifact_files(request.workspace, (MODEL_NAME, WEIGHTS_NAME, *blob, structures.FILE_NAME))


def _limited(exported: Exported) -> Structure:
    """The structure with the limits of its wide integers."""
    found = limits(exported.program)
    inputs = tuple(
        msgspec.structs.replace(tensor, limit=found.get(i)) for i, tensor in enumerate(exported.structure.inputs)
    )
    return msgspec.structs.replace(exported.structure, inputs=inputs)


def _convert(exported: Exported, guard: Guard) -> Any:
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    decoder = TorchFXPythonDecoder.from_exported_program(exported.program)
    frontend = FrontEndManager().load_by_framework("pytorch")
    model = frontend.convert(frontend.load(decoder))
    names = list(exported.program.graph_signature.user_inputs)
    ports = {port.get_any_name(): port for port in model.inputs}
    shapes = {}
    for i, (name, want) in enumerate(zip(names, guard.tensors, strict=True)):
        if name in ports:  # an input that the model does not use may be gone
            ports[name].get_tensor().set_names({input_name(i)})
            shapes[ports[name]] = _partial_shape(want.shape)
    model.reshape(shapes)
    model.validate_nodes_and_infer_types()
    return model


def _partial_shape(shape: tuple[int | DimRange, ...]) -> Any:
    from openvino import Dimension, PartialShape

    return PartialShape([Dimension(n.min, n.max) if isinstance(n, DimRange) else Dimension(n) for n in shape])
