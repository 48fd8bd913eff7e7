"""Row 36: weights updated after they were baked in. Never stale numbers; said once; refresh() bakes in the new ones."""

from __future__ import annotations

import collections
import copy
import gc
import warnings

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from compilot._torch import dicts
from compilot.errors import CompilotWarning, FallbackWarning
from compilot.runtime import weight_watch
from compilot.runtime.gate import WEIGHTS_CHANGED
from compilot.runtime.weight_watch import INSPECT_EVERY, SMALL_EVERY

X = torch.linspace(-2.0, 3.0, 6).reshape(2, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


@pytest.fixture
def pair(engine, make_fast):
    """A model and its frozen fast form, both used a few times."""
    engine.frozen = True
    torch.manual_seed(0)
    model = Net().eval()
    fast = make_fast(model, X)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
    assert fast.frozen_weights
    assert fast.stats().fast == 3
    return model, fast


def load_state_dict(model: Net) -> None:
    model.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in model.state_dict().items()})


def load_assigning(model: Net) -> None:
    model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True)


def optimizer_step(model: Net) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with torch.enable_grad():
        model(X).sum().backward()
    optimizer.step()


def optimizer_step_of_one_layer(model: Net) -> None:
    optimizer = torch.optim.SGD(model.first.parameters(), lr=1.0)
    with torch.enable_grad():
        model(X).sum().backward()
    optimizer.step()


def there_and_back(model: Net) -> None:
    model.bfloat16().float()


def swap_module(model: Net) -> None:
    model.first = nn.Sequential(model.first, nn.Linear(3, 3))


def swap_parameter(model: Net) -> None:
    model.first.weight = nn.Parameter(torch.ones(3, 3))


def swap_buffer(model: Net) -> None:
    model.norm.running_mean = torch.ones(3)


def to_double(model: Net) -> None:
    model.double()


AT_ONCE = [
    load_state_dict,
    load_assigning,
    optimizer_step,
    optimizer_step_of_one_layer,
    there_and_back,
    swap_module,
    swap_parameter,
    swap_buffer,
]


@pytest.mark.parametrize("change", AT_ONCE)
@pytest.mark.parametrize("through", ["model", "fast"])
def test_row_36_the_next_call_is_right_and_it_is_said_once(pair, change, through):
    model, fast = pair
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        change(model if through == "model" else fast)
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
    said = [w for w in caught if "gradients enabled" not in str(w.message)]  # a training step through the fast model
    assert [w.category for w in said] == [FallbackWarning]
    assert "refresh()" in str(said[0].message)
    assert fast.stats().fallbacks[WEIGHTS_CHANGED] == 3
    fast.refresh()
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 6


def test_row_36_parameters_that_are_given_for_one_call(pair):
    model, fast = pair
    given = {name: p.detach() + 1 for name, p in model.named_parameters()}
    with torch.no_grad(), pytest.warns(CompilotWarning, match="weights changed"):
        answer = torch.func.functional_call(fast, given, (X,))
    with torch.no_grad():
        assert torch.equal(answer, torch.func.functional_call(model, given, (X,)))
        assert torch.equal(fast(X), model(X))


def test_row_36_a_parameter_that_is_gone_is_eagers_own_error(pair):
    model, fast = pair
    del model.last.bias
    with torch.no_grad(), pytest.warns(CompilotWarning, match="weights changed"), pytest.raises(AttributeError):
        fast(X)


def test_row_36_conversion_to_another_dtype(pair):
    model, fast = pair
    to_double(model)
    # float32 into float64 weights: eager's own error, not an old answer
    with torch.no_grad(), pytest.warns(CompilotWarning), pytest.raises(RuntimeError):
        fast(X)
    with torch.no_grad():
        assert torch.equal(fast(X.double()), model(X.double()))


def in_place(model: Net) -> None:
    model.first.weight.mul_(2)


def through_data(model: Net) -> None:
    model.first.weight.data.mul_(2)


def buffer_in_place(model: Net) -> None:
    model.norm.running_mean.add_(1)


