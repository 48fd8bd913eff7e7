"""How long until the first answer? Fresh processes, from "torch imported, model built" to the answer.

    python bench/coldstart.py [--models resnet18,bert,vit,mlp] [--arms bundle] [--times 5] [--out DIR]

Arms: eager; torch.compile with nothing kept; with the cache directory kept; with the mega-cache
(torch.compiler.save/load_cache_artifacts), as on a machine that has not compiled before, and where torch's precompiled
C++ header is there already (it lies in the temporary folder, whatever the cache directory is); compilot bundles of
AOTInductor, ONNX Runtime and OpenVINO, from an empty bundle cache (unpacked and checked on the way) and from a filled
one. Every answer is compared with eager's. Bundles are started with a PATH that holds no compiler and a HOME where
nothing can be written. All Python files have byte code, as in an installed package. Results go to DIR/coldstart.jsonl
as they come; an arm that has enough of them is not run again. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODELS = HERE / "coldstart_models.py"
ENGINES = ("aoti", "onnxruntime", "openvino")
COMPILED = ("compile-cold", "compile-kept-cache", "mega-cache", "mega-cache-header")
NO_HOME = {"PATH": "/nonexistent", "HOME": "/proc/self"}  # no compiler, and a home where nothing can be written
LAYOUTS = {("aoti", "resnet18")}  # channels-last, which `tune` tries for convolutions, and which is faster here
UNSET = ("PYTHONDONTWRITEBYTECODE", "COMPILOT_CACHE", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.out / "coldstart.jsonl"
    for model in options.models.split(","):
        prepare(model, options.out)
        for arm in (arm for arm in arms() if options.arms in arm):
            done = [row for row in rows(journal) if (row["model"], row["arm"]) == (model, arm)]
            if arm.startswith("bundle-") and len(done) < options.times:
                start(model, arm, options.out)  # not counted: fills the cache, and writes byte code
            for _ in range(len(done), options.times):
                row = {"model": model, "arm": arm, **start(model, arm, options.out)}
                with journal.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{model} {arm}: {row['seconds']:.3f} s {row.get('steps', '')}", flush=True)
    show(rows(journal))


def arms() -> list[str]:
    bundles = [f"bundle-{engine}{state}" for engine in ENGINES for state in ("", "-unpacked")]
    return ["eager", *bundles, *COMPILED]


def rows(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def prepare(model: str, out: Path) -> None:
    """Bundles of each engine, eager's answer, a kept cache directory and the mega-cache, made once."""
    for kept in ("unpacked", "temporary"):
        (out / kept).mkdir(exist_ok=True)
    for engine in ENGINES:
        bundle = out / f"{model}-{engine}.cpbundle"
        if not bundle.exists():
            print(f"packing {model} for {engine}", flush=True)
            child("pack", model, out, engine, {})
    if not (out / f"{model}.mega").exists():
        print(f"filling torch's caches for {model}", flush=True)
        child("fill", model, out, "", folders(out / f"{model}-kept", out / "temporary"))


def start(model: str, arm: str, out: Path) -> dict[str, Any]:
    """One fresh process; what is kept from earlier ones is in the folders that it gets."""
    with tempfile.TemporaryDirectory() as empty:
        if arm.startswith("bundle-"):
            temporary = out / "unpacked" if arm.endswith("-unpacked") else Path(empty)
            return child("bundle", model, out, arm.split("-")[1], {**NO_HOME, "TMPDIR": str(temporary.absolute())})
        cache = out / f"{model}-kept" if arm == "compile-kept-cache" else Path(empty, "cache")
        temporary = out / "temporary" if arm in {"compile-kept-cache", "mega-cache-header"} else Path(empty)
        return child(arm.removesuffix("-header"), model, out, "", folders(cache, temporary))


