"""OpenVINO, tuning plane: convert the exported model; the performance hints worth trying.

In: a BuildRequest. Out: `model.xml` (graph), `model.bin` (weights, full precision), `structure.json` and mostly
`model.blob` (what the plugin makes of the graph: saving.py), or Infeasible. The frontend is called directly:
`openvino.convert_model` does the same but reports each use to its makers. Shapes are set to the guard's own, numbers or
ranges, because the converted model accepts any size and is slower for it. Options (all read by load.py): `hint`
"latency" | "throughput"; `threads` (0: torch's count at load); `pin_cpus`; `partitioner` "static" | "auto"; `streams`
(0: as the hint picks). Arithmetic is pinned to float32, or to the precision that was asked for (load.py). Not covered:
other devices than the CPU; core types and hyper-threading, which changed nothing on the machines at hand. Of its
integers 24 bits count: the structure says which values of wide inputs are safe (integers.py). Operators that it
computes otherwise than eager are rewritten or refused (means.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from compilot.engines import structure as structures
from compilot.engines.arithmetic import EXTENSIONS, no_arithmetic
from compilot.engines.exporting import Exported, as_eager_means, export
from compilot.engines.files import artifact_files
from compilot.engines.needs import installed, misfit, not_for_exports
from compilot.engines.openvino._private import simplify
from compilot.engines.openvino.integers import limits
from compilot.engines.openvino.load import BLOB_NAME, MODEL_NAME, WEIGHTS_NAME, input_name
from compilot.engines.openvino.means import REFUSED, REWRITTEN
from compilot.engines.openvino.saving import add_compiled, save
from compilot.engines.protocol import Availability, BuildRequest, Infeasible
from compilot.engines.quiet import quiet
from compilot.engines.space import LOWER, Acts, Knob, Need, Seed, Space, Variation, options_of, precision_knob
from compilot.engines.structure import Structure
from compilot.engines.whereabouts import cause
from compilot.records import ArtifactFile, Diagnosis, DimRange, Guard, Precision, Settings

KNOBS = (
    Knob(
        "hint",
        Acts.OPTION,
        ("latency", "throughput"),
        "every thread on the one call, or few threads per call",
        variations=(),
    ),
    Knob(
        "pin_cpus",
        Acts.OPTION,
        (True, False),
        "threads that may change their cores: the system moves them away from busy ones",
        variations=(Variation(False, "not pinned", "the best so far, its threads free to change their cores"),),
    ),
    Knob(
        "partitioner",
        Acts.OPTION,
        ("static", "auto"),
        "work shared out while it is done: threads that are ready earlier take more of it",
        needs=(Need.SEVERAL_THREADS,),
        variations=(Variation("auto", "work shared out as it goes", "the best so far, threads take what is left"),),
    ),
)
SEEDS = (
    Seed("latency", "every thread works on the one call", {"hint": "latency"}),
    Seed("throughput", "few threads per call: less to coordinate in small models", {"hint": "throughput"}),
)
OPTIONS = {**options_of(KNOBS), "threads": int, "streams": int}


def available() -> Availability:
    """One package converts and runs."""
    return installed("openvino")


def space(diagnosis: Diagnosis) -> Space:
    """All cores on one call first; then several streams, which small models sometimes prefer; half precisions."""
    if not_for_exports(diagnosis):
        return Space(lacks=dict.fromkeys(LOWER, "openvino runs inference on the CPU only"))
    half = {precision: no_arithmetic(diagnosis, precision) for precision in EXTENSIONS}
    lacks = {Precision.INT8_DYNAMIC: "openvino would need the package nncf to quantise weights"}
    lacks |= {precision: why for precision, why in half.items() if why}
    why = "the CPU plugin computes in {}; inputs and outputs stay as they are"
    lower = [
        Seed(precision, why.format(precision), {"hint": "latency", "precision": precision})
        for precision in EXTENSIONS
        if precision not in lacks
    ]
    return Space((*KNOBS, _streams(diagnosis), precision_knob(lacks)), (*SEEDS, *lower), lacks)


def _streams(diagnosis: Diagnosis) -> Knob:
    """Numbers of calls that it works on at once, between the hints: one of them has one, the other picks by itself."""
    counts = sorted({2, diagnosis.threads // 2, diagnosis.threads} & {*range(2, diagnosis.threads + 1)})
    tried = tuple(
        Variation(n, f"{n} streams", f"the best so far with its threads in {n} groups: less to coordinate in each call")
        for n in counts
    )
    why = "threads in groups, one per call: less to coordinate, more calls at once"
    return Knob("streams", Acts.OPTION, (0, *counts), why, needs=(Need.SEVERAL_THREADS,), variations=tried)


def validate(settings: Settings) -> str | None:
    """Only the options above; the engine chooses layouts itself."""
    problem = misfit(settings, OPTIONS, (Precision.BF16, Precision.FP16))
    if problem is None and (streams := int(settings.options.get("streams", 0))) < 0:
        return f"openvino option 'streams' is {streams}; choose 1 or more, or 0 for what the hint picks"
    return problem


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Export and convert, once for all candidates of a run; then what the plugin makes of it with these options."""
    if problem := validate(request.candidate.settings):
        raise Infeasible(problem)
    request.form("openvino", lambda folder: _export(request, folder))
    add_compiled(request.workspace, request.candidate.settings)
    blob = [BLOB_NAME] if (request.workspace / BLOB_NAME).exists() else []
    return artifact_files(request.workspace, (MODEL_NAME, WEIGHTS_NAME, *blob, structures.FILE_NAME))


def _export(request: BuildRequest, folder: Path) -> None:
    """The OpenVINO form of the model, simplified."""
    exported = export(request)
    structure = _limited(exported)  # of the graph as the model wrote it: it knows that a rest is small
    exported = as_eager_means(exported, REFUSED, REWRITTEN)
    with torch.no_grad(), quiet():
        try:
            converted = _convert(exported, request.guard)
            simplify(converted)
        except Exception as error:
            raise Infeasible(f"no OpenVINO form of the model: {cause(error, exported.program)}") from error
        save(converted, folder)
    structures.write(structure, folder)


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
