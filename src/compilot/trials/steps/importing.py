"""What opening a target imported. In: the modules of before. Out: those of installed packages that came since."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Collection

_PLACES = tuple({sysconfig.get_path(name) + "/" for name in ("purelib", "platlib")})


def installed_since(before: Collection[str]) -> tuple[str, ...]:
    """In the order of their import. The user's own files are not among them: importing those may do anything."""
    names = [name for name in sys.modules if name not in before]
    return tuple(name for name in names if _is_installed(name))


def _is_installed(name: str) -> bool:
    spec = getattr(sys.modules[name], "__spec__", None)  # None: made by hand, or somebody's stand-in
    origin = getattr(spec, "origin", None)
    return spec is not None and spec.name == name and isinstance(origin, str) and origin.startswith(_PLACES)