def folders(cache: Path, temporary: Path) -> dict[str, str]:
    """Where torch keeps what it compiled, and its precompiled header."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(cache.absolute()), "TMPDIR": str(temporary.absolute())}


def child(
    what: str, model: str, out: Path, engine: str, settings: dict[str, str], script: str = __file__
) -> dict[str, Any]:
    """What the script answers in a process of its own."""
    env = {name: value for name, value in os.environ.items() if name not in UNSET} | settings
    command = [sys.executable, script, "--child", what, model, str(out.absolute()), engine]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{what} {model} {engine} failed:\n{run.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


# ------------------------------------------------------------------------------------------------ in the fresh process


def in_child(what: str, model: str, out: Path, engine: str) -> dict[str, Any]:
    import torch

    if what == "bundle":
        return serve(model, out, engine)
    sys.path.insert(0, str(HERE))
    import coldstart_models

    made = getattr(coldstart_models, model)()
    if what == "pack":
        return pack(model, out, engine, made)
    net, args, kwargs = made
    torch.set_grad_enabled(False)
    if what == "fill":
        torch.save((args, kwargs, first_tensor(net(*args, **kwargs))), out / f"{model}.answer")
        return fill(net, args, kwargs, out / f"{model}.mega")
    began = time.perf_counter()
    answer = first_answer(what, net, args, kwargs, out / f"{model}.mega")
    seconds = time.perf_counter() - began
    check(answer, first_tensor(net(*args, **kwargs)))
    return {"seconds": seconds}


def serve(model: str, out: Path, engine: str) -> dict[str, Any]:
    """As a server would: torch and the request are there, the model is not."""
    import torch

    args, kwargs, right = torch.load(out / f"{model}.answer")
    torch.set_grad_enabled(False)
    began = time.perf_counter()
    import compilot

    fast = compilot.load(out / f"{model}-{engine}.cpbundle", plain_outputs=True)
    answer = fast(*args, **kwargs)
    seconds = time.perf_counter() - began
    check(answer, right)
    return {"seconds": seconds, "steps": fast.startup}


def check(answer: Any, right: Any) -> None:
    import torch

    got = first_tensor(answer)
    assert torch.allclose(got, right, rtol=1e-3, atol=1e-3), f"wrong answer: {(got - right).abs().max()}"


def first_answer(what: str, net: Any, args: Any, kwargs: Any, mega: Path) -> Any:
    import torch

    if what == "eager":
        return net(*args, **kwargs)
    if what == "mega-cache":
        loaded = torch.compiler.load_cache_artifacts(mega.read_bytes())
        assert loaded is not None
    return torch.compile(net)(*args, **kwargs)


def first_tensor(answer: Any) -> Any:
    return (
        answer
        if hasattr(answer, "abs")
        else next(v for v in (answer if isinstance(answer, tuple) else answer.values()))
    )


def fill(net: Any, args: Any, kwargs: Any, mega: Path) -> dict[str, Any]:
    import torch

    torch.compile(net)(*args, **kwargs)
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    mega.write_bytes(saved[0])
    return {}


def pack(model: str, out: Path, engine: str, made: Any) -> dict[str, Any]:
    sys.path.insert(0, str(HERE.parent / "tests" / "data"))
    from making_runs import make_run

    from compilot.packing import PackOptions
    from compilot.packing import pack as pack_runs
    from compilot.progress import Observer
    from compilot.records import MemoryFormat

    options = {"freezing": True} if engine == "aoti" else {}
    layout = MemoryFormat.CHANNELS_LAST if (engine, model) in LAYOUTS else MemoryFormat.PRESERVE
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", engine, f"{MODELS.absolute()}:{model}", made, options, layout)
        packed = pack_runs([run], out / f"{model}-{engine}.cpbundle", PackOptions(), Observer())
    return {"size_bytes": packed.size_bytes}


# ------------------------------------------------------------------------------------------------ the table


def show(found: list[dict[str, Any]]) -> None:
    """Medians, and how many times faster each is than the mega-cache, without and with torch's header in place."""
    print("\n| model | arm | median s | min - max | of eager's | mega-cache / it | mega-cache with header / it |")
    print("|---|---|---|---|---|---|---|")
    for model in dict.fromkeys(row["model"] for row in found):
        median = {arm: statistics.median(times) for arm in arms() if (times := seconds_of(found, model, arm))}
        nothing = float("nan")
        for arm, value in median.items():
            times = seconds_of(found, model, arm)
            ratios = [median.get(other, nothing) / value for other in ("mega-cache", "mega-cache-header")]
            against = " | ".join(f"{ratio:.0f}x" for ratio in ratios)
            eager = value / median.get("eager", nothing)
            print(f"| {model} | {arm} | {value:.3f} | {min(times):.3f} - {max(times):.3f} | {eager:.2f}x | {against} |")


def seconds_of(found: list[dict[str, Any]], model: str, arm: str) -> list[float]:
    return [row["seconds"] for row in found if (row["model"], row["arm"]) == (model, arm)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18,bert,vit,mlp")
    parser.add_argument("--arms", default="", help="only arms with this in their name")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "coldstart")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, model, out, engine = sys.argv[2:6]
        print(json.dumps(in_child(what, model, Path(out), engine)))
    else:
        main()
