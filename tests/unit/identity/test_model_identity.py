import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import torch
from torch import nn

from compilot.identity.model import model_fingerprint

SOURCE = '''
import functools
import torch
from torch import nn

def logged(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)
    return inner

class Block(nn.Module):
    SCALE = 2
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=1)
        self.act = torch.relu
        self.sizes = {"b": [1, 2], "a": {3, 1, 2}}

    @logged
    def forward(self, x):
        """Runs."""
        kind = "relu" if x.dim() in {4, 3} else "none"
        return [self.act(v) + 1 for v in self.conv(x)]
'''


def load(folder: Path, name: str, text: str = SOURCE) -> ModuleType:
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def executed(text: str, filename: str = "<cell>") -> type[nn.Module]:
    space = {"__name__": "__main__"}
    exec(compile(text, filename, "exec"), space)
    return space["Block"]  # type: ignore[return-value]


def test_the_same_file_under_another_name_is_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one, two = load(tmp_path, "net_one"), load(tmp_path / "elsewhere", "net_two")
    assert model_fingerprint(one.Block()) == model_fingerprint(two.Block())


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("+ 1", "+ 2", {"code", "code_sha256"}),
        ("SCALE = 2", "SCALE = 3", {"code", "code_sha256"}),
        ("stride=1", "stride=2", {"code", "code_sha256", "structure_sha256"}),
        ("class Block", "class Brick", {"code", "code_sha256", "structure_sha256", "class_name"}),
    ],
)
def test_a_changed_source_is_another_model(tmp_path: Path, old: str, new: str, changed: set[str]) -> None:
    before = model_fingerprint(load(tmp_path, "net_before").Block())
    module = load(tmp_path, "net_after", SOURCE.replace(old, new))
    after = model_fingerprint(vars(module).get("Brick", vars(module).get("Block"))())
    assert {f for f in before.__struct_fields__ if getattr(before, f) != getattr(after, f)} == changed


def test_a_class_without_source_goes_by_its_byte_code() -> None:
    moved = "\n\n\n" + SOURCE.replace('"""Runs."""', '"""Runs."""  # a comment')
    same = [model_fingerprint(executed(text, name)()) for text, name in [(SOURCE, "<a>"), (moved, "<b>")]]
    assert same[0] == same[1]
    for old, new in [("+ 1", "+ 2"), ("SCALE = 2", "SCALE = 3"), ("{4, 3}", "{4, 5}"), ('"none"', '"some"')]:
        other = model_fingerprint(executed(SOURCE.replace(old, new))())
        assert other.code_sha256 != same[0].code_sha256, old


def test_a_pickled_class_is_not_mistaken_for_a_namesake(tmp_path: Path) -> None:
    kind = executed(SOURCE)
    namesake = load(tmp_path, "net_namesake", SOURCE.replace("+ 1", "+ 2"))
    kind.__module__ = "net_namesake"
    assert model_fingerprint(kind()).code_sha256 != model_fingerprint(namesake.Block()).code_sha256
    assert model_fingerprint(kind()).code_sha256 == model_fingerprint(executed(SOURCE)()).code_sha256


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m[0], "stride", (2, 2)),
        lambda m: m.eval(),
        lambda m: m.append(nn.ReLU()),
        lambda m: setattr(m[0], "extra", {"k": [1.5]}),
        lambda m: m[0].register_forward_hook(lambda *_: None),
    ],
)
def test_a_changed_structure(change: object) -> None:
    def make() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh())

    before, model = model_fingerprint(make()), make()
    change(model)  # type: ignore[operator]
    after = model_fingerprint(model)
    assert after.structure_sha256 != before.structure_sha256
    assert after.parameters_sha256 == before.parameters_sha256


@pytest.mark.parametrize(
    "other",
    [nn.Linear(3, 5), nn.Linear(3, 4, bias=False), nn.Linear(3, 4).half(), nn.Linear(3, 4, dtype=torch.float64)],
)
def test_changed_parameters(other: nn.Module) -> None:
    assert model_fingerprint(other).parameters_sha256 != model_fingerprint(nn.Linear(3, 4)).parameters_sha256


def test_weight_values_count_only_when_asked() -> None:
    a, b = nn.Linear(3, 4), nn.Linear(3, 4)
    assert model_fingerprint(a) == model_fingerprint(b)
    assert model_fingerprint(a, weights=True) != model_fingerprint(b, weights=True)
    b.load_state_dict(a.state_dict())
    assert model_fingerprint(a, weights=True) == model_fingerprint(b, weights=True)


def test_weights_of_every_dtype_and_shape_have_a_digest() -> None:
    model = nn.Module()
    for i, dtype in enumerate([torch.bfloat16, torch.bool, torch.int8, torch.complex64, torch.float64]):
        model.register_buffer(f"b{i}", torch.ones(2, 3).to(dtype).t())
    model.register_buffer("scalar", torch.tensor(1.0))
    model.register_buffer("nothing", torch.zeros(0))
    assert model_fingerprint(model, weights=True).weights_sha256


def test_tied_parameters_are_counted_once_and_told_apart() -> None:
    tied, apart = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    tied[1].weight = tied[0].weight
    assert model_fingerprint(tied).parameter_count == 16 + 4 + 4
    assert model_fingerprint(apart).parameter_count == 2 * (16 + 4)
    assert model_fingerprint(tied).parameters_sha256 != model_fingerprint(apart).parameters_sha256


def test_a_call_does_not_change_the_identity() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    before = model_fingerprint(model)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    assert model_fingerprint(model) == before


def test_another_process_with_another_hash_seed_agrees(tmp_path: Path) -> None:
    here = model_fingerprint(load(tmp_path, "net_shared").Block())
    script = tmp_path / "child.py"
    script.write_text(
        "import sys, msgspec, net_shared\n"
        "from compilot.identity.model import model_fingerprint\n"
        "sys.stdout.buffer.write(msgspec.json.encode(model_fingerprint(net_shared.Block())))\n"
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, str(script)], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, check=True,
        )  # fmt: skip
        assert msgspec.json.decode(run.stdout, type=type(here)) == here


def test_a_hugging_face_models_folder_is_not_part_of_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    model = transformers.BertModel(config)
    before = model_fingerprint(model)
    model.name_or_path = str(tmp_path)
    model.config._name_or_path = str(tmp_path)
    assert model_fingerprint(model) == before
    model.config.num_attention_heads = 4
    assert model_fingerprint(model).structure_sha256 != before.structure_sha256


def test_a_hugging_face_model_stays_itself_when_called() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    model = transformers.BertModel(config).eval()
    before = model_fingerprint(model)
    model(torch.ones(1, 3, dtype=torch.long))
    assert model_fingerprint(model) == before
