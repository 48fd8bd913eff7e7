"""Plans with regions, by real engines: one program for six blocks, files, bundles, fresh processes, trials."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import six_blocks
import torch
from bundle_help import command_line
from regional_runs import TARGET, built, fresh_start, regional, run_of

import compilot
from compilot.artifacts.rundir import RunDir
from compilot.errors import FallbackWarning
from compilot.modules.selectors import culprit
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import Candidate, Settings, State, Trial
from compilot.runtime.fast import Fast
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

BLOCKS = [f"layers.{i}" for i in range(6)]
INDUCTOR = regional(("layers.*", Settings(engine="inductor")))
FILES = regional(("layers.[1-2],layers.4", Settings(engine="onnxruntime")), ("last", Settings(engine="openvino")))
FROM_FILES = ["layers.1", "layers.2", "layers.4", "last"]
Runs = Callable[[Candidate], Path]


@pytest.fixture(autouse=True)
def _no_grad() -> None:
    torch.set_grad_enabled(False)


@pytest.fixture(autouse=True, scope="module")
def _grad_again():
    yield
    torch.set_grad_enabled(True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    home = tmp_path_factory.mktemp("runs")

    def run(candidate: Candidate) -> Path:
        folder = home / candidate.id
        return folder if folder.exists() else run_of(folder, candidate)

    return run


@pytest.fixture(scope="module")
def bundles(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    home = tmp_path_factory.mktemp("bundles")

    def bundle(candidate: Candidate) -> Path:
        path = home / f"{candidate.id}.cpbundle"
        return path if path.exists() else pack([runs(candidate)], path, PackOptions(twin=False), Observer()).path

    return bundle


# ---- inductor --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(runs: Runs) -> Fast:
    """From the one build of this process: a second one, in another cache, would not be written there in full."""
    return compilot.compile(six_blocks.model(), runs(INDUCTOR), strict=True)


@pytest.mark.compiles
def test_six_blocks_that_know_their_place_are_one_program(compiled: Fast) -> None:
    model, (x,), _ = compiled._compilot_plain, *six_blocks.six()[1:]
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))
    stats = compiled.stats()
    assert (stats.compiles, [one.compiles for one in stats.regions.values()]) == (1, [1, 0, 0, 0, 0, 0])
    assert {path: one.fallbacks for path, one in stats.regions.items()} == {path: {} for path in BLOCKS}


@pytest.mark.compiles
def test_updates_of_weights_are_followed(compiled: Fast) -> None:
    model, (x,), _ = compiled._compilot_plain, *six_blocks.six()[1:]
    before, fast = compiled(x)["logits"], compiled.stats().fast
    for layer in model.layers:
        layer.down.weight.mul_(1.5)
    answer = compiled(x)["logits"]
    assert not torch.allclose(answer, before)
    torch.testing.assert_close(answer, model(x)["logits"])
    assert compiled.stats().fast == fast + 1


@pytest.mark.compiles
def test_other_shapes_are_answered_by_eager(compiled: Fast) -> None:
    model, x = compiled._compilot_plain, six_blocks.batch(3)
    compiles = compiled.stats().compiles
    assert torch.equal(compiled(x)["logits"], model(x)["logits"])
    assert "shape of args[0]: 3x5x16, plan has 2x5x16" in compiled.stats().fallbacks
    assert compiled.stats().compiles == compiles


@pytest.mark.compiles
def test_a_block_that_cannot_be_compiled_falls_back_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    model, (x,), _ = six_blocks.six()
    real, seen = compile_fx.compile_fx, []

    def broken(*args, **kwargs):
        seen.append(1)
        raise RuntimeError("out of luck")

    monkeypatch.setattr(compile_fx, "compile_fx", broken)
    candidate = regional(("layers.0", Settings(engine="inductor")), ("layers.1", Settings(engine="dynamo:eager")))
    with pytest.warns(FallbackWarning, match=r"the compiled layers\.0 failed .*out of luck"):
        fast, _ = built(tmp_path / "work", candidate)
    monkeypatch.setattr(compile_fx, "compile_fx", real)
    torch.testing.assert_close(fast(x), model(x))
    regions = fast.stats().regions
    assert seen
    assert (regions["layers.0"].fast, regions["layers.1"].fallbacks) == (0, {})
    assert any("out of luck" in reason for reason in regions["layers.0"].fallbacks)


@pytest.mark.compiles
@pytest.mark.slow
def test_a_plan_and_its_bundle_start_from_their_compile_cache_in_fresh_processes(
    runs: Runs, bundles: Runs, tmp_path: Path
) -> None:
    for plan in (runs(INDUCTOR), bundles(INDUCTOR)):
        told = fresh_start(plan, tmp_path)
        assert told["error"] < 1e-5
        assert (told["fast"], told["compiles"], told["warnings"]) == (3, 1, [])
        assert told["regions"] == {path: [3, {}] for path in BLOCKS}
        assert told["compiler_runs"] == 0  # everything was in the cache


@pytest.mark.compiles
@pytest.mark.slow
def test_each_region_has_settings_of_its_own_in_one_plan(runs: Runs) -> None:
    """Weights are constants where the time goes, and inputs everywhere else."""
    frozen = Settings(engine="inductor", options={"freezing": True})
    plan = runs(regional(("last", frozen), ("layers.[0-1]", Settings(engine="inductor"))))
    model, (x,), _ = six_blocks.six()
    fast = compilot.compile(model, plan, strict=True)
    torch.testing.assert_close(fast(x), model(x))
    stats = fast.stats()
    assert {path: (one.fast, one.fallbacks, one.compiles) for path, one in stats.regions.items()} == {
        "last": (1, {}, 1),
        "layers.0": (1, {}, 1),
        "layers.1": (1, {}, 0),  # the same program
    }
    assert (fast.frozen_weights, stats.fast) == (True, 1)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_several_engines_answer_for_parts_of_one_model(runs: Runs) -> None:
    model, (x,), _ = six_blocks.six()
    fast = compilot.compile(model, runs(FILES), strict=True)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert fast.frozen_weights
    assert {path: (one.fast, one.fallbacks) for path, one in fast.stats().regions.items()} == {
        path: (1, {}) for path in FROM_FILES
    }
    model.layers[4].up.weight.mul_(2)
    with pytest.warns(FallbackWarning, match="weights changed"):
        answers = [fast(x)["logits"] for _ in range(600)]
    assert torch.equal(answers[-1], model(x)["logits"])


def test_a_model_with_other_weights_in_a_region_is_refused(runs: Runs) -> None:
    model, _, _ = six_blocks.six()
    model.layers[2].up.weight.mul_(2)
    with pytest.raises(compilot.StalePlan, match=r"in layers\.2: the model's weights are not those"):
        compilot.compile(model, runs(FILES), strict=True)


def test_weights_outside_of_such_regions_may_be_others(runs: Runs) -> None:
    model, (x,), _ = six_blocks.six()
    model.layers[0].up.weight.mul_(2)
    fast = compilot.compile(model, runs(FILES), strict=True)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert fast.stats().fast == 1


@pytest.mark.slow
def test_a_bundle_of_parts_is_packed_verified_and_started_without_a_compiler(bundles: Runs, tmp_path: Path) -> None:
    bundle = bundles(FILES)
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
    assert "artifacts/0/regions.json" in names
    assert sum(name.endswith("optimised.onnx") for name in names) == 3
    told = fresh_start(bundle, tmp_path)
    assert told["error"] < 1e-5
    assert (told["fast"], told["regions"]) == (3, {path: [3, {}] for path in FROM_FILES})
    assert (told["heavy"], told["compiler_runs"]) == ([], 0)
    verified = command_line("verify", bundle, cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    alone = fresh_start(bundle, tmp_path, "load")
    assert alone["refused"] == "NoFallback"
    assert "call compilot.compile(model, " in alone["why"]


@pytest.mark.slow
def test_a_broken_file_of_a_region_is_refused_by_name(runs: Runs, bundles: Runs, tmp_path: Path) -> None:
    run = shutil.copytree(runs(FILES), tmp_path / "run")
    [file] = run.glob("work/*/regions/0/1/optimised.onnx")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(compilot.ArtifactError, match=r"regions/0/1/optimised\.onnx is not the file that was measured"):
        compilot.compile(six_blocks.model(), run, strict=True)
    whole = bytearray(bundles(FILES).read_bytes())
    with zipfile.ZipFile(bundles(FILES)) as archive:
        member = archive.read("artifacts/0/regions.json")
    whole[whole.index(member) + 10] ^= 1
    broken = tmp_path / "broken.cpbundle"
    broken.write_bytes(whole)
    told = fresh_start(broken, tmp_path)
    assert (told["fast"], told["error"]) == (0, 0.0)  # eager's answers
    assert any("broken.cpbundle is not a usable bundle" in text for text in told["warnings"])


@pytest.mark.slow
def test_a_plan_is_out_of_date_when_a_blocks_code_changes(runs: Runs, tmp_path: Path) -> None:
    told = fresh_start(runs(FILES), tmp_path, "changed")
    assert (told["fast"], told["error"]) == (0, 0.0)
    assert any("out of date" in text and "Block.forward" in text for text in told["warnings"]), told


# ---- trials ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """One block of six cannot be exported: a candidate with it, one without it, one that names nothing."""
    wanted = {
        "all": regional(("layers.*", Settings(engine="onnxruntime"))),
        "others": regional(("layers.[!3]", Settings(engine="onnxruntime"))),
        "nothing": regional(("blocks.*", Settings(engine="onnxruntime"))),
    }
    folder = tmp_path_factory.mktemp("trials")
    with LocalRunner(RunDir(folder), limits=Limits(warm_s=0.3), observer=Observer()) as runner:
        runner.open(ship_target(TARGET.replace(":six", ":choosy")))
        runner.inspect()
        try_eager(runner, 60.0)
        return {name: try_one(runner, candidate, 60.0) for name, candidate in wanted.items()}


@pytest.mark.slow
def test_a_trial_builds_checks_and_times_a_candidate_with_regions(trials: dict[str, Trial]) -> None:
    """What the engine cannot export as a whole, it runs in parts."""
    trial = trials["others"]
    assert trial.state is State.OK, trial.reason
    assert trial.check is not None
    assert trial.check.passed
    assert trial.measurement is not None
    assert trial.screening
    assert (trial.frozen_weights, trial.weights_sha256 is not None) == (True, True)
    assert {file.name for file in trial.artifacts} >= {"regions.json", "regions/0/4/optimised.onnx"}


@pytest.mark.slow
def test_a_trial_of_a_region_that_fails_is_data_with_its_name(trials: dict[str, Trial]) -> None:
    assert trials["all"].state is State.INFEASIBLE
    assert culprit(trials["all"].reason) == "layers.3"
    assert trials["nothing"].state is State.INFEASIBLE
    assert trials["nothing"].reason == "no submodule of Six fits the region 'blocks.*'"
