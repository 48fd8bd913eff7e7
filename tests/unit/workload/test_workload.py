from typing import Any

import pytest
import torch
from torch import nn

from compilot import workload as stage
from compilot._tree import Call
from compilot.errors import InputError
from compilot.records import DynamicDim
from compilot.workload import Workload, parse_dynamic
from compilot.workload.dynamic import EVERY


class Doubler(nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


class Tokens(nn.Module):
    def forward(self, input_ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return input_ids + 1


def model() -> nn.Module:
    return Doubler().eval()


def test_a_bare_tensor_is_the_one_argument() -> None:
    x = torch.ones(2)
    assert Workload(model(), x).call == Call((x,), {})


def test_a_list_of_arguments_and_keywords() -> None:
    x = torch.ones(2)
    workload = Workload(model(), [x], {"scale": 3.0})
    assert workload.call == Call((x,), {"scale": 3.0})


def test_a_mapping_is_keywords_as_tokenizers_return_them() -> None:
    ids = torch.ones(1, 2, dtype=torch.long)
    assert Workload(Tokens().eval(), {"input_ids": ids}).call == Call((), {"input_ids": ids})


def test_several_examples_in_every_spelling() -> None:
    x = torch.ones(2)
    workload = Workload(model(), examples=[(x,), ((x,), {"scale": 1.0}), Call((x,), {}), x, {"x": x}])
    assert [len(call.args) for call in workload.examples] == [1, 1, 1, 1, 0]
    assert workload.examples[1].kwargs == {"scale": 1.0}


def test_inputs_made_from_a_seed_give_the_first_example() -> None:
    workload = Workload(model(), inputs=lambda seed: torch.full((2,), float(seed)), seed=7)
    assert workload.call.args[0].tolist() == [7.0, 7.0]
    assert workload.inputs(9).args[0].tolist() == [9.0, 9.0]


def test_without_a_function_a_seed_gives_a_variation_of_the_example() -> None:
    workload = Workload(model(), torch.randn(64))
    once, again, other = (workload.inputs(seed).args[0] for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: Workload(torch.relu, x), "wrap it in an nn.Module"),
        (lambda x: Workload(lambda v: v, x), "wrap it in an nn.Module"),
        (lambda x: Workload(Doubler, x), "pass an instance"),
        (lambda x: Workload(model(), "text"), "example inputs are a str"),
        (lambda x: Workload(model(), x, examples=[x]), "both args and examples"),
        (lambda x: Workload(model(), examples=[]), "at least one example"),
        (lambda x: Workload(model(), inputs=x), "function of a seed"),
        (lambda x: Workload(model()), "missing a required argument: 'x'"),
        (lambda x: Workload(model(), x, {"sclae": 1.0}), "sclae"),
        (lambda x: Workload(model(), x, dynamic={"y": {0: (1, 2)}}), "tensor inputs are: x"),
        (lambda x: Workload(model(), x, dynamic={"x": {3: (1, 2)}}), "dimension 3 does not exist"),
        (lambda x: Workload(model(), x, dynamic={"x": {0: (3, 9)}}), "size 2 at dimension 0"),
        (lambda x: Workload(model(), x, dynamic={"x": {0: 9}}), "smallest and largest"),
        (lambda x: Workload(model(), x, dynamic={"x": (1, 9)}), "must map dimensions to ranges"),
        (lambda x: Workload(model(), {1: x}), "keyword arguments need names"),
    ],
)
def test_mistakes_are_named(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make(torch.ones(2))


def test_a_compiled_model_is_refused() -> None:
    wrapped = torch.compile(model(), backend="eager")
    with pytest.raises(InputError, match=r"already wrapped by torch\.compile"):
        Workload(wrapped, torch.ones(2))


def test_examples_of_other_shapes_are_noted_unless_declared() -> None:
    examples = [torch.ones(2), torch.ones(3)]
    [note] = Workload(model(), examples=examples).notes
    assert "differ in shape" in note
    assert not Workload(model(), examples=examples, dynamic={"x": {0: (1, 9)}}).notes


def test_batch_sizes_widen_what_is_declared_and_reach_the_example() -> None:
    sizes = [DynamicDim(input=EVERY, dim=0, min=8, max=32, widens=True)]
    declared = Workload(nn.Linear(4, 2).eval(), torch.randn(3, 4), dynamic={"batch": (2, 64)}).with_dynamic(sizes)
    assert declared.dynamic == (DynamicDim(input="input", dim=0, min=2, max=64),)
    plain = Workload(nn.Linear(4, 2).eval(), torch.randn(48, 4)).with_dynamic(sizes)
    assert plain.dynamic == (DynamicDim(input="input", dim=0, min=8, max=48),)
    again = plain.with_dynamic([DynamicDim(input="input", dim=0, min=1, max=50)])  # said by the user: that counts
    assert again.dynamic == (DynamicDim(input="input", dim=0, min=1, max=50),)


def test_more_dynamic_dimensions_on_top() -> None:
    base = Workload(Tokens().eval(), torch.ones(2, 3), dynamic={"input_ids": {1: (1, 8)}})
    more = base.with_dynamic([parse_dynamic("input_ids:0=1..4"), parse_dynamic("input_ids:1=1..16")])
    assert [(d.dim, d.max) for d in more.dynamic] == [(0, 4), (1, 16)]
    assert more.ref.dynamic == more.dynamic
    assert [(d.dim, d.max) for d in base.dynamic] == [(1, 8)]
    assert more.model is base.model


def test_another_seed_makes_the_seeded_example_again() -> None:
    base = Workload(model(), inputs=lambda seed: torch.full((1,), float(seed)))
    assert base.replaced(seed=3).call.args[0].item() == 3.0
    fixed = Workload(model(), torch.ones(1))
    assert fixed.replaced(seed=3).call.args[0].item() == 1.0


def test_the_record_tells_how_it_is_run() -> None:
    ref = Workload(model(), torch.ones(2), seed=4, grad=True).ref
    assert (ref.label, ref.seed, ref.grad, ref.target) == ("Doubler", 4, True, None)


@pytest.mark.parametrize("text", ["x", "x:1", "x:1=3", "x:a=1..2", "x:1=1-2", ":1=1..2", "x:1=-1..2"])
def test_a_dynamic_option_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match=r"NAME:DIM=MIN\.\.MAX"):
        parse_dynamic(text)


