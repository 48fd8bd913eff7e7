"""The notebook and the Hugging Face example run as they are, with short budgets of their own or of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "quickstart.ipynb"
SHORTEST = "1s"  # however short the budget, one candidate is tried and confirmed

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.compiles


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) >= 5
    assert not any(cell.outputs or cell.execution_count for cell in cells)


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning")  # of the kernel's own client
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PATH", kernel_for(tmp_path / "jupyter"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path / "work"
    folder.mkdir()
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    outputs = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    [shown] = outputs["plan"]
    assert "text/html" in shown["data"]
    stats = next(found for source, found in outputs.items() if source.endswith("fast.stats()"))
    assert "calls=1" in stats[-1]["data"]["text/plain"]
    assert (folder / "quickstart-run" / "plan.json").is_file()


def kernel_for(folder: Path) -> str:
    """This interpreter as the kernel `python3`, whatever the user has installed; the search path of kernels."""
    from ipykernel.kernelspec import write_kernel_spec

    write_kernel_spec(folder / "kernels" / "python3")
    return str(folder)


def test_the_hugging_face_example_runs(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    command = [sys.executable, EXAMPLES / "huggingface.py", "--budget", SHORTEST, "--engines", "onnxruntime"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, "--out", "run"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "same answers as eager; Stats(calls=3" in done.stdout
    assert "compilot pack run -o model.cpbundle" in done.stdout
    assert (tmp_path / "run" / "plan.json").is_file()
