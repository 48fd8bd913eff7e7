"""Names of modules that are loaded from a target's file, and the names that a user imports them by.

In: the file's path, or a module's name. Out: a name that no module of the user has; and back from it the file's stem,
which is what `import` takes where the file's folder is on the path. Not covered: scripts, which are `__main__`.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_MADE_UP = re.compile(r"_compilot_target_(.+)_[0-9a-f]{8}")


def made_up(path: Path) -> str:
    """The name that a target's file is loaded by: another one for each file."""
    return f"_compilot_target_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def importable(name: str) -> str:
    """The name that a user would import the module by."""
    found = _MADE_UP.fullmatch(name)
    return name if found is None else found[1]
