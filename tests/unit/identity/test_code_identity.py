"""A model is what its code does: what changes an answer changes the identity, what does not leaves it alone."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest
import torch
from projects import FILES, NET, changed, imported
from torch import nn

from compilot.identity.bytecode import read_code
from compilot.identity.model import model_fingerprint
from compilot.identity.uncovered import uncovered
from compilot.records import ModelFingerprint

BEHAVIOUR = {
    "method": ("net.py", "return x - 1.0", "return x - 2.0", "Base.finish"),
    "helper in the same file": ("net.py", "return x * FACTOR", "return x / FACTOR", "double"),
    "helper in another file": ("helpers.py", "x * 1.5", "x * 1.25", "scale"),
    "helper under another name": ("helpers.py", "x + LIMIT", "x - LIMIT", "shift"),
    "helper of a local name for a module": ("helpers.py", "x * 0.75", "x * 0.7", "last"),
    "helper of a package's submodule": ("pkg/sub.py", "x * 0.875", "x * 0.8", "leaf"),
    "module imported inside of a function": ("helpers_late.py", "x * 0.375", "x * 0.3", "Block.forward~2"),
    "constant of another file": ("helpers.py", "LIMIT = 5.0", "LIMIT = 6.0", "shift"),
    "number": ("net.py", "FACTOR = 2.0", "FACTOR = 3.0", "double"),
    "tensor": ("net.py", "[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]", "Block.forward~2"),
    "deep in a dict": ("net.py", '"deep": 4.0', '"deep": 5.0', "Block.forward~2"),
    "in a namespace": ("net.py", "gain=1.5", "gain=1.0", "Block.forward~2"),
    "decorator": ("net.py", "fn(*args) + 0.25", "fn(*args) + 0.5", "Block.forward"),
    "closure": ("net.py", "add_one = make(1.0)", "add_one = make(2.0)", "added"),
    "code of a closure": ("net.py", "x + offset", "x - offset", "added"),
    "partial's argument": ("net.py", "other=0.5", "other=0.25", "Block.forward~2"),
    "partial's function": ("net.py", "partial(torch.mul,", "partial(torch.add,", "Block.forward~2"),
    "default": ("net.py", "by=3.0", "by=4.0", "with_default"),
    "keyword default": ("net.py", "more=0.5", "more=0.6", "with_default"),
    "one of two that call each other": ("net.py", "False if n == 0", "True if n == 0", "odd"),
    "base class": ("net.py", "class Block(Base)", "class Block(nn.Module)", "Block"),
    "class attribute": ("net.py", "RATE = 0.125", "RATE = 0.25", "Block"),
    "static method": ("net.py", "x + 0.0625", "x + 0.06", "Block.fixed"),
    "class method": ("net.py", "x * cls.RATE", "x / cls.RATE", "Block.rated"),
    "property": ("net.py", "return 7.0", "return 8.0", "Block.bias"),
    "comprehension": ("net.py", "[v + 1 for v", "[v + 2 for v", "Block.forward~2"),
    "condition": ("net.py", "if not even(4)", "if even(4)", "Block.forward~2"),
    "sign of zero": ("net.py", "x + 0.0625", "x + -0.0", "Block.fixed"),
}
NO_BEHAVIOUR = {
    "comment": ("net.py", "    return x * FACTOR", "    # twice as much\n    return x * FACTOR  # more"),
    "blank lines": ("net.py", "\ndef double", "\n\n\n\n\ndef double"),
    "docstring": ("net.py", '"""Runs."""', '"""Runs fast, and says so at length."""'),
    "no docstring": ("net.py", '        """Runs."""\n', ""),
    "new docstring": ("net.py", "def double(x):\n", 'def double(x):\n    """Twice."""\n'),
    "docstring of a module": ("net.py", '"""A model and what it calls."""', ""),
    "annotations": ("net.py", "def double(x):", "def double(x: 'torch.Tensor') -> 'torch.Tensor':"),
    "line breaks": ("net.py", "return x - 1.0", "return (\n            x\n            - 1.0\n        )"),
    "function that nobody calls": ("helpers.py", "x * 1000", "x * 2000"),
    "order of definitions": ("helpers.py", "\ndef unused(x):\n    return x * 1000\n", ""),
    "comment in what is imported late": ("helpers_late.py", "def late", "# not now\n\ndef late"),
    "future annotations": ("net.py", '"""A model and what it calls."""', "from __future__ import annotations"),
}


def fingerprint(folder: Path, files: dict[str, str] = FILES, module: str = "net") -> ModelFingerprint:
    with imported(folder, files, module) as kind:
        return model_fingerprint(kind())


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> ModelFingerprint:
    return fingerprint(tmp_path_factory.mktemp("before"))


@pytest.mark.parametrize("case", BEHAVIOUR)
def test_changed_behaviour_is_another_model_and_what_changed_has_a_name(
    tmp_path: Path, before: ModelFingerprint, case: str
) -> None:
    file, old, new, label = BEHAVIOUR[case]
    after = fingerprint(tmp_path, changed(file, old, new))
    assert after.code_sha256 != before.code_sha256
    assert after.structure_sha256 == before.structure_sha256
    named = {one for one in before.code.keys() | after.code.keys() if before.code.get(one) != after.code.get(one)}
    assert named == ({label, "Base", "Base.finish"} if case == "base class" else {label})


@pytest.mark.parametrize("case", NO_BEHAVIOUR)
def test_what_decides_nothing_changes_nothing(tmp_path: Path, before: ModelFingerprint, case: str) -> None:
    assert fingerprint(tmp_path, changed(*NO_BEHAVIOUR[case])) == before


def test_another_folder_and_another_name_of_the_file_are_the_same_model(
    tmp_path: Path, before: ModelFingerprint
) -> None:
    (tmp_path / "deeper").mkdir()
    files = {("moved_net.py" if name == "net.py" else name): text for name, text in FILES.items()}
    assert fingerprint(tmp_path / "deeper", files, "moved_net") == before


@pytest.mark.parametrize("name", ["__main__", "no_such_module", "builtins"])
def test_a_notebook_like_class_is_the_same_model(tmp_path: Path, before: ModelFingerprint, name: str) -> None:
    with imported(tmp_path):
        space: dict[str, object] = {"__name__": name}
        exec(compile(NET, "<cell>", "exec"), space)
        kind = space["Block"]
        assert isinstance(kind, type)
        assert kind.__module__ == name
        assert model_fingerprint(kind()) == before


def test_a_class_that_was_pickled_by_value_is_the_same_model(tmp_path: Path, before: ModelFingerprint) -> None:
    with imported(tmp_path) as kind:
        modules = [sys.modules[one] for one in ("net", "helpers", "pkg.sub")]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            data = cloudpickle.dumps(kind())
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
        sys.modules.pop("net")
        assert model_fingerprint(cloudpickle.loads(data)) == before


def test_a_call_changes_nothing(tmp_path: Path, before: ModelFingerprint) -> None:
    with imported(tmp_path) as kind:
        model = kind()
        model(torch.ones(2, 3))
        assert model_fingerprint(model) == before


def test_code_that_ran_often_is_read_as_it_was_written() -> None:
    def work(x: float) -> float:
        total = 0.0
        for i in range(10):
            total += x * i if i % 2 else -x
        return total

    before = read_code(work.__code__).token
    for _ in range(1000):
        work(1.5)  # Python specialises its instructions in place
    read_code.cache_clear()
    assert read_code(work.__code__).token == before


def test_a_helper_that_was_replaced_in_its_module_counts_as_it_is_now(tmp_path: Path) -> None:
    with imported(tmp_path) as kind:
        model = kind()
        before = model_fingerprint(model)
        sys.modules["helpers"].scale = lambda x: x  # type: ignore[attr-defined]
        assert model_fingerprint(model).code_sha256 != before.code_sha256


def test_a_module_that_is_an_attribute_counts_by_what_is_read_of_it(tmp_path: Path) -> None:
    text = NET.replace("self.line =", "self.tools = helpers\n        self.line =").replace(
        "helpers.scale(x)", "self.tools.scale(x)"
    )
    files = {**FILES, "net.py": text}
    same, also = (fingerprint(tmp_path / name, files) for name in ("a", "b"))
    other = fingerprint(tmp_path / "c", {**files, "helpers.py": FILES["helpers.py"].replace("1.5", "1.25")})
    rest = fingerprint(tmp_path / "d", {**files, "helpers.py": FILES["helpers.py"].replace("1000", "2000")})
    assert same == also == rest
    assert other.code_sha256 != same.code_sha256


def test_two_classes_of_one_name_are_told_apart_wherever_they_stand() -> None:
    def make(rate: float) -> type[nn.Module]:
        space: dict[str, object] = {}
        exec(
            f"class Layer(torch.nn.Module):\n    def forward(self, x):\n        return x * {rate}",
            {"torch": torch},
            space,
        )
        kind = space["Layer"]
        assert isinstance(kind, type)
        return kind

    one, two = make(1.0), make(2.0)
    orders = [[one, two, one], [one, two, two], [two, one, two], [two, one, one]]
    found = [model_fingerprint(nn.Sequential(*(kind() for kind in order))) for order in orders]
    assert len({(f.code_sha256, f.structure_sha256) for f in found}) == len(orders)


def test_what_torch_makes_of_a_model_counts_by_its_own_code() -> None:
    def traced(by: float) -> nn.Module:
        class Net(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.relu(x) * by

        return torch.fx.symbolic_trace(Net())

    assert model_fingerprint(traced(2.0)) == model_fingerprint(traced(2.0))
    assert model_fingerprint(traced(2.0)).code_sha256 != model_fingerprint(traced(3.0)).code_sha256


def test_library_code_counts_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages" / "somelib"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from torch import nn\n__version__ = '1.0'\nclass Layer(nn.Module):\n    def forward(self, x): return x\n"
    )
    monkeypatch.syspath_prepend(str(folder.parent))
    import somelib  # type: ignore[import-not-found]

    from compilot.identity import origin

    try:
        one = model_fingerprint(somelib.Layer())
        assert one.libraries == {"somelib": "1.0"}
        assert one.code == {}
        monkeypatch.setattr(somelib, "__version__", "2.0")
        origin.version_of.cache_clear()
        two = model_fingerprint(somelib.Layer())
        assert two.code_sha256 != one.code_sha256
        assert msgspec.structs.replace(two, code_sha256="", libraries={}) == msgspec.structs.replace(
            one, code_sha256="", libraries={}
        )
    finally:
        sys.modules.pop("somelib")
        origin.version_of.cache_clear()


def test_what_pip_put_beside_a_program_is_a_library_and_the_program_is_not(tmp_path: Path) -> None:
    from compilot.identity.origin import library_of_file

    (tmp_path / "brought").mkdir()
    (tmp_path / "brought" / "__init__.py").touch()
    (tmp_path / "program.py").touch()
    (tmp_path / "brought-1.dist-info").mkdir()
    (tmp_path / "brought-1.dist-info" / "RECORD").write_text("brought/__init__.py,,\nbrought-1.dist-info/RECORD,,\n")
    assert library_of_file("brought", str(tmp_path / "brought" / "__init__.py")) == "brought"
    assert library_of_file("program", str(tmp_path / "program.py")) is None


def test_a_class_body_inside_of_a_function_has_no_notes() -> None:
    def tokens(text: str) -> bytes:
        space: dict[str, types.FunctionType] = {}
        exec(text, space)
        return read_code(space["f"].__code__).token

    plain = tokens("def f():\n    class A:\n        b = 1\n    return A")
    noted = tokens('def f():\n\n    class A:\n        "Notes."\n        b = 1\n    return A')
    other = tokens("def f():\n    class A:\n        b = 2\n    return A")
    assert plain == noted != other


def test_no_path_of_this_machine_is_in_a_fingerprint(tmp_path: Path, before: ModelFingerprint) -> None:
    text = msgspec.json.encode(before).decode()
    assert not re.search(r"/|\.py|helpers|pytest", text)


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.line(x))


MADE = {
    "torch.fx": torch.fx.symbolic_trace,
    "torch.export": lambda model: torch.export.export(model, (torch.ones(1, 2),)).module(),
    "torch.jit.script": torch.jit.script,
    "torch.jit.trace": lambda model: torch.jit.trace(model, torch.ones(1, 2)),
    "parametrization": lambda model: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), model),
}


@pytest.mark.parametrize("how", MADE)
@pytest.mark.filterwarnings("ignore")
def test_what_torch_makes_twice_is_the_same_model_and_all_of_it_is_read(how: str) -> None:
    one, two = (MADE[how](Line().eval()) for _ in range(2))
    assert model_fingerprint(one) == model_fingerprint(two)
    assert uncovered(one) == ()


def test_a_custom_operator_counts_by_its_function() -> None:
    def make(text: str) -> nn.Module:
        space: dict[str, Any] = {"torch": torch}
        exec(f"def twice(x: torch.Tensor) -> torch.Tensor:\n    return {text}", space)
        space["twice"] = torch.library.custom_op("identity_test::twice", space["twice"], mutates_args=())
        exec("class Net(torch.nn.Module):\n    def forward(self, x):\n        return twice(x)", space)
        model: nn.Module = space["Net"]()
        assert uncovered(model) == ()
        return model

    assert model_fingerprint(make("x * 2")) == model_fingerprint(make("x * 2"))
    assert model_fingerprint(make("x * 2")) != model_fingerprint(make("x * 3"))