def submodule_to_train(model: Net) -> None:
    model.norm.train()


def submodule_converted(model: Net) -> None:
    model.first.bfloat16().float()


TURNS = 5  # looks after which each of the six parameters and three buffers was seen, two at a time
IN_TURN = SMALL_EVERY * TURNS  # calls, of a small model


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        (in_place, IN_TURN),
        (through_data, IN_TURN),
        (buffer_in_place, IN_TURN),
        (submodule_converted, IN_TURN),
        (submodule_to_train, INSPECT_EVERY),
    ],
)
def test_row_36_an_update_of_one_part_is_found_when_its_turn_comes(pair, change, calls):
    model, fast = pair
    with torch.no_grad():
        change(model)
    with torch.no_grad(), pytest.warns(CompilotWarning, match="weights changed"):
        _ = [fast(X) for _ in range(calls)]
    assert fast.stats().fallbacks[WEIGHTS_CHANGED] >= 1
    with torch.no_grad():
        assert torch.equal(fast(X), model(X))


@pytest.mark.parametrize("layer", [0, 13, 39])
def test_a_merge_into_one_of_forty_layers_is_found_within_forty_calls(engine, make_fast, layer):
    engine.frozen = True
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(40)]).eval()
    fast = make_fast(model, X)
    with torch.no_grad():
        fast(X)
        model[layer].weight.data += torch.randn(3, 1) @ torch.randn(1, 3)  # as adapters are merged
        with pytest.warns(CompilotWarning, match="weights changed"):
            answers = [fast(X) for _ in range(40)]
        assert torch.equal(answers[-1], model(X))


@pytest.mark.parametrize("count", [1, 63, 64, 512, 513])  # a turn each eighth call, in each, and too many for turns
def test_no_weight_waits_longer_than_256_calls(engine, make_fast, count):
    engine.frozen = True
    model = nn.Module()
    model.forward = lambda x: x + model.first
    for i in range(count):
        model.register_buffer("first" if i == 0 else f"other{i}", torch.zeros(1))
    fast = make_fast(model.eval(), X)
    with torch.no_grad():
        _ = [fast(X) for _ in range(3)]  # its turn has just been
        model.first.data.fill_(1)
        with pytest.warns(CompilotWarning, match="weights changed"):
            _ = [fast(X) for _ in range(INSPECT_EVERY)]
        assert torch.equal(fast(X), X + 1)


def test_calls_that_take_turns_between_variants_see_an_update_too(pair):
    model, fast = pair

    def both() -> torch.Tensor:
        with torch.inference_mode():
            fast(X)
        with torch.no_grad():
            return fast(X)

    both()
    before = fast.stats().compiles
    with torch.no_grad():
        model.first.weight.mul_(2)
    with pytest.warns(CompilotWarning, match="weights changed"):
        answers = [both() for _ in range(TURNS)]
    with torch.no_grad():
        assert torch.equal(answers[-1], model(X))
    assert fast.stats().compiles == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8, torch.complex64, torch.bool])
@pytest.mark.parametrize("size", [0, 1, 3, 40])
def test_every_kind_of_weight_has_its_turn(dtype, size):
    model = nn.Module()
    model.register_buffer("one", torch.zeros(size, dtype=dtype))
    model.register_buffer("conjugate", torch.zeros(3, dtype=torch.complex64).conj())
    watch = weight_watch.WeightWatch(model, Net().train)
    assert not any(watch.glance() for _ in range(4))
    model.one.data.fill_(1)
    assert any(watch.glance() for _ in range(4)) is bool(size)
    assert watch.changed() is bool(size)


def test_a_full_look_sees_values_that_have_no_plain_memory():
    model = nn.Module()
    model.register_buffer("conjugate", torch.zeros(3, dtype=torch.complex64).conj())
    watch = weight_watch.WeightWatch(model, Net().train)
    assert not watch.changed()
    model.conjugate.data.fill_(1)
    assert watch.changed()


def a_flag(model: Net) -> None:
    model.norm.momentum = 0.5


