"""The proof that padding changes nothing: models that leak are refused with the reason, others are accepted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compilot.measure.padding import prove_padding
from compilot.measure.padding_engine import check_engine
from compilot.records import MaskRule, PaddedOutput, Padding, PaddingProof
from compilot.workload.workload import Workload

BATCH = {"x": {0: (1, 6)}}
LENGTH = {"x": {1: (2, 16)}}


class Net(nn.Module):
    """forward is given; layers by name."""

    def __init__(self, forward, **layers) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, layer in layers.items():
            self.add_module(name, layer())
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def over_time(self, x):
    return self.layer(x.transpose(1, 2)).transpose(1, 2)


LEAKING = {
    "batch norm in train mode": (
        lambda: Net(lambda m, x: m.layer(x), layer=lambda: nn.BatchNorm1d(4)).train(),
        torch.randn(3, 4),
        BATCH,
        "output changes at size 1, padded to 3, when other rows of the batch hold other values",
    ),
    "unmasked mean over time": (
        lambda: Net(lambda m, x: x.mean(1)).eval(),
        torch.randn(2, 5, 4),
        LENGTH,
        "output changes at size 2, padded to 12, when the padded positions hold other values",
    ),
    "bidirectional LSTM": (
        lambda: Net(lambda m, x: m.layer(x)[0], layer=lambda: nn.LSTM(4, 3, batch_first=True, bidirectional=True)),
        torch.randn(2, 5, 4),
        LENGTH,
        "output changes at size 2, padded to 12, when the padded positions hold other values",
    ),
    "convolution over time": (
        lambda: Net(over_time, layer=lambda: nn.Conv1d(4, 4, 3, padding=1)).eval(),
        torch.randn(2, 5, 4),
        LENGTH,
        "output changes at size 2, padded to 12, when the padded positions hold other values",
    ),
    "softmax over the batch": (
        lambda: Net(lambda m, x: {"p": x.softmax(0)}).eval(),
        torch.randn(3, 4),
        BATCH,
        "output['p'] changes at size 1, padded to 3, when other rows of the batch hold other values",
    ),
}


@pytest.mark.parametrize("name", LEAKING)
def test_a_model_that_leaks_is_refused_with_the_output_and_the_size(name):
    make, x, dynamic, reason = LEAKING[name]
    proof = prove_padding(Workload(make(), (x,), dynamic=dynamic))
    assert not proof.ok
    assert proof.padding is None
    (leak,) = proof.refused
    assert leak.why.startswith(reason)
    assert "the model takes" not in leak.why
    assert leak.output in ("output", "output['p']")
    assert leak.size is not None
    assert leak.padded_to is not None


def test_a_model_with_hooks_is_not_padded_as_they_would_see_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    workload = Workload(model, (torch.randn(3, 4),), dynamic={"input": {0: (1, 6)}})
    assert prove_padding(workload).ok
    seen: list[torch.Size] = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    (leak,) = prove_padding(workload).refused
    assert leak.why == "the model has hooks, which would see padded calls; remove them to have calls padded"


class Averaging(nn.Module):
    """A mean over time of what ids stand for, without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)

    def forward(self, ids):
        return self.table(ids).mean(1)


@pytest.mark.parametrize(
    ("model", "x", "dynamic"),
    [
        (Averaging().eval(), torch.ones(2, 5, dtype=torch.long), {"ids": {1: (1, 16)}}),
        (Averaging().eval(), torch.full((2, 5), 2), {"ids": {1: (1, 16)}}),
        (Net(lambda m, x: x - x.mean(0)).eval(), torch.zeros(3, 4), BATCH),
        (Net(lambda m, x: x.float() - x.float().mean(0)).eval(), torch.ones(3, 4, dtype=torch.long), BATCH),
    ],
)
def test_an_example_of_one_number_hides_nothing(model, x, dynamic):
    assert not prove_padding(Workload(model, (x,), dynamic=dynamic)).ok


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        return x * 2


