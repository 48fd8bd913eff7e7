"""The README, followed to the letter: from its model file to a signed bundle that another process loads.

Its files and commands are taken out of README.md; nothing of them is repeated here. Only the budget is shorter, the
program more patient with a busy machine, and one thread computes: with two, eager on a busy machine scatters so much
that no gain could be proven.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from pages import README, blocks_of, lines_of

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = [pytest.mark.measures, pytest.mark.compiles]

TEXT = README.read_text()
COMMANDS = [line for line in lines_of(TEXT, "compilot|python") if not line.startswith(("python3", "compilot env"))]
FILES = {
    found[1]: block.text
    for block in blocks_of(TEXT)
    if block.language == "python" and (found := re.match(r"# (\w+\.py)\n", block.text))
}
BUDGET = "30s"
PYTHON = """#!/bin/sh
exec {python} "$@"
"""
PATIENT = """#!{python}
from compilot.tuning import budget
budget.OVERRUN_S = 900.0
budget.Budget.trial_cap_s = lambda self, reserve_s: 900.0
from compilot.cli.main import run
run()
"""


def test_the_commands_are_those_that_a_newcomer_needs() -> None:
    verbs = [" ".join(word for word in command.split()[1:3] if word.isalpha()) for command in COMMANDS]
    assert [verb.split()[0] if verb else "" for verb in verbs] == ["tune", "keys", "pack", "keys", "verify", ""]
    assert set(FILES) == {"mymodel.py", "serve.py"}
    assert "@dataclass" in FILES["mymodel.py"]  # an output class of its own
    assert "--sign" in next(command for command in COMMANDS if " pack " in command)


class Terminal(NamedTuple):
    """A folder with the README's files, and the environment of a shell in it."""

    folder: Path
    env: dict[str, str]

    def type(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = re.sub(r"--budget \S+", f"--budget {BUDGET}", command)
        return subprocess.run(
            command, shell=True, cwd=self.folder, env=self.env | env, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """`compilot` and `python` are on the path; keys, cache and list of runs are its own."""
    base = tmp_path_factory.mktemp("newcomer")
    folder, programs = base / "project", base / "bin"
    folder.mkdir()
    programs.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, text in (("compilot", PATIENT), ("python", PYTHON)):
        (programs / name).write_text(text.format(python=sys.executable))
        (programs / name).chmod(0o755)
    places = {f"COMPILOT_{name}": str(base / name.lower()) for name in ("CONFIG", "CACHE", "STATE")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return Terminal(folder, {**os.environ, **places, "PATH": path, "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def printed(terminal: Terminal) -> list[str]:
    """What each command printed; every one of them ended well."""
    outputs = []
    for command in COMMANDS:
        done = terminal.type(command)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    return outputs


def test_from_a_model_file_to_a_signed_bundle_in_another_process(printed: list[str]) -> None:
    tuned, _, packed, _, verified, served = printed
    assert "The plan keeps the model eager" not in tuned
    assert "Use it:" in tuned
    assert "compilot.load(" in packed
    assert re.search(r"trusted +signed with trusted key [0-9a-f]{16}", verified)
    assert re.search(r"fits +yes", verified)
    assert served == "torch.Size([16, 10])\n"  # serve.py itself asserts the class of the answer


@pytest.mark.usefixtures("printed")
def test_a_machine_that_does_not_trust_the_key_does_not_serve_the_bundle(terminal: Terminal, tmp_path: Path) -> None:
    done = terminal.type(COMMANDS[-1], COMPILOT_CONFIG=str(tmp_path))
    assert done.returncode != 0
    assert "UntrustedBundle" in done.stderr
