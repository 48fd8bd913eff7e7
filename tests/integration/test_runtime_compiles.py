"""The run plane with real compiles of tiny models."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.protocol import Infeasible
from compilot.errors import CompilotWarning
from compilot.records import Candidate, DynamicDim, MemoryFormat, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.runtime.weight_watch import INSPECT_EVERY

pytestmark = pytest.mark.compiles


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.last(self.first(x).relu())


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return {"features": self.conv(x).relu(), "n": 1}


X = torch.randn(4, 8)


def mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp().eval()


def make(model, x, cache: Path | None, *, dynamic=(), shapes=Shapes.STATIC, grad=False, **settings) -> Fast:
    candidate = Candidate(
        settings=Settings(shapes=shapes, **{"engine": "inductor", **settings}), label="", rationale=""
    )
    guard = make_guard(model, Call((x,), {}), dynamic=dynamic, shapes=shapes, grad=grad)
    return attach(model, candidate, guard, cache)


class Compiles:
    """Counts graphs that dynamo hands to a backend."""

    def __enter__(self):
        self._before = self._now()
        return self

    def __exit__(self, *exc):
        self.count = self._now() - self._before

    def _now(self) -> int:
        from torch._dynamo.utils import counters

        return counters["stats"]["unique_graphs"]


@torch.no_grad()
def test_row_37_compiling_leaves_no_trace_on_the_model(compile_cache):
    model = mlp()
    keys = {name: sorted(m.__dict__) for name, m in model.named_modules()}
    fast = make(model, X, compile_cache)
    torch.testing.assert_close(fast(X), model(X))
    assert {name: sorted(m.__dict__) for name, m in model.named_modules()} == keys
    with Compiles() as seen:
        model(X)
    assert seen.count == 0
    assert not any("dynamo" in name for name in vars(X))


def settings_now() -> dict[str, object]:
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    configs = (torch._dynamo.config, torch._inductor.config, torch._functorch.config)
    found = {f"{config.__name__}.{k}": v for config in configs for k, v in config.get_config_copy().items()}
    return {**found, **{f"env.{k}": v for k, v in os.environ.items()}, "threads": torch.get_num_threads()}


@torch.no_grad()
@pytest.mark.parametrize("fails", [False, True])
def test_row_34_every_global_setting_is_put_back_also_after_a_failure(compile_cache, fails):
    before, seen = settings_now(), []

    @torch._dynamo.register_backend(name=f"row34_{fails}")
    def backend(graph, inputs):
        seen.append((torch._inductor.config.freezing, os.environ["TORCHINDUCTOR_CACHE_DIR"]))
        if fails:
            raise NotImplementedError("this backend fails")
        return graph.forward

    model = mlp()
    fast = make(model, X, compile_cache, engine=f"dynamo:row34_{fails}", options={"freezing": True})
    if fails:
        with pytest.raises(Infeasible, match="this backend fails"):
            fast.prepare(Call((X,), {}))
        with pytest.warns(CompilotWarning, match="this backend fails"):
            torch.testing.assert_close(fast(X), model(X))
    else:
        torch.testing.assert_close(fast(X), model(X))
        assert fast.stats().fast == 1
    assert set(seen) == {(True, str(compile_cache / "inductor"))}
    after = settings_now()
    assert {k: (v, after.get(k)) for k, v in before.items() if after.get(k) != v} == {}
    assert after.keys() == before.keys()


class Announced:
    """Stands for the entry point of a package whose import changes dynamo's configuration, as OpenVINO's does."""

    def __init__(self, seen: list[bool]) -> None:
        self.seen = seen

    def load(self):
        from torch._dynamo import config

        config.capture_scalar_outputs = not config.capture_scalar_outputs

        def backend(graph, inputs):
            self.seen.append(config.capture_scalar_outputs)
            return graph.forward

        return backend


@torch.no_grad()
def test_a_backends_import_changes_dynamo_for_its_own_compiles_only(monkeypatch):
    from torch._dynamo.backends.registry import _BACKENDS, list_backends

    list_backends()  # fills the registry
    before, seen = settings_now(), list[bool]()
    monkeypatch.setitem(_BACKENDS, "announced", Announced(seen))
    model = mlp()
    for _ in range(2):  # the second one finds the package imported
        fast = make(model, X, None, engine="dynamo:announced")
        torch.testing.assert_close(fast(X), model(X))
    assert seen == [not before["torch._dynamo.config.capture_scalar_outputs"]] * 2
    after = settings_now()
    assert {k: (v, after.get(k)) for k, v in before.items() if after.get(k) != v} == {}


@torch.no_grad()
def test_an_unknown_backend_counts_as_one_that_bakes_weights_in_and_serves_one_call_at_a_time():
    @torch._dynamo.register_backend(name="unknown_habits")
    def backend(graph, inputs):
        return graph.forward

    unknown, known = (make(mlp(), X, None, engine=f"dynamo:{name}") for name in ("unknown_habits", "aot_eager"))
    assert (unknown._compilot_core.loaded.frozen_weights, unknown._compilot_core.loaded.concurrent) == (True, False)
    assert (known._compilot_core.loaded.frozen_weights, known._compilot_core.loaded.concurrent) == (False, True)


@torch.no_grad()
def test_row_36_true_freezing_is_on_and_a_later_update_is_never_stale(compile_cache):
    model = mlp()
    fast = make(model, X, compile_cache, options={"freezing": True})
    assert fast.frozen_weights
    torch.testing.assert_close(fast(X), model(X))
    inner = type(fast)._compilot_core.loaded.call
    model.first.weight.data.mul_(3)  # the engine's own callable does not see it: the weights are really baked in
    assert not torch.allclose(inner(X), model(X))
    with pytest.warns(CompilotWarning, match="weights changed"):
        _ = [fast(X) for _ in range(INSPECT_EVERY)]
    torch.testing.assert_close(fast(X), model(X))
    fast.refresh()
    torch.testing.assert_close(fast(X), model(X))
    torch.testing.assert_close(fast(X), model(X))


@torch.no_grad()
def test_twenty_sizes_of_a_declared_dimension_compile_three_times_at_most(compile_cache):
    model = mlp()
    dims = [DynamicDim(input="x", dim=0, min=1, max=64)]
    fast = make(model, X, compile_cache, dynamic=dims, shapes=Shapes.DYNAMIC)
    with Compiles() as seen:
        for n in (4, *range(1, 60, 3), 64):
            x = torch.randn(n, 8)
            torch.testing.assert_close(fast(x), model(x))
    assert fast.stats().fast_share == 1.0
    assert seen.count == fast.stats().compiles == 2  # the general size and size 1
    assert not any("dynamo" in name for name in vars(X))


@torch.no_grad()
def test_every_dimension_free_when_none_is_declared(compile_cache):
    model = mlp()
    fast = make(model, X, compile_cache, shapes=Shapes.DYNAMIC)
    with Compiles() as seen:
        for n in (4, 5, 17):
            x = torch.randn(n, 8)
            torch.testing.assert_close(fast(x), model(x))
    assert (seen.count, fast.stats().fast) == (1, 3)


@torch.no_grad()
def test_inference_mode_is_compiled_once_and_then_hot(compile_cache):
    model = mlp()
    fast = make(model, X, compile_cache)
    fast(X)
    with torch.inference_mode():
        fast(X)
        with Compiles() as seen:
            torch.testing.assert_close(fast(X), model(X))
    assert seen.count == 0
    assert fast.stats() == (3, 3, {}, 2, (), {}, {})


def test_row_24_eight_threads_at_the_first_call(compile_cache):
    model = mlp()
    fast = make(model, X, compile_cache, options={"freezing": True})
    with torch.no_grad():
        expected = [model(X + i) for i in range(8)]
    answers: list[list[torch.Tensor]] = [[] for _ in range(8)]

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                answers[i].append(fast(X + i))

    with Compiles() as seen:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(given) for given in answers] == [20] * 8
    for given, wanted in zip(answers, expected, strict=True):
        for answer in given:
            torch.testing.assert_close(answer, wanted)
    assert (seen.count, fast.stats().compiles, fast.stats().fast) == (1, 1, 160)


@torch.no_grad()
@pytest.mark.parametrize("engine", ["eager", "inductor"])
def test_row_37_channels_last_converts_a_clone_and_answers_in_eagers_layout(compile_cache, engine):
    torch.manual_seed(0)
    model, x = Conv().eval(), torch.randn(2, 3, 8, 8)
    fast = make(model, x, compile_cache, engine=engine, memory_format=MemoryFormat.CHANNELS_LAST)
    for _ in range(2):
        answer, wanted = fast(x), model(x)
        torch.testing.assert_close(answer["features"], wanted["features"])
        assert answer["features"].stride() == wanted["features"].stride()
        assert answer["n"] == 1
    assert model.conv.weight.is_contiguous()
    assert fast.stats().fast == 2
    assert fast.frozen_weights
    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
    with pytest.warns(CompilotWarning, match="weights changed"):
        answer = fast(x)
    torch.testing.assert_close(answer["features"], model(x)["features"])


@torch.no_grad()
@pytest.mark.parametrize("root", [lambda: nn.Sequential(mlp(), nn.ReLU()).eval(), mlp])
def test_the_whole_model_is_compiled_and_its_hooks_run(root):
    model = root()
    fast = make(model, X, None, engine="dynamo:eager")
    seen: list[int] = []
    with Compiles() as compiled:
        fast(X)
    assert compiled.count == 1
    handle = model.register_forward_hook(lambda module, args, out: seen.append(1) or out + 1)
    torch.testing.assert_close(fast(X), model(X))
    handle.remove()
    torch.testing.assert_close(fast(X), model(X))
    assert len(seen) == 2


@torch.no_grad()
@pytest.mark.parametrize("mode", [None, "default", "max-autotune-no-cudagraphs"])
def test_modes_and_options_go_together(mode):
    fast = make(mlp(), X, None, mode=mode, options={"epilogue_fusion": False})
    config = type(fast)._compilot_core.loaded.call.get_compiler_config()
    assert config["epilogue_fusion"] is False
    assert config["max_autotune"] is (mode == "max-autotune-no-cudagraphs")


def test_an_option_that_torch_does_not_know_is_its_own_error():
    with pytest.raises(RuntimeError, match="nonsense"):
        make(mlp(), X, None, options={"nonsense": True})


def test_freezing_refuses_a_plan_with_gradients():
    with pytest.raises(Infeasible, match="gradients"):
        make(mlp(), X, None, grad=True, options={"freezing": True})


def test_gradients_through_the_compiled_form_equal_eagers(compile_cache):
    model = mlp()
    fast = make(model, X, compile_cache, grad=True)
    fast(X).sum().backward()
    compiled = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(X).sum().backward()
    for found, p in zip(compiled, model.parameters(), strict=True):
        torch.testing.assert_close(found, p.grad)
    assert fast.stats().fast == 1


@torch.no_grad()
def test_without_artifacts_the_build_is_announced(caplog):
    fast = make(mlp(), X, None, engine="dynamo:eager")
    with caplog.at_level(logging.WARNING, logger="compilot"):
        fast(X)
        fast(X)
    assert [r.getMessage() for r in caplog.records] == ["building at the first call: no files next to the plan"]


NEXT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
from compilot.measure.build_cost import CompilerRuns
from test_runtime_compiles import make, mlp
compiler = CompilerRuns().install()
with torch.no_grad():
    model, x = mlp(), torch.arange(32.0).reshape(4, 8) / 32
    fast = make(model, x, Path(sys.argv[2]))
    error = float((fast(x) - model(x)).abs().max())
from torch._dynamo.utils import counters
print(json.dumps({"error": error, "fast": fast.stats().fast, "compiler": compiler.count, **counters["inductor"]}))
"""


def test_artifacts_of_one_process_are_found_by_the_next(tmp_path):
    command = [sys.executable, "-c", NEXT, str(Path(__file__).parent), str(tmp_path)]
    told = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout.splitlines()[-1]))
        built = {path: path.stat().st_mtime_ns for path in (tmp_path / "inductor").rglob("*.so")}
        assert built
        assert told[-1]["fast"] == 1
        assert told[-1]["error"] < 1e-5
        told[-1]["built"] = built
    assert told[0]["compiler"] > 0
    assert told[1]["compiler"] == 0
    assert told[1]["built"] == told[0]["built"]
    assert "fxgraph_cache_hit" not in told[0]
    assert told[1]["fxgraph_cache_hit"] == 1


@torch.no_grad()
def test_in_place_compiles_the_model_that_others_hold(compile_cache):
    from compilot.runtime import restore

    model = mlp()
    wanted = model(X)
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="inductor"), label="", rationale="")
    attach(model, candidate, guard, compile_cache, inplace=True)
    torch.testing.assert_close(model(X), wanted)
    assert model.stats().fast == 1
    assert type(restore(model)) is Mlp
