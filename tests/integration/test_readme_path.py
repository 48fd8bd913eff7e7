"""The README, followed to the letter: from its model file to a plan in use and a signed bundle in another process.

Its files and commands are taken out of README.md; nothing of them is repeated here. Only the budget is shorter. It is
followed twice. By a patient program with one thread: on a busy machine eager scatters so much with two that no gain
could be proven, and here one must be. And by the installed program as it is: there a plan that keeps eager is right,
too, and does what the README says of it.
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
OTHERS = ("python3", "compilot env", "compilot check")  # a check is for a project with a history: test_gate.py has one
COMMANDS = [line for line in lines_of(TEXT, "compilot|python") if not line.startswith(OTHERS)]
FILES = {
    found[1]: block.text
    for block in blocks_of(TEXT)
    if block.language == "python" and (found := re.match(r"# (\w+\.py)\n", block.text))
}
USE = next(block.text for block in blocks_of(TEXT) if '"run/plan.json"' in block.text and block.language == "python")
BUDGET = "30s"
PLAIN_BUDGET = "60s"  # eager's own trial must fit on a busy machine
PROGRAMS = Path(sys.executable).parent  # where `compilot` is installed
KEEPS = "The plan keeps the model eager; code that loads it works all the same:"
USED = """import sys
import warnings

import compilot
import torch
from mymodel import Scores, factory

warnings.simplefilter("error", getattr(compilot, sys.argv[1]))
model, (x,) = factory()
{use}
assert isinstance(y, Scores)
with torch.no_grad():
    torch.testing.assert_close(y.logits, model(x).logits, rtol=1e-4, atol=1e-5)
print(fast.stats().calls, fast.stats().fast, fast.stats().fallbacks)
"""
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
    budget: str = BUDGET

    def type(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = re.sub(r"--budget \S+", f"--budget {self.budget}", command)
        return subprocess.run(
            command, shell=True, cwd=self.folder, env=self.env | env, capture_output=True, text=True, check=False
        )


def opened(base: Path, path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the README's files, and an environment with these programs and keys, cache and runs of its own."""
    folder = base / "project"
    folder.mkdir()
    for name, text in (*FILES.items(), ("use.py", USED.format(use=USE))):
        (folder / name).write_text(text)
    places = {f"COMPILOT_{name}": str(base / name.lower()) for name in ("CONFIG", "CACHE", "STATE")}
    return folder, {**os.environ, **places, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """`compilot`, the patient one, and `python` are on the path; one thread computes."""
    base = tmp_path_factory.mktemp("newcomer")
    programs = base / "bin"
    programs.mkdir()
    for name, text in (("compilot", PATIENT), ("python", PYTHON)):
        (programs / name).write_text(text.format(python=sys.executable))
        (programs / name).chmod(0o755)
    folder, env = opened(base, programs)
    return Terminal(folder, env | {"OMP_NUM_THREADS": "1"})


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


@pytest.mark.usefixtures("printed")
def test_the_plan_is_used_as_the_readme_uses_it(terminal: Terminal) -> None:
    done = terminal.type("python use.py CompilotWarning")  # as an error
    assert (done.returncode, done.stdout) == (0, "1 1 {}\n"), done.stderr


# ---- the installed program as it is ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plainly(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """The program that was installed, with as many threads as it likes."""
    folder, env = opened(tmp_path_factory.mktemp("plainly"), PROGRAMS)
    env.pop("OMP_NUM_THREADS", None)
    return Terminal(folder, env, PLAIN_BUDGET)


@pytest.fixture(scope="module")
def tuned(plainly: Terminal) -> str:
    """What the README's first command printed; all commands up to the bundle ended well."""
    done = {command: plainly.type(command) for command in COMMANDS[:-1]}
    failed = {command: it.stdout + it.stderr for command, it in done.items() if it.returncode}
    assert failed == {}
    return done[COMMANDS[0]].stdout


def test_the_installed_program_leaves_every_file_whatever_it_decides(plainly: Terminal, tuned: str) -> None:
    there = {path.name for path in (plainly.folder / "run").iterdir()}
    assert {"plan.json", "journal.jsonl", "trials.csv", "report.html"} <= there
    assert (plainly.folder / "model.cpbundle").is_file()
    assert ("Use it:" in tuned) != (KEEPS in tuned)


def test_its_bundle_serves_the_output_class_or_says_that_eager_was_kept(plainly: Terminal, tuned: str) -> None:
    served = plainly.type(COMMANDS[-1])
    if KEEPS not in tuned:
        assert (served.returncode, served.stdout) == (0, "torch.Size([16, 10])\n"), served.stderr
        return
    assert served.returncode != 0
    assert "NoFallback: model.cpbundle holds no whole model: its plan keeps the model as it is" in served.stderr
    assert "call compilot.compile(model, 'model.cpbundle')" in served.stderr  # as the README says


def test_its_plan_is_used_or_keeps_eager(plainly: Terminal, tuned: str) -> None:
    done = plainly.type("python use.py PlanNotUsedWarning")  # as an error; a plan with other threads may speak of them
    assert done.returncode == 0, done.stderr
    calls, fast, fallbacks = done.stdout.split(maxsplit=2)
    assert calls == "1"
    if KEEPS not in tuned:
        assert (fast, fallbacks) == ("1", "{}\n")
    else:
        assert fast == "0"
        assert "the plan keeps the model eager" in fallbacks
