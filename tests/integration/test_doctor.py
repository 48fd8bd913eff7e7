"""`compilot doctor` as a user runs it, once: both processes, a real compile, this machine's peaks, tlparse's pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compilot.diagnose.timing.times import BUSY
from compilot.diagnose.trusted import LEFT_OUT

MODEL = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval(), (torch.randn(4, 16),)
"""
TLPARSE = """#!/bin/sh
test -s "$1" && mkdir -p "$3" && echo "made of $1" > "$3/index.html"
"""


@pytest.mark.measures
@pytest.mark.compiles
def test_a_whole_examination_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "tlparse").write_text(TLPARSE)
    (tmp_path / "tlparse").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "COMPILOT_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", "from compilot.cli.main import run; run()", "doctor", "model.py:net"]
    options = ["--json", "--fail-on", "graph-break,recompile", "--tlparse"]
    done = subprocess.run([*command, *options], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    report = document["report"]
    assert "unseen" not in report
    notes = set(report.get("notes", []))
    assert notes <= {BUSY, LEFT_OUT}
    assert [graph["ops"] > 0 for graph in report["graphs"]] == [True]
    if notes:  # other programs had the cores: what cannot be trusted is not there
        assert not report.keys() >= {"roofline", "bound", "compile_time", "stages"}
    else:
        compile_time = report["compile_time"]
        stages_s = sum(stage["wall_s"] for stage in report["stages"] if "submodule" not in stage)
        assert stages_s == pytest.approx(compile_time["total_s"], rel=0.05)
        assert compile_time["compiler_runs"] > 0
        assert report["roofline"]["points"][0]["roof_share"] > 0
        assert report["bound"]["limited_by"] == "overhead"
    folder = tmp_path / "compilot-doctor" / "model-net"
    assert document["tlparse"] == "compilot-doctor/model-net/tlparse/index.html"
    assert (folder / "tlparse" / "index.html").read_text().startswith("made of ")
    assert '<a href="tlparse/index.html">' in (folder / "report.html").read_text()
    assert json.loads((folder / "report.json").read_text()) == report