@pytest.mark.parametrize(
    ("model", "x", "dynamic", "reason"),
    [
        (Counting().eval(), torch.randn(3, 4), BATCH, "the model changes total in each call"),
        (Net(lambda m, x: x + torch.rand(())).eval(), torch.randn(3, 4), BATCH, "other answers to the same call"),
        (Net(lambda m, x: x.add_(1)).eval(), torch.randn(3, 4), BATCH, "the model changes args[0] in each call"),
        (Net(lambda m, x: (x, x.shape[1])).eval(), torch.randn(2, 5, 4), LENGTH, "output[1] is int 12"),
        (Net(lambda m, x: (x * 2, x)).eval(), torch.randn(3, 4), BATCH, "output[1] shares memory with args[0]"),
        (Net(lambda m, x: x[:, :8] * 2).eval(), torch.randn(2, 12, 4), LENGTH, "the outputs cannot be cut back"),
        (Net(lambda m, x: x[:, ::2]).eval(), torch.randn(2, 5, 4), LENGTH, "does not follow the size evenly"),
        (Net(lambda m, x: x.cumsum(1).flip(1)).eval(), torch.randn(2, 5, 4), LENGTH, "output changes at size 2"),
        (Net(lambda m, x: x * x.shape[0]).eval(), torch.randn(3, 4), BATCH, "when the row is not alone in its batch"),
        (Net(lambda m, x: x.sum(0)).eval(), torch.randn(3, 4), BATCH, "output changes at size 1"),
    ],
)
def test_what_else_is_refused(model, x, dynamic, reason):
    (leak,) = prove_padding(Workload(model, (x,), dynamic=dynamic)).refused
    assert reason in leak.why


def test_calls_with_gradients_are_not_padded():
    workload = Workload(nn.Linear(4, 4), (torch.randn(3, 4),), dynamic={"input": {0: (1, 6)}}, grad=True)
    assert prove_padding(workload).refused[0].why == "calls with gradients are not padded"


def test_nothing_is_proven_where_nothing_is_declared():
    assert prove_padding(Workload(nn.Linear(4, 4), (torch.randn(3, 4),))) == PaddingProof()


def dims(proof: PaddingProof) -> Padding:
    assert proof.ok, proof.refused
    assert proof.padding is not None
    return proof.padding


@pytest.mark.parametrize(
    ("layers", "x"),
    [
        (lambda: [nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)], torch.randn(3, 4)),
        (
            lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()],
            torch.randn(2, 3, 8, 8),
        ),
    ],
)
def test_the_batch_of_an_mlp_and_of_a_conv_net_may_be_padded(layers, x):
    model = nn.Sequential(*layers()).eval()
    (batch,) = dims(prove_padding(Workload(model, (x,), dynamic={"input": {0: (1, 6)}}))).dims
    assert (batch.min, batch.size) == (1, 6)
    assert batch.inputs[0].value is None
    assert batch.outputs == (PaddedOutput(path="output", dim=0),)


def test_causal_convolution_and_one_way_recurrence_need_no_mask():
    def causal(self, x):
        padded = nn.functional.pad(x.transpose(1, 2), (2, 0))
        return self.conv(padded).transpose(1, 2), self.lstm(x)[0]

    layers = {"conv": lambda: nn.Conv1d(4, 4, 3), "lstm": lambda: nn.LSTM(4, 3, batch_first=True)}
    padding = dims(prove_padding(Workload(Net(causal, **layers).eval(), (torch.randn(2, 5, 4),), dynamic=LENGTH)))
    assert padding.dims[0].outputs == (PaddedOutput(path="output[0]", dim=1), PaddedOutput(path="output[1]", dim=1))
    assert [(layout.path, layout.order) for layout in padding.layouts] == [
        ("output[0]", (0, 2, 1)),
        ("output[1]", (1, 0, 2)),  # as the LSTM lays it out
    ]


def test_outputs_may_be_shorter_or_longer_than_the_input():
    def both(self, x):
        return self.conv(x.transpose(1, 2)), x.repeat_interleave(3, 1)

    model = Net(both, conv=lambda: nn.Conv1d(4, 4, 2)).eval()
    (length,) = dims(prove_padding(Workload(model, (torch.randn(2, 5, 4),), dynamic=LENGTH))).dims
    assert length.outputs == (
        PaddedOutput(path="output[0]", dim=2, plus=-1),
        PaddedOutput(path="output[1]", dim=1, times=3),
    )


def bert(attention: str = "eager") -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertModel(config).eval()


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32, use_cache=False, attn_implementation="eager"
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


IDS = torch.randint(0, 50, (2, 6))
MASK = torch.ones(2, 6, dtype=torch.long)
TEXT = {"batch": (1, 4), "seq": (1, 20)}


