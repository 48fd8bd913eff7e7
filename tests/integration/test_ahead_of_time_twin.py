"""A torch.compile plan packed as its ahead-of-time twin, for real: tried, raced, packed, started without a compiler."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bundling
import msgspec
import pytest
import torch
from bundle_help import tiny_run

import compilot
from compilot.artifacts.journal import Journal
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.rundir import RunDir
from compilot.packing import PackOptions, pack, twin
from compilot.progress import Observer
from compilot.records import JOURNAL_SCHEMA, Comparison, Outcome, Race, RunHeader, Trial
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


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose plan is plain torch.compile."""
    folder = tiny_run(tmp_path / "run", "inductor")
    plan = load_plan(folder / "plan.json")
    header = RunHeader(
        schema=JOURNAL_SCHEMA,
        compilot=plan.compilot,
        created=plan.created,
        workload=plan.workload,
        fingerprint=plan.fingerprint,
        budget_s=1.0,
    )
    Journal.create(folder / "journal.jsonl", header).close()
    return folder


@pytest.mark.compiles
def test_a_torch_compile_plan_travels_as_its_twin(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(twin, "LocalRunner", QuickRunner)
    monkeypatch.setattr(twin, "Limits", functools.partial(Limits, warm_s=1.0))
    monkeypatch.setattr(twin, "compare", not_slower)
    monkeypatch.setattr(twin, "PAIRS", 4)
    monkeypatch.setattr(twin, "PROCESSES", 1)
    packed = pack([run], tmp_path / "model.cpbundle", PackOptions(), Observer())
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
