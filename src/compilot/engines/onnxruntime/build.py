"""ONNX Runtime, tuning plane: export to ONNX; the session options that matter.

In: a BuildRequest. Out: `optimised.onnx` (graph, see optimise.py), `optimised.data` (weights) and `structure.json`, or
Infeasible; `model.onnx` and `model.onnx.data` where the rewritten graph could not be kept.
Options (all read by load.py): `graph_optimization` "all" | "extended" | "basic" | "disabled"; `threads` (0: torch's
count at load); `allow_spinning` (worker threads wait for the next call by spinning: quicker, but they burn a core for
36 ms after each); `memory_pattern`; `arena` (memory of the session's own); `dynamic_block_base` (0: blocks of one
size); `execution_mode` "sequential" | "parallel"; `denormals_as_zero` (as the process does where it is not said). Of
int8-dynamic, at build: `weights` (quantise.py). Not covered: other execution providers than the CPU's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from compilot.engines import structure
from compilot.engines.arithmetic import has_dot_product
from compilot.engines.exporting import as_eager_means, export
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
from compilot.engines.onnxruntime.means import REFUSED, REWRITTEN
from compilot.engines.onnxruntime.optimise import optimise
from compilot.engines.onnxruntime.quantise import KINDS, quantise
from compilot.engines.protocol import Availability, BuildRequest, Infeasible
from compilot.engines.quiet import quiet
from compilot.engines.space import LOWER, Acts, Knob, Need, Risk, Seed, Space, Variation, options_of, precision_knob
from compilot.engines.whereabouts import cause
from compilot.records import ArtifactFile, Diagnosis, Precision, Settings

KNOBS = (
    Knob(
        "graph_optimization",
        Acts.OPTION,
        ("all", "extended", "basic", "disabled"),
        "fewer rewrites of the graph",
        variations=(Variation("extended", "extended optimisations", "the best so far, without its own memory layout"),),
        without="disabled",
    ),
    Knob(
        "allow_spinning",
        Acts.OPTION,
        (True, False),
        "waiting threads sleep: no core is burnt meanwhile",
        variations=(Variation(False, "no spinning", "the best so far, its waiting threads asleep"),),
    ),
    Knob(
        "memory_pattern",
        Acts.OPTION,
        (True, False),
        "memory allocated as it is needed",
        variations=(
            Variation(False, "no memory pattern", "the best so far, memory allocated as it is needed, not ahead"),
        ),
    ),
    Knob(
        "arena",
        Acts.OPTION,
        (True, False),
        "memory straight from the C library, which may keep it better than the session's own arena",
        variations=(Variation(False, "no arena", "the best so far, memory straight from the C library"),),
    ),
    Knob(
        "dynamic_block_base",
        Acts.OPTION,
        (0, 4),
        "work is split into smaller and smaller blocks: threads end at the same time",
        needs=(Need.SEVERAL_THREADS,),
        variations=(Variation(4, "dynamic blocks", "the best so far, work split so that all threads end together"),),
    ),
    Knob(
        "execution_mode",
        Acts.OPTION,
        ("sequential", "parallel"),
        "branches of the graph side by side",
        variations=(Variation("parallel", "parallel", "the best so far, branches of the graph side by side"),),
    ),
    Knob(
        "weights",
        Acts.OPTION,
        tuple(KINDS),
        "no saturation on CPUs without 8-bit dot products",
        risk=Risk.NUMERICS,
        only_with={"precision": Precision.INT8_DYNAMIC},
        variations=(),
    ),
)
SEEDS = (
    Seed("", "all graph optimisations, as many threads as torch"),
    Seed("no spinning", "waiting threads sleep: no core is burnt meanwhile", {"allow_spinning": False}),
)
OPTIONS = {**options_of(KNOBS), "threads": int, "denormals_as_zero": bool}  # these two follow the process


def available() -> Availability:
    """Needs onnxruntime to run, onnx and onnxscript to export."""
    return installed("onnxruntime", "onnx", "onnxscript")


def space(diagnosis: Diagnosis) -> Space:
    """The default first; then without spinning, which is kinder to everything else on the machine; 8-bit integers."""
    if not_for_exports(diagnosis):
        return Space(lacks=dict.fromkeys(LOWER, "onnxruntime runs inference on the CPU only"))
    lacks = {p: f"onnxruntime has no {p} kernels for CPUs" for p in (Precision.BF16, Precision.FP16)}
    return Space((*KNOBS, precision_knob(lacks)), (*SEEDS, *_small_integers(diagnosis)), lacks)


def _small_integers(diagnosis: Diagnosis) -> tuple[Seed, ...]:
    """They run on every CPU; half precision has no kernels here."""
    int8, point = Precision.INT8_DYNAMIC, {"precision": Precision.INT8_DYNAMIC}
    why = "matrix products on 8-bit integers: a quarter of the memory traffic"
    if has_dot_product(diagnosis):
        return (Seed(int8, why, point),)
    more = "all 8 bits without saturation: less error, somewhat slower"
    return (
        Seed(int8, f"{why}; 7 bits, or sums would saturate", {**point, "weights": "7-bit"}),
        Seed(f"{int8} unsigned", more, {**point, "weights": "unsigned"}),
    )


def validate(settings: Settings) -> str | None:
    """Only the options above; the engine chooses layouts itself."""
    return misfit(settings, OPTIONS, (Precision.INT8_DYNAMIC,))


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Export, once for all candidates of a run; then what the candidate's own options make of it."""
    if problem := validate(request.candidate.settings):
        raise Infeasible(problem)
    request.form("onnx", lambda folder: _export(request, folder))
    _quantise(request)
    _drop_empty_data(request.workspace)
    optimise(request.workspace, request.candidate.settings)
    names = (MODEL_NAME, DATA_NAME, OPTIMISED_NAME, OPTIMISED_DATA, structure.FILE_NAME)
    return artifact_files(request.workspace, [name for name in names if (request.workspace / name).exists()])


def _export(request: BuildRequest, folder: Path) -> None:
    """The ONNX form of the model, as exported."""
    exported = as_eager_means(export(request), REFUSED, REWRITTEN)
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
        program.save(folder / MODEL_NAME, external_data=True)
    structure.write(exported.structure, folder)


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
