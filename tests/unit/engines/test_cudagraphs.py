"""CUDA graphs, as far as they can be looked at without a GPU."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.cudagraphs.load import _Recording, load
from compilot.engines.protocol import Infeasible, LoadRequest
from compilot.records import Guard, Settings, TensorGuard


def on(*devices: str) -> LoadRequest:
    tensors = tuple(
        TensorGuard(path=f"args[{i}]", dtype="torch.float32", device=device, shape=(2,), stride=(1,))
        for i, device in enumerate(devices)
    )
    guard = Guard(positional=len(devices), keywords=(), tensors=tensors)
    return LoadRequest(nn.Identity(), guard, Settings(engine="cudagraphs"), None)


def test_an_input_on_the_cpu_is_refused_because_its_values_would_be_recorded() -> None:
    with pytest.raises(Infeasible, match=r"args\[1\] is on the cpu: a recording would go on using"):
        load(on("cuda:0", "cpu"))


class Watched(_Recording):
    """Notes when somebody replays while the recording is being made."""

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.inside = threading.Event()
        self.recording = self.mixed = False

    def _record(self, call: Call) -> None:
        self.recording = True
        self.inside.set()
        for _ in range(1000):
            torch.zeros(1).add_(1)
        self.recording = False

    def _replay(self, call: Call) -> None:
        self.mixed = self.mixed or self.recording


def test_nothing_is_replayed_while_the_recording_is_made() -> None:
    watched = Watched()
    maker = threading.Thread(target=watched.record, args=((), {}))
    maker.start()
    watched.inside.wait()
    watched.replay()
    maker.join()
    assert not watched.mixed
