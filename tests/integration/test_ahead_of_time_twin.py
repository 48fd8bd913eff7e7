"""A torch.compile plan packed as its ahead-of-time twin, for real: tried, raced, packed, started without a compiler."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bundling
import msgspec
import pytest
import six_blocks
import torch
from bundle_help import tiny_run
from regional_runs import regional, run_of

import compilot
from compilot.artifacts.journal import Journal
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.rundir import RunDir
from compilot.packing import Packed, PackOptions, pack, twin
from compilot.progress import Observer
from compilot.records import JOURNAL_SCHEMA, Comparison, Outcome, Race, RunHeader, Settings, Trial
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.protocol import ToolchainReady
from compilot.verdict.compare import compare


class QuickRunner(LocalRunner):
    """Real processes, but few of them: no A/A arm, and the compiler's shared header is not built on its own."""

    def __init__(self, run_dir: RunDir, **how: Any) -> None:
        super().__init__(run_dir, **{**how, "compiler_first": False})
        self.toolchain = ToolchainReady(wall_s=0.0)

    def _with_aa(self, trials: Sequence[Trial]) -> bool:
        return False


def not_slower(race: Race, candidate_id: str, baseline_id: str) -> Comparison:
    """The real figures; who wins in four rounds is left to chance, and must not decide the test."""
    return msgspec.structs.replace(compare(race, candidate_id, baseline_id), outcome=Outcome.NO_DIFFERENCE)


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(twin, "LocalRunner", QuickRunner)
    monkeypatch.setattr(twin, "Limits", functools.partial(Limits, warm_s=1.0))
    monkeypatch.setattr(twin, "compare", not_slower)
    monkeypatch.setattr(twin, "PAIRS", 4)
    monkeypatch.setattr(twin, "PROCESSES", 1)


def packed_run(run: Path, bundle: Path) -> Packed:
    """A run with a plan and no journal, packed."""
    plan = load_plan(run / "plan.json")
    header = RunHeader(
        schema=JOURNAL_SCHEMA,
        compilot=plan.compilot,
        created=plan.created,
        workload=plan.workload,
        fingerprint=plan.fingerprint,
        budget_s=1.0,
    )
    Journal.create(run / "journal.jsonl", header).close()
    return pack([run], bundle, PackOptions(), Observer())


@pytest.mark.compiles
def test_a_torch_compile_plan_travels_as_its_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = packed_run(tiny_run(tmp_path / "run", "inductor"), tmp_path / "model.cpbundle")
    manifest = packed.manifest
    assert (manifest.engine, manifest.standalone) == ("aoti", True)
    assert not manifest.entries[0].needs_compiler
    assert any(text.startswith("packed as its twin, not shown slower: aoti against") for text in manifest.sentences)
    monkeypatch.setenv("PATH", "/nonexistent")
    fast = compilot.load(packed.path)
    x, extra = bundling.batch(1), {"bias": torch.ones(32)}
    with torch.no_grad():
        torch.testing.assert_close(
            fast(x, extra=extra)["logits"], bundling.model()(x, extra=extra)["logits"], rtol=1e-4, atol=1e-5
        )
    assert fast.stats().fast == 1


@pytest.mark.compiles
def test_regions_on_torch_compile_travel_as_their_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One on Inductor gets files, one that has files already stays as it is."""
    regions = regional(("layers.[1-2]", Settings(engine="inductor")), ("last", Settings(engine="onnxruntime")))
    packed = packed_run(run_of(tmp_path / "run", regions), tmp_path / "model.cpbundle")
    (entry,) = packed.manifest.entries
    assert not entry.needs_compiler
    assert not packed.manifest.standalone  # the rest is the model's own
    assert any("packed as its twin, not shown slower" in text for text in packed.manifest.sentences)
    monkeypatch.setenv("PATH", "/nonexistent")
    model, args, kwargs = six_blocks.six()
    with torch.no_grad():
        fast = compilot.compile(model, packed.path, strict=True)
        torch.testing.assert_close(fast(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-5)
    stats = fast.stats()
    assert {path: one.fast for path, one in stats.regions.items()} == {"layers.1": 1, "layers.2": 1, "last": 1}
    assert stats.compiles == 0
