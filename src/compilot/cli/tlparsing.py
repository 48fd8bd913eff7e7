"""`compilot doctor --tlparse`: tlparse's pages beside the report. In: torch's trace. Out: a folder of pages, or none.

Covered: tlparse is missing, has nothing to read, or fails: one sentence, since the report does not need it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from compilot.cli import common

INDEX = "index.html"


def folder_for(out: Path) -> Path | None:
    """Where the pages go; None and one sentence where tlparse is missing."""
    if shutil.which("tlparse") is None:
        common.tell("tlparse is not installed; install it with: pip install tlparse")
        return None
    return out / "tlparse"


def write_pages(trace: Path, pages: Path) -> Path | None:
    """Where the pages are; None and one sentence where there are none."""
    logs = sorted(trace.glob("*.log"))
    if not logs:
        common.tell("tlparse has nothing to read: torch wrote no trace of this examination")
        return None
    problem = _problem(["tlparse", str(logs[-1]), "-o", str(pages), "--overwrite", "--no-browser"])
    if problem:
        common.tell(f"tlparse failed, so its pages are missing: {problem}")
    return None if problem else pages


def _problem(command: list[str]) -> str:
    """Run it; why it failed, "" where it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as cause:
        return str(cause)
    return (" ".join(done.stderr.split())[-300:] or "it gave no reason") if done.returncode else ""
