"""A request around the model: what is timed, what is judged, how it travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compilot import diagnose
from compilot._tree import Call
from compilot.errors import InputError
from compilot.measure.correctness import check, make_reference
from compilot.records import Kind
from compilot.workload import Workload
from compilot.workload.requests import Item
from compilot.workload.shipping import ship, unship
from compilot.workload.unit import Requests
from compilot.workload.variations import at_batch, cases

TEXTS = ["one", "two", "six"]


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def prepared(text: str) -> Tensor:
    return torch.tensor([[ord(letter) / 100 for letter in text]])


def classify(call: Any, text: str) -> dict[str, Any]:
    scores = call(prepared(text))
    return {"label": int(scores.argmax()), "score": float(scores.detach().max())}


def load(**how: Any) -> Workload:
    torch.manual_seed(0)
    return Workload(Scores().eval(), request=classify, items=TEXTS, **how)


def judge(workload: Workload, fn: Any, folder: Path) -> Any:
    found = cases(workload)
    return check(fn, workload, found, folder, make_reference(workload, found, folder))


def test_the_models_inputs_are_those_that_the_requests_make() -> None:
    workload = load()
    assert len(workload.examples) == 3
    assert torch.equal(workload.call.args[0], prepared("one"))
    assert workload.ref.kind is Kind.REQUEST


def test_inputs_that_are_given_count_more() -> None:
    given = torch.ones(1, 3)
    assert load(args=given).examples[0].args[0] is given


def test_the_clock_sees_every_item_and_the_callable_itself() -> None:
    workload, seen = load(), []

    def fn(x: Tensor) -> Tensor:
        seen.append(x)
        return workload.model(x)

    unit = workload.unit(fn)
    assert isinstance(unit, Requests)
    unit.call()
    assert unit.calls == len(seen) == 3
    assert unit.answer(Call((Item("two"),), {})) == classify(workload.model, "two")


def test_the_models_share_is_what_passes_inside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def spent(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("compilot.workload.unit.time.perf_counter", lambda: now[0])

    def slow(call: Any, item: str) -> Tensor:
        spent(2.0)
        call(prepared(item))
        answer = call(prepared(item))
        spent(1.0)
        return answer  # type: ignore[no-any-return]

    workload = Workload(Scores().eval(), request=slow, items=TEXTS)

    def fn(x: Tensor) -> Tensor:
        spent(0.5)
        return x

    assert workload.unit(fn).model_share() == (4.0, 1.0)
    assert Workload(Scores().eval(), torch.ones(1, 3)).unit(fn).model_share() is None


def test_answers_and_outputs_are_both_judged(tmp_path: Path) -> None:
    workload = load()
    model = workload.model
    good = judge(workload, lambda x: model(x), tmp_path / "good")
    assert good.passed
    assert good.reference == "float64"
    wrong = judge(workload, lambda x: model(x) * 1.01, tmp_path / "outputs")
    assert not wrong.passed

    items = {float(prepared(text).sum()) for text in TEXTS}

    def wrong_on_items(x: Tensor) -> Tensor:
        return model(x).flip(-1) if float(x.sum()) in items else model(x)

    found = judge(workload, wrong_on_items, tmp_path / "answers")
    assert not found.passed
    assert "(case item 0)" in found.why
    assert "output['label']" in found.why


def test_the_diagnosis_times_requests(tmp_path: Path) -> None:
    made = []

    def counted(call: Any, text: str) -> Any:
        made.append(text)
        return classify(call, text)

    workload = Workload(Scores().eval(), request=counted, items=TEXTS)
    reference = make_reference(workload, cases(workload), tmp_path)
    assert reference.kind == "float64"
    made.clear()
    assert diagnose.inspect(workload, reference).unjudgeable is None
    assert set(made) == set(TEXTS)


def test_items_made_from_a_seed_are_timed_and_others_judged() -> None:
    def item(seed: int) -> Tensor:
        return torch.full((2, 3), float(seed))

    workload = Workload(Scores().eval(), request=lambda call, x: call(x), items=item, seed=10)
    assert [int(one[0, 0]) for one in workload.items] == [10, 11, 12, 13]
    assert [int(one[0, 0]) for one in workload.judged_items] == [14, 15, 16, 17]
    assert [int(one[0, 0]) for one in workload.replaced(seed=20).items] == [20, 21, 22, 23]


def test_at_another_batch_size_the_model_is_alone() -> None:
    workload = load(dynamic={"batch": (1, 8)})
    larger = at_batch(workload, 8)
    assert larger.kind is Kind.INFERENCE
    assert tuple(larger.call.args[0].shape) == (8, 3)
    larger.unit(larger.model).call()


def test_it_travels_to_a_child(tmp_path: Path) -> None:
    workload = load()
    again = unship(ship(workload, tmp_path))
    assert again.items == tuple(TEXTS)
    assert again.unit(again.model).answer(Call((Item("six"),), {})) == classify(workload.model, "six")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"request": classify}, "needs items"),
        ({"request": classify, "items": []}, "needs items"),
        ({"items": TEXTS}, "function of `call`"),
        ({"request": "classify", "items": TEXTS}, "function of `call`"),
        ({"request": lambda call, item: item, "items": TEXTS}, "never calls the model"),
    ],
)
def test_what_is_no_request_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Workload(Scores().eval(), **how)
