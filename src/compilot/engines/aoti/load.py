"""AOTInductor, run plane: a package of native code, called with flat tensors.

In: a LoadRequest with the folder that build.py filled. Out: a callable. Imports neither Inductor nor a compiler.
Tensors go in and come out as they are; results are fresh memory. The package has one runner, which native code locks,
so calls from several threads are safe and queue up. Nothing in it checks an input: the guard has, and the marshalling
code checks equal sizes. Not covered: packages of another torch or CPU; the plan's fingerprint refuses those before
they are loaded.
"""

from __future__ import annotations

from typing import Any

from compilot._torch import aoti
from compilot.engines import structure as structures
from compilot.engines.baked import refuse_other_weights
from compilot.engines.files import artifact_path
from compilot.engines.marshal import make_call, names_of, no_builds
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.errors import first_cause

MODEL_NAME = "model.pt2"


def load(request: LoadRequest) -> Loaded:
    """Open the package and write the marshalling code."""
    path = artifact_path(request.artifacts, MODEL_NAME)
    structure = structures.read(path.parent)
    refuse_other_weights(request.model, structure.weights_sha256)
    try:
        run = aoti.load_package(path)
    except Exception as error:
        raise Infeasible(f"the package cannot be loaded: {first_cause(error)}") from error
    names = names_of(structure)
    lines = [f"{', '.join(names.outputs)}, = _run([{', '.join(names.inputs)}])"]
    namespace: dict[str, Any] = {"_run": run}
    call = make_call(request.guard, structure, request.model, lines, namespace)
    return Loaded(call=call, frozen_weights=True, concurrent=True, builds=no_builds)
