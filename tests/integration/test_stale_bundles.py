"""Bundles that were packed for something else, started by fresh processes: stale, with what differs, and not loaded.

Of what compilot must survive, these are the rows about other versions (7), other CPUs (8) and another model (9).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bundle_help import DATA, Told, in_two_ways, put_canary, reseal, served_by_eager, try_starts, with_machine

from compilot.records import Manifest

Packer = Callable[..., Path]
Starts = dict[str, Told]


# ---- rows 7 and 8 ----------------------------------------------------------------------------------------------------

NOT_HERE = "avx10_9"  # an instruction that no CPU has yet
ELSEWHERE = {
    "torch": ("aoti", {"torch": "2.12.1"}, "torch: the plan was made with 2.12.1, this process has 2."),
    "Python": ("aoti", {"python": "3.10.4"}, "Python: the plan was made with 3.10, this process has 3."),
    "ABI": ("aoti", {"platform": "Linux-riscv64"}, "platform: the plan was made with Linux-riscv64"),
    "CPU": ("aoti", {"cpu_isa": (NOT_HERE,)}, f"made with {NOT_HERE}, which this machine does not have"),
    "engine": ("onnxruntime", {"engines": {"onnxruntime": "1.2.3"}}, "onnxruntime: the plan was made with 1.2.3"),
    "vectors": ("onnxruntime", {"cpu_isa": ("amx_fp16",)}, "made with amx_fp16, which this machine"),
    "layout": ("onnxruntime", {"cpu_isa": ()}, "laid the weights out for a CPU without"),
    "compiler": ("onnxruntime", {"compiler": "g++ 4.8.5"}, "C++ compiler: the plan was made with g++ 4.8.5"),
}


def packed_elsewhere(machine: dict[str, Any]) -> Callable[[Path, Manifest], Manifest]:
    """The bundle as another machine would have packed it; native code gets a canary."""

    def change(folder: Path, manifest: Manifest) -> Manifest:
        if manifest.engine == "aoti":
            put_canary(folder)
        if "compiler" in machine:  # it matters to bundles that hold compiled files and compile more
            entries = tuple(msgspec.structs.replace(entry, needs_compiler=True) for entry in manifest.entries)
            manifest = msgspec.structs.replace(manifest, entries=entries)
        for field, value in machine.items():
            manifest = with_machine(manifest, field, value)
        return manifest

    return change


@pytest.fixture(scope="module")
def elsewhere(packed: Packer, tmp_path_factory: pytest.TempPathFactory) -> Starts:
    """What a process told about bundles that were packed elsewhere, and at last about one that was packed here."""
    folder = tmp_path_factory.mktemp("elsewhere")
    bundles = {
        case: reseal(packed(engine), folder / case, packed_elsewhere(machine))
        for case, (engine, machine, _) in ELSEWHERE.items()
    }
    starts = in_two_ways(bundles)
    starts |= {f"{case}, strict": {"plan": path, "how": "strict"} for case, path in bundles.items()}
    own = reseal(packed("aoti"), folder / "own", packed_elsewhere({}))
    return try_starts(folder, {**starts, "own": {"plan": own, "how": "load"}})


@pytest.mark.compiles
@pytest.mark.parametrize("case", ELSEWHERE)
def test_rows_7_and_8_what_was_packed_elsewhere_is_stale_and_not_loaded(elsewhere: Starts, case: str) -> None:
    told, why = elsewhere, ELSEWHERE[case][2]
    for how in ("load", "strict"):
        refused = told[f"{case}, {how}"]
        assert refused["refused"] == "StaleBundle", refused
        assert f"{case}.cpbundle was packed for something else: " in refused["why"]
        assert any(why in difference for difference in refused["differences"]), refused
    served = told[f"{case}, compile"]
    assert served_by_eager(served, why), served
    assert served["warnings"][0].startswith("StalePlanWarning: ")
    assert "Eager answers" in served["warnings"][0]
    assert not any(one["sang"] for name, one in told.items() if name != "own")
    assert told["own"]["sang"]  # the same code in a bundle that fits: it would have run


# ---- row 9 -----------------------------------------------------------------------------------------------------------

OTHER_MODELS = {
    "code": ("the code of the model's classes or of functions they call changed", None),
    "shapes": (
        "the model's parameters (names, shapes or dtypes) changed",
        "def model():\n    made = bundling.model()\n    made.outer = torch.nn.Linear(32, 8)\n    return made\n",
    ),
    "values": (
        "weights are not those that were baked into the files",
        "def model():\n    torch.manual_seed(8)\n    return bundling.Tiny().eval()\n",
    ),
}


@pytest.fixture(scope="module")
def other_models(packed: Packer, tmp_path_factory: pytest.TempPathFactory) -> Starts:
    """What a process told about a bundle and models that are not quite the one it was packed for."""
    folder, starts = tmp_path_factory.mktemp("models"), {}
    for case, (_, code) in OTHER_MODELS.items():
        changed = (DATA / "bundling.py").read_text().replace('hidden + extra["bias"]', 'hidden - extra["bias"]')
        factory = folder / f"{case}.py"
        factory.write_text(changed if code is None else f"import bundling\nimport torch\n\n{code}")
        for how in ("strict", "compile"):
            starts[f"{case}, {how}"] = {"plan": packed("onnxruntime"), "how": how, "model": factory}
    return try_starts(folder, {**starts, "same": {"plan": packed("onnxruntime"), "how": "strict"}})


@pytest.mark.parametrize("case", OTHER_MODELS)
def test_row_9_another_model_is_stale_with_what_changed(other_models: Starts, case: str) -> None:
    why = OTHER_MODELS[case][0]
    refused, served = other_models[f"{case}, strict"], other_models[f"{case}, compile"]
    assert refused["refused"] == "StaleBundle", refused
    assert any(why in difference for difference in refused["differences"]), refused
    assert why in refused["why"]
    assert served_by_eager(served, why), served  # its own answer, not the packed model's
    assert served["warnings"][0].startswith("StalePlanWarning: ")
    assert other_models["same"]["fast"] == 1
