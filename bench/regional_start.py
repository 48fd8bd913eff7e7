"""Do bundles with regions start as fast as others? Fresh processes, from "torch imported, model built" to the answer.

    python bench/regional_start.py [--models vit,bert] [--engines aoti,onnxruntime,openvino] [--times 10]
                                   [--out DIR] [--work DIR]

For each model and engine two bundles: the whole model, and every repeated block with the rest in eager. Both are
started by `compilot.compile(model, bundle)`, in turn, from a filled bundle cache, with a PATH that holds no compiler.
Every answer is compared with eager's. Results go to OUT/regional_start.jsonl as they come, and as a table to OUT/
regional_start.md; pairs that are there are not run again; bundles are in WORK. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from coldstart import MODELS, check, child, first_tensor, rows

HERE = Path(__file__).parent
BLOCKS = {"vit": "vit.layers.[0-9]", "bert": "encoder.layer.[0-9]"}  # model -> its repeated blocks
WHOLE, REGIONS = "whole", "regions"


def main() -> None:
    options = parse()
    for folder in (options.out, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    journal = options.out / "regional_start.jsonl"
    cases = [(model, engine) for model in options.models.split(",") for engine in options.engines.split(",")]
    for model, engine in cases:
        for kind in (WHOLE, REGIONS):
            if not bundle_of(options.work, model, engine, kind).exists():
                print(f"packing {model} for {engine}, {kind}", flush=True)
                child("pack", model, options.work, f"{engine}-{kind}", {}, __file__)
            start(options.work, model, engine, kind)  # not counted: fills the cache, and writes byte code
        done = len(pairs_of(rows(journal), model, engine))
        for _ in range(done, options.times):
            pair = {kind: start(options.work, model, engine, kind) for kind in (WHOLE, REGIONS)}
            with journal.open("a") as file:
                file.write(json.dumps({"model": model, "engine": engine, **pair}) + "\n")
    told = table(rows(journal))
    (options.out / "regional_start.md").write_text(told)
    print(told)


def bundle_of(out: Path, model: str, engine: str, kind: str) -> Path:
    return out / f"{model}-{engine}-{kind}.cpbundle"


def start(out: Path, model: str, engine: str, kind: str) -> float:
    """Seconds of one fresh process."""
    settings = {"PATH": "/nonexistent", "COMPILOT_CACHE": str((out / "unpacked").absolute())}
    (out / "unpacked").mkdir(mode=0o700, exist_ok=True)
    return float(child("start", model, out, f"{engine}-{kind}", settings, __file__)["seconds"])


# ------------------------------------------------------------------------------------------------ in the fresh process


def in_child(what: str, model: str, out: Path, arm: str) -> dict[str, Any]:
    import torch

    import coldstart_models

    made = getattr(coldstart_models, model)()
    engine, kind = arm.split("-")
    bundle = bundle_of(out, model, engine, kind)
    if what == "pack":
        return pack(bundle, model, engine, kind, made)
    net, args, kwargs = made
    torch.set_grad_enabled(False)
    began = time.perf_counter()
    import compilot

    fast = compilot.compile(net, bundle, strict=True)
    answer = fast(*args, **kwargs)
    seconds = time.perf_counter() - began
    check(answer, first_tensor(net(*args, **kwargs)))
    stats = fast.stats()
    assert stats.fast == 1
    assert not any(one.fallbacks for one in stats.regions.values())
    return {"seconds": seconds}


def pack(bundle: Path, model: str, engine: str, kind: str, made: Any) -> dict[str, Any]:
    sys.path.insert(0, str(HERE.parent / "tests" / "data"))
    from regional_runs import make_run, regional

    from compilot.packing import PackOptions
    from compilot.packing import pack as pack_runs
    from compilot.progress import Observer
    from compilot.records import Candidate, Settings

    settings = Settings(engine=engine)
    whole = Candidate(settings=settings, label=engine, rationale="made by hand")
    candidate = whole if kind == WHOLE else regional((BLOCKS[model], settings))
    with tempfile.TemporaryDirectory() as folder:
        make_run(Path(folder) / "run", candidate, f"{MODELS.absolute()}:{model}", made)
        packed = pack_runs([Path(folder) / "run"], bundle, PackOptions(), Observer())
    return {"size_bytes": packed.size_bytes}


# ------------------------------------------------------------------------------------------------ the table


def pairs_of(found: list[dict[str, Any]], model: str, engine: str) -> list[tuple[float, float]]:
    return [(row[WHOLE], row[REGIONS]) for row in found if (row["model"], row["engine"]) == (model, engine)]


def table(found: list[dict[str, Any]]) -> str:
    """Medians, and the ratio of the two starts of each pair: its median with a 95 % interval over the pairs."""
    lines = ["| model | engine | whole s | regions s | regions / whole (95 %) | pairs |", "|---|---|--:|--:|--:|--:|"]
    for model, engine in dict.fromkeys((row["model"], row["engine"]) for row in found):
        pairs = pairs_of(found, model, engine)
        whole, regions = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [one[1] / one[0] for one in pairs]
        low, high = interval(ratios)
        told = f"{statistics.median(ratios):.2f} ({low:.2f}-{high:.2f}) | {len(pairs)}"
        lines.append(f"| {model} | {engine} | {whole:.3f} | {regions:.3f} | {told} |")
    return "\n".join(lines) + "\n"


def interval(ratios: list[float]) -> tuple[float, float]:
    """Of their median, by drawing them again."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[-101]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(BLOCKS))
    parser.add_argument("--engines", default="aoti,onnxruntime,openvino")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "regional_start")
    parser.add_argument("--work", type=Path, default=Path("compilot-runs/bench-regional-start"))
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, model, out, arm = sys.argv[2:6]
        print(json.dumps(in_child(what, model, Path(out), arm)))
    else:
        main()
