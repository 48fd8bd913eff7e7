"""Two engines in one program: what threads that spin cost, and what ending them brings.

    python bench/threads.py [--engines openvino,onnxruntime] [--calls 60] [--rest 0.05]

Twelve blocks of boundary_faults.py (width 192, 512 rows). For each engine of files: all blocks by it, and all but one,
which stays in eager. The latter as it comes, and with torch's idle threads ended before each of the engine's blocks
(OpenMP's omp_pause_resource_all; not what compilot does: see bench/LOG.md); ONNX Runtime's own threads as they come and
asleep between calls. Every way has a process of its own, which keeps freed memory as bench/boundary.py's repairs do; in
it eager, all and all but one take turns. Medians, and the median ratio to eager of the same turn. Nothing else should
run meanwhile.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import boundary_faults
from boundary import KEEPS

LEFT = 3  # the block that stays in eager
WAYS = {"openvino": ("as it is", "threads ended"), "onnxruntime": ("as it is", "asleep", "asleep, threads ended")}
Call = Callable[[int, torch.Tensor], torch.Tensor]


def openvino_blocks(blocks: list[torch.nn.Module], x: torch.Tensor) -> Call:
    import openvino

    core, requests = openvino.Core(), []
    for block in blocks:
        model = openvino.convert_model(block, example_input=x, input=[list(x.shape)])
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        requests.append(core.compile_model(model, "CPU", hints).create_infer_request())

    def call(number: int, hidden: torch.Tensor) -> torch.Tensor:
        found = requests[number].infer({0: hidden.numpy()}, share_inputs=True, share_outputs=True)
        return torch.from_numpy(found[0])

    return call


def onnxruntime_blocks(blocks: list[torch.nn.Module], x: torch.Tensor, *, asleep: bool) -> Call:
    import onnxruntime

    sessions = []
    with tempfile.TemporaryDirectory() as folder:
        for number, block in enumerate(blocks):
            path = f"{folder}/{number}.onnx"
            torch.onnx.export(block, (x,), path, dynamo=True, verbose=False, external_data=False)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            options.add_session_config_entry("session.intra_op.allow_spinning", str(int(not asleep)))
            sessions.append(onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
    names = [session.get_inputs()[0].name for session in sessions]

    def call(number: int, hidden: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(sessions[number].run(None, {names[number]: hidden.numpy()})[0])

    return call


def ender() -> Callable[[], Any]:
    """What ends the calling thread's idle OpenMP threads."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    pause = ctypes.CDLL(next(line.split()[-1] for line in maps if "libgomp" in line)).omp_pause_resource_all
    return lambda: pause(1)


def in_child(engine: str, way: str, calls: int, rest_s: float) -> dict[str, list[float]]:
    """Seconds of eager, of all blocks by the engine, and of all but one, turn after turn."""
    model, (x,) = boundary_faults.healthy(0)
    blocks: list[Any] = list(model.layers)  # type: ignore[union-attr, arg-type]
    for block in blocks:
        block.cut_off = "none"
    made = openvino_blocks if engine == "openvino" else onnxruntime_blocks
    call = made(blocks, x, **({} if engine == "openvino" else {"asleep": way.startswith("asleep")}))
    end = ender() if way.endswith("ended") else None

    def through(some: Call, kept: int | None) -> torch.Tensor:
        hidden = x
        for number, block in enumerate(blocks):
            if number == kept:
                hidden = block(hidden)
            else:
                if end is not None:
                    end()
                hidden = some(number, hidden)
        return hidden

    arms = {
        "eager": lambda: through(lambda number, hidden: blocks[number](hidden), None),
        "all": lambda: through(call, None),
        "all but one": lambda: through(call, LEFT),
    }
    right = arms["eager"]()
    for name in ("all", "all but one"):
        torch.testing.assert_close(arms[name](), right, atol=1e-4, rtol=1e-4)
    found: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(calls // 4 + 2):
        for name, arm in arms.items():
            time.sleep(rest_s)
            arm()  # after a change of arms threads of the one before still spin
            begin = time.perf_counter()
            for _ in range(4):
                arm()
            if turn >= 2:
                found[name].append((time.perf_counter() - begin) / 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="openvino,onnxruntime")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--rest", type=float, default=0.0, help="seconds before each turn")
    asked = parser.parse_args()
    print("| engine | way | eager ms | all blocks ms | all but one ms | over eager: all | all but one |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for engine in asked.engines.split(","):
        for way in WAYS[engine]:
            command = [sys.executable, str(Path(__file__)), "--child", engine, way, str(asked.calls), str(asked.rest)]
            env = {**os.environ, **KEEPS}
            run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            found = json.loads(run.stdout.splitlines()[-1])
            medians = [f"{statistics.median(found[name]) * 1e3:.1f}" for name in found]
            over = [
                statistics.median([a / b for a, b in zip(found["eager"], found[name], strict=True)])
                for name in ("all", "all but one")
            ]
            print(f"| {engine} | {way} | {' | '.join(medians)} | {over[0]:.2f}x | {over[1]:.2f}x |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        with torch.no_grad():
            print(json.dumps(in_child(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))))
    else:
        main()
