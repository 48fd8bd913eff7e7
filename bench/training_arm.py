"""One arm of bench/training.py, in a process of its own.

    python bench/training_arm.py MODEL ARM [--plan RUN]

In: a training of training_models.py and an arm: eager, eager_fused, compile, compile_fused (what people write by hand)
or plan (`compilot.train_step` with the plan of RUN). Then on stdin numbers of steps, one per line. Out: JSON lines on
stdout: first {"ready": ..., "first_s": ...}, then {"step_s": ...} for each number, and {"peak_rss_bytes": ...} at the
end of the input. Warm-up: WARM steps and a second. All arms have the same weights and batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import training_models
from compilot.measure.build_cost import peak_rss_bytes
from compilot.workload.eager_step import EagerStep

BY_HAND = ("eager", "eager_fused", "compile", "compile_fused")
ARMS = (*BY_HAND, "plan")
WARM, WARM_S = 5, 1.0


def stepper(model: str, arm: str, run: Path | None) -> tuple[Any, Any]:
    """The arm's step, and its batches."""
    torch.manual_seed(0)
    training = getattr(training_models, model)()
    plan = run / "plan.json" if run is not None else None
    if arm == "plan":
        import compilot

        assert plan is not None
        compilot.apply_process(plan)
        optimizer = training.make_optimizer(training.model.parameters())
        return compilot.train_step(training.model, training.loss, optimizer, plan, strict=True), training
    optimizer = training.make_optimizer(training.model.parameters())
    if arm.endswith("_fused"):
        optimizer = type(optimizer)(training.model.parameters(), **{**_given(optimizer), "fused": True})
    if arm.startswith("compile"):
        training.model.compile()
    return EagerStep(training.model, training.loss, optimizer, training.rules), training


def _given(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What it was made with."""
    return {k: v for k, v in optimizer.defaults.items() if k not in ("foreach", "fused", "decoupled_weight_decay")}


def main(argv: list[str]) -> int:
    """Serve the driver until its input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=training_models.NAMES)
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("--plan", type=Path)
    asked = parser.parse_args(argv)
    begin = time.perf_counter()
    step, training = stepper(asked.model, asked.arm, asked.plan)
    batches, size = training.batches, training.rules.accumulate
    place = 0

    def steps(count: int) -> float:
        nonlocal place
        start = time.perf_counter()
        for _ in range(count * size):
            step(batches[place % len(batches)])
            place += 1
        return (time.perf_counter() - start) / count

    steps(1)
    first_s = time.perf_counter() - begin
    end = time.perf_counter() + WARM_S
    while place < WARM * size or time.perf_counter() < end:
        last_s = steps(1)
    say({"ready": asked.arm, "first_s": first_s, "step_s": last_s})
    for line in sys.stdin:
        say({"step_s": steps(int(line))})
    say({"peak_rss_bytes": peak_rss_bytes()})
    return 0


def say(what: dict[str, Any]) -> None:
    """One line for the driver; on the real stdout, whatever a model prints."""
    sys.__stdout__.write(json.dumps(what) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
