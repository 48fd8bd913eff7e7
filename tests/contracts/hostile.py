"""Calls that a plan was not made for, against every engine: eager's own answer and a counted reason, whatever comes.

A class that uses this has fixtures `guarded` (a Fast over Sink) and, where the engine takes declared dimensions,
`ranged` (a Fast over the tiny BERT with batch 1..6 and length 1..40).
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.autograd import forward_ad

from compilot._tree import Call, map_call, output_leaves
from compilot.runtime.fast import Fast
from compilot.testing import contract_models as models


def sink(seed: int = 1) -> Call:
    return Call(*models.sink_call(seed))


def tensors(change: Callable[[torch.Tensor], Any], call: Call | None = None) -> Call:
    """The call with every tensor changed."""
    return map_call(call or sink(), lambda path, leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf)


def part(path: str, change: Callable[[Any], Any]) -> Call:
    """The call with one leaf changed."""
    return map_call(sink(), lambda where, leaf: change(leaf) if where == path else leaf)


def but(**changes: Any) -> Call:
    call = sink()
    return Call(call.args, {k: v for k, v in (call.kwargs | changes).items() if v is not None})


def mapped(run: Any) -> Any:
    """Called by torch.vmap: the tensors look plain, and have no memory that an engine could read."""

    def call(batch: dict[str, Any], scale: float, **kwargs: Any) -> torch.Tensor:
        rows = torch.stack([batch["x"].t(), batch["x"].t() + 1])
        return torch.vmap(lambda x: run({**batch, "x": x.t()}, scale, **kwargs)["y"])(rows)

    return call


def traced(run: Any) -> Any:
    """Called by torch.jit.trace; the trace answers another call: one that an engine served would hold a constant."""

    def call(batch: dict[str, Any], scale: float, **kwargs: Any) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = torch.jit.trace(
                lambda x: run({**batch, "x": x}, scale, **kwargs)["y"], (batch["x"],), check_trace=False
            )
        return trace(batch["x"] + 1)

    return call


def tangent(run: Any) -> Any:
    """The derivative that goes through the call."""
    return lambda *args, **kwargs: forward_ad.unpack_dual(run(*args, **kwargs)["y"]).tangent


class Hostile(NamedTuple):
    call: Callable[[], Call]
    reason: str  # part of the reason that must be counted
    around: Callable[[], Any] = contextlib.nullcontext
    through: Callable[[Any], Any] = lambda run: run  # how the model is called


HOSTILE = {
    "a larger batch": Hostile(lambda: tensors(lambda t: torch.cat([t, t])), "shape of"),
    "a smaller batch": Hostile(lambda: tensors(lambda t: t[:1]), "shape of"),
    "no rows at all": Hostile(lambda: tensors(lambda t: t[:0]), "shape of"),
    "other strides": Hostile(lambda: part("args[0]['x']", lambda t: t.contiguous()), "strides of args[0]['x']"),
    "not contiguous": Hostile(lambda: part("kwargs['mask']", lambda t: t.t().contiguous().t()), "strides of"),
    "every second row": Hostile(lambda: tensors(lambda t: torch.cat([t, t])[::2]), "strides of"),
    "other integers": Hostile(lambda: part("args[0]['ids']", lambda t: t.int()), "dtype of args[0]['ids']"),
    "other floats": Hostile(lambda: part("args[0]['more'][0]", lambda t: t.bfloat16()), "dtype of"),
    "a dtype that eager refuses": Hostile(lambda: part("args[0]['x']", lambda t: t.double()), "dtype of"),
    "another device": Hostile(lambda: tensors(lambda t: t.to("meta")), "device of"),
    "a parameter as input": Hostile(lambda: part("args[0]['x']", torch.nn.Parameter), "type of args[0]['x']"),
    "another plain value": Hostile(lambda: part("args[1]", lambda scale: -scale), "value of args[1]"),
    "another flag": Hostile(lambda: but(shout=False), "value of kwargs['shout']"),
    "a default left out": Hostile(lambda: but(shout=None), "value of kwargs['shout']"),
    "a keyword nobody knows": Hostile(lambda: but(wings=2), "other arguments"),
    "a tuple for a list": Hostile(
        lambda: Call(({**sink().args[0], "more": tuple(sink().args[0]["more"])}, 1.5), sink().kwargs), "type of"
    ),
    "one key more": Hostile(lambda: Call(({**sink().args[0], "z": 1}, 1.5), sink().kwargs), "keys of args[0]"),
    "gradients enabled": Hostile(sink, "gradients enabled", torch.enable_grad),
    "autocast": Hostile(sink, "autocast", lambda: torch.autocast("cpu", torch.bfloat16)),
    "a nested tensor": Hostile(lambda: part("args[0]['x']", lambda t: torch.nested.nested_tensor([*t])), "nested"),
    "zeros without memory": Hostile(
        lambda: part("args[0]['x']", lambda t: torch._efficientzerotensor(t.shape)), "zeros without memory"
    ),
    "a dual tensor": Hostile(
        lambda: part("args[0]['x']", lambda t: forward_ad.make_dual(t, torch.ones_like(t))),
        "forward-mode differentiation",
        forward_ad.dual_level,
        tangent,
    ),
    "vmap": Hostile(sink, "torch.func", through=mapped),
    "tracing": Hostile(sink, "torch.jit tracing", through=traced),
}


def outcome(run: Any, call: Call) -> list[tuple[str, Any]] | type[BaseException]:
    """The leaves of the answer, or the kind of error."""
    try:
        return [(leaf.path, leaf.value) for leaf in output_leaves(run(*call.args, **call.kwargs))]
    except Exception as error:
        return type(error)


def assert_equal(answer: Any, expected: Any) -> None:
    """Eager's own answer, to the bit."""
    if isinstance(expected, type):
        assert answer is expected
        return
    assert [path for path, _ in answer] == [path for path, _ in expected]
    for (path, one), (_, other) in zip(answer, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            assert repr(one) == repr(other), path
            continue
        assert (one.dtype, one.shape, one.device, one.stride()) == (
            other.dtype,
            other.shape,
            other.device,
            other.stride(),
        )
        if not one.is_meta:
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=path)


