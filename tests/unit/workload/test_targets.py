import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from compilot.errors import TargetError
from compilot.workload import load_target

GOOD = """
import torch
from torch import nn
from helper_beside import SIZE
import compilot.workload

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(SIZE, 2)
    def forward(self, x, scale=1.0):
        return self.fc(x) * scale

def make():
    return Net().eval(), (torch.ones(1, SIZE),)
def tensor():
    return Net().eval(), torch.ones(1, SIZE)
def keywords():
    return Net().eval(), {"x": torch.ones(1, SIZE)}
def three():
    return Net().eval(), [torch.ones(1, SIZE)], {"scale": 2.0}
def full():
    return compilot.workload.Workload(Net().eval(), torch.ones(1, SIZE), seed=5)
class Holder:
    make = staticmethod(make)

model = Net()
number = 3
def needs(batch, *, size): ...
def nothing(): ...
def bare(): return Net()
def words(): return "a", "b"
def misfit(): return Net(), ()
def fails():
    value = 1
    raise KeyError("weights")
def leaves(): raise SystemExit(3)
def stops(): raise KeyboardInterrupt
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper_beside.py").write_text("SIZE = 3\n")

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    yield write_file
    for name, module in list(sys.modules.items()):  # only what was written here: torch must not be imported twice
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def good(write: Callable[[str, str], Path]) -> Path:
    return write("net.py", GOOD)


@pytest.mark.parametrize("factory", ["make", "tensor", "keywords", "three", "full", "Holder.make"])
def test_every_shape_of_result(good: Path, factory: str) -> None:
    workload = load_target(f"{good}:{factory}")
    args, kwargs = workload.call
    assert workload.model(*args, **kwargs).shape == (1, 2)
    assert workload.ref.target == f"{good}:{factory}"
    assert workload.ref.label == "Net"


def test_a_module_is_found_from_the_working_directory(
    write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write("a_package/__init__.py", "")
    write("a_package/net.py", GOOD)
    monkeypatch.chdir(tmp_path)
    assert load_target("a_package.net:make").ref.label == "Net"


def test_random_weights_are_the_same_at_every_load(good: Path) -> None:
    before = torch.get_rng_state()
    first, second = (load_target(f"{good}:make").model.fc.weight for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_objects_of_a_target_file_can_be_pickled(good: Path) -> None:
    model = load_target(f"{good}:make").model
    assert type(pickle.loads(pickle.dumps(model))).__name__ == "Net"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("{folder}/net.py", "names no factory"),
        ("{folder}/net.py:", "names no factory"),
        ("{folder}/net.py:a-b", "not a Python name"),
        ("{folder}/nte.py:make", "Did you mean 'net.py'"),
        ("{folder}/notes.txt:make", "not a Python file"),
        ("no_such_package.net:make", "no module named 'no_such_package'"),
        ("json.no_such_part:make", "no module named 'json.no_such_part'"),
        ("{folder}/net.py:mkae", "did you mean 'make'"),
        ("{folder}/net.py:xyzzy", "it defines Holder, Net, bare"),
        ("{folder}/net.py:model", "is a model, not a function"),
        ("{folder}/net.py:number", "is of type int, not a function"),
        ("{folder}/net.py:needs", r"needs arguments \(batch, size\)"),
        ("{folder}/net.py:nothing", "returned nothing; it must return"),
        ("{folder}/net.py:bare", "returned a Net"),
        ("{folder}/net.py:words", r"returned a tuple of \(str, str\)"),
        ("{folder}/net.py:misfit", "cannot be used: .*missing a required argument: 'x'"),
        ("{folder}/net.py:fails", r"KeyError: 'weights' \(net.py:36\)"),
        ("{folder}/net.py:leaves", r"SystemExit: 3 \(net.py:37\)"),
    ],
)
def test_a_wrong_target_gets_one_clear_sentence(good: Path, tmp_path: Path, target: str, says: str) -> None:
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(TargetError, match=says) as caught:
        load_target(target.format(folder=tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def make(:\n", r"not valid Python: .* \(bad.py:1\)"),
        ("import json\n\njson.loads('{')\n", r"importing bad.py failed with JSONDecodeError: .* \(bad.py:3\)"),
        ("\nimport no_such_package_at_all\n", r"ModuleNotFoundError: No module named .* \(bad.py:2\)"),
        ("import sys\nsys.exit(1)\n", r"ended the program on import \(bad.py:2\)"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines"),
    ],
)
def test_a_file_that_cannot_be_imported(write: Callable[[str, str], Path], text: str, says: str) -> None:
    with pytest.raises(TargetError, match=says) as caught:
        load_target(f"{write('bad.py', text)}:make")
    assert caught.value.__cause__ is not None
    assert "\n" not in str(caught.value)
    assert not [name for name in sys.modules if name.startswith("_compilot_target_bad")]


def test_a_module_with_a_missing_dependency_is_told_apart(
    write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write("needy_module.py", "import no_such_package_at_all\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"importing needy_module failed .* \(needy_module.py:1\)"):
        load_target("needy_module:make")


def test_ctrl_c_is_not_swallowed(good: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_target(f"{good}:stops")
