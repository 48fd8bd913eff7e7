"""Arms that are forked: when they may be, and that each runs its own side's code."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import pytest

import compilot
from compilot.engines.eager.build import EAGER
from compilot.gate.arm import Arm
from compilot.gate.arms import LiveArm, Role
from compilot.gate.forking import arm_nursery, can_fork
from compilot.gate.sides import BASE, HEAD, Side
from compilot.records import Shipment
from compilot.trials.limits import Limits
from compilot.trials.nursery import Forked

SOURCE = "import torch\nimport helper\n\ndef net():\n    return helper.{kind}(2, 2).eval(), (torch.ones(1, 2),)\n"
HELPER = "import torch\n\nclass {kind}(torch.nn.Linear):\n    pass\n"


def side(name: str, folder: Path, foreign: Path, kind: str) -> Side:
    folder.mkdir()
    (folder / "model.py").write_text(SOURCE.format(kind=kind))
    (folder / "helper.py").write_text(HELPER.format(kind=kind))
    shipment = Shipment(target=f"{folder}/model.py:net", cwd=str(folder), sys_path=(str(folder),))
    return Side(name, kind, shipment, foreign=str(foreign))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Side, Side]:
    old, new = tmp_path / "old", tmp_path / "new"
    return side(BASE, old, new, "Before"), side(HEAD, new, old, "After")


def test_only_two_sides_of_this_interpreter_are_forked(sides: tuple[Side, Side]) -> None:
    base, head = sides
    assert can_fork(sides)
    assert not can_fork([base._replace(python="/usr/bin/old"), head])
    assert not can_fork([head])  # a stored baseline has its start-up from another day


def test_a_repository_that_compilot_is_imported_from_has_fresh_arms(sides: tuple[Side, Side]) -> None:
    base, head = sides
    assert not can_fork([base._replace(foreign=str(Path(compilot.__file__).parents[1])), head])


def test_what_the_imports_took_is_part_of_a_start() -> None:
    assert Arm(100.0).started <= time.perf_counter() - 100.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
def test_forked_arms_run_the_code_of_their_own_sides(
    sides: tuple[Side, Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "torch.py").write_text("raise RuntimeError('taken from the folder of the check')")
    monkeypatch.chdir(tmp_path / "here")
    with contextlib.closing(arm_nursery(tmp_path / "forks.log")) as nursery, contextlib.ExitStack() as alive:
        arms = [
            LiveArm(Role(one, EAGER), tmp_path / one.name, tmp_path / f"{one.name}.log", Limits(), nursery.start)
            for one in sides
        ]
        for arm in arms:
            alive.callback(arm.close)
            arm.begin_opening()
        assert [arm.opened().ref.label for arm in arms] == ["Before", "After"]
        assert all(isinstance(arm._child._process, Forked) for arm in arms), nursery.why_not
        for arm in arms:
            arm.begin_building()
            arm.built()
            assert arm.time_batch() > 0.0
