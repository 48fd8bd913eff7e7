import math
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.errors import InputError
from compilot.workload import Workload
from compilot.workload.variations import Case, at_batch, cases


class Takes(nn.Module):
    def forward(self, x: Any, mask: Any = None) -> Any:
        return x


def by_name(*args: Any, **kwargs: Any) -> dict[str, Case]:
    found = cases(Workload(Takes().eval(), *args, **kwargs))
    names = [case.name for case in found]
    assert len(set(names)) == len(names)
    return {case.name: case for case in found}


def first(case: Case) -> torch.Tensor:
    value = case.call.args[0]
    assert isinstance(value, torch.Tensor)
    return value


def test_floats_get_seeds_and_edges() -> None:
    found = by_name(torch.linspace(-3.0, 3.0, 32).reshape(4, 8))
    edges = ["zeros", "large", "small", "tiny", "negative", "nan", "inf"]
    assert list(found) == ["seed 1", "seed 2", "seed 3", *edges]
    assert [name for name, case in found.items() if case.special] == ["nan", "inf"]
    assert first(found["zeros"]).abs().max() == 0
    assert first(found["large"]).abs().max() > 1000
    assert 0 < first(found["tiny"]).abs().max() < 1e-29
    small = first(found["small"]).abs().flatten()
    assert 0 < small[::2].max() < 4e-3
    assert 0 < small[1::2].max() < 4e-6
    assert -30 <= first(found["negative"]).min() < -19
    assert -5 < first(found["negative"]).max() <= -1
    assert first(found["nan"]).isnan().sum() == 2
    assert sorted(first(found["inf"])[first(found["inf"]).isinf()].tolist()) == [-math.inf, math.inf]


def test_seeds_differ_and_repeat() -> None:
    x = torch.randn(64)
    once, again = by_name(x), by_name(x)
    assert all(torch.equal(first(once[n]), first(again[n])) for n in ("seed 1", "seed 2", "seed 3"))
    assert not torch.equal(first(once["seed 1"]), first(once["seed 2"]))


def test_two_inputs_get_different_numbers() -> None:
    x = torch.randn(64)
    args = by_name((x, x.clone()))["seed 1"].call.args
    assert not torch.equal(args[0], args[1])


def test_one_tensor_given_twice_stays_one() -> None:
    x = torch.randn(4)
    args = by_name((x, x))["seed 1"].call.args
    assert args[0] is args[1]


def test_floats_keep_the_examples_scale() -> None:
    values = first(by_name(torch.randn(4096) * 50 + 7)["seed 1"])
    assert abs(values.mean() - 7) < 5
    assert 40 < values.std() < 60


def test_constants_stay_constant() -> None:
    assert set(first(by_name(torch.full((5,), 2.5))["seed 1"]).tolist()) == {2.5}


def test_seeds_draw_integers_within_the_examples_range() -> None:
    found = by_name(torch.tensor([3, 17, 9] * 50))
    assert [name for name, case in found.items() if not case.bold] == ["example", "seed 1", "seed 2", "seed 3"]
    assert first(found["example"]).tolist() == [3, 17, 9] * 50
    values = first(found["seed 1"])
    assert values.dtype == torch.int64
    assert (int(values.min()), int(values.max())) == (3, 17)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_bold_cases_leave_the_examples_range(dtype: torch.dtype) -> None:
    found = by_name(torch.tensor([3, 17, 9] * 50, dtype=dtype))
    assert [name for name, case in found.items() if case.bold] == [
        "integers beyond the example",
        "integers at the limits",
    ]
    beyond, limits = (first(case) for case in found.values() if case.bold)
    info = torch.iinfo(dtype)
    assert beyond.dtype == limits.dtype == dtype
    assert (int(beyond.min()), int(beyond.max())) == (max(info.min, -34), 34)
    assert {info.min, info.max, 0, 1} <= set(limits.tolist())
    assert info.min == 0 or -1 in limits.tolist()


def test_each_of_several_integers_is_bold_alone_too() -> None:
    found = by_name((torch.tensor([3, 17]), torch.tensor([1, 9], dtype=torch.int32)))
    bold = {name: case.call.args for name, case in found.items() if case.bold}
    kinds = ("beyond the example", "at the limits")
    assert list(bold) == [f"{who} {kind}" for kind in kinds for who in ("integers", "args[0]", "args[1]")]
    assert bold["args[0] at the limits"][1].tolist() == [1, 9]
    assert bold["args[1] at the limits"][0].tolist() == [3, 17]


def test_masks_and_counts_never_get_the_limits_of_their_type() -> None:
    found = by_name((torch.tensor([1, 1, 0]), torch.tensor(5)))
    for name, case in found.items():
        assert all(tensor.abs().max() <= 10 for tensor in case.call.args), name
    assert not [name for name in found if "limits" in name]


