"""Words about regions that need no model: the selector of a repeated block, and failures that name a submodule.

In: a digest, or a reason. Out: text, and what was in it. No torch: searches and reports use it in processes that have
none. Not covered: what a selector means (regions.py).
"""

from __future__ import annotations

import re

MANY_COPIES = 4  # of a block: with fewer there is little to share, and what could be fused across blocks is lost
BLOCK = "block:"  # before the digits of a structure's digest
_IN = re.compile(r"(?:^|(?<=[:;] ))in (?P<path>\S+): ")


def of_block(structure_sha256: str) -> str:
    """The selector of a repeated block."""
    return BLOCK + structure_sha256[:16]


def blamed(path: str, why: str) -> str:
    """A failure of one region's submodule, with its path; `culprit` reads it again."""
    return f"in {path}: {why}"


def cause(reason: str) -> str:
    """A failure without the path of the submodule that it names."""
    return _IN.sub("", reason)


def folder_of(region: int) -> str:
    """Where the files of a candidate's region lie, in the candidate's folder."""
    return f"regions/{region}"


def culprit(reason: str) -> str | None:
    """The path of the submodule that a trial's reason names; None: it names none."""
    found = _IN.search(reason)
    return None if found is None else found["path"]
