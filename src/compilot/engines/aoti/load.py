"""AOTInductor, run plane: a library of native code, called with flat tensors.

In: a LoadRequest with the folder that build.py filled. Out: a callable. Imports neither Inductor nor a compiler.
Tensors go in and come out as they are; results are fresh memory. The library has one runner, which native code locks,
so calls from several threads are safe and queue up; one that calls back into Python would wait for itself there, and
gets one call at a time from us. Nothing in it checks an input: the guard has, and the marshalling
code checks equal sizes. Not covered: libraries of another torch or CPU; the plan's fingerprint refuses those before
they are loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compilot._torch import aoti
from compilot.engines.artifacts import opened, served
from compilot.engines.marshal import names_of
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.errors import first_cause

LIBRARY = "model-*.so"  # the star is the library's digest


def load(request: LoadRequest) -> Loaded:
    """Open the library and write the marshalling code."""
    path, structure = opened(request, _library_name(request.artifacts))
    try:
        run = aoti.load_library(path.absolute())
    except Exception as error:
        raise Infeasible(f"the library cannot be loaded: {first_cause(error)}{_advice(error)}") from error
    names = names_of(structure)
    lines = [f"{', '.join(names.outputs)}, = _run([{', '.join(names.inputs)}])"]
    namespace: dict[str, Any] = {"_run": run}
    return served(request, structure, lines, namespace, concurrent=not aoti.calls_back(path))


def _library_name(folder: Path | None) -> str:
    found = [] if folder is None else [path.name for path in folder.glob(LIBRARY)]
    if len(found) > 1:
        raise Infeasible(f"{folder} holds {len(found)} libraries instead of one; make it again")
    return found[0] if found else LIBRARY


def _advice(error: Exception) -> str:
    if "failed to map segment" not in str(error):
        return ""
    return " (mounted noexec? choose a folder from which programs may run: COMPILOT_CACHE for a bundle)"
