"""A form of the model is made once per run, and its cost is everybody's who starts from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.engines.shared_forms import DONE, Cost, SharedForms
from compilot.records import Candidate, Guard, Settings, Shapes
from compilot.runtime.guards import make_guard

CALL = Call((torch.ones(1, 2),), {})
CANDIDATE = Candidate(settings=Settings(engine="onnxruntime"), label="test", rationale="test")


def guard(rows: int = 1) -> Guard:
    call = Call((torch.ones(rows, 2),), {})
    return make_guard(nn.Linear(2, 2).eval(), call, dynamic=(), shapes=Shapes.STATIC, grad=False, indices={})


class Maker:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    def __call__(self, folder: Path) -> None:
        self.folders.append(folder)
        (folder / "graph").write_text(f"graph {len(self.folders)}")


def workspace(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.mkdir()
    return path


def test_it_is_made_once_and_every_candidate_has_its_files(tmp_path: Path) -> None:
    make = Maker()
    first, second = SharedForms(tmp_path / "shared"), SharedForms(tmp_path / "shared")
    first.once("onnx", guard(), workspace(tmp_path, "one"), make)
    second.once("onnx", guard(), workspace(tmp_path, "two"), make)
    assert len(make.folders) == 1
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["graph"]
    assert (tmp_path / "two" / "graph").read_text() == "graph 1"
    assert first.reused == Cost() == second.made
    assert first.made.wall_s > 0.0
    assert second.reused.wall_s > 0.0


def test_other_calls_and_other_forms_are_made_apart(tmp_path: Path) -> None:
    make = Maker()
    for name, rows in (("onnx", 1), ("onnx", 2), ("openvino", 1)):
        SharedForms(tmp_path / "shared").once(name, guard(rows), workspace(tmp_path, f"{name}{rows}"), make)
    assert len(make.folders) == 3


def test_a_candidate_that_replaces_its_file_leaves_the_others_alone(tmp_path: Path) -> None:
    make = Maker()
    SharedForms(tmp_path / "shared").once("onnx", guard(), workspace(tmp_path, "one"), make)
    own = tmp_path / "one" / "graph"
    own.unlink()
    own.write_text("rewritten")
    SharedForms(tmp_path / "shared").once("onnx", guard(), workspace(tmp_path, "two"), make)
    assert (tmp_path / "two" / "graph").read_text() == "graph 1"


def test_what_was_left_half_made_is_made_again(tmp_path: Path) -> None:
    make = Maker()
    SharedForms(tmp_path / "shared").once("onnx", guard(), workspace(tmp_path, "one"), make)
    for done in (tmp_path / "shared").glob(f"*/{DONE}"):
        done.unlink()
    forms = SharedForms(tmp_path / "shared")
    forms.once("onnx", guard(), workspace(tmp_path, "two"), make)
    assert (tmp_path / "two" / "graph").read_text() == "graph 2"
    assert forms.reused == Cost()


def test_a_form_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise Infeasible("no such operator")

    for name in ("one", "two"):
        with pytest.raises(Infeasible, match="no such operator"):
            SharedForms(tmp_path / "shared").once("onnx", guard(), workspace(tmp_path, name), refuse)
    assert not list((tmp_path / "shared").iterdir())


def test_without_a_run_it_is_made_in_the_workspace(tmp_path: Path) -> None:
    make = Maker()
    BuildRequest(nn.Linear(2, 2).eval(), CALL, guard(), CANDIDATE, tmp_path).form("onnx", make)
    assert make.folders == [tmp_path]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_variations_of_a_file_engine_export_once_and_answer_alike(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    build = import_module(f"compilot.engines.{engine}.build")
    load = import_module(f"compilot.engines.{engine}.load")
    from compilot.engines.protocol import LoadRequest

    exported, model, real = [], nn.Linear(2, 2).eval(), build.export
    monkeypatch.setattr(build, "export", lambda request: exported.append(1) or real(request))
    options = {"onnxruntime": {"allow_spinning": False}, "openvino": {"hint": "throughput"}}[engine]
    answers = []
    for number, chosen in enumerate(({}, options)):
        settings = Settings(engine=engine, options=chosen)
        candidate = Candidate(settings=settings, label="test", rationale="test")
        place = workspace(tmp_path, str(number))
        forms = SharedForms(tmp_path / "shared")
        build.build(BuildRequest(model, CALL, guard(), candidate, place, forms))
        loaded = load.load(LoadRequest(model, guard(), settings, place))
        with torch.no_grad():
            if loaded.prepare is not None:
                loaded.prepare(CALL.args, CALL.kwargs)
            answers.append(loaded.call(*CALL.args))
    assert len(exported) == 1
    assert forms.reused.wall_s > 0.0
    with torch.no_grad():
        assert torch.allclose(answers[0], model(*CALL.args), atol=1e-6)
    assert torch.equal(answers[0], answers[1])
