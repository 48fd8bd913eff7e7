"""The steps of bench/shapes.py: one tune, one set of raced processes. In: a case. Out: a line of the journal.

Every arm is a fresh interpreter with an empty compile cache, except the plan, which has its files; only one answers at
a time, window after window of a few requests, in random order. An arm that cannot be started is lost, with its words.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import shapes_models
import tune_runs
from compilot.artifacts.rundir import RunDir
from compilot.records import ProcessSamples, TrafficLine, VerdictLine
from shapes_journal import ARMS, FirstAnswers, Raced, Tuned

HERE = Path(__file__).resolve().parent
WINDOW_S, LONGEST_WINDOW = 0.020, 32


class ArmLost(Exception):
    """An arm could not be started."""


class Case(NamedTuple):
    """A model and a trace."""

    model: str
    trace: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.trace}"


class ArmProcess:
    """One arm."""

    def __init__(self, case: Case, arm: str, requests: int, plan: Path, cache: Path) -> None:
        self.arm = arm
        words = [case.model, case.trace, arm, str(requests), str(plan)]
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "shapes_arm.py"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=HERE,
        )

    def hear(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return dict(json.loads(line))
        assert self._process.stderr is not None
        words = self._process.stderr.read().strip().splitlines()
        raise ArmLost(words[-1] if words else "it ended without a word")

    def ask(self, **what: Any) -> dict[str, Any]:
        """A request and its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        """Gone, whatever it does."""
        self._process.kill()
        self._process.communicate()


class Lab:
    """Where the steps are done."""

    def __init__(self, work: Path, budget: str, requests: int, sources: Path = tune_runs.SOURCES) -> None:
        self._work, self._budget, self._requests, self._sources = work, budget, requests, sources

    def plan(self, case: Case) -> Path:
        """The case's run directory."""
        return (self._work / case.name).absolute()

    def tune(self, case: Case) -> Tuned:
        """`compilot tune --trace` on the case."""
        folder, trace = self.plan(case), self._work.absolute() / f"{case.name}.jsonl"
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_text("".join(json.dumps(one) + "\n" for one in shapes_models.calls_of(case.model, case.trace)))
        target = f"{HERE / 'shapes_models.py'}:{case.model}"
        words = ["--trace", str(trace)]
        ended = tune_runs.tune(case.model, folder, self._budget, target=target, words=words, sources=self._sources)
        told = Tuned(case=case.name, budget=self._budget, wall_s=ended.wall_s, problem=ended.problem)
        return told if ended.problem else _with_verdict(told, RunDir(folder))

    def race(self, case: Case, process: int) -> Raced:
        """One set of fresh processes."""
        lost: dict[str, str] = {}
        while True:
            arms = [arm for arm in ARMS if arm not in lost]
            try:
                return _raced(case, arms, process, self._requests, self.plan(case), lost)
            except ArmLost as gone:
                arm, _, why = str(gone).partition(": ")
                if arm == "eager":
                    raise SystemExit(f"eager itself cannot be raced: {why}") from gone
                lost[arm] = why


def _with_verdict(told: Tuned, run_dir: RunDir) -> Tuned:
    import msgspec

    lines = run_dir.lines()
    verdict = next(line.verdict for line in reversed(lines) if isinstance(line, VerdictLine))
    leaks = [leak.why for line in lines if isinstance(line, TrafficLine) for leak in line.proof.refused]
    plan = run_dir.read_plan()
    return msgspec.structs.replace(
        told,
        policy=str(verdict.sizes.policy) if verdict.sizes is not None else "",
        because=verdict.because,
        entries=tuple(entry.name for entry in plan.entries) if plan is not None else (),
        forecast=verdict.sizes.forecast if verdict.sizes is not None else None,
        refused=tuple(leaks),
    )


def _raced(case: Case, arms: Sequence[str], process: int, requests: int, plan: Path, lost: dict[str, str]) -> Raced:
    with ExitStack() as stack:
        live, answers = list[ArmProcess](), dict[str, FirstAnswers]()
        for arm in arms:  # one after the other: their first answers are timed
            cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shapes-")))
            live.append(ArmProcess(case, arm, requests, plan, cache))
            stack.callback(live[-1].end)
            try:
                told = live[-1].hear()
            except ArmLost as gone:
                raise ArmLost(f"{arm}: {gone}") from gone
            answers.setdefault(arm, FirstAnswers(first_s=told["first_s"], ten_s=told["ten_s"]))
        rows = windows(live, int(told["requests"]), process)
        ends = {one.arm: one.ask(end=True) for one in live}
    return Raced(
        case=case.name,
        process=process,
        arms=tuple(arms),
        samples=ProcessSamples(rounds=tuple(rows)),
        answers=answers,
        recompiles={arm: int(one["recompiles"]) for arm, one in ends.items()},
        fast_share=ends.get("plan", {}).get("fast_share"),
        lost=dict(lost),
    )


def windows(live: Sequence[Any], requests: int, seed: int) -> list[tuple[float, ...]]:
    """Every request in every arm; each row has the arms' own order."""
    whole = live[0].ask(first=0, count=requests)["seconds"]
    width = max(1, min(LONGEST_WINDOW, math.ceil(WINDOW_S * len(whole) / max(sum(whole), 1e-9))))
    order, rows = random.Random(seed), list[tuple[float, ...]]()
    for first in range(0, requests, width):
        columns: list[Sequence[float]] = [()] * len(live)
        for index in order.sample(range(len(live)), len(live)):
            columns[index] = live[index].ask(first=first, count=width)["seconds"]
        rows += zip(*columns, strict=True)
    return rows
