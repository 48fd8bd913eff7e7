"""torch takes the probes of vector extensions that another process built on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.compiles

ASK = """
import json, os, sys
from pathlib import Path
import torch._inductor.codecache
from compilot._torch import compiling
from compilot.engines import vector_probes
from compilot.measure.build_cost import CompilerRuns

runs = CompilerRuns().install()
if sys.argv[1] == "prepare":
    vector_probes.prepare()
with vector_probes.cache_directory(Path(sys.argv[2])):
    compiling.probe_vector_extensions()
    from torch._inductor import cpu_vec_isa
    names = [str(one) for one in cpu_vec_isa.valid_vec_isa_list()]
files = sorted(one.name for one in Path(sys.argv[2]).rglob("*.so"))
print(json.dumps({"runs": runs.count, "names": names, "files": files}))
"""


def ask(what: str, folder: Path, cache: Path) -> dict[str, Any]:
    environment = {**os.environ, "COMPILOT_CACHE": str(cache)}
    environment.pop("TORCHINDUCTOR_VEC_ISA_OK", None)
    done = subprocess.run(
        [sys.executable, "-c", ASK, what, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_fresh_cache_directory_needs_no_probe_builds(tmp_path: Path) -> None:
    first = ask("prepare", tmp_path / "one", tmp_path / "cache")
    second = ask("bring", tmp_path / "two", tmp_path / "cache")
    assert second["names"] == first["names"]
    assert second["files"] == first["files"]
    assert first["runs"] == 0 or second["runs"] < first["runs"]  # a probe that fails is tried again
    assert second["runs"] <= first["runs"] - len(first["files"])
