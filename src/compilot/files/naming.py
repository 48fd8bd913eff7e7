"""Names of files for people. In: a path. Out: the same path, as short as it can be typed."""

from __future__ import annotations

import os
from pathlib import Path


def nearby(path: Path) -> Path:
    """The path as short as it can be typed from here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)
