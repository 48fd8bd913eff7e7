"""A model file with an output class of its own, tuned as `cnn.py:factory` and served by processes of several kinds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from making_runs import make_run

from compilot.engines import structure
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.workload.target import load_target

CNN = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn


class Sums(NamedTuple):
    rows: torch.Tensor
    columns: torch.Tensor


@dataclass
class Answer:
    logits: torch.Tensor
    sums: Sums


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        y = self.inner(x)
        return Answer(y, Sums(y.sum(1), y.sum(0)))


def factory():
    return Net().eval(), (torch.ones(2, 4),)
"""
SERVE = """
import sys
import torch
import compilot

def serve(**options):
    with torch.no_grad():
        try:
            answer = compilot.load(sys.argv[1], **options)(torch.ones(2, 4))
        except compilot.CompilotError as error:
            return print(error)
    print(type(answer).__module__, type(answer).__name__, type(answer.sums).__name__, [*answer.sums.rows.shape])
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cnn")
    (folder / "cnn.py").write_text(CNN)
    target = f"{folder / 'cnn.py'}:factory"
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(sys, "path", [*sys.path])
        workload = load_target(target)
        run = make_run(folder / "run", "onnxruntime", target, (workload.model, (torch.ones(2, 4),), {}))
    pack([run], folder / "model.cpbundle", PackOptions(), Observer())
    return folder / "model.cpbundle"


def served(bundle: Path, script: str) -> str:
    """What a fresh process prints that runs this script in the folder of cnn.py."""
    file = bundle.parent / "serve.py"
    file.write_text(script)
    env = {**os.environ, "COMPILOT_CACHE": str(bundle.parent / "cache")}
    run = subprocess.run([sys.executable, file, bundle], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_file_is_recorded_by_the_name_that_a_user_imports(bundle: Path) -> None:
    (file,) = bundle.parent.rglob(f"run/work/*/{structure.FILE_NAME}")
    tree = structure.read(file.parent).tree
    assert [tree.type, tree.parts[1].type] == ["cnn:Answer", "cnn:Sums"]


def test_a_process_that_imports_the_file_gets_the_models_own_class(bundle: Path) -> None:
    assert served(bundle, f"import cnn\n{SERVE}\nserve()") == "cnn Answer Sums [2]"


def test_so_does_the_file_run_as_a_script(bundle: Path) -> None:
    assert served(bundle, f"{CNN}\n{SERVE}\nserve()") == "__main__ Answer Sums [2]"


def test_a_class_of_that_name_with_other_fields_is_not_taken(bundle: Path) -> None:
    assert "import cnn before compilot.load(...)" in served(bundle, f"class Answer: pass\n{SERVE}\nserve()")


def test_a_process_that_does_not_is_told_what_to_import_and_may_have_plain_containers(bundle: Path) -> None:
    refused, plain = served(bundle, f"{SERVE}\nserve()\nserve(plain_outputs=True)").splitlines()
    step = "import cnn before compilot.load(...), or pass plain_outputs=True to get plain containers."
    assert refused.endswith(f"is not among the imported ones; {step}")
    assert plain.endswith(" Output Output [2]")