def test_integers_at_the_limits_already_stay_in_their_type() -> None:
    info = torch.iinfo(torch.int64)
    found = by_name(torch.tensor([info.min, info.max, 0]))
    assert first(found["integers beyond the example"]).abs().max() > 2**60


def test_integers_become_zero_only_where_zero_is_among_them() -> None:
    assert first(by_name(torch.tensor([0, 5]))["zeros"]).tolist() == [0, 0]
    mixed = by_name((torch.randn(2), torch.tensor([4, 5])))
    assert mixed["zeros"].call.args[1].tolist() == [4, 5]


@pytest.mark.parametrize("mask", [torch.tensor([1, 1, 0]), torch.tensor([True, False, True])])
def test_masks_are_kept(mask: torch.Tensor) -> None:
    found = by_name((torch.randn(3), mask))
    kept = {name: case for name, case in found.items() if not case.bold and "masked" not in name}
    assert len(kept) == 11
    assert all(torch.equal(case.call.args[1], mask) for case in kept.values())


LOW = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    ("mask", "masked"),
    [
        (torch.tensor([[True, False], [True, True]]), [[False, False], [True, True]]),
        (torch.tensor([[1, 0], [1, 1]]), [[0, 0], [1, 1]]),
        (torch.tensor([[1, 1]], dtype=torch.uint8), [[0, 0]]),
        (torch.tensor([[0.0, LOW], [0.0, 0.0]]), [[LOW, LOW], [0.0, 0.0]]),
        (torch.tensor([[0.0, -math.inf], [0.0, 0.0]]), [[-math.inf, -math.inf], [0.0, 0.0]]),
        (torch.tensor([[[0.0, -1e4]]]), [[[-1e4, -1e4]]]),
    ],
)
def test_the_first_row_of_a_mask_masks_everything_beside_ordinary_values(mask: torch.Tensor, masked: Any) -> None:
    x = torch.randn(3)
    case = by_name((x, mask))["first row of args[1] masked"]
    assert case.call.args[1].tolist() == masked
    assert torch.equal(case.call.args[0], x)
    assert not case.special
    assert not case.bold


def test_a_mask_that_masks_its_first_row_already_has_no_such_case() -> None:
    assert not [name for name in by_name((torch.randn(3), torch.zeros(2, 3, dtype=torch.bool))) if "masked" in name]


def test_additive_masks_are_kept_by_all_other_cases() -> None:
    mask = torch.tensor([[0.0, -math.inf], [0.0, 0.0]])
    found = by_name((torch.randn(3), mask))
    others = [case.call.args[1] for name, case in found.items() if "masked" not in name and not case.special]
    assert len(others) == 9
    assert all(torch.equal(other, mask) for other in others)


def test_each_float_is_zero_alone_beside_the_others() -> None:
    x, y = torch.randn(3), torch.randn(2)
    found = by_name((x, y))
    assert torch.equal(found["zeros in args[0]"].call.args[1], y)
    assert found["zeros in args[0]"].call.args[0].tolist() == [0, 0, 0]
    assert torch.equal(found["zeros in args[1]"].call.args[0], x)
    assert not [name for name in by_name(x) if name.startswith("zeros in")]


