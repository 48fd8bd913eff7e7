"""A model that computes with attributes of every kind, ways to replace each of them, and an engine that follows none.

The engine answers with what the model said when it was loaded: an engine that ran the user's own code, or a copy of the
model over the same classes, could never show an old number.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from compilot.engines.protocol import Baked, Follows, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits

X = torch.linspace(0.5, 2.0, 6).reshape(2, 3)


class Constant:
    """Answers every call as the model did for X when it was loaded."""

    TRAITS = EngineTraits(version="1")

    def __init__(self, *, frozen: bool = True, baked: Baked = Baked.AT_LOAD) -> None:
        self.frozen = frozen
        self.baked = baked

    def load(self, request: LoadRequest) -> Loaded:
        with torch.no_grad():
            answer = request.model(X)
        return Loaded(
            call=lambda x: answer.clone(),
            prepare=(lambda args, kwargs: answer.clone()) if self.baked is Baked.AT_PREPARE else None,
            frozen_weights=self.frozen,
            needs_model=False,
            baked=self.baked,
            follows=Follows.NOTHING,
        )


class Slots:
    __slots__ = ("__hidden", "factor")

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.__hidden = factor

    @property
    def hidden(self) -> float:
        return self.__hidden

    @hidden.setter
    def hidden(self, value: float) -> None:
        self.__hidden = value


class Holder:
    kind_factor: ClassVar[float] = 1.0

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor * self.kind_factor


@dataclasses.dataclass
class Record:
    factor: float
    table: torch.Tensor


class Numbers(list[float]):
    """A list with something of its own."""

    extra: float = 1.0


class Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Fivefold(Double):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 5


def times(factor: float, x: torch.Tensor, *, plus: float = 0.0) -> torch.Tensor:
    return x * factor + plus


def scaler(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    table = [factor]

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * table[0]

    return scale


def make_model() -> nn.Module:
    """A model of a class of its own, so that the class can be changed."""

    class Base(nn.Module):
        def shift(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

        @staticmethod
        def still(x: torch.Tensor) -> torch.Tensor:
            return x * 1.5

        @property
        def gain(self) -> float:
            return 1.25

    class Model(Base):
        offset = 0.5

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.sequence = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), Double())
            self.twice = Double()
            for parameter in self.parameters():
                nn.init.uniform_(parameter, 0.1, 0.2)
            self.activation = functional.relu
            self.partial = functools.partial(times, 2.0, plus=0.1)
            self.array = np.ones(3, dtype=np.float32)
            self.objects = np.array([1.5, None], dtype=object)
            self.space = types.SimpleNamespace(factor=1.5, table=torch.ones(3))
            self.record = Record(1.1, torch.ones(3))
            self.slots = Slots(1.2)
            self.holder = Holder(1.3)
            self.method = Holder(1.4).times
            self.numbers = [1.0, {"deep": [2.0]}]
            self.own_list = Numbers([1.1])
            self.chosen = {1, 2}
            self.queue = collections.deque([1.5])
            self.bytes = bytearray(b"\x02")
            self.words = array.array("f", [1.5])
            self.number = 1.0
            self.closure = scaler(1.5)
            self.hidden = [nn.Linear(3, 3, bias=False)]
            nn.init.ones_(self.hidden[0].weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.partial(self.sequence(self.activation(self.linear(x))))
            x = x * torch.from_numpy(self.array) * self.objects[0] * self.space.factor + self.space.table
            x = x * self.record.factor * self.record.table * self.slots.factor * self.slots.hidden
            x = self.holder.times(self.method(x)) * self.numbers[0] * self.numbers[1]["deep"][0]
            x = x * self.own_list[0] * self.own_list.extra * len(self.chosen) * self.queue[0]
            x = self.closure(x) * self.bytes[0] * self.words[0] * self.number
            return self.shift(self.twice(self.still(x))) * self.gain + self.offset + self.hidden[0](x)

    torch.manual_seed(0)
    return Model().eval()


# ---- before the next answer ------------------------------------------------------------------------------------------


def own_forward(model: Any) -> None:
    model.forward = lambda x: x * 7


def class_forward(model: Any) -> None:
    type(model).forward = lambda self, x: x * 8


def other_class(model: Any) -> None:
    model.__class__ = type("Other", (type(model),), {"forward": lambda self, x: x * 9})


def other_class_with_the_same_forward(model: Any) -> None:
    model.__class__ = type("Other", (type(model),), {"shift": lambda self, x: x + 9})


AT_ONCE = [own_forward, class_forward, other_class, other_class_with_the_same_forward]

# ---- within 256 calls ------------------------------------------------------------------------------------------------


def activation(model: Any) -> None:
    model.activation = torch.neg


def submodules_class(model: Any) -> None:
    model.twice.__class__ = Fivefold


def submodules_forward(model: Any) -> None:
    model.twice.forward = lambda x: x * 11


def layer_deleted(model: Any) -> None:
    del model.sequence[-1]


def layer_added(model: Any) -> None:
    model.sequence.append(Double())


def submodules_weights(model: Any) -> None:
    model.linear.load_state_dict({key: value + 1 for key, value in model.linear.state_dict().items()})


def method_of_the_class(model: Any) -> None:
    type(model).shift = lambda self, x: x + 100


def method_of_a_base(model: Any) -> None:
    type(model).__mro__[1].shift = lambda self, x: x + 100


def static_method(model: Any) -> None:
    type(model).still = staticmethod(lambda x: x * 15)


def property_of_the_class(model: Any) -> None:
    type(model).gain = property(lambda self: 12.0)


def value_of_the_class(model: Any) -> None:
    type(model).offset = 9.0


def method_of_the_instance(model: Any) -> None:
    model.shift = lambda x: x + 50


def code_of_a_method(model: Any) -> None:
    type(model).shift.__code__ = (lambda self, x: x + 70).__code__


def method_of_an_objects_class(model: Any) -> None:
    model.holder.__class__ = type("Other", (Holder,), {"times": lambda self, x: x * 30})


def partial_replaced(model: Any) -> None:
    model.partial = functools.partial(times, 3.0)


def partials_keyword(model: Any) -> None:
    model.partial.keywords["plus"] = 5.0


def array_replaced(model: Any) -> None:
    model.array = np.full(3, 4, dtype=np.float32)


def array_written(model: Any) -> None:
    model.array[1] = 3


def array_of_objects_written(model: Any) -> None:
    model.objects[0] = 9.0


def number_in_a_namespace(model: Any) -> None:
    model.space.factor = 9.0


def tensor_in_a_namespace(model: Any) -> None:
    model.space.table = torch.full((3,), 5.0)


def tensor_in_a_namespace_written(model: Any) -> None:
    model.space.table.add_(7)


def number_in_a_record(model: Any) -> None:
    model.record.factor = 8.0


def tensor_in_a_record_written(model: Any) -> None:
    model.record.table.mul_(7)


def slot(model: Any) -> None:
    model.slots.factor = 8.0


def private_slot(model: Any) -> None:
    model.slots.hidden = 8.0


def number_in_an_object(model: Any) -> None:
    model.holder.factor = 8.0


def new_attribute_of_an_object(model: Any) -> None:
    model.holder.kind_factor = 8.0


def bound_method_replaced(model: Any) -> None:
    model.method = Holder(9.0).times


def object_of_a_bound_method(model: Any) -> None:
    model.method.__self__.factor = 9.0


def item_of_a_list(model: Any) -> None:
    model.numbers[0] = 5.0


def item_deep_in_a_list(model: Any) -> None:
    model.numbers[1]["deep"][0] = 5.0


def item_of_a_list_of_its_own_kind(model: Any) -> None:
    model.own_list[0] = 5.0


def attribute_of_a_list_of_its_own_kind(model: Any) -> None:
    model.own_list.extra = 5.0


def item_of_a_set(model: Any) -> None:
    model.chosen.add(3)


def item_of_a_deque(model: Any) -> None:
    model.queue[0] = 5.0


def bytes_written(model: Any) -> None:
    model.bytes[0] = 7


def words_written(model: Any) -> None:
    model.words[0] = 7.0


def number(model: Any) -> None:
    model.number = 3.0


def closure(model: Any) -> None:
    model.closure.__closure__[0].cell_contents[0] = 9.0


def hidden_modules_weight(model: Any) -> None:
    model.hidden[0].weight.data.add_(1)


def hidden_module_replaced(model: Any) -> None:
    model.hidden[0] = Double()


WITHIN_THE_WINDOW = [
    activation,
    submodules_class,
    submodules_forward,
    layer_deleted,
    layer_added,
    submodules_weights,
    method_of_the_class,
    method_of_a_base,
    static_method,
    property_of_the_class,
    value_of_the_class,
    method_of_the_instance,
    code_of_a_method,
    method_of_an_objects_class,
    partial_replaced,
    partials_keyword,
    array_replaced,
    array_written,
    array_of_objects_written,
    number_in_a_namespace,
    tensor_in_a_namespace,
    tensor_in_a_namespace_written,
    number_in_a_record,
    tensor_in_a_record_written,
    slot,
    private_slot,
    number_in_an_object,
    new_attribute_of_an_object,
    bound_method_replaced,
    object_of_a_bound_method,
    item_of_a_list,
    item_deep_in_a_list,
    item_of_a_list_of_its_own_kind,
    attribute_of_a_list_of_its_own_kind,
    item_of_a_set,
    item_of_a_deque,
    bytes_written,
    words_written,
    number,
    closure,
    hidden_modules_weight,
    hidden_module_replaced,
]
WEIGHTS_ONLY = [
    submodules_weights,
    tensor_in_a_namespace_written,
    tensor_in_a_record_written,
    hidden_modules_weight,
]  # values of tensors: of no concern to an engine that reads them at each call
