"""Metrics as a scraper reads them, probes as a platform asks them, one process or several."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from swapping import Faulty, Serving
from torch import nn

from compilot.serve import Metrics, SwapState, asgi, observe

Make = Callable[..., Serving]


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_counters_are_those_of_stats(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, adopt=False)
    metrics = Metrics(served.swap, CollectorRegistry())
    served.until(SwapState.LIVE)
    served.ask(50)
    served.ask(6, torch.randn(5, 3))
    served.ask(4, torch.randn(7, 3))
    metrics.update()
    found = values(metrics.text()[0].decode())
    stats = served.swap.stats()
    assert found["compilot_calls_total", (("entry", "faulty"), ("path", "fast"))] == stats.fast
    assert found["compilot_calls_total", (("entry", ""), ("path", "eager"))] == stats.eager
    assert found["compilot_calls_total", (("entry", ""), ("path", "fallback"))] == 10
    assert found["compilot_fallbacks_total", (("reason", "shape of args[0]"),)] == 10
    assert found["compilot_swap_state", (("state", "live"),)] == 1
    assert found["compilot_swap_state", (("state", "shadow"),)] == 0
    assert found["compilot_swaps_total", (("outcome", "live"),)] == 1
    assert found["compilot_shadow_compared_total", ()] == stats.compared
    assert found["compilot_shadow_mismatches_total", ()] == 0
    assert found["compilot_recompiles_total", ()] == 0
    assert found["compilot_call_duration_seconds_count", (("path", "fast"),)] > 0
    assert ("compilot_build_duration_seconds_count", ()) in found


def test_a_mismatch_is_counted(model: nn.Module, engine: Faulty, serving: Make) -> None:
    engine.fault = lambda number, answer: answer + 1
    served = serving(model)
    metrics = Metrics(served.swap, CollectorRegistry())
    served.brought()
    served.ask(5)
    found = values(metrics.text()[0].decode())
    assert found["compilot_shadow_mismatches_total", ()] == 1
    assert found["compilot_swaps_total", (("outcome", "rolled-back"),)] == 1
    assert found["compilot_swap_state", (("state", "rolled-back"),)] == 1


def test_probes_below_a_mount_and_at_the_root(model: nn.Module, engine: Faulty, serving: Make) -> None:
    served = serving(model, require_fast=True)
    probes = asgi(served.swap, Metrics(served.swap, CollectorRegistry()))
    for client, base in ((TestClient(probes), ""), (TestClient(Starlette(routes=[Mount("/c", probes)])), "/c")):
        assert client.get(f"{base}/healthz").status_code == 200
        assert client.get(f"{base}/metrics").headers["content-type"].startswith("text/plain")
        assert client.get(f"{base}/other").status_code == 404
        assert client.post(f"{base}/healthz").status_code == 405
        assert client.head(f"{base}/healthz").content == b""
    client = TestClient(probes)
    assert client.get("/readyz").status_code == 503
    served.until(SwapState.LIVE)
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["state"] == "live"


def test_eager_counts_as_ready_by_default(model: nn.Module, serving: Make) -> None:
    served = serving(model, None)
    client = TestClient(asgi(served.swap, Metrics(served.swap, CollectorRegistry())))
    assert client.get("/readyz").status_code == 200
    assert not client.get("/readyz").json()["live"]


SEVERAL = """
import sys, torch
sys.path[:0] = [{data!r}]
from pathlib import Path
from swapping import Faulty, Serving, plan_of, registered, small_model
from compilot.serve import Metrics, SwapState
registered(Faulty())
model = small_model()
served = Serving(model, plan_of(model), Path({log!r}))
metrics = Metrics(served.swap)
served.brought()
served.ask(100)
assert served.swap.state is SwapState.LIVE
metrics.update()
if sys.argv[1] == "last":
    print(metrics.text()[0].decode())
"""


@pytest.mark.slow
def test_several_processes_are_added_up(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    data = str(Path(__file__).parents[2] / "data")
    program = SEVERAL.format(data=data, log=str(tmp_path / "events.jsonl"))
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder), "COMPILOT_CACHE": str(tmp_path / "cache")}
    said = [
        subprocess.run(
            [sys.executable, "-c", program, which], env=env, capture_output=True, text=True, timeout=300, check=True
        ).stdout
        for which in ("first", "last")
    ]
    found = values(said[-1])
    answers = {key: value for key, value in found.items() if key[0] == "compilot_calls_total"}
    assert sum(answers.values()) == 200
    assert found["compilot_swaps_total", (("outcome", "live"),)] == 2


def test_opentelemetry_reads_the_same(model: nn.Module, engine: Faulty, serving: Make) -> None:
    made: dict[str, Any] = {}

    class Meter:
        def create_observable_counter(self, name: str, callbacks: Any, description: str) -> None:
            made[name] = callbacks[0]

        create_observable_gauge = create_observable_counter

    served = serving(model)
    observe(served.swap, Meter())
    served.until(SwapState.LIVE)
    served.ask(10)
    rows = {(row.attributes or {}).get("path"): row.value for row in made["compilot.calls"](None)}
    assert rows["fast"] == served.swap.stats().fast
    states = {(row.attributes or {})["state"]: row.value for row in made["compilot.swap.state"](None)}
    assert states["live"] == 1.0
    assert [row.value for row in made["compilot.shadow.mismatches"](None)] == [0]
