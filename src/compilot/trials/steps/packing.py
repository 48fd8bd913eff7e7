"""What a worker does for a bundle: the golden call, from the callable that was loaded, and the weights."""

from __future__ import annotations

from pathlib import Path

from compilot.records import Golden
from compilot.runtime import golden, stand_in
from compilot.trials.protocol import GoldenMade, MakeGolden, SaveWeights, WeightsSaved
from compilot.trials.steps.state import Handlers, WorkerState


def make_golden(worker: WorkerState, request: MakeGolden) -> GoldenMade:
    """Answer the example call by eager and by the callable, and keep both ends of it."""
    load, folder = worker.workload, Path(request.folder)
    packed, eager = (load.unit(fn).answer(load.call, golden.SEED) for fn in (worker.fn, load.model))
    golden.save(golden.input_tensors(load.call), folder / request.inputs)
    golden.save(golden.output_tensors(eager), folder / request.outputs)
    made = Golden(inputs=request.inputs, outputs=request.outputs, expected=golden.expected(eager, packed))
    parameters = stand_in.describe(load.model.forward)
    return GoldenMade(golden=made, parameters=parameters, weights_sha256=worker.weights_sha256())


def save_weights(worker: WorkerState, request: SaveWeights) -> WeightsSaved:
    """Write the model's weights."""
    golden.save(worker.workload.model.state_dict(), Path(request.path))
    return WeightsSaved(weights_sha256=worker.weights_sha256())


HANDLERS: Handlers = {MakeGolden: make_golden, SaveWeights: save_weights}
