"""The web service: JSON and safetensors in and out, what does not fit in one sentence, the page and its status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import safetensors.torch
import torch
from starlette.testclient import TestClient
from swapping import Faulty, Serving, X, plan_of
from torch import nn

from compilot._tree import Call
from compilot.errors import InputError
from compilot.serve import SwapState
from compilot.serve.service import Service
from compilot.serve.wire import JSON, SAFETENSORS, Wire, answer

Make = Callable[..., Serving]


@pytest.fixture
def client(model: nn.Module, engine: Faulty, serving: Make) -> Iterator[TestClient]:
    served = serving(model, plan_of(model))
    served.until(SwapState.LIVE)
    form = Wire(model.forward, Call((X,), {}))
    with TestClient(Service(served.swap, form, label="Small", at_once=2).app()) as found:
        yield found


def test_json_in_and_out(client: TestClient, model: nn.Module) -> None:
    found = client.post("/predict", json={"input": X.tolist()})
    assert found.status_code == 200
    with torch.no_grad():
        assert torch.allclose(torch.tensor(found.json()["output"]), model(X), atol=1e-6)


def test_safetensors_in_and_out(client: TestClient, model: nn.Module) -> None:
    body = safetensors.torch.save({"input": X})
    found = client.post("/predict", content=body, headers={"content-type": SAFETENSORS})
    assert found.headers["content-type"] == SAFETENSORS
    with torch.no_grad():
        assert torch.allclose(safetensors.torch.load(found.content)["output"], model(X), atol=1e-6)
    as_json = client.post("/predict", content=body, headers={"content-type": SAFETENSORS, "accept": JSON})
    assert torch.tensor(as_json.json()["output"]).shape == (2, 2)


def test_other_sizes_are_answered_too(client: TestClient) -> None:
    found = client.post("/predict", json={"input": torch.zeros(5, 3).tolist()})
    assert len(found.json()["output"]) == 5


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"{", JSON, 400, "not JSON"),
        (b"[1]", JSON, 400, "one object with input"),
        (b'{"x": 1}', JSON, 400, "no input 'x'; the model takes input"),
        (b"{}", JSON, 400, "input 'input' is missing"),
        (b'{"input": [1, 2]}', JSON, 400, "has 1 dimensions, the model takes 2"),
        (b'{"input": [["a"]]}', JSON, 400, "no tensor of torch.float32"),
        (b'{"input": [[1, 2]]}', JSON, 422, "the model raised"),
        (b"abc", SAFETENSORS, 400, "not in the safetensors format"),
        (safetensors.torch.save({"y": X}), SAFETENSORS, 400, "'input'"),
        (safetensors.torch.save({"input": X.int()}), SAFETENSORS, 400, "is torch.int32, the model takes"),
        (b"x=1", "application/x-www-form-urlencoded", 400, "send application/json or"),
    ],
)
def test_what_does_not_fit_is_one_sentence(client: TestClient, body: bytes, kind: str, status: int, words: str) -> None:
    found = client.post("/predict", content=body, headers={"content-type": kind})
    assert found.status_code == status
    assert words in found.json()["error"]


def test_a_body_that_is_too_large_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compilot.serve.service.LARGEST_BODY", 10)
    assert "larger than" in client.post("/predict", json={"input": X.tolist()}).json()["error"]


def test_the_page_shows_state_latency_and_events(client: TestClient) -> None:
    client.post("/predict", json={"input": X.tolist()})
    page = client.get("/")
    assert page.status_code == 200
    assert 'data-state="live" role="status">live<' in page.text
    assert "proven on" in page.text
    assert "float32 [2, 3]" in page.text
    status = client.get("/status").json()
    assert status["stats"]["state"] == "live"
    assert status["latency"]["requests"]["p50_s"] > 0
    assert [event["state"] for event in status["events"]][:2] == ["live", "canary"]
    assert client.get("/page.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").status_code == 200
    assert "compilot_calls_total" in client.get("/metrics").text


class Nested(nn.Module):
    def forward(self, batch: dict[str, torch.Tensor], pair: list[torch.Tensor], scale: float = 1.0) -> Any:
        return {"sum": batch["a"] + pair[0], "parts": (pair[1], scale), "nan": torch.tensor([float("nan"), 1.0])}


EXAMPLE = Call(({"a": torch.ones(2)}, [torch.ones(2), torch.ones(2, dtype=torch.long)]), {"scale": 2.0})


def test_nested_calls_by_json() -> None:
    wire = Wire(Nested().forward, EXAMPLE)
    call = wire.call(b'{"batch": {"a": [1, 2]}, "pair": [[3, 4], [5, 6]]}', JSON)
    assert call.kwargs == {"scale": 2.0}
    assert call.args[1][1].dtype == torch.int64
    output = Nested()(*call.args, **call.kwargs)
    assert json.loads(answer(output, JSON)) == {
        "output": {"sum": [4.0, 6.0], "parts": [[5, 6], 2.0], "nan": ["NaN", 1.0]}
    }
    with pytest.raises(InputError, match="'pair' is a list of 2"):
        wire.call(b'{"batch": {"a": [1, 2]}, "pair": [[3, 4]]}', JSON)
    with pytest.raises(InputError, match="'batch' is an object"):
        wire.call(b'{"batch": [1], "pair": [[3, 4], [5, 6]]}', JSON)


def test_nested_calls_by_safetensors() -> None:
    wire = Wire(Nested().forward, EXAMPLE)
    assert wire.inputs() == {"batch['a']": "float32 [2]", "pair[0]": "float32 [2]", "pair[1]": "int64 [2]"}
    given = {"batch['a']": torch.zeros(3), "pair[0]": torch.ones(3), "pair[1]": torch.ones(3, dtype=torch.long)}
    call = wire.call(safetensors.torch.save(given), SAFETENSORS)
    output = Nested()(*call.args, **call.kwargs)
    found = safetensors.torch.load(answer(output, SAFETENSORS))
    assert sorted(found) == ["output['nan']", "output['parts'][0]", "output['sum']"]