def test_bert_with_its_mask_is_accepted_in_batch_and_length():
    workload = Workload(
        bert(),
        (),
        {"input_ids": IDS, "attention_mask": MASK},
        dynamic=TEXT,
        padding={"input_ids": 0, "attention_mask": 0},
    )
    batch, length = dims(prove_padding(workload)).dims
    assert {one.path: one.value for one in batch.inputs} == {
        "kwargs['input_ids']": None,
        "kwargs['attention_mask']": None,
    }
    assert {one.path: one.mask for one in length.inputs} == {
        "kwargs['input_ids']": MaskRule.ANY,
        "kwargs['attention_mask']": MaskRule.SOME,  # a row that masks everything is an average over all positions
    }
    assert {(one.path, one.dim) for one in length.outputs} == {("output['last_hidden_state']", 1)}
    assert {one.path for one in batch.outputs} == {"output['last_hidden_state']", "output['pooler_output']"}


def test_bert_without_its_mask_is_refused_in_length_only():
    proof = prove_padding(Workload(bert(), (), {"input_ids": IDS}, dynamic=TEXT))
    (leak,) = proof.refused
    assert leak.inputs == ("input_ids dimension 1",)
    assert leak.why.startswith("output['last_hidden_state'] changes at size 1, padded to 11")
    assert leak.why.endswith("the model takes attention_mask: give it in the example, and padding is tried with it")
    assert proof.padding is not None
    assert [one.inputs[0].dim for one in proof.padding.dims] == [0]


def test_gpt2_is_causal_and_needs_no_mask():
    proof = prove_padding(Workload(gpt2(), (), {"input_ids": IDS}, dynamic=TEXT))
    batch, length = dims(proof).dims
    assert length.outputs == (PaddedOutput(path="output['logits']", dim=1),)
    assert batch.outputs == (PaddedOutput(path="output['logits']", dim=0),)


def test_gpt2_with_a_mask_that_hides_its_first_position_is_another_matter():
    workload = Workload(gpt2(), (), {"input_ids": IDS, "attention_mask": MASK}, dynamic=TEXT)
    _, length = dims(prove_padding(workload)).dims
    (mask,) = [one for one in length.inputs if one.path == "kwargs['attention_mask']"]
    assert (mask.value, mask.mask) == (0, MaskRule.FIRST)


