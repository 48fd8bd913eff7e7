"""What nobody can read is named with its place; what can be read, or decides nothing, is not."""

from __future__ import annotations

import ctypes
import io
import itertools
import logging
import socket
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot.identity.model import model_fingerprint
from compilot.identity.uncovered import Uncovered, everywhere, uncovered

LIBRARY = ctypes.CDLL(None)


def held(one: Uncovered) -> Any:
    """What is there now, as somebody who watches it would look."""
    if isinstance(one.owner, dict | list | tuple | types.MappingProxyType):
        return one.owner[one.key]
    return getattr(one.owner, one.key)


def numbers() -> Iterator[int]:
    yield 1


class Guarded:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("not for you")


OPAQUE: dict[str, Callable[[], Any]] = {
    "generator": numbers,
    "iterator": lambda: iter([1, 2]),
    "counter": itertools.count,
    "open file": lambda: io.TextIOWrapper(io.BytesIO(b"lines")),
    "C library": lambda: ctypes.CDLL(None),
    "C pointer": lambda: ctypes.pointer(ctypes.c_int(3)),
    "thread's own": threading.local,
    "thread": lambda: threading.Thread(target=print),
    "connection": socket.socket,
    "object that refuses": Guarded,
}


@pytest.mark.parametrize("kind", OPAQUE)
def test_what_cannot_be_read_is_named_with_its_place(kind: str) -> None:
    value = OPAQUE[kind]()
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model[1].table = types.SimpleNamespace(inner=[1, {"k": value}])
    [found] = uncovered(model)
    assert found.path == "1.table.inner[1]['k']"
    assert found.value is value
    assert held(found) is value
    assert found.why.startswith("it")
    model_fingerprint(model)  # and it is no trouble
    if kind == "connection":
        value.close()


def test_the_fingerprint_does_not_depend_on_what_cannot_be_read() -> None:
    def make() -> nn.Module:
        model = nn.Linear(2, 2)
        model.lines = io.BytesIO(b"lines")
        model.steps = itertools.count()
        next(model.steps)
        return model

    assert model_fingerprint(make()) == model_fingerprint(make())


def test_what_code_reads_is_looked_at_as_well() -> None:
    steps = itertools.count()

    class Net(nn.Module):
        places = iter([1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * LIBRARY.abs(-3) + next(steps)

    found = {one.path: one for one in uncovered(Net())}
    assert set(found) == {"Net.places", "steps of Net.forward", "global LIBRARY"}
    assert held(found["global LIBRARY"]) is LIBRARY
    assert held(found["steps of Net.forward"]) is steps
    assert held(found["Net.places"]) is Net.places


def test_values_that_are_nested_without_end_are_named_not_taken_for_equal() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    model = nn.Linear(2, 2)
    model.table = value
    [found] = uncovered(model)
    assert "too deeply" in found.why
    assert found.path.startswith("table[0]")
    assert held(found) is found.value


def test_what_decides_nothing_is_not_named_and_does_not_count() -> None:
    def make(name: str) -> nn.Module:
        model = nn.Linear(2, 2)
        model.log = logging.getLogger(name)
        model.lock, model.ready = threading.RLock(), threading.Event()
        if name == "two":
            model.ready.set()
        return model

    assert uncovered(make("one")) == ()
    assert model_fingerprint(make("one")) == model_fingerprint(make("two"))


def test_a_thing_that_is_held_twice_is_named_once() -> None:
    model = nn.Linear(2, 2)
    model.a = model.b = itertools.count()
    assert [one.path for one in uncovered(model)] == ["a"]


def test_each_place_of_a_thing_is_known_once() -> None:
    steps = itertools.count()

    class Net(nn.Module):
        def first(self) -> int:
            return next(steps) + LIBRARY.abs(-3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.first() * LIBRARY.abs(-2)

    model = Net()
    model.held = {"a": steps, "b": [steps, steps]}
    found = everywhere(model)
    places = ["global LIBRARY", "held['a']", "held['b'][0]", "held['b'][1]", "steps of Net.first"]
    assert sorted(one.path for one in found) == places
    assert all(held(one) is one.value for one in found)
    assert len(uncovered(model)) == 2


def test_nothing_of_an_ordinary_model_is_left_out(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 8)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.GELU(), nn.LSTM(2, 2), layer)
    nn.utils.parametrizations.weight_norm(model[0])
    model.register_forward_hook(lambda *_: None)
    assert uncovered(model) == ()
