"""Wheel and sdist as `make dist` builds them: what is in them, and that the wheel works in an empty environment.

They are built from a clone, so that nothing of this working tree gets in that is not committed or listed. The empty
environment gets torch and every dependency anew: this takes two minutes or more, most of it installing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = {"compilot/report/templates/doctor.css", "compilot/report/templates/doctor.html.j2"}
MODEL = """
import torch


def factory():
    return torch.nn.Linear(8, 8).eval(), (torch.randn(4, 8),)
"""

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=kept | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this working tree that git knows or would take, in a repository of their own."""
    folder = tmp_path_factory.mktemp("clone")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    run("git", "init", "--quiet", ".", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def built(clone: Path) -> Path:
    """dist/, by the very command of the Makefile."""
    [command] = [line for line in (clone / "Makefile").read_text().splitlines() if "-m build" in line]
    run("sh", "-c", command.strip().removeprefix("@").replace("$(BIN)/python", sys.executable), cwd=clone)
    return clone / "dist"


def test_the_wheel_has_types_and_templates_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"compilot/py.typed", "compilot/__init__.py", "compilot/cli/main.py"} | TEMPLATES <= names
    assert {name.partition("/")[0] for name in names} == {"compilot", f"{wheel.name.rpartition('-py3')[0]}.dist-info"}
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("compilot/")} == {n for n in source if "__pycache__" not in n}


def test_the_sdist_has_what_is_needed_to_build_and_test_but_no_old_samples(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in TEMPLATES} | {
        "src/compilot/py.typed",
        "pyproject.toml",
        "constraints.txt",
    } <= names
    assert {"README.md", "LICENSE", "Makefile", "mkdocs.yml", "docs/index.md", "tests/conftest.py"} <= names
    assert not any(name.startswith(("bench/results", ".venv", "build/", "dist/")) for name in names)


@pytest.fixture(scope="module")
def empty_environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what it asks for; its folder of programs."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=built)
    [wheel] = built.glob("*.whl")
    install = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, "-c", ROOT / "constraints.txt", "torch==2.13.0", wheel, cwd=built)
    yield folder / "bin"
    shutil.rmtree(folder)  # a gigabyte


@pytest.mark.timeout(1800)
@pytest.mark.compiles
def test_the_wheel_tunes_a_model_in_an_empty_environment(empty_environment: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(MODEL)
    home = {"HOME": str(tmp_path), "COMPILOT_STATE": str(tmp_path / "state")}
    assert run(empty_environment / "compilot", "--version", cwd=tmp_path).strip()
    command = ("tune", "tiny.py:factory", "--budget", "1s", "--quiet", "--out", "run")
    printed = run(empty_environment / "compilot", *command, cwd=tmp_path, **home)
    assert "fast = compilot.compile(model, " in printed
    assert (tmp_path / "run" / "plan.json").is_file()
    used = run(empty_environment / "python", "-c", "import compilot; print(compilot.__file__)", cwd=tmp_path)
    assert str(empty_environment.parent) in used  # not the working tree
