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
from swapping import X, plan_of, small_model

from compilot.artifacts import store
from compilot.records import Candidate, Settings
from compilot.serve import Bounds, Swap, SwapState, bringing, sentinel_report
from compilot.serve.records import EventKind
from compilot.serve.sentinel import RECURS

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


# ------------------------------------------------------------------------------------- a plan that would be compiled

FEW: dict[str, Any] = {
    "shadow": 1.0,
    "shadow_calls": 2,
    "canary": (1.0,),
    "canary_calls": 2,
    "margin": 1e9,
    "bounds": AT_ONCE,
}


def asked_until(swap: Swap, ask: Callable[[], object], holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, swap.reason
        ask()
        time.sleep(0.01)


@pytest.mark.compiles
def test_of_a_torch_compile_plan_the_child_builds_the_twin(tmp_path: Path) -> None:
    """The plan is a record alone: nothing of it is compiled here."""
    model = small_model()
    plan = plan_of(model, engine="inductor")
    with torch.no_grad(), Swap(model, plan, log=tmp_path / "events.jsonl", **FEW) as swap:
        swap.warm([X])
        asked_until(swap, lambda: swap(X), lambda: swap._standing.settled)
        assert swap.state is SwapState.LIVE, swap.reason
        assert states_of(swap) == ["building", "loading", "proving", "shadow", "canary", "live"]
        before = swap.stats().fast
        for _ in range(20):
            torch.testing.assert_close(swap(X), model(X), rtol=1e-4, atol=1e-5)
        stats = swap.stats()
    assert stats.plan.startswith("aoti")
    assert stats.fast >= before + 19
    assert stats.recompiles == 0


def test_without_a_compiler_eager_goes_on_and_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    model = small_model()
    plan = plan_of(model, engine="inductor")

    def postponed() -> list[Any]:
        return [event for event in swap.events if event.kind is EventKind.POSTPONED]

    def ask() -> None:
        torch.testing.assert_close(swap(X), model(X), rtol=0, atol=0)

    with torch.no_grad(), Swap(model, plan, log=tmp_path / "events.jsonl", **FEW) as swap:
        swap.warm([X])
        asked_until(swap, ask, lambda: len(postponed()) == 2)
        assert all("no working C++ compiler" in event.reason for event in postponed())
        assert all("no-such-compiler" in event.reason for event in postponed())
        first, second = (event.retry_s for event in postponed())
        assert second == 2 * first
        assert not swap.live()


# ------------------------------------------------------------------------------------------------------ what recurs


@pytest.mark.parametrize("given", ["bundle", "plan"])
def test_a_size_that_recurs_is_built_and_served(given: str, packed: Packer, tuned: Packer, tmp_path: Path) -> None:
    source = packed("onnxruntime") if given == "bundle" else tuned("onnxruntime")
    log = tmp_path / "events.jsonl"
    with torch.no_grad(), Swap(bundling.model(), source, log=log, **FEW) as swap:

        def ask(size: int) -> None:
            x = bundling.batch(size)
            right = swap.model(x, **CALL)["logits"]
            torch.testing.assert_close(swap(x, **CALL)["logits"], right, rtol=1e-4, atol=1e-5)

        asked_until(swap, lambda: ask(1), swap.live)
        for _ in range(RECURS):
            ask(4)
        [reason] = swap.stats().fallbacks
        assert reason.startswith("shape of args[0]: 4x16")
        assert not sentinel_report(log).adopted  # nothing is promised before it is live
        asked_until(swap, lambda: ask(4), lambda: swap.stats().swaps["live"] == 2)
        before = swap.stats()
        for _ in range(20):
            ask(4)
            ask(1)
        after = swap.stats()
        assert after.fallbacks == before.fallbacks
        assert after.fast >= before.fast + 39
        assert after.recompiles == 0
    assert sentinel_report(log).adopted == (
        "built for calls that recur: args[0] [4, 16], kwargs['extra']['bias'] [32]",
    )


def test_a_bundle_with_other_weights_never_changes_the_model_that_serves(packed: Packer, tmp_path: Path) -> None:
    model = bundling.model()
    with torch.no_grad():
        model.outer.weight.add_(1.0)
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        with Swap(model, packed("onnxruntime"), log=tmp_path / "events.jsonl", **FEW) as swap:
            asked_until(swap, lambda: swap(bundling.batch(1), **CALL), lambda: swap._standing.settled)
            assert not swap.live(), swap.reason
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, kept[name], rtol=0, atol=0)
