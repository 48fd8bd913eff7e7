"""What a Swap starts from, for real: the bundle of a twin, a store, and engines that a child may build.

The children are real processes, and not nice: other tests use the cores, too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundling
import pytest
import torch

from compilot.artifacts import store
from compilot.records import Candidate, Settings
from compilot.serve import Bounds, Swap, SwapState, bringing
from compilot.serve.records import EventKind

Packer = Callable[..., Path]
LIMIT_S = 300.0
AT_ONCE = Bounds(nice=0, idle=False, share=1.0, one_core_from=99, retry_s=0.1)
CALL: dict[str, Any] = {"extra": {"bias": torch.ones(32)}}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))


def served(source: Any, tmp_path: Path) -> Swap:
    """A Swap that is asked until it is settled; every answer is eager's."""
    log = tmp_path / "events.jsonl"
    swap = Swap(bundling.model(), source, shadow=1.0, shadow_calls=4, canary_calls=4, log=log, bounds=AT_ONCE)
    x = bundling.batch(1)
    end = time.monotonic() + LIMIT_S
    with torch.no_grad():
        right = swap.model(x, **CALL)["logits"]
        swap.warm([((x,), CALL)])
        while not swap._standing.settled:
            assert time.monotonic() < end, swap.reason
            torch.testing.assert_close(swap(x, **CALL)["logits"], right, rtol=1e-4, atol=1e-5)
            time.sleep(0.01)
        assert swap.state is SwapState.LIVE, swap.reason
        before = swap.stats().fast
        for _ in range(20):
            torch.testing.assert_close(swap(x, **CALL)["logits"], right, rtol=1e-4, atol=1e-5)
        assert swap.stats().fast >= before + 19
    swap.close()
    return swap


def states_of(swap: Swap) -> list[str]:
    return list(dict.fromkeys(event.state for event in swap.events if event.kind is EventKind.STATE))


def test_a_store_is_fetched_from_by_the_child(packed: Packer, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    store.push(packed("onnxruntime"), url)
    swap = served(url, tmp_path)
    assert states_of(swap) == ["fetching", "loading", "proving", "shadow", "canary", "live", "closed"]
    assert swap.stats().swaps == {"live": 1}


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_with_nothing_to_start_from_the_child_builds(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual choice is the first engine that passes; here each of them is the only one."""
    pytest.importorskip(engine)
    only = (Candidate(settings=Settings(engine=engine), label=engine, rationale="test"),)
    real = bringing.Bringer._built
    monkeypatch.setattr(
        bringing.Bringer, "_built", lambda self, candidates, example, *, twins: real(self, only, example, twins=twins)
    )
    swap = served(None, tmp_path)
    [built] = [event for event in swap.events if event.kind is EventKind.BUILT]
    assert built.plan == engine
    assert swap.stats().mismatches == 0
    assert not list((tmp_path / "cache" / "serve").glob("*/job-*"))


TWIN = """
import sys, torch
sys.path[:0] = [sys.argv[2]]
import bundling, compilot
call = {"extra": {"bias": torch.ones(32)}}
with torch.no_grad(), compilot.serve.Swap(bundling.model(), sys.argv[1], shadow=1.0, shadow_calls=1, canary=(1.0,),
                                          canary_calls=1) as swap:
    while not swap._standing.settled:
        swap(bundling.batch(1), **call)
        swap.wait(0.01)
    print(swap.state, "torch._inductor.compile_fx" in sys.modules, swap.reason)
"""


@pytest.mark.compiles
def test_the_bundle_of_a_twin_starts_a_server_without_a_compiler(
    packed: Packer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = packed("aoti")
    monkeypatch.setenv("PATH", "/nonexistent")
    words = [sys.executable, "-c", TWIN, str(bundle), str(Path(bundling.__file__).parent)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path, check=True)
    assert done.stdout.split()[:2] == ["live", "False"], done.stdout
