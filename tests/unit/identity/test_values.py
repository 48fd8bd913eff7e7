"""Attributes count by what they are: equal ones are equal in every process, and no change goes unnoticed."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import operator
import pathlib
import random
import re
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from compilot.identity.model import model_fingerprint, read_model


class Point(NamedTuple):
    x: float
    y: float


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Grade(enum.IntEnum):
    ONE = 1


class Number(int):
    pass


@dataclasses.dataclass
class Options:
    gain: float
    parts: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    gain: float


class Slotted:
    __slots__ = ("_hidden", "empty")

    def __init__(self, hidden: float) -> None:
        self._hidden = hidden


class Plain:
    def __init__(self, value: Any) -> None:
        self._value = value

    def scaled(self, x: float) -> Any:
        return x * self._value

    def __call__(self, x: float) -> Any:
        return x * self._value


class Roomy(list[Any]):
    pass


def closure(by: float) -> Callable[[float], float]:
    return lambda x: x * by


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def deep(value: Any, levels: int = 40) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def selfish(value: float) -> list[Any]:
    found: list[Any] = [value]
    found.append({"me": found})
    return found


KEPT = [Plain(1.0), Plain(2.0)]  # alive, for weak references
# each makes the same thing twice from 0, and another from 1
KINDS: dict[str, Callable[[int], Any]] = {
    "number": lambda i: [1.0, 2.0][i],
    "sign of zero": lambda i: [0.0, -0.0][i],
    "not a number": lambda i: [float("nan"), 0.0][i],
    "bool": lambda i: [True, 1][i],
    "subclass of int": lambda i: [Number(1), 1][i],
    "enum": lambda i: [Colour.RED, Colour.BLUE][i],
    "enum of int": lambda i: [Grade.ONE, 1][i],
    "complex": lambda i: [1 + 2j, 1 - 2j][i],
    "large int": lambda i: 10**5000 + i,
    "text": lambda i: ["a", "b"][i],
    "surrogate": lambda i: ["\ud800", "\ud801"][i],
    "bytes": lambda i: [b"a", bytearray(b"a")][i],
    "list": lambda i: [1, [2, i]],
    "tuple or list": lambda i: [(1, 2), [1, 2]][i],
    "subclass of list": lambda i: [Roomy([1]), [1]][i],
    "dict": lambda i: {"a": {"b": i}},
    "keys": lambda i: {i: "a"},
    "order of a dict": lambda i: [{"a": 1, "b": 2}, {"b": 2, "a": 1}][i],
    "ordered dict": lambda i: collections.OrderedDict(a=i),
    "default dict": lambda i: collections.defaultdict([int, float][i], a=1),
    "counter": lambda i: collections.Counter("a" * (i + 1)),
    "set": lambda i: {"a", "b", ("c", i)},
    "frozenset": lambda i: frozenset({"x", f"y{i}"}),
    "deque": lambda i: collections.deque([1, i]),
    "length of a deque": lambda i: collections.deque([1], maxlen=[3, 4][i]),
    "range": lambda i: range(3 + i),
    "slice": lambda i: slice(1, 2 + i),
    "namespace": lambda i: types.SimpleNamespace(gain=float(i)),
    "tensor in a namespace": lambda i: types.SimpleNamespace(t=torch.tensor([1.0, i])),
    "dataclass": lambda i: Options(1.0, [i]),
    "frozen dataclass": lambda i: Fixed(float(i)),
    "named tuple": lambda i: Point(1.0, i),
    "slots": lambda i: Slotted(float(i)),
    "private attribute": lambda i: Plain(float(i)),
    "class of an object": lambda i: [Plain(1.0), Options(1.0)][i],
    "method": lambda i: Plain(float(i)).scaled,
    "callable object": lambda i: Plain(float(i)),
    "partial": lambda i: functools.partial(torch.mul, other=float(i)),
    "positional partial": lambda i: functools.partial(torch.add, float(i)),
    "function of a partial": lambda i: functools.partial([torch.mul, torch.add][i], other=1.0),
    "function": lambda i: [torch.relu, torch.tanh][i],
    "lambda": lambda i: [lambda x: x + 1, lambda x: x + 2][i],
    "closure": lambda i: closure(float(i)),
    "cached function": lambda i: functools.cache([lambda x: x + 1, lambda x: x + 2][i]),
    "method of a list": lambda i: [i].append,
    "operator": lambda i: operator.itemgetter(i),
    "class": lambda i: [Plain, Options][i],
    "tensor": lambda i: torch.tensor([1.0, float(i)]),
    "dtype of a tensor": lambda i: torch.ones(2, dtype=[torch.int32, torch.float32][i]),
    "shape of a tensor": lambda i: torch.ones([(2, 3), (3, 2)][i]),
    "last of a large tensor": lambda i: torch.cat([torch.zeros(100_000), torch.tensor([float(i)])]),
    "strided tensor": lambda i: torch.arange(6.0).reshape(2, 3).t() + i,
    "sparse tensor": lambda i: torch.eye(3).mul(i + 1).to_sparse(),
    "bfloat16": lambda i: torch.tensor([1.0, float(i)], dtype=torch.bfloat16),
    "array": lambda i: np.array([1.0, i]),
    "dtype of an array": lambda i: np.ones(2, dtype=["f4", "f8"][i]),
    "array of objects": lambda i: np.array([None, {"a": i}], dtype=object),
    "numpy number": lambda i: [np.float32(1), np.float64(1)][i],
    "numpy random": lambda i: np.random.default_rng(i),
    "random": lambda i: random.Random(i),
    "torch generator": seeded,
    "pattern": lambda i: re.compile("a" * (i + 1)),
    "fraction": lambda i: fractions.Fraction(1, i + 2),
    "decimal": lambda i: decimal.Decimal(["1.0", "1.00"][i]),
    "date": lambda i: datetime.date(2026, 1, i + 1),
    "path": lambda i: pathlib.PurePosixPath(f"data/{i}.bin"),
    "array of numbers": lambda i: array.array("d", [1.0, i]),
    "dtype": lambda i: [torch.float32, torch.float64][i],
    "device": lambda i: torch.device(["cpu", "meta"][i]),
    "size": lambda i: torch.Size([1, i]),
    "memory format": lambda i: [torch.contiguous_format, torch.channels_last][i],
    "weak reference": lambda i: weakref.ref(KEPT[i]),
    "deep": lambda i: deep(i),
    "holds itself": lambda i: selfish(float(i)),
    "hidden module": lambda i: [nn.Dropout(0.1 * (i + 1))],
    "weights of a hidden module": lambda i: [nn.Linear(1, 1).requires_grad_(False).apply(functools.partial(fill, i))],
    "exception": lambda i: ValueError(i),
    "mapping proxy": lambda i: types.MappingProxyType({"a": i}),
    "memory": lambda i: memoryview(bytes([1, i])),
}  # fmt: skip


def fill(value: float, module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.fill_(value)


def holding(value: Any) -> nn.Module:
    model = nn.Linear(2, 2)
    model.table = value
    return model


def identity(value: Any) -> tuple[str, str]:
    found = model_fingerprint(holding(value))
    return found.code_sha256, found.structure_sha256


@pytest.mark.parametrize("kind", KINDS)
def test_equal_values_are_equal_and_a_changed_one_is_noticed(kind: str) -> None:
    make = KINDS[kind]
    assert identity(make(0)) == identity(make(0))
    assert identity(make(0)) != identity(make(1))
    assert read_model(holding(make(0))).reader.uncovered == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrap", [lambda v: types.SimpleNamespace(_a=[v]), lambda v: {"a": (v,)}, lambda v: Options(1, v)]
)
def test_a_change_inside_of_something_else_is_noticed(kind: str, wrap: Callable[[Any], Any]) -> None:
    make = KINDS[kind]
    assert identity(wrap(make(0))) == identity(wrap(make(0)))
    assert identity(wrap(make(0))) != identity(wrap(make(1)))


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
KEYS = st.integers() | st.text(max_size=5) | st.booleans()
NESTED = st.recursive(
    PLAIN,
    lambda part: (
        st.lists(part, max_size=4)
        | st.tuples(part, part)
        | st.dictionaries(KEYS, part, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | part.map(lambda value: types.SimpleNamespace(a=value))
        | part.map(lambda value: Plain(value))
        | part.map(lambda value: Options(0.0, [value]))
    ),
    max_leaves=12,
)


def exact(value: Any) -> Any:
    """What makes two values the same, as a text that Python's own words are used for."""
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(exact, value)]
    if isinstance(value, dict):
        return ["dict", *([exact(key), exact(part)] for key, part in value.items())]
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(map(repr, value))]
    if isinstance(value, types.SimpleNamespace | Plain | Options):
        return [type(value).__name__, exact(vars(value))]
    return "nan" if value != value else [type(value).__name__, repr(value)]