def test_cases_own_their_memory() -> None:
    x, mask = torch.randn(3), torch.tensor([True, False, True])
    found = by_name((x, mask))
    assert "seed 1" in found
    for case in found.values():
        pointers = {tensor.data_ptr() for tensor in case.call.args}
        assert not pointers & {x.data_ptr(), mask.data_ptr()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_every_float_dtype_has_edges(dtype: torch.dtype) -> None:
    found = by_name(torch.randn(8).to(dtype))
    assert {first(case).dtype for case in found.values()} == {dtype}
    assert first(found["large"]).isfinite().all()
    assert first(found["tiny"]).abs().max() > 0


def test_strides_and_requires_grad_are_kept() -> None:
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    wide = torch.randn(4, 1).expand(4, 6)
    sliced = torch.randn(6, 10)[:, ::2]
    for example in (image, wide, sliced, torch.randn(3, 5).t()):
        for case in by_name(example).values():
            if case.name in ("nan", "inf") and example is wide:
                continue
            assert first(case).stride() == example.stride()
            assert first(case).requires_grad == example.requires_grad


def test_nested_inputs_keep_their_structure() -> None:
    call = by_name(({"image": torch.randn(2), "flag": True}, None))["large"].call
    assert call.args[0]["flag"] is True
    assert call.args[1] is None


def test_what_cannot_be_varied_is_passed_on() -> None:
    sparse = torch.eye(3).to_sparse()
    found = by_name((torch.randn(2), sparse))
    assert "seed 1" in found
    assert all(case.call.args[1] is sparse for case in found.values())


def test_declared_sizes_move_together() -> None:
    ids, mask = torch.randint(1, 9, (2, 8)), torch.ones(2, 8, dtype=torch.long)
    found = by_name((ids, mask), dynamic={"x": {1: (1, 64)}, "mask": {1: (1, 64)}})
    sizes = {name: [tensor.shape[1] for tensor in case.call.args] for name, case in found.items()}
    assert sizes["smallest"] == [1, 1]
    assert sizes["largest"] == [64, 64]
    odd = [pair for name, pair in sizes.items() if name.startswith("odd")]
    assert len(odd) == 2
    assert all(a == b and a % 2 == 1 for a, b in odd)
    assert found["largest"].call.args[1].unique().tolist() == [1]


def test_sizes_that_look_alike_are_also_tried_unequal_both_ways_round() -> None:
    ids, mask = torch.randint(1, 9, (1, 8)), torch.ones(1, 8)
    found = by_name((ids, mask), dynamic={name: {0: (1, 4), 1: (1, 64)} for name in ("x", "mask")})
    unequal = {name: case for name, case in found.items() if case.mirror is not None}
    assert list(unequal) == ["args[0] dimension 0 at 2, not 3", "args[0] dimension 1 at 7, not 8"]
    shapes = [[t.shape for t in call.args] for case in unequal.values() for call in (case.call, case.mirror)]
    assert shapes == [[(2, 8), (3, 8)], [(3, 8), (2, 8)], [(1, 7), (1, 8)], [(1, 8), (1, 7)]]


def test_a_size_alone_in_its_kind_is_never_unequal() -> None:
    found = by_name((torch.randn(4), torch.randn(6)), dynamic={"x": {0: (1, 9)}, "mask": {0: (1, 9)}})
    assert "largest" in found
    assert not [case for case in found.values() if case.mirror is not None]


def test_other_ranges_or_sizes_move_apart() -> None:
    found = by_name((torch.randn(4), torch.randn(6)), dynamic={"x": {0: (1, 9)}, "mask": {0: (2, 20)}})
    assert [tensor.shape[0] for tensor in found["largest"].call.args] == [9, 20]


def test_height_and_width_differ_at_odd_sizes() -> None:
    image = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    found = by_name(image, dynamic={"x": {2: (4, 64), -1: (4, 64)}})
    odd = [first(case) for name, case in found.items() if name.startswith("odd")]
    assert len(odd) == 2
    assert all(tensor.shape[2] != tensor.shape[3] for tensor in odd)
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in odd)


def test_size_one_is_tried_where_zero_is_the_smallest() -> None:
    found = by_name(torch.randn(4), dynamic={"x": {0: (0, 8)}})
    assert first(found["smallest"]).shape == (0,)
    assert first(found["size 1"]).shape == (1,)


def test_a_range_of_one_size_adds_nothing() -> None:
    assert "smallest" not in by_name(torch.randn(4), dynamic={"x": {0: (4, 4)}})


def test_shapes_are_kept_without_a_declaration() -> None:
    assert {first(case).shape for case in by_name(torch.randn(4, 3)).values()} == {(4, 3)}


def test_the_users_function_gives_the_seeds() -> None:
    found = by_name(inputs=lambda seed: Call((torch.full((2,), float(seed)),), {}), seed=10)
    assert first(found["seed 11"]).tolist() == [11.0, 11.0]


def test_a_users_function_with_undeclared_shapes_falls_back_to_the_example() -> None:
    found = by_name(inputs=lambda seed: torch.randn(2 + seed))
    assert first(found["seed 1 at the example's shapes"]).shape == (2,)
    declared = by_name(inputs=lambda seed: torch.randn(2 + seed), dynamic={"x": {0: (1, 9)}})
    assert first(declared["seed 1"]).shape == (3,)


# --------------------------------------------------------------------------------------------------------- batch sizes


def test_the_same_work_with_another_number_of_samples() -> None:
    workload = Workload(
        Takes().eval(), (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)), dynamic={"batch": (1, 8)}
    )
    larger = at_batch(workload, 8)
    assert [tuple(value.shape) for value in larger.call.args] == [(8, 3), (8, 3)]
    assert larger.call.args[1].dtype == torch.bool
    assert tuple(workload.call.args[0].shape) == (2, 3)
    assert larger.model is workload.model


def test_an_input_without_the_batch_keeps_its_size() -> None:
    workload = Workload(Takes().eval(), (torch.ones(2, 3), torch.ones(3)), dynamic={"x": {0: (1, 8)}})
    assert [tuple(value.shape) for value in at_batch(workload, 5).call.args] == [(5, 3), (3,)]


@pytest.mark.parametrize(
    ("dynamic", "why"),
    [(None, "no batch dimension"), ({"seq": (1, 8)}, "no batch dimension"), ({"batch": (1, 4)}, r"range 1\.\.4")],
)
def test_a_batch_size_that_is_not_declared_is_refused(dynamic: Any, why: str) -> None:
    workload = Workload(Takes().eval(), torch.ones(2, 3), dynamic=dynamic)
    with pytest.raises(InputError, match=why):
        at_batch(workload, 8)
