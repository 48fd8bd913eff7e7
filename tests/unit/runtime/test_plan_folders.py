"""compilot.compile on a plan's folder: what others can change, or what was changed, is not opened; eager answers."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from file_engine import plan_for
from torch import nn

import compilot
from compilot.artifacts.planfile import save_plan
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import ArtifactError, CompilotWarning, UntrustedPlan
from compilot.files.digests import file_record
from compilot.records import Plan, ProcessSettings
from compilot.runtime import Fast

NOBODY = 65534
X = torch.randn(2, 3)
NAME = "pickling"
replace = msgspec.structs.replace


class Payload:
    """Leaves the canary's file behind when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


class PicklingEngine:
    """Opens its file without a question, as native loaders do: whoever wrote the file decides what runs."""

    TRAITS = EngineTraits(version="1", standalone=True)

    def load(self, request: LoadRequest) -> Loaded:
        assert request.artifacts is not None
        weight, bias = pickle.loads((request.artifacts / "model.pkl").read_bytes())
        return Loaded(call=lambda x: x @ weight.T + bias, frozen_weights=True, needs_model=False)


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    registry.register(NAME, None, PicklingEngine())
    yield
    registry.unregister(NAME)


@pytest.fixture
def model() -> nn.Linear:
    return nn.Linear(3, 3).eval()


@pytest.fixture
def run(model: nn.Linear, tmp_path: Path) -> Path:
    """A run directory whose plan sets one thread; its file holds the model's weights."""
    folder = tmp_path / "run"
    work = folder / "work" / "id"
    work.mkdir(parents=True)
    (work / "model.pkl").write_bytes(pickle.dumps((model.weight.detach().clone(), model.bias.detach().clone())))
    plan = plan_for(model, NAME, X)
    [entry] = plan.entries
    files = (file_record(work / "model.pkl", "model.pkl"),)
    entry = replace(entry, artifacts=files, artifacts_dir="work/id")
    process = ProcessSettings(threads=torch.get_num_threads())
    save_plan(replace(plan, process=process, entries=(entry,)), folder / "plan.json")
    return folder


def library(run: Path) -> Path:
    return run / "work" / "id" / "model.pkl"


@torch.no_grad()
def test_a_folder_of_ones_own_is_served_by_its_engine(model: nn.Linear, run: Path) -> None:
    fast = compilot.compile(model, run)
    assert torch.allclose(fast(X), model(X))
    assert fast.stats().fast == 1


FOREIGN: dict[str, Callable[[Path], object]] = {
    "plan": lambda run: (run / "plan.json").chmod(0o666),
    "file": lambda run: library(run).chmod(0o666),
    "folder": lambda run: library(run).parent.chmod(0o777),
    "run": lambda run: run.chmod(0o777),
    "owner of the plan": lambda run: os.chown(run / "plan.json", NOBODY, NOBODY),
    "owner of the file": lambda run: os.chown(library(run), NOBODY, NOBODY),
    "owner of the folder": lambda run: os.chown(library(run).parent, NOBODY, NOBODY),
    "owner of the run": lambda run: os.chown(run, NOBODY, NOBODY),
    "link": lambda run: (library(run).rename(run / "x"), library(run).symlink_to(run / "x")),
}
DAMAGED: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda run: None,
    "shorter": lambda run: os.truncate(library(run), library(run).stat().st_size - 1),
    "missing": lambda run: library(run).unlink(),
    "one more": lambda run: library(run).with_name("more.pkl").touch(),
}


def spoil(run: Path, how: str, canary: Path) -> type[Exception]:
    """Do it, with the canary in the file; returns what a strict start raises."""
    if how != "missing" and how != "shorter":
        library(run).write_bytes(pickle.dumps(Payload(canary)))
    if how in FOREIGN and "owner" in how and os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    (FOREIGN | DAMAGED)[how](run)
    return UntrustedPlan if how in FOREIGN else ArtifactError


@torch.no_grad()
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("how", [*FOREIGN, *DAMAGED])
def test_nothing_is_opened_and_eager_answers(
    model: nn.Linear, run: Path, tmp_path: Path, how: str, inplace: bool
) -> None:
    right, canary = model(X), tmp_path / "canary"
    kind = spoil(run, how, canary)
    with pytest.raises(kind):
        compilot.compile(model, run, strict=True)
    with pytest.raises(kind):
        compilot.compile(model, run, keep_model=False)  # nothing could answer instead
    with pytest.warns(CompilotWarning, match=r".*Until then eager answers\.") as told:
        fast = compilot.compile(model, run / "plan.json", inplace=inplace)
    assert len(told) == 1
    assert str(run) in str(told[0].message)
    assert torch.equal(fast(X), right)
    assert fast.stats().fast == 0
    assert next(iter(fast.stats().fallbacks)).startswith("plan refused: ")
    assert not canary.exists()


