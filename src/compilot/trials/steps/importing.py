"""What a worker imported: what the target brought along, and what torch's compiler took.

In: the modules of before. Out: those of installed packages that came since; seconds.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from collections.abc import Collection

from compilot._torch import compiling
from compilot.engines.traits import IMPORT_S

_PLACES = tuple({sysconfig.get_path(name) + "/" for name in ("purelib", "platlib")})


def installed_since(before: Collection[str]) -> tuple[str, ...]:
    """In the order of their import. The user's own files are not among them: importing those may do anything."""
    names = [name for name in sys.modules if name not in before]
    return tuple(name for name in names if _is_installed(name))


def import_compiler() -> float:
    """Seconds that the import of torch's compiler takes; the usual ones where this process was forked with it."""
    if compiling.dynamo_is_here():
        return IMPORT_S
    begin = time.perf_counter()
    compiling.import_dynamo()
    return time.perf_counter() - begin


def _is_installed(name: str) -> bool:
    spec = getattr(sys.modules[name], "__spec__", None)  # None: made by hand, or somebody's stand-in
    origin = getattr(spec, "origin", None)
    return spec is not None and spec.name == name and isinstance(origin, str) and origin.startswith(_PLACES)
