"""A tiny target whose module also registers torch.compile backends that misbehave in every way a compiler can."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def model():
    torch.manual_seed(0)
    return Tiny().eval(), (torch.randn(4, 16),)


class Dying(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.abort()


def dying():
    return Dying().eval(), (torch.randn(4, 16),)


def backend(name: str):
    """Register a backend unless this process has it already, or has no dynamo: eager's worker saves the import."""

    def decorate(fn):
        if "torch._dynamo" in sys.modules and name not in torch._dynamo.list_backends(exclude_tags=None):
            torch._dynamo.register_backend(fn, name=name)
        return fn

    return decorate


@backend("faulty_aborts")
def aborts(gm, inputs):
    print("about to abort", file=sys.stderr, flush=True)
    os.abort()


@backend("faulty_segfaults")
def segfaults(gm, inputs):
    ctypes.string_at(0)


@backend("faulty_hangs")
def hangs(gm, inputs):
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["FAULTY_PID_FILE"]).write_text(str(grandchild.pid))
    time.sleep(600)


@backend("faulty_hogs")
def hogs(gm, inputs):
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20) * 64))
        time.sleep(0.02)


@backend("faulty_raises")
def raises(gm, inputs):
    raise NotImplementedError("no kernel for aten.relu on this planet")


@backend("faulty_wrong")
def wrong(gm, inputs):
    return lambda *args: [out + 0.05 for out in gm.forward(*args)]


@backend("faulty_chatty")
def chatty(gm, inputs):
    print('{"type": "Built", "id": 3}', flush=True)
    os.write(1, b"\x00\xff not json\n" * 100)
    return gm.forward


@backend("faulty_slow")
def slow(gm, inputs):
    def call(*args):
        time.sleep(0.005)
        return gm.forward(*args)

    return call


@backend("faulty_dies_later")
def dies_later(gm, inputs):
    def call(*args):
        if Path(os.environ["FAULTY_DIE_FILE"]).exists():
            os.abort()
        return gm.forward(*args)

    return call


@backend("faulty_exits")
def exits(gm, inputs):
    os._exit(7)
