"""What OpenVINO gains at a start from the compiled form beside its graph, and whether calls pay for it.

    python bench/openvino_start.py [--models resnet18,bert,vit,mlp] [--times 7] [--pairs 60] [--out DIR]

Two bundles per model, with `model.blob` and without. Starts: fresh processes, alternately, as in coldstart.py (no
compiler, a HOME where nothing can be written, files unpacked already); medians of the step "load" and of the whole time
to the first answer. Calls: both in one process, alternately; the median of the ratios of neighbours, and whether the
answers are the same to the bit. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coldstart

FORMS = ("blob", "graph")


def main() -> None:
    options = parse()
    (options.out / "unpacked").mkdir(parents=True, exist_ok=True)
    print(
        "| model | load: graph ms | load: blob ms | first answer: graph s | first answer: blob s | call: blob / graph |"
    )
    print("|---|---|---|---|---|---|")
    for model in options.models.split(","):
        for form in FORMS:
            if not (options.out / form / f"{model}-openvino.cpbundle").exists():
                child(options, "pack", model, form)
            child(options, "start", model, form)  # not counted: unpacks, and writes byte code
        rows = [{form: child(options, "start", model, form) for form in FORMS} for _ in range(options.times)]
        with (options.out / "starts.jsonl").open("a") as file:
            file.writelines(json.dumps({"model": model, **row}) + "\n" for row in rows)
        show(model, rows, child(options, "race", model, str(options.pairs)))


def show(model: str, rows: list[dict[str, Any]], race: dict[str, Any]) -> None:
    def middle(form: str, of: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(of(row[form]) for row in rows)

    loads = [f"{middle(form, lambda row: row['steps']['load']) * 1e3:.0f}" for form in ("graph", "blob")]
    alls = [f"{middle(form, lambda row: row['seconds']):.3f}" for form in ("graph", "blob")]
    low, high = race["quartiles"]
    print(f"| {model} | {' | '.join(loads + alls)} | {race['ratio']:.3f} ({low:.3f}-{high:.3f}) |", flush=True)


def child(options: argparse.Namespace, what: str, model: str, extra: str) -> dict[str, Any]:
    unpacked = {**coldstart.NO_HOME, "TMPDIR": str((options.out / "unpacked").absolute())}
    return coldstart.child(what, model, options.out, extra, {} if what == "pack" else unpacked, __file__)


# ------------------------------------------------------------------------------------------------ in the fresh process


def in_child(what: str, model: str, out: Path, extra: str) -> dict[str, Any]:
    import torch

    torch.set_grad_enabled(False)
    if what == "race":
        return race(model, int(extra), out)
    if what == "start":
        return coldstart.serve(model, out / extra, "openvino")
    return pack(model, extra, out / extra)


def pack(model: str, form: str, folder: Path) -> dict[str, Any]:
    import torch

    import coldstart_models
    from compilot.engines.openvino import saving

    if form == "graph":
        saving.MOST_OF_THE_WEIGHTS, saving.SMALL_BYTES = 0.0, 0
    folder.mkdir(exist_ok=True)
    made = getattr(coldstart_models, model)()
    net, args, kwargs = made
    torch.save((args, kwargs, coldstart.first_tensor(net(*args, **kwargs))), folder / f"{model}.answer")
    return coldstart.pack(model, folder, "openvino", made)


def race(model: str, pairs: int, out: Path) -> dict[str, Any]:
    """Both forms in this process, alternately."""
    import torch

    import compilot

    args, kwargs, _ = torch.load(out / "blob" / f"{model}.answer")
    calls = {form: compilot.load(out / form / f"{model}-openvino.cpbundle", plain_outputs=True) for form in FORMS}
    answers = [coldstart.first_tensor(call(*args, **kwargs)) for call in calls.values()]
    assert torch.equal(*answers), "the answers differ"
    ratios = []
    for i in range(pairs):
        seconds = {form: timed(calls[form], args, kwargs) for form in (FORMS if i % 2 else FORMS[::-1])}
        ratios.append(seconds["blob"] / seconds["graph"])
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"ratio": middle, "quartiles": (low, high)}


def timed(call: Any, args: Any, kwargs: Any) -> float:
    call(*args, **kwargs)  # its weights into the processor's caches
    began = time.perf_counter()
    call(*args, **kwargs)
    return time.perf_counter() - began


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18,bert,vit,mlp")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "openvino_start")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, model, out, extra = sys.argv[2:6]
        print(json.dumps(in_child(what, model, Path(out), extra)))
    else:
        main()
