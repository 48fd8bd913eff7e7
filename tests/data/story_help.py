"""Stories of a real Ray cluster (cluster/story.py), told in a network namespace that has only loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STORY = Path(__file__).parent / "cluster" / "story.py"
ALONE = ["unshare", "--net", "--mount", "bash", "-c", 'ip link set lo up && exec "$@"', "alone"]


def namespaces() -> bool:
    """Whether this user may have a network of its own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0


def tell(folder: Path, *parts: str, limit_s: float) -> dict[str, Any]:
    """What these parts of the story told; their files stay in the folder. limit_s: ends one that hangs."""
    pytest.importorskip("ray")
    if not namespaces():
        pytest.skip("needs a network namespace of its own: Ray would listen on this machine's own addresses")
    log = folder / "story.log"
    with log.open("w") as out:
        command = [*ALONE, sys.executable, str(STORY), str(folder), *parts]
        ended = subprocess.run(command, stdout=out, stderr=out, timeout=limit_s, check=False)
    assert ended.returncode == 0, log.read_text()[-4000:]
    told: dict[str, Any] = json.loads((folder / "story.json").read_text())
    return told
