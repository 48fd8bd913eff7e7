"""tlparse's pages beside the report. In: torch's trace. Out: a folder of pages, or none.

Covered: tlparse is missing, has nothing to read, or fails: one note, since the report does not need it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

INDEX = "index.html"

Note = Callable[[str], None]


def folder_for(out: Path, note: Note) -> Path | None:
    """Where the pages go; None and one note where tlparse is missing."""
    if shutil.which("tlparse") is None:
        note("tlparse is not installed; install it with: pip install tlparse")
        return None
    return out / "tlparse"


def write_pages(trace: Path, pages: Path, note: Note) -> Path | None:
    """Where the pages are; None and one note where there are none."""
    logs = sorted(trace.glob("*.log"))
    if not logs:
        note("tlparse has nothing to read: torch wrote no trace of this examination")
        return None
    problem = _problem(["tlparse", str(logs[-1]), "-o", str(pages), "--overwrite", "--no-browser"])
    if problem:
        note(f"tlparse failed, so its pages are missing: {problem}")
    return None if problem else pages


def _problem(command: list[str]) -> str:
    """Run it; why it failed, "" where it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as cause:
        return str(cause)
    return (" ".join(done.stderr.split())[-300:] or "it gave no reason") if done.returncode else ""