@settings(deadline=None, max_examples=300, derandomize=True)
@given(NESTED, NESTED)
def test_two_values_have_one_identity_only_when_they_are_the_same(one: Any, two: Any) -> None:
    same = exact(one) == exact(two)
    if "nan" in repr(exact([one, two])):  # NaN has many bit patterns: those of one value must agree with themselves
        assert identity(one) == identity(one)
    else:
        assert (identity(one) == identity(two)) is same


@settings(deadline=None, max_examples=200, derandomize=True)
@given(NESTED)
def test_a_copy_by_pickle_is_the_same(value: Any) -> None:
    assert identity(cloudpickle.loads(cloudpickle.dumps(value))) == identity(value)


CHILD = """
import json, sys
sys.path.insert(0, {folder!r})
import test_values as here
print(json.dumps({{kind: here.identity(make(0)) for kind, make in here.KINDS.items()}}))
"""


def test_other_processes_with_other_hash_seeds_agree() -> None:
    here = {kind: [*identity(make(0))] for kind, make in KINDS.items()}
    script = CHILD.format(folder=str(Path(__file__).parent))
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
        assert json.loads(run.stdout) == here


def test_weights_and_submodules_count_by_name_wherever_they_are_held() -> None:
    def make(bias: float, held: str) -> nn.Module:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        nn.init.constant_(model[0].bias, bias)
        model.held = [model[0].bias, model[1], model[0].weight.t()] if held == "a" else [model[1].bias, model[1]]
        model.me = weakref.ref(model)
        return model

    assert model_fingerprint(make(1.0, "a")) == model_fingerprint(make(2.0, "a"))
    assert model_fingerprint(make(1.0, "a")) != model_fingerprint(make(1.0, "b"))