class Scaled:
    """An engine that scales by what it finds in the whole tensor, as 8-bit engines do."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, x):
        step = x.abs().max() / 127
        return self.model((x / step).round() * step)


def test_an_engine_may_leak_where_the_model_does_not():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    workload = Workload(model, (torch.randn(3, 4),), dynamic={"input": {0: (1, 6)}})
    padding = dims(prove_padding(workload))
    assert check_engine(model, workload, padding) is None
    leak = check_engine(Scaled(model), workload, padding)
    assert leak is not None
    assert leak.inputs == ("input dimension 0",)
    assert leak.why.startswith("output changes at size 1, padded to 6, when the padding holds other values")


def test_an_engine_that_is_simply_wrong_is_refused_too():
    model = nn.Linear(4, 8).eval()
    workload = Workload(model, (torch.randn(3, 4),), dynamic={"input": {0: (1, 6)}})
    leak = check_engine(lambda x: model(x) * 1.01, workload, dims(prove_padding(workload)))
    assert leak is not None
    assert leak.why.startswith("output of the engine is not eager's at size 1, padded to 6")


def test_an_engine_runs_bert_at_its_built_size_only():
    model = bert()
    given = {"input_ids": IDS, "attention_mask": MASK}
    workload = Workload(model, (), given, dynamic=TEXT)
    shapes = set()

    def engine(input_ids, attention_mask):
        shapes.add(tuple(input_ids.shape))
        return model(input_ids=input_ids, attention_mask=attention_mask)

    assert check_engine(engine, workload, dims(prove_padding(workload))) is None
    assert shapes == {(4, 20)}


# ---- masks -----------------------------------------------------------------------------------------------------------


def attended(x, keep):
    scores = (x @ x.transpose(1, 2)).masked_fill(keep[:, None, :] == 0, torch.finfo(x.dtype).min)
    return scores.softmax(-1) @ x


class OneMask(nn.Module):
    def forward(self, x, mask):
        return attended(x, mask)


class BothMasks(nn.Module):
    """What one of the masks hides may be all that the other one shows."""

    def forward(self, x, mask_a, mask_b):
        return attended(x, mask_a * mask_b)


class EachMask(nn.Module):
    def forward(self, x, mask_a, mask_b):
        return attended(x, mask_a), attended(x, mask_b)


class Near(nn.Module):
    """Sees 8 positions to each side: a mask may hide all of these, and not the first position of the row."""

    def forward(self, x, mask):
        place = torch.arange(x.shape[1])
        far = (place[:, None] - place[None, :]).abs() > 8
        scores = (x @ x.transpose(1, 2)).masked_fill(mask[:, None, :] == 0, -1e9)
        return scores.masked_fill(far, -torch.inf).softmax(-1) @ x


X = torch.randn(2, 6, 4)


def of_length(model: nn.Module, x, *masks, to: int = 32) -> Workload:
    names = ("x", "mask") if len(masks) == 1 else ("x", "mask_a", "mask_b")
    return Workload(model.eval(), (x, *masks), dynamic={name: {1: (1, to)} for name in names})


def rules(workload: Workload) -> list[MaskRule]:
    (length,) = dims(prove_padding(workload)).dims
    return [one.mask for one in sorted(length.inputs, key=lambda one: one.path) if one.path != "args[0]"]


def test_several_masks_are_proven_in_all_their_combinations():
    assert rules(of_length(BothMasks(), X, MASK, MASK.clone())) == [MaskRule.ONES, MaskRule.ONES]
    assert rules(of_length(EachMask(), X, MASK, MASK.clone())) == [MaskRule.SOME, MaskRule.SOME]


@pytest.mark.parametrize("model", [BothMasks, EachMask])
def test_one_tensor_given_twice_is_proven_as_two(model):
    assert rules(of_length(model(), X, MASK, MASK)) == rules(of_length(model(), X, MASK, MASK.clone()))


def test_rules_are_tried_at_larger_sizes_too():
    x, mask = torch.randn(2, 24, 4), torch.ones(2, 24, dtype=torch.long)
    assert rules(of_length(Near(), x, mask, to=64)) == [MaskRule.ONES]


def test_what_a_model_does_at_large_sizes_is_seen_where_the_example_has_the_largest():
    model = Net(lambda m, x: x * 2 if x.shape[1] < 14 else x - x.mean(1, keepdim=True)).eval()
    assert not prove_padding(Workload(model, (torch.randn(2, 16, 4),), dynamic=LENGTH)).ok


def test_an_engine_is_asked_with_the_masks_that_are_padded():
    workload = of_length(OneMask(), X, MASK)
    padding = dims(prove_padding(workload))

    class Unmasking(nn.Module):  # right only where nothing but the padding is masked
        def forward(self, x, mask):
            return attended(x, mask.flip(1).cummax(1).values.flip(1))

    assert check_engine(workload.model, workload, padding) is None
    leak = check_engine(Unmasking(), workload, padding)
    assert leak is not None
    assert "of the engine is not eager's" in leak.why


def test_an_example_whose_mask_is_not_padded_is_no_obstacle():
    workload = of_length(OneMask(), X, torch.tensor([[0] * 6, [1] * 6]))
    assert rules(workload) == [MaskRule.SOME]
    assert check_engine(workload.model, workload, dims(prove_padding(workload))) is None


class Kept(nn.Module):
    def forward(self, x, keep):
        return attended(x, keep)


def test_ones_are_padded_with_zeros_whatever_their_name():
    workload = Workload(Kept().eval(), (X, MASK), dynamic={name: {1: (1, 32)} for name in ("x", "keep")})
    assert workload.sized.values["args[1]"] == 0


# ---- positions -------------------------------------------------------------------------------------------------------


class Pick(nn.Module):
    def forward(self, x, position):
        return x[torch.arange(x.shape[0]), position] * 2


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, x, position):
        return x * 2, self.table(position)


@pytest.mark.parametrize(("model", "ok"), [(Pick(), False), (Table(), True)])
def test_a_position_must_be_the_same_in_the_padded_call(model, ok):
    workload = Workload(model.eval(), (X, torch.tensor([3, 0])), dynamic={"x": {1: (4, 32)}})
    proof = prove_padding(workload)
    assert proof.ok is ok
    if not ok:
        assert "args[1]" in proof.refused[0].why
