"""`compilot.status`: still right, unproven or out of date, with what changed and what to do; no torch unless needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch import nn

import compilot as public
from compilot.api import repeating
from compilot.artifacts.planfile import save_plan
from compilot.engines.of_candidate import engines_of
from compilot.identity.machine import installed_machine, machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.ledger.repeating import Repeat, Reproduced
from compilot.records import Fingerprint, Plan

SOURCE = """
from torch import nn, ones
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, {width}))
def net():
    return Net().eval(), (ones(1, 3),)
"""


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 3))


@pytest.fixture
def write(small_run: Any, tmp_path: Path) -> Any:
    """Writes a run with a plan of this machine and model, or of another: write(torch="1.0")."""

    def written(model: nn.Module | None = None, **machine: Any) -> Path:
        folder = small_run.write(tmp_path / "run")
        engines = engines_of(small_run.plan.entries[0].candidate)
        here = msgspec.structs.replace(machine_fingerprint(engines=engines), **machine)
        made_for = Fingerprint(machine=here, model=model_fingerprint(model or Net().eval()))
        plan = msgspec.structs.replace(small_run.plan, fingerprint=made_for)
        save_plan(plan, folder / "plan.json")
        path: Path = folder
        return path

    return written


def test_nothing_changed(write: Any) -> None:
    run = write()
    found = public.status(run, Net().eval())
    assert (found.right, found.changes, found.kind) == (True, (), "plan")
    assert found.sentence.startswith("still right")
    assert found.advice == "nothing to do."
    assert public.status(run / "plan.json", Net().eval()) == found
    without = public.status(run)
    assert (without.right, without.changes) == (True, ())
    assert any("name its target" in words for words in without.not_compared)


def test_another_torch_is_out_of_date(write: Any) -> None:
    found = public.status(write(torch="2.0.0"))
    assert not found.right
    assert [(one.what, one.severity) for one in found.changes] == [("machine.torch", "unsafe")]
    assert found.sentence.startswith("out of date")
    assert found.advice == "run 'compilot tune /models/net.py:net' here."


def test_another_cpu_is_unproven_and_can_be_measured(write: Any) -> None:
    run = write(cpu_model="another one")
    found = public.status(run)
    assert found.right
    assert [one.severity for one in found.changes] == ["unproven"]
    assert "speed is unproven" in found.sentence
    assert found.advice == f"measure it: 'compilot status {run / 'plan.json'} --measure' takes about a minute."


def test_an_edited_model_is_out_of_date_and_what_changed_is_named(write: Any, tmp_path: Path) -> None:
    import importlib.util

    target = tmp_path / "net.py"
    target.write_text(SOURCE.format(width=3))
    spec = importlib.util.spec_from_file_location("net_of_status", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = write(module.net()[0])
    assert public.status(run, f"{target}:net").right
    target.write_text(SOURCE.format(width=12))
    found = public.status(run, f"{target}:net")
    assert not found.right
    assert any("from 12 to 48 values" in one.sentence for one in found.changes)


def test_a_plan_whose_files_were_changed_is_not_right(write: Any, small_run: Any) -> None:
    from compilot.records import ArtifactFile

    run = write()
    plan: Plan = public.load_plan(run / "plan.json")
    file = ArtifactFile(name="model.bin", sha256="0" * 64, size_bytes=3)
    entry = msgspec.structs.replace(plan.entries[0], artifacts=(file,), artifacts_dir="work/x")
    save_plan(msgspec.structs.replace(plan, entries=(entry,)), run / "plan.json")
    gone = public.status(run)
    assert gone.right
    assert "is missing: the first call builds it again" in gone.changes[0].sentence
    (run / "work/x").mkdir(parents=True)
    (run / "work/x/model.bin").write_bytes(b"abc")
    changed = public.status(run)
    assert not changed.right
    assert "digest is another one" in changed.changes[0].sentence


@pytest.mark.parametrize(
    ("result", "right", "advice"),
    [
        (Repeat.HOLDS, True, "nothing to do."),
        (Repeat.DOES_NOT_HOLD, False, "run 'compilot tune /models/net.py:net' here."),
        (Repeat.INCONCLUSIVE, True, "measure longer"),
    ],
)
def test_what_was_measured_again_decides(
    write: Any, monkeypatch: pytest.MonkeyPatch, result: Repeat, right: bool, advice: str
) -> None:
    asked: dict[str, Any] = {}

    def measured(what: Any, **how: Any) -> Reproduced:
        asked.update(how, what=what)
        return Reproduced(
            result=result, because="so it was told", model="Net", candidate="x", claimed=None, measured=None,
            changes=(), rebuilt="", run_dir=Path("again"),
        )  # fmt: skip

    monkeypatch.setattr(repeating, "measured_again", measured)
    monkeypatch.setattr(repeating, "shipment_of", lambda run_dir: "shipment")
    run = write(cpu_model="another one")
    found = public.status(run, measure=True, budget="30s", progress=False)
    assert (found.right, found.measured is not None) == (right, True)
    assert found.advice.startswith(advice)
    assert "so it was told" in found.sentence
    assert (asked["budget"], asked["what"].folder, asked["what"].shipment) == ("30s", run, "shipment")


def test_what_is_no_plan_is_refused(tmp_path: Path, write: Any) -> None:
    with pytest.raises(public.InputError, match="there is no"):
        public.status(tmp_path / "nothing")
    with pytest.raises(public.RunDirError, match=r"no plan\.json"):
        public.status(tmp_path)
    run = write()
    (run / "plan.json").chmod(0o666)
    with pytest.raises(public.UntrustedPlan):
        public.status(run)
    (run / "plan.json").chmod(0o644)
    (run / "journal.jsonl").unlink()
    with pytest.raises(public.InputError, match="name the model's target"):
        public.status(run, measure=True)


def test_the_machine_is_the_same_with_and_without_torch() -> None:
    with_torch = machine_fingerprint(engines=("inductor", "onnxruntime"))
    assert installed_machine(with_torch, compiler=True, engines=("inductor", "onnxruntime")) == with_torch


def test_history_show_compare_and_status_need_no_torch(write: Any, make_run: Any) -> None:
    run, other = write(), make_run("other")
    code = f"""
import sys, compilot
compilot.history(scan={str(run.parent)!r})
compilot.show({str(run)!r})
compilot.compare({str(run)!r}, {str(other.path)!r})
compilot.status({str(run)!r})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
