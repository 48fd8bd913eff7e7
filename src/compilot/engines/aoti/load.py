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
from compilot.engines.artifacts import opened, served
from compilot.engines.marshal import names_of
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.errors import first_cause

STANDALONE = True  # the files are the whole model
MODEL_NAME = "model.pt2"


def load(request: LoadRequest) -> Loaded:
    """Open the package and write the marshalling code."""
    path, structure = opened(request, MODEL_NAME)
    try:
        run = aoti.load_package(path)
    except Exception as error:
        raise Infeasible(f"the package cannot be loaded: {first_cause(error)}") from error
    names = names_of(structure)
    lines = [f"{', '.join(names.outputs)}, = _run([{', '.join(names.inputs)}])"]
    namespace: dict[str, Any] = {"_run": run}
    return served(request, structure, lines, namespace)