def test_a_moved_folder_is_the_same_model() -> None:
    assert identity(pathlib.Path("/one/data.bin")) == identity(pathlib.Path("/two/data.bin"))
    assert identity(pathlib.Path("/one/data.bin")) != identity(pathlib.Path("/one/other.bin"))


def test_an_attribute_that_changed_is_named_with_its_values() -> None:
    class Net(nn.Module):
        def __init__(self, alpha: float, name: str) -> None:
            super().__init__()
            self.alpha, self.name = alpha, name

    one, two = model_fingerprint(Net(1.0, "secret")), model_fingerprint(Net(2.0, "other"))
    assert one.attributes["alpha"] == "1.0"
    assert two.attributes["alpha"] == "2.0"
    assert "secret" not in repr(one.attributes)
    assert one.attributes["name"] != two.attributes["name"]


class Config:
    kind: str | None = None

    def __init__(self, kind: str | None, token: str) -> None:
        self.kind, self.token, self.sizes = kind, token, [1]


def test_a_setting_that_changed_is_named_in_a_librarys_module_too() -> None:
    def found(kind: str | None, token: str = "secret") -> dict[str, str]:
        model = nn.Sequential(nn.Linear(1, 1))
        model.config = model[0].config = Config(kind, token)  # type: ignore[assignment]
        return model_fingerprint(model).attributes

    assert found(None)["config.kind"] == "None"
    assert found("regression")["config.kind"] == "'regression'"
    assert "secret" not in repr(found(None))
    assert "hunter2" not in repr(found("hunter2"))  # a word has no digits
    assert found(None)["config"].startswith("Config ")
    assert not [path for path in found(None) if path.startswith("0.")]  # the same one is named once