def test_the_canary_sings_where_the_owner_vouches_for_it(model: nn.Linear, run: Path, tmp_path: Path) -> None:
    """What the tests above rely on: the engine does run what is in its file."""
    library(run).write_bytes(pickle.dumps(Payload(tmp_path / "canary")))
    plan = compilot.load_plan(run / "plan.json")
    files = (file_record(library(run), "model.pkl"),)
    plan = replace(plan, entries=(replace(plan.entries[0], artifacts=files),))
    with pytest.warns(CompilotWarning, match="could not be loaded"):
        compilot.compile(model, plan, folder=run)
    assert (tmp_path / "canary").exists()


@torch.no_grad()
def test_a_plan_object_with_a_folder_is_held_to_the_same_rule(model: nn.Linear, run: Path, tmp_path: Path) -> None:
    plan = msgspec.json.decode((run / "plan.json").read_bytes(), type=Plan)
    fast = compilot.compile(model, plan, folder=run)
    fast(X)
    assert fast.stats().fast == 1
    spoil(run, "folder", tmp_path / "canary")
    with pytest.raises(UntrustedPlan, match="others may write to it"):
        compilot.compile(model, plan, folder=run, strict=True)
    library(run).parent.chmod(0o755)
    with pytest.raises(ArtifactError, match=r"model\.pkl has \d+ bytes instead of"):
        compilot.compile(model, plan, folder=run, strict=True)
    assert not (tmp_path / "canary").exists()


def test_a_plan_that_others_can_change_may_be_read_and_is_not_applied(model: nn.Linear, run: Path) -> None:
    (run / "plan.json").chmod(0o666)
    plan = compilot.load_plan(run / "plan.json")
    assert plan.entries[0].candidate.settings.engine == NAME
    with pytest.raises(UntrustedPlan, match="others may write to it"):
        compilot.compile(model, plan, strict=True)
    with pytest.raises(UntrustedPlan, match="others may write to it"):
        compilot.apply_process(plan)
    (run / "plan.json").chmod(0o644)
    assert isinstance(compilot.compile(model, compilot.load_plan(run / "plan.json"), strict=True), Fast)


@pytest.mark.parametrize("how", [one for one in FOREIGN if "plan" in one or "run" in one])
def test_settings_of_the_process_are_not_taken_from_a_foreign_plan(run: Path, tmp_path: Path, how: str) -> None:
    assert compilot.apply_process(run) == {}
    spoil(run, how, tmp_path / "canary")
    with pytest.raises(UntrustedPlan):
        compilot.apply_process(run)
    with pytest.raises(UntrustedPlan):
        compilot.apply_process(run / "plan.json")


def test_a_plan_is_never_signed_so_it_is_refused_where_that_is_required(model: nn.Linear, run: Path) -> None:
    plan = compilot.load_plan(run / "plan.json")
    for given in (run, run / "plan.json", plan):
        with pytest.raises(UntrustedPlan, match="a signature is required; pack it with 'compilot pack --sign KEY'"):
            compilot.compile(model, given, require_signature=True, strict=True)
        with pytest.raises(UntrustedPlan, match="a signature is required"):
            compilot.apply_process(given, require_signature=True)
    with pytest.warns(CompilotWarning, match="a signature is required"):
        assert compilot.compile(model, run, require_signature=True).stats().fast == 0


@torch.no_grad()
@pytest.mark.parametrize("again", [lambda fast: fast.refresh(), copy.deepcopy, lambda fast: pickle.dumps(fast)])
@pytest.mark.parametrize("how", ["file", "other bytes", "missing"])
def test_files_are_checked_again_before_they_are_loaded_again(
    model: nn.Linear, run: Path, tmp_path: Path, how: str, again: Callable[[Fast], object]
) -> None:
    fast = compilot.compile(model, run)
    made = again(fast)  # fine as long as nothing was changed
    if isinstance(made, bytes):
        pickle.loads(made)(X)
    kind = spoil(run, how, tmp_path / "canary")
    with pytest.raises(kind):
        pickle.loads(made) if isinstance(made, bytes) else again(fast)
    assert torch.allclose(fast(X), model(X))  # what was loaded before goes on answering
    assert not (tmp_path / "canary").exists()


def test_one_bad_entry_refuses_the_plan(model: nn.Linear, run: Path, tmp_path: Path) -> None:
    """Its entries were measured together; which of them would answer is not left to chance."""
    plan = compilot.load_plan(run / "plan.json")
    second = run / "work" / "other"
    second.mkdir()
    (second / "model.pkl").write_bytes(pickle.dumps(Payload(tmp_path / "canary")))
    other = replace(plan.entries[0], artifacts_dir="work/other")
    with pytest.raises(ArtifactError, match=r"other/model\.pkl"):
        compilot.compile(model, replace(plan, entries=(*plan.entries, other)), folder=run, strict=True)
    assert not (tmp_path / "canary").exists()