def an_entry_behind_torchs_back(model: Net) -> None:
    model.first._parameters["weight"] = nn.Parameter(torch.ones(3, 3))


def inside_of_a_list(model: Net) -> None:
    model.last.scales.append(torch.ones(3))


def a_new_attribute(model: Net) -> None:
    model.first.scale = 2.0


QUIET = [a_flag, an_entry_behind_torchs_back, submodule_to_train, inside_of_a_list, a_new_attribute]


@pytest.mark.parametrize("change", QUIET)
@pytest.mark.parametrize("writes", [dicts.writes, lambda _: None], ids=["numbers of writes", "value by value"])
def test_what_torch_does_not_tell_of_is_seen_with_and_without_numbers_of_writes(monkeypatch, change, writes):
    monkeypatch.setattr(dicts, "writes", writes)
    model = Net().eval()
    model.last.scales = [torch.ones(3)]
    watch = weight_watch.WeightWatch(model, Net().train)
    for _ in range(2):
        assert not watch.changed_elsewhere()
        assert not watch.changed()
        model.first.in_features = int("3")  # a write that changes nothing
        model.eval()
    change(model)
    assert watch.changed_elsewhere()
    assert watch.changed()
    assert watch.changed_elsewhere()


def test_dicts_with_an_order_of_their_own_are_compared_value_by_value():
    assert dicts.writes([{}, collections.OrderedDict()]) is None
    one: dict[str, int] = {}
    numbers = dicts.writes([one])
    assert numbers is not None
    before = numbers()
    assert numbers() == before
    one["a"] = 1
    assert numbers() != before


def test_nothing_changed_means_nothing_is_said(pair):
    model, fast = pair
    with torch.no_grad():
        for _ in range(2 * INSPECT_EVERY + 5):
            fast(X)
        model.norm.running_mean = model.norm.running_mean
    other = Net()
    torch.optim.SGD(other.parameters(), lr=1.0).step()
    with torch.no_grad():
        fast(X)
    assert fast.stats().fast_share == 1.0


def test_nan_weights_equal_themselves(engine, make_fast):
    engine.frozen = True
    model = Net().eval()
    with torch.no_grad():
        model.first.weight[0, 0] = float("nan")
        fast = make_fast(model, X)
        for _ in range(INSPECT_EVERY + 5):
            fast(X)
    assert fast.stats().fast_share == 1.0


def test_a_plan_that_is_not_frozen_follows_the_weights(make_fast):
    model = Net().eval()
    fast = make_fast(model, X)
    with torch.no_grad():
        fast(X)
        load_state_dict(model)
        assert torch.equal(fast(X), model(X))
    assert fast.stats().fast_share == 1.0


def test_a_variant_prepared_after_a_change_does_not_mix_old_and_new(pair):
    model, fast = pair
    with torch.no_grad():
        load_state_dict(model)
    with torch.inference_mode(), pytest.warns(CompilotWarning):
        assert torch.equal(fast(X), model(X))
    with torch.no_grad():
        assert torch.equal(fast(X), model(X))


def test_a_variant_prepared_after_a_change_of_one_part_sees_it(pair):
    model, fast = pair
    with torch.no_grad():
        in_place(model)
    with torch.inference_mode(), pytest.warns(CompilotWarning):
        answer = fast(X)
    with torch.no_grad():
        assert torch.equal(answer, model(X))


def test_a_model_without_parameters_can_be_frozen(engine, make_fast):
    engine.frozen = True
    fast = make_fast(nn.ReLU().eval(), X)
    with torch.no_grad():
        for _ in range(3):
            fast(X)
    assert fast.stats().fast_share == 1.0


def test_torchs_global_hooks_go_when_nobody_watches(engine, make_fast):
    engine.frozen = True
    fast = make_fast(Net().eval(), X)
    with torch.no_grad():
        fast(X)
    assert weight_watch._handles
    del fast
    gc.collect()
    copy.deepcopy(Net()).extra = nn.Linear(1, 1)
    assert not weight_watch._handles
    assert not torch_module._global_module_registration_hooks
