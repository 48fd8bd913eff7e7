"""Plans with the options that the search turns survive their file and a bundle: packed, started, right answers."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import bundling
import msgspec
import pytest
import torch
from bundle_help import DATA
from making_runs import make_run

import compilot
from compilot.artifacts.planfile import load_plan, save_plan
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import OptionValue, Plan, ProcessSettings

CODE: dict[str, OptionValue] = {
    "freezing": True,
    "aggressive_fusion": True,
    "max_fusion_size": 16,
    "layout_optimization": False,
    "pattern_matcher": False,
    "cpp.min_chunk_size": 4096,
    "cpp.threads": 1,
}
EVERYTHING: dict[str, dict[str, OptionValue]] = {
    "onnxruntime": {"arena": False, "dynamic_block_base": 4, "allow_spinning": False, "memory_pattern": False},
    "openvino": {"partitioner": "auto", "pin_cpus": False, "streams": 1, "hint": "throughput"},
    "aoti": CODE,
    "aoti with its weights as they are": {"onednn_products": True},
    "inductor with its weights as they are": {"onednn_products": True, "cpp_wrapper": True},
    "inductor": {**CODE, "asserts": False, "light_guards": True},
}
COMPILED = ("aoti", "inductor")


@pytest.mark.filterwarnings("default::DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.compiles if name.startswith(COMPILED) else ()) for name in EVERYTHING],
)
def test_a_plan_with_every_option_is_packed_and_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    options, engine = EVERYTHING[name], name.partition(" ")[0]
    run = make_run(tmp_path / "run", engine, f"{DATA / 'bundling.py'}:one", bundling.one(), options)
    plan = load_plan(run / "plan.json")
    save_plan(msgspec.structs.replace(plan, process=ProcessSettings(keep_memory=True)), run / "plan.json")
    bundle = tmp_path / "model.cpbundle"
    pack([run], bundle, PackOptions(twin=False), Observer())
    with zipfile.ZipFile(bundle) as archive:
        shipped = msgspec.json.decode(archive.read("plan.json"), type=Plan)
    assert shipped.entries[0].candidate.settings.options == options
    assert shipped.process == ProcessSettings(keep_memory=True)
    model, (x,), kwargs = bundling.one()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", compilot.CompilotWarning)  # memory is not kept in this process
        fast = compilot.compile(model, bundle, strict=True)
        for _ in range(2):
            torch.testing.assert_close(fast(x, **kwargs)["logits"], model(x, **kwargs)["logits"])
    assert fast.stats().fast == 2
