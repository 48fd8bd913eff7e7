"""ONNX Runtime, tuning plane: export to ONNX and offer the session options that matter.

In: a BuildRequest. Out: `optimised.onnx` (graph, see optimise.py), `optimised.data` (weights) and `structure.json`, or
Infeasible; `model.onnx` and `model.onnx.data` where the rewritten graph could not be kept.
Options (all read by load.py): `graph_optimization` "all" | "extended" | "basic" | "disabled"; `threads` (0: torch's
count at load); `allow_spinning` (worker threads wait for the next call by spinning: quicker, but they burn a core for
36 ms after each); `memory_pattern`; `execution_mode` "sequential" | "parallel"; `denormals_as_zero` (as the process
does where it is not said). Of int8-dynamic, at build: `weights` (quantise.py). Not covered: other execution providers
than the CPU's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from compilot.engines import structure
from compilot.engines.arithmetic import has_dot_product
from compilot.engines.exporting import export
from compilot.engines.files import artifact_files
from compilot.engines.needs import installed, misfit, not_for_exports
from compilot.engines.onnxruntime.constants import keep_small
from compilot.engines.onnxruntime.load import (
    DATA_NAME,
    MODEL_NAME,
    OPTIMISED_DATA,
    OPTIMISED_NAME,
    input_name,
    output_name,
)
from compilot.engines.onnxruntime.means import as_eager_means
from compilot.engines.onnxruntime.optimise import optimise
from compilot.engines.onnxruntime.quantise import KINDS, quantise
from compilot.engines.protocol import Availability, BuildRequest, Infeasible, Lower
from compilot.engines.quiet import quiet
from compilot.engines.whereabouts import cause
from compilot.records import ArtifactFile, Candidate, Diagnosis, OptionValue, Precision, Settings, Shapes

OPTIONS: dict[str, tuple[OptionValue, ...] | type] = {
    "graph_optimization": ("all", "extended", "basic", "disabled"),
    "threads": int,
    "allow_spinning": bool,
    "memory_pattern": bool,
    "execution_mode": ("sequential", "parallel"),
    "denormals_as_zero": bool,
    "weights": tuple(KINDS),
}


def available() -> Availability:
    """Needs onnxruntime to run, onnx and onnxscript to export."""
    return installed("onnxruntime", ("onnxruntime", "onnx", "onnxscript"))


def offer(diagnosis: Diagnosis) -> Sequence[Candidate]:
    """The default first; then without spinning, which is kinder to everything else on the machine."""
    if not_for_exports(diagnosis):
        return ()
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    return (
        _candidate("", "all graph optimisations, as many threads as torch", shapes),
        _candidate("no spinning", "waiting threads sleep: no core is burnt meanwhile", shapes, allow_spinning=False),
    )


def offer_precision(diagnosis: Diagnosis, precision: Precision) -> Lower:
    """8-bit integers run on every CPU; half precision has no kernels here."""
    if not_for_exports(diagnosis):
        return Lower(why="onnxruntime runs inference on the CPU only")
    if precision is not Precision.INT8_DYNAMIC:
        return Lower(why=f"onnxruntime has no {precision} kernels for CPUs")
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    why = "matrix products on 8-bit integers: a quarter of the memory traffic"
    if has_dot_product(diagnosis):
        return Lower((_candidate(precision.value, why, shapes, precision),))
    first = _candidate(precision.value, f"{why}; 7 bits, or sums would saturate", shapes, precision, weights="7-bit")
    label, why = f"{precision} unsigned", "all 8 bits without saturation: less error, somewhat slower"
    return Lower((first, _candidate(label, why, shapes, precision, weights="unsigned")))


def refine(best: Candidate, diagnosis: Diagnosis) -> Sequence[Candidate]:
    """The other session options, one at a time, once the rest is known to be good."""
    found: list[tuple[str, str, dict[str, OptionValue]]] = [
        ("extended optimisations", "without its own memory layout", {"graph_optimization": "extended"}),
        ("no memory pattern", "memory allocated as it is needed, not ahead", {"memory_pattern": False}),
        ("parallel", "branches of the graph side by side", {"execution_mode": "parallel"}),
    ]
    return tuple(_variant(best, name, why, options) for name, why, options in found)


def _variant(best: Candidate, name: str, why: str, options: Mapping[str, OptionValue]) -> Candidate:
    settings = msgspec.structs.replace(best.settings, options={**best.settings.options, **options})
    label, rationale = f"{best.label}, {name}", f"the best so far, {why}"
    return msgspec.structs.replace(best, settings=settings, label=label, rationale=rationale)


def _candidate(
    label: str, rationale: str, shapes: Shapes, precision: Precision = Precision.AS_IS, **options: OptionValue
) -> Candidate:
    settings = Settings(engine="onnxruntime", shapes=shapes, options=options, precision=precision)
    return Candidate(settings=settings, label=f"onnxruntime {label}".strip(), rationale=rationale)


def validate(settings: Settings) -> str | None:
    """Only the options above; the engine chooses layouts itself."""
    return misfit(settings, OPTIONS, (Precision.INT8_DYNAMIC,))


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Export and save."""
    if problem := validate(request.candidate.settings):
        raise Infeasible(problem)
    exported = as_eager_means(export(request))
    inputs = [input_name(i) for i in range(len(exported.structure.inputs))]
    outputs = [output_name(i) for i in range(len(exported.structure.outputs))]
    with torch.no_grad(), quiet():
        try:
            program = torch.onnx.export(
                exported.program, dynamo=True, input_names=inputs, output_names=outputs, verbose=False, optimize=False
            )
            assert program is not None
            keep_small(program.model)
            program.optimize()
        except Infeasible:
            raise
        except Exception as error:
            raise Infeasible(f"no ONNX form of the model: {cause(error, exported.program)}") from error
        _forget_sources(program.model)
        program.save(request.workspace / MODEL_NAME, external_data=True)
    _quantise(request)
    _drop_empty_data(request.workspace)
    optimise(request.workspace, request.candidate.settings)
    structure.write(exported.structure, request.workspace)
    names = (MODEL_NAME, DATA_NAME, OPTIMISED_NAME, OPTIMISED_DATA, structure.FILE_NAME)
    return artifact_files(request.workspace, [name for name in names if (request.workspace / name).exists()])


def _quantise(request: BuildRequest) -> None:
    settings, folder = request.candidate.settings, request.workspace
    if settings.precision is Precision.INT8_DYNAMIC:
        _drop_empty_data(folder)
        quantise(folder / MODEL_NAME, folder / DATA_NAME, str(settings.options.get("weights", "8-bit")))


def _drop_empty_data(workspace: Path) -> None:
    """No file of weights where there is nothing in it: small ones lie in the graph."""
    data = workspace / DATA_NAME
    if data.exists() and not data.stat().st_size:
        data.unlink()


def _forget_sources(model: Any) -> None:
    """Drop stack traces and other notes: they name files of the machine and make the graph three times as large."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
    for function in model.functions.values():
        for node in function.all_nodes():
            node.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()
