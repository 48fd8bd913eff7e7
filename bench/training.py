"""Training steps: the plan's over eager's default loop and over the best by hand, model by model.

    python bench/training.py [--only gpt2,mlp] [--budget 5m] [--sets 3] [--rounds 40] [--steps N] [--table]

For each of six trainings: `compilot.tune` (kept in --work/tune/MODEL), then sets of processes: one for each arm by
hand ({eager, torch.compile(model)} x {default, fused optimizer}) and one for the plan, in rounds of random order.
Each finished step is one line of --results/training.jsonl: a bench that is started again goes on after the last one
(exit code 75: call again). `--table` prints what is there. A model that falls short shows every candidate
tried (training_table.py). Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from stepping import DONE, MORE, MoreToDo, Steps, chosen_models, say
from training_arm import ARMS
from training_journal import Journal, Raced, Tuned
from training_models import NAMES
from training_table import table

HERE = Path(__file__).parent
BATCH_S = 0.2  # a timed batch of steps lasts about this long
SETTLE_S = 0.02  # the threads of the arm before spin for 6 ms after its last step


class Arm(Protocol):
    """A process that takes steps when asked."""

    first_s: float
    step_s: float

    def time(self, steps: int) -> float: ...
    def close(self) -> int: ...


class Process:
    """bench/training_arm.py."""

    def __init__(self, model: str, arm: str, run: Path) -> None:
        command = [sys.executable, str(HERE / "training_arm.py"), model, arm, "--plan", str(run)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = self._read()
        self.first_s, self.step_s = float(ready["first_s"]), float(ready["step_s"])

    def time(self, steps: int) -> float:
        """Seconds of a step, over so many."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return float(self._read()["step_s"])

    def close(self) -> int:
        """End it; the peak of its memory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak = int(self._read()["peak_rss_bytes"])
        self._process.wait(timeout=60)
        return peak

    def kill(self) -> None:
        """Whatever happens, nothing is left running."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"an arm ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


def tune(model: str, run: Path, budget: str) -> Tuned:
    """The plan, and every candidate that was tried on the way."""
    import compilot

    plan = compilot.tune(f"{HERE / 'training_models.py'}:{model}", budget=budget, out=run)
    found = compilot.results(run)
    tried = {row["candidate"]: f"{row['state']} {row['speedup'] or 0.0:.3f}x {row['note']}" for row in found.rows}
    return Tuned(model=model, chosen=str(plan), sentence=found.sentence, tried=tried)


def race(model: str, number: int, run: Path, rounds: int, start: Callable[[str, str, Path], Arm] = Process) -> Raced:
    """One set of processes, one for each arm, in rounds of random order."""
    with ExitStack() as stack:
        arms: dict[str, Arm] = {}
        for name in ARMS:
            arms[name] = start(model, name, run)
            if isinstance(arms[name], Process):
                stack.callback(arms[name].kill)  # type: ignore[attr-defined]
        counts = {name: max(1, round(BATCH_S / max(arm.step_s, 1e-6))) for name, arm in arms.items()}
        samples: dict[str, list[float]] = {name: [] for name in arms}
        for turn in range(rounds):
            for name in random.Random(1000 * number + turn).sample(ARMS, len(ARMS)):
                time.sleep(SETTLE_S)
                samples[name].append(arms[name].time(counts[name]))
        first = {name: arm.first_s for name, arm in arms.items()}
        peaks = {name: arm.close() for name, arm in arms.items()}
    rows = {name: tuple(values) for name, values in samples.items()}
    return Raced(model=model, number=number, step_s=rows, first_s=first, peak_rss_bytes=peaks)


def run_all(
    journal: Journal,
    models: Sequence[str],
    work: Path,
    asked: Any,
    steps: Steps,
    make_plan: Callable[[str, Path, str], Tuned] = tune,
    start: Callable[[str, str, Path], Arm] = Process,
) -> None:
    """What is not in the journal yet; raises MoreToDo when the steps are used up."""
    for model in models:
        run = work / "tune" / model
        if journal.tuned(model) is None:
            steps.take()
            say(model, "tuning")
            journal.append(make_plan(model, run, asked.budget))
        for number in range(len(journal.raced(model)), asked.sets):
            steps.take()
            say(model, f"set {number + 1} of {asked.sets}")
            journal.append(race(model, number, run, asked.rounds, start))


def main(argv: list[str]) -> int:
    """Go on where the last one stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only")
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--sets", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, help="of the bench at the most; default: all")
    parser.add_argument("--work", type=Path, default=Path("compilot-bench-training"))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "training")
    parser.add_argument("--table", action="store_true", help="print what is there and end")
    asked = parser.parse_args(argv)
    models = chosen_models(asked.only, NAMES)
    journal = Journal(asked.results / "training.jsonl")
    code = DONE
    if not asked.table:
        try:
            run_all(journal, models, asked.work.absolute(), asked, Steps(asked.steps))
        except MoreToDo:
            code = MORE
    print("\n".join(table(journal, models)))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