def close(fast: Fast, model: Any, call: Call) -> None:
    """A planned call is served by the engine and right."""
    before = fast.stats().fast
    answer, expected = outcome(fast, call), outcome(model, call)
    assert fast.stats().fast == before + 1
    assert isinstance(answer, list)
    assert isinstance(expected, list)
    assert_close(answer, expected)


def assert_close(answer: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> None:
    """The same leaves; tensors within float32 rounding."""
    assert [path for path, _ in answer] == [path for path, _ in expected]
    for (path, one), (_, other) in zip(answer, expected, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True, msg=path)
        else:
            assert repr(one) == repr(other), path


def from_nothing_to_nine(fast: Fast, model: Any) -> None:
    """Batches of a range that was declared as 0..9; the next one is eager's."""
    for batch in (2, 0, 1, 0, 1, 9):
        close(fast, model, Call(models.apart_call(batch, 5, 3), {}))
    outside = Call(models.apart_call(10, 5, 3), {})
    assert_equal(outcome(fast, outside), outcome(model, outside))
    assert (fast.stats().fast, list(fast.stats().fallbacks.values())) == (6, [1])


class HostileCalls:
    """Tests of one engine behind the guard."""

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    @pytest.mark.parametrize("kind", list(HOSTILE))
    def test_a_call_of_another_kind_is_eagers_and_counted(self, guarded: Fast, kind: str) -> None:
        hostile, model = HOSTILE[kind], guarded._compilot_plain
        with hostile.around():
            expected = outcome(hostile.through(model), hostile.call())
            before = guarded.stats()
            answer = outcome(hostile.through(guarded), hostile.call())
        assert_equal(answer, expected)
        counted = {reason: n - before.fallbacks.get(reason, 0) for reason, n in guarded.stats().fallbacks.items()}
        new = [reason for reason, n in counted.items() if n]
        if not isinstance(expected, type):  # an error of the user's own is not an answer
            assert len(new) == 1
            assert hostile.reason in new[0]
        assert guarded.stats().fast == before.fast
        close(guarded, model, sink(2))

    def test_train_mode_is_eagers(self, guarded: Fast) -> None:
        model = guarded._compilot_plain
        model.train()
        try:
            assert_equal(outcome(guarded, sink()), outcome(model, sink()))
        finally:
            model.eval()
        assert "train mode" in guarded.stats().fallbacks
        close(guarded, model, sink())

    @pytest.mark.parametrize("kind", ["inference mode", "inference tensors", "wants gradients", "a view", "NaN"])
    def test_calls_that_only_look_different_are_taken(self, guarded: Fast, kind: str) -> None:
        call = sink(3)
        if kind == "inference tensors":
            with torch.inference_mode():
                call = map_call(call, lambda _, leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
            call.args[0]["x"] = sink(3).args[0]["x"]  # a clone has other strides
        elif kind == "wants gradients":
            call.args[0]["x"].requires_grad_()
        elif kind == "a view":
            call = map_call(call, lambda _, leaf: leaf.view_as(leaf) if isinstance(leaf, torch.Tensor) else leaf)
        elif kind == "NaN":
            call.args[0]["x"][0, 0] = float("nan")
        with torch.inference_mode() if kind == "inference mode" else contextlib.nullcontext():
            close(guarded, guarded._compilot_plain, call)

    def test_planned_and_hostile_calls_from_several_threads(self, guarded: Fast) -> None:
        model, kinds = guarded._compilot_plain, ["a larger batch", "other integers", "another plain value", "planned"]
        kept: dict[str, list[Any]] = {kind: [] for kind in kinds}

        def call_of(kind: str) -> Call:
            return sink(7) if kind == "planned" else HOSTILE[kind].call()

        def work(kind: str) -> None:
            with torch.no_grad():
                kept[kind] += [outcome(guarded, call_of(kind)) for _ in range(10)]

        threads = [threading.Thread(target=work, args=(kind,)) for kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for kind in kinds:
            assert len(kept[kind]) == 10
            for answer in kept[kind]:
                if kind != "planned":
                    assert_equal(answer, outcome(model, call_of(kind)))
                else:
                    assert_close(answer, outcome(model, call_of(kind)))  # type: ignore[arg-type]


class HostileSizes:
    """The same for declared ranges."""

    @pytest.mark.parametrize("size", [(7, 8), (1, 41), (0, 8), (64, 64)])
    def test_sizes_outside_of_the_declared_range_are_eagers(self, ranged: Fast, size: tuple[int, int]) -> None:
        call, model, before = Call(*models.bert_call(*size)), ranged._compilot_plain, ranged.stats()
        expected = outcome(model, call)
        assert_equal(outcome(ranged, call), expected)
        assert ranged.stats().fast == before.fast
        counted = ranged.stats().calls - before.calls
        assert counted == (not isinstance(expected, type))  # an error of the user's own is not an answer
        reasons = [reason for reason, n in ranged.stats().fallbacks.items() if n != before.fallbacks.get(reason)]
        assert [reason.startswith("shape of") for reason in reasons] == [True] * counted
        close(ranged, model, Call(*models.bert_call(2, 8)))

    def test_sizes_that_should_be_equal_and_are_not_are_eagers(self, ranged: Fast) -> None:
        (ids,), _ = models.bert_call(2, 8)
        _, kwargs = models.bert_call(3, 8)
        before = ranged.stats().fast
        assert_equal(outcome(ranged, Call((ids,), kwargs)), outcome(ranged._compilot_plain, Call((ids,), kwargs)))
        assert ranged.stats().fast == before
