import functools
import importlib.util
import stat
import subprocess
import sys
import threading
import types
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from compilot.errors import EnvironmentProblem, InputError, RunDirError, UnpicklableError
from compilot.identity.model import model_fingerprint
from compilot.records import ModelFingerprint, Shipment
from compilot.workload import Workload, parse_dynamic
from compilot.workload.shipping import ship, unship


class Everything(nn.Module):
    """Tied weights, views, odd strides and every kind of dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.register_buffer("grid", torch.randn(3, 16).half())
        self.register_buffer("row", self.grid[1])
        self.register_buffer("turned", torch.randn(16, 4).bfloat16().t())
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("counts", torch.arange(5, dtype=torch.int8), persistent=False)
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("wave", torch.randn(3, dtype=torch.complex64).conj())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids)) + self.grid[0].float().sum()


def there_and_back(workload: Workload, folder: Path) -> Workload:
    shipment = ship(workload, folder)
    return unship(msgspec.json.decode(msgspec.json.encode(shipment), type=Shipment))


@pytest.fixture(autouse=True)
def _keep_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def workload() -> Workload:
    return Workload(Everything().eval(), torch.randint(0, 50, (2, 5)))


def test_every_tensor_comes_back_as_it_was(workload: Workload, tmp_path: Path) -> None:
    old, new = workload.model, there_and_back(workload, tmp_path).model
    for (name, a), (same_name, b) in zip(
        [*old.named_parameters(), *old.named_buffers()], [*new.named_parameters(), *new.named_buffers()], strict=True
    ):
        assert (name, a.dtype, a.shape, a.stride(), a.requires_grad, type(a)) == (
            (same_name, b.dtype, b.shape, b.stride(), b.requires_grad, type(b))
        )
        assert torch.equal(a, b)


def test_ties_and_views_are_kept(workload: Workload, tmp_path: Path) -> None:
    model = there_and_back(workload, tmp_path).model
    assert model.head.weight is model.embed.weight
    model.grid[1] += 1
    assert torch.equal(model.row, model.grid[1])


def test_weights_are_written_once(tmp_path: Path) -> None:
    layer = nn.Linear(256, 256, bias=False)
    twice = nn.Sequential(layer, layer).eval()
    shipment = ship(Workload(twice, torch.ones(1, 256)), tmp_path)
    assert shipment.weights is not None
    assert Path(shipment.weights).stat().st_size == 256 * 256 * 4 + 256 * 4
    assert shipment.payload is not None
    assert Path(shipment.payload).stat().st_size < 20_000


def test_storages_are_aligned(workload: Workload, tmp_path: Path) -> None:
    model = there_and_back(workload, tmp_path).model
    assert {p.data_ptr() % 64 for p in model.parameters()} == {0}


def test_a_childs_writes_stay_its_own(workload: Workload, tmp_path: Path) -> None:
    shipment = ship(workload, tmp_path)
    first = unship(shipment)
    with torch.no_grad():
        first.model.embed.weight.zero_()
    assert torch.equal(unship(shipment).model.embed.weight, workload.model.embed.weight)


def test_files_are_private(workload: Workload, tmp_path: Path) -> None:
    shipment = ship(workload, tmp_path)
    assert shipment.payload is not None
    assert stat.S_IMODE(Path(shipment.payload).stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.part"))


def test_the_input_function_goes_along(tmp_path: Path) -> None:
    offset = 10.0
    workload = Workload(nn.Identity().eval(), inputs=lambda seed: torch.full((1,), seed + offset), seed=2, grad=True)
    new = there_and_back(workload, tmp_path)
    assert new.inputs(1).args[0].item() == 11.0
    assert (new.seed, new.grad, new.call.args[0].item()) == (2, True, 12.0)
    assert new.ref == workload.ref


def test_the_shipments_word_counts(workload: Workload, tmp_path: Path) -> None:
    more = workload.with_dynamic([parse_dynamic("ids:1=1..9")])
    shipment = ship(workload, tmp_path)
    new = unship(msgspec.structs.replace(shipment, ref=more.ref))
    assert new.dynamic == more.dynamic


def test_the_example_may_have_other_sizes(tmp_path: Path) -> None:
    workload = Workload(Everything().eval(), torch.zeros(2, 7, dtype=torch.long), dynamic={"seq": (1, 32)})
    shipment = msgspec.structs.replace(ship(workload, tmp_path), example_sizes={"ids:1": 20})
    there = unship(shipment)
    assert tuple(there.call.args[0].shape) == (2, 20)
    assert there.dynamic == workload.dynamic
    with pytest.raises(InputError, match=r"outside its declared range 1\.\.32"):
        unship(msgspec.structs.replace(shipment, example_sizes={"ids:1": 40}))


def test_equal_models_have_equal_digests(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2).eval()
    x = torch.ones(1, 2)
    digests = [ship(Workload(layer, x), tmp_path / str(i)).ref for i in range(2)]
    assert digests[0].payload_sha256 == digests[1].payload_sha256
    with torch.no_grad():
        layer.bias += 1
    other = ship(Workload(layer, x), tmp_path / "other").ref
    assert other.payload_sha256 != digests[0].payload_sha256


class Locked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.encoder[0].cache = {"guard": [threading.Lock()]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x)


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnpicklableError) as caught:
        ship(Workload(Locked().eval(), torch.ones(1, 2)), tmp_path)
    text = str(caught.value)
    assert text.startswith("model.encoder.0.cache['guard'][0] (a _thread.lock) cannot be sent")
    assert '"file.py:factory"' in text
    assert "\n" not in text


def test_what_an_input_function_holds_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()
    workload = Workload(nn.Identity().eval(), inputs=lambda seed: (lock, torch.ones(1))[1])
    with pytest.raises(UnpicklableError, match=r"inputs: variable 'lock' \(a _thread.lock\)"):
        ship(workload, tmp_path)


def test_a_class_from_a_module_that_nobody_can_import_goes_by_value(tmp_path: Path) -> None:
    file = tmp_path / "hidden_net.py"
    file.write_text("from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return x + 1\n")
    spec = importlib.util.spec_from_file_location("hidden_net", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["hidden_net"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shipment = ship(Workload(module.Net().eval(), torch.ones(1)), tmp_path / "run")
    del sys.modules["hidden_net"]
    assert unship(shipment).model(torch.ones(1)).item() == 2.0


def test_a_module_missing_in_the_child_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "passing_net.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("passing_net")
    shipment = ship(Workload(module.Net().eval(), torch.ones(1)), tmp_path / "run")
    (tmp_path / "passing_net.py").unlink()
    del sys.modules["passing_net"]
    importlib.invalidate_caches()
    with pytest.raises(UnpicklableError, match="passing_net"):
        unship(shipment)


def test_a_target_travels_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.py").write_text(
        "import torch\ndef make(): return torch.nn.Linear(2, 2).eval(), torch.ones(1, 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    from compilot.workload import load_target

    workload = load_target("small.py:make").with_dynamic([parse_dynamic("input:0=1..4")])
    shipment = ship(workload, tmp_path / "run")
    assert shipment.target == f"{tmp_path / 'small.py'}:make"
    assert shipment.payload is None
    assert not (tmp_path / "run").exists()
    new = unship(shipment)
    assert new.ref == workload.ref
    assert torch.equal(new.model.weight, workload.model.weight)


def test_the_parents_surroundings_go_along(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "relative", *sys.path])
    shipment = ship(workload, tmp_path)
    assert shipment.cwd == str(tmp_path)
    assert shipment.sys_path[:2] == (str(tmp_path), str(tmp_path / "relative"))
    monkeypatch.setattr(sys, "path", sys.path[2:])
    unship(shipment)
    assert sys.path[-2:] == [str(tmp_path), str(tmp_path / "relative")]


def test_faults_of_the_folder_are_clear(workload: Workload, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="choose another folder"):
        ship(workload, tmp_path / "file")
    shipment = ship(workload, tmp_path)
    with pytest.raises(EnvironmentProblem, match="is gone"):
        unship(msgspec.structs.replace(shipment, cwd=str(tmp_path / "gone")))
    with pytest.raises(EnvironmentProblem, match="cannot read the shipped model"):
        unship(msgspec.structs.replace(shipment, payload=str(tmp_path / "gone")))


def test_an_input_function_from_a_module_that_nobody_can_import_goes_by_value(tmp_path: Path) -> None:
    file = tmp_path / "hidden_inputs.py"
    file.write_text("import torch\ndef make(seed): return torch.full((1,), float(seed))\n")
    spec = importlib.util.spec_from_file_location("hidden_inputs", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["hidden_inputs"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shipment = ship(Workload(nn.Identity().eval(), inputs=module.make), tmp_path / "run")
    del sys.modules["hidden_inputs"]
    assert unship(shipment).inputs(3).args[0].item() == 3.0


def test_live_objects_have_the_same_fingerprint_in_the_child(tmp_path: Path) -> None:
    """Of a class of a test function, one of __main__ and one of a module that only this process has."""
    by = torch.full((2,), 3.0)

    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.act, self.table = nn.Linear(2, 2), lambda x: x * by, {"a": [by, functools.partial(max, 1)]}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.line(x))

    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile("K = 2.0\n" + CELL, "<cell>", "exec"), space)
    made = types.ModuleType("made_here")
    exec(compile("K = 3.0\n" + CELL, "<cell>", "exec"), vars(made))
    for number, kind in enumerate((Local, space["Net"], vars(made)["Net"], Everything)):
        work = Workload(kind().eval(), torch.ones(1, 2))  # type: ignore[operator]
        here = model_fingerprint(work.model)
        shipment = ship(work, tmp_path / str(number))
        (tmp_path / "shipment.json").write_bytes(msgspec.json.encode(shipment))
        run = subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path / "shipment.json")],
            env={"PYTHONHASHSEED": "3", "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        )
        assert msgspec.json.decode(run.stdout, type=ModelFingerprint) == here


CELL = """
import torch
def helper(x): return x * K
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 2)
        self.act = helper
    def forward(self, x): return helper(self.act(self.line(x)))
"""
CHILD = """
import sys, msgspec
from pathlib import Path
from compilot.identity.model import model_fingerprint
from compilot.records import Shipment
from compilot.workload.shipping import unship
workload = unship(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Shipment))
sys.stdout.buffer.write(msgspec.json.encode(model_fingerprint(workload.model)))
"""
