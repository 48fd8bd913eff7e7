"""A live model goes to a real child process and answers there bit for bit as here."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from compilot.workload import Workload
from compilot.workload.shipping import ship

CHILD = """
import sys, msgspec, torch
from compilot.records import Shipment
from compilot.workload.shipping import unship
workload = unship(msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Shipment))
state = {}
def keep(*args, **kwargs):
    output = workload.model(*args, **kwargs)
    state["output"] = output if torch.is_tensor(output) else output[0]
workload.unit(keep).call()
state["tied"] = getattr(workload.model, "is_tied", lambda: None)()
state["varied"] = workload.inputs(5)
torch.save(state, sys.argv[2])
"""


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.head = nn.Linear(16, 40)
        self.head.weight = self.embed.weight
        self.middle = nn.Linear(16, 16).to(torch.bfloat16)

    def is_tied(self) -> bool:
        return self.head.weight is self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        return self.head(hidden + self.middle(hidden.bfloat16()).float())


def answers_of_a_child(workload: Workload, folder: Path) -> dict[str, object]:
    letter, answers, script = folder / "shipment.json", folder / "answers.pt", folder / "child.py"
    letter.write_bytes(msgspec.json.encode(ship(workload, folder)))
    script.write_text(CHILD)
    subprocess.run([sys.executable, str(script), str(letter), str(answers)], check=True, cwd=folder)
    return torch.load(answers, weights_only=False)  # type: ignore[no-any-return]


def test_a_live_model_with_tied_weights(tmp_path: Path) -> None:
    workload = Workload(Tied().eval(), torch.randint(0, 40, (2, 7)))
    answers = answers_of_a_child(workload, tmp_path)
    with torch.no_grad():
        assert torch.equal(answers["output"], workload.model(*workload.call.args))
    assert answers["tied"] is True
    assert torch.equal(answers["varied"][0][0], workload.inputs(5).args[0])


SCRIPT = """
import sys, msgspec, torch
from pathlib import Path
from torch import nn
from compilot.workload import Workload
from compilot.workload.shipping import ship
SHIFT = 3
def helper(x): return x + SHIFT
class FromScript(nn.Module):
    def forward(self, x): return helper(x)
shipment = ship(Workload(FromScript().eval(), torch.ones(2)), Path(sys.argv[1]))
Path(sys.argv[2]).write_bytes(msgspec.json.encode(shipment))
"""


def test_a_class_of_a_script_goes_by_value(tmp_path: Path) -> None:
    letter, answers = tmp_path / "shipment.json", tmp_path / "answers.pt"
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), str(letter)], check=True)
    subprocess.run([sys.executable, "-c", CHILD, str(letter), str(answers)], check=True)
    assert torch.load(answers, weights_only=False)["output"].tolist() == [4.0, 4.0]


def test_a_hugging_face_model(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, vocab_size=30
    )
    ids = torch.randint(3, 30, (2, 6))
    kwargs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "return_dict": True}
    workload = Workload(transformers.BertModel(config).eval(), kwargs=kwargs, dynamic={"input_ids": {1: (1, 16)}})
    answers = answers_of_a_child(workload, tmp_path)
    with torch.no_grad():
        expected = workload.model(**kwargs)
    assert torch.equal(answers["output"], expected[0])
