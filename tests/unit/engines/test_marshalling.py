"""Marshalling code: what it does with a call, and that a hostile file never becomes code."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call, output_leaves
from compilot.engines import structure as structures
from compilot.engines.classes import find_class, maker
from compilot.engines.describing import describe
from compilot.engines.marshal import empty_code, make_call
from compilot.engines.protocol import Infeasible, LoadRequest, NotTaken
from compilot.engines.sizes import size_code
from compilot.engines.structure import InputTensor, Kind, Node, OutputTensor, Structure
from compilot.errors import PlanError
from compilot.modules.naming import importable, made_up
from compilot.records import Guard, Settings, Shapes
from compilot.runtime.guards import make_guard


@dataclass
class Answer:
    left: torch.Tensor
    right: torch.Tensor


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Answer(x, x)


FIRST = Node(kind=Kind.TENSOR, index=0)


def guard_of(*args: Any, **kwargs: Any) -> Guard:
    return make_guard(Model(), Call(args, kwargs), dynamic=(), shapes=Shapes.STATIC, grad=False)


def request_for(guard: Guard, *, plain_outputs: bool = False) -> LoadRequest:
    return LoadRequest(Model(), guard, Settings(engine="fake"), None, plain_outputs=plain_outputs)


def structure_of(*paths: str, tree: Node = FIRST, shape: tuple[Any, ...] = (2,), dense: bool = True) -> Structure:
    inputs = tuple(InputTensor(path=path, dtype="torch.float32", shape=shape, dense=dense) for path in paths)
    outputs = (OutputTensor(dtype="torch.float32", shape=shape),)
    return Structure(inputs=inputs, outputs=outputs, tree=tree, weights_sha256="")


def doubling(guard: Guard, structure: Structure) -> Any:
    return make_call(request_for(guard), structure, ["_o0 = _i0 * 2"], {})


def test_picks_tensors_wherever_they_lie() -> None:
    x = torch.ones(2)
    guard = guard_of({"a": [5, x]}, mask=x)
    call = doubling(guard, structure_of("args[0]['a'][1]", "kwargs['mask']"))
    assert call({"a": [5, x]}, mask=x).tolist() == [2, 2]


def test_keywords_that_are_no_plain_names_still_work() -> None:
    x = torch.ones(2)
    keywords = {"class": x, "_o0": x}
    call = doubling(guard_of(**keywords), structure_of("kwargs['class']"))
    assert call(**keywords).tolist() == [2, 2]


def test_a_strided_input_is_made_contiguous_and_handed_back_as_it_came() -> None:
    tree = Node(kind=Kind.LIST, parts=(FIRST, Node(kind=Kind.INPUT, index=0)))
    structure = structure_of("args[0]", tree=tree, shape=(2, 3), dense=False)
    x = torch.arange(6.0).reshape(3, 2).t()
    call = make_call(request_for(guard_of(x)), structure, ["_o0 = _i0 if _i0.is_contiguous() else None"], {})
    dense, given = call(x)
    assert torch.equal(dense, x)
    assert given is x


def test_unequal_sizes_are_not_taken() -> None:
    x, y = torch.ones(2), torch.ones(3)
    call = doubling(guard_of(x, x), structure_of("args[0]", "args[1]", shape=("_n0",)))
    assert call(x, x).tolist() == [2, 2]
    with pytest.raises(NotTaken, match=r"dimension 0 of args\[1\] differs from that of args\[0\]"):
        call(x, y)


def test_output_sizes_follow_the_inputs() -> None:
    structure = structure_of("args[0]", shape=("_n0",))
    wide = msgspec.structs.replace(structure, outputs=(OutputTensor(dtype="torch.bfloat16", shape=("_n0*2 + 1", 3)),))
    namespace: dict[str, Any] = {}
    lines = [f"_o0 = {empty_code(wide, 0, namespace)}"]
    made = make_call(request_for(guard_of(torch.ones(4))), wide, lines, namespace)(torch.ones(4))
    assert (made.shape, made.dtype) == ((9, 3), torch.bfloat16)


@pytest.mark.parametrize(
    "size",
    [
        "__import__('os').getpid()",
        "_n0.__class__",
        "_n9",
        "_n0 ** 9",
        "open('x')",
        "_n0 if _n0 else 1",
        "[1][0]",
        "_n0; 1",
    ],
)
def test_a_size_that_is_not_arithmetic_never_becomes_code(size: str) -> None:
    with pytest.raises(Infeasible, match="not arithmetic"):
        size_code(structure_of("args[0]", shape=("_n0",)), size)


def test_a_size_name_that_is_none_never_becomes_code() -> None:
    with pytest.raises(Infeasible, match="not names"):
        doubling(guard_of(torch.ones(2)), structure_of("args[0]", shape=("x = 1; _n0",)))


@pytest.mark.parametrize("path", ["args[0].__class__()", "open('x')", "args[0] or 1", ""])
def test_a_path_that_is_none_never_becomes_code(path: str) -> None:
    with pytest.raises(PlanError, match="is not a path into a call"):
        doubling(guard_of(torch.ones(2)), structure_of(path))


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (Node(kind=Kind.CONSTANT, type="literal", value="__import__('os')"), "is not a literal"),
        (Node(kind=Kind.DICT, keys=("print(1)",), parts=(FIRST,)), "is not a literal"),
        (Node(kind=Kind.TENSOR, index=7), "names a tensor that is not there"),
        (Node(kind=Kind.INPUT, index=-1), "names a tensor that is not there"),
        (Node(kind=Kind.CONSTANT, type="dtype", value="torch.nn"), "'torch.nn' is not a dtype"),
        (Node(kind=Kind.DATACLASS, type="os:_Environ", keys=("left",), parts=(FIRST,)), "_Environ is not among"),
    ],
)
def test_a_hostile_tree_is_refused(tree: Node, why: str) -> None:
    with pytest.raises(Infeasible, match=why):
        doubling(guard_of(torch.ones(2)), structure_of("args[0]", tree=tree))


def test_a_class_is_found_under_another_module_name_and_never_imported() -> None:
    here = Node(kind=Kind.DATACLASS, type=f"loaded_elsewhere:{Answer.__qualname__}", keys=("left", "right"))
    assert find_class(here, Model()) is Answer
    assert "antigravity" not in sys.modules
    with pytest.raises(Infeasible, match="import antigravity"):
        find_class(Node(kind=Kind.DATACLASS, type="antigravity:Flight", keys=("left",)), Model())
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("kind", [Kind.DATACLASS, Kind.MAPPING, Kind.NAMED_TUPLE])
def test_plain_outputs_stand_for_classes_that_are_not_imported(kind: Kind) -> None:
    tree = Node(kind=kind, type="antigravity:Flight", keys=("logits",), parts=(FIRST,))
    request = request_for(guard_of(torch.ones(2)), plain_outputs=True)
    made = make_call(request, structure_of("args[0]", tree=tree), ["_o0 = _i0 * 2"], {})(torch.ones(2))
    assert made.logits.tolist() == made[0].tolist() == [2, 2]
    assert "antigravity" not in sys.modules
    with pytest.raises(AttributeError, match="loss"):
        made.loss  # noqa: B018


def test_a_plain_container_has_the_same_paths_as_the_class_it_stands_for() -> None:
    node = Node(kind=Kind.DATACLASS, type="antigravity:Answer", keys=("left", "right"))
    plain = find_class(node, Model(), plain=True)
    own, made = Answer(torch.ones(1), torch.ones(2)), plain(torch.ones(1), torch.ones(2))
    assert [leaf.path for leaf in output_leaves(made)] == [leaf.path for leaf in output_leaves(own)]
    with pytest.raises(Infeasible, match="Answer has fields that no dataclass can have"):
        find_class(msgspec.structs.replace(node, keys=("import os",)), Model(), plain=True)


def test_a_targets_file_is_named_as_a_user_would_import_it() -> None:
    name = made_up(Path("/models/cnn.py"))
    assert (name != made_up(Path("/other/cnn.py")), importable(name)) == (True, "cnn")
    assert importable("transformers.modeling_outputs") == "transformers.modeling_outputs"


@pytest.mark.parametrize("loaded_as", ["cnn", "models.cnn", made_up(Path("/models/cnn.py")), "__main__"])
def test_a_class_of_a_file_is_found_whatever_the_file_was_loaded_as(
    loaded_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, node = ModuleType(loaded_as), Node(kind=Kind.DATACLASS, type="cnn:Answer", keys=("left", "right"))
    module.Answer = Answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, loaded_as, module)
    assert find_class(node, nn.Linear(1, 1)) is Answer
    with pytest.raises(Infeasible, match="import cnn before"):
        find_class(msgspec.structs.replace(node, keys=("left",)), nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("module", "step"),
    [
        ("cnn", r"import cnn before compilot\.load\(\.\.\.\), or pass plain_outputs=True to get plain containers"),
        ("__main__", "imported ones; pass plain_outputs=True"),  # somebody's script: nobody can import it by that name
        ("my-model", "imported ones; pass plain_outputs=True"),
    ],
)
def test_a_class_that_is_not_found_is_told_with_what_to_do(module: str, step: str) -> None:
    with pytest.raises(Infeasible, match=f"{step}$" if module == "cnn" else step):
        find_class(Node(kind=Kind.DATACLASS, type=f"{module}:Absent", keys=("left",)), nn.Linear(1, 1))


def test_the_tree_names_a_targets_class_by_the_files_stem() -> None:
    kind = dataclass(type("Answer", (), {"__annotations__": {"left": Any}, "__module__": made_up(Path("/m/cnn.py"))}))
    assert describe(kind(torch.ones(1)), ()).tree.type == "cnn:Answer"


def test_a_class_with_other_fields_is_not_taken() -> None:
    other = Node(kind=Kind.DATACLASS, type=f"{__name__}:Answer", keys=("left", "middle"))
    with pytest.raises(Infeasible, match="output class Answer is not among the imported ones"):
        find_class(other, Model())


def test_a_local_class_is_found_through_the_models_own_method() -> None:
    @dataclass
    class Local:
        value: torch.Tensor

    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> Local:
            return Local(x)

    node = Node(kind=Kind.DATACLASS, type=f"{__name__}:{Local.__qualname__}", keys=("value",))
    assert find_class(node, Makes()) is Local


def test_the_quick_maker_is_used_only_where_it_makes_the_same_object() -> None:
    @dataclass
    class Output(OrderedDict):  # type: ignore[type-arg]
        logits: torch.Tensor | None = None
        loss: torch.Tensor | None = None

        def __post_init__(self) -> None:
            for key in ("logits", "loss"):
                if getattr(self, key) is not None:
                    self[key] = getattr(self, key)

    @dataclass
    class Doubles(Output):
        def __post_init__(self) -> None:
            super().__post_init__()
            self["twice"] = 2

    x = torch.ones(1)
    make, quick = maker(Output, ["logits"])
    assert quick
    made = make(x)
    assert (type(made), list(made.items()), made.loss) == (Output, [("logits", x)], None)
    make, quick = maker(Doubles, ["logits"])
    assert not quick
    assert make(x)["twice"] == 2


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    good = structure_of("args[0]")
    structures.write(good, tmp_path)
    assert structures.read(tmp_path) == good
    file = tmp_path / structures.FILE_NAME
    for text in (b"{}", b"\xff\xfe", file.read_bytes()[:-1], file.read_bytes().replace(b'"tree"', b'"bush"')):
        file.write_bytes(text)
        with pytest.raises(Infeasible, match="damaged"):
            structures.read(tmp_path)