def test_a_dynamic_option_with_a_nested_name() -> None:
    assert parse_dynamic("batch.image:-1=1..512") == DynamicDim(input="batch.image", dim=-1, min=1, max=512)


class Pictures(nn.Module):
    def forward(self, batch: dict[str, torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
        return batch["image"] * scale


def pictures(**more: Any) -> Workload:
    batch = {"image": torch.ones(2, 3, 4), "mask": torch.ones(2, 3), "table": torch.ones(7, 3)}
    return Workload(Pictures().eval(), (batch, torch.ones(1)), **more)


def places(workload: Workload) -> list[str]:
    return [f"{d.input}:{d.dim}={d.min}..{d.max}" for d in workload.dynamic]


def test_the_end_of_a_nested_name_will_do() -> None:
    assert places(pictures().with_dynamic([parse_dynamic("image:0=1..8")])) == ["batch.image:0=1..8"]
    assert places(pictures(dynamic={"image": {2: (1, 9)}})) == ["batch.image:2=1..9"]


def test_the_end_of_two_names_is_refused() -> None:
    pair = {"left": {"image": torch.ones(2)}, "right": {"image": torch.ones(2)}}
    base = Workload(Pictures().eval(), (pair, torch.ones(1)))
    with pytest.raises(InputError, match=r"'image' may be batch\.left\.image or batch\.right\.image; write the whole"):
        base.with_dynamic([parse_dynamic("image:0=1..8")])
    assert places(base.with_dynamic([parse_dynamic("left.image:0=1..8")])) == ["batch.left.image:0=1..8"]


def test_a_shorthand_is_every_input_with_the_first_ones_size() -> None:
    batch = ["batch.image:0=1..8", "batch.mask:0=1..8"]
    seq = ["batch.image:1=3..128", "batch.mask:1=3..128", "batch.table:1=3..128"]
    assert places(pictures().with_dynamic([parse_dynamic("batch=1..8")])) == batch
    assert places(pictures().with_dynamic([parse_dynamic("seq=3..128")])) == seq
    assert places(pictures(dynamic={"batch": (1, 8)})) == batch
    assert places(pictures(dynamic={"batch": (1, 8), "seq": (3, 128)})) == sorted(batch + seq)


def test_an_input_of_its_own_overrides_a_shorthand() -> None:
    dims = {"mask": {0: (1, 4)}, "batch": (1, 8)}
    assert places(pictures(dynamic=dims)) == ["batch.image:0=1..8", "batch.mask:0=1..4"]
    later = pictures(dynamic=dims).with_dynamic([parse_dynamic("batch=1..16")])
    assert places(later) == ["batch.image:0=1..16", "batch.mask:0=1..16"]


def test_an_input_called_as_a_shorthand_is_named_with_its_dimension() -> None:
    class Called(nn.Module):
        def forward(self, batch: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return batch + y

    given = (torch.ones(2), torch.ones(2))
    assert places(Workload(Called().eval(), given, dynamic={"batch": {0: (1, 8)}})) == ["batch:0=1..8"]
    assert parse_dynamic("batch:0=1..8") == DynamicDim(input="batch", dim=0, min=1, max=8)


def test_a_shorthand_that_means_no_input_or_has_no_range() -> None:
    with pytest.raises(InputError, match="no tensor input has a dimension 1"):
        Workload(model(), torch.ones(2), dynamic={"seq": (1, 8)})
    with pytest.raises(InputError, match=r"such as \(1, 8\)"):
        Workload(model(), torch.ones(2), dynamic={"batch": 8})  # type: ignore[dict-item]


def test_a_name_the_stage_does_not_have() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = stage.nonsense
