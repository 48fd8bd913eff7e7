"""The steps of bench/shapes.py: one tune, one set of raced processes. In: a case. Out: a line of the journal.

Every arm is a fresh interpreter with a compile cache of its own: empty in the first set, that one's in the others; the
plan has its files. Only one answers at a time, window after window of a few requests, in random order, and its threads
are idle before the next one begins, as in `tune`. An arm that cannot be started is lost, with its words, and is not
tried again in the sets that follow.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import shapes_models
import tune_runs
from compilot.artifacts.rundir import RunDir
from compilot.records import ProcessSamples, TrafficLine, VerdictLine
from compilot.trials.child import SETTLE_LIMIT_S, SETTLE_LOOK_S, tree_is_running
from compilot.trials.replaying import CALIBRATED, passes_of, window_of
from shapes_journal import ARMS, COLD, FirstAnswers, Raced, Tuned

HERE = Path(__file__).resolve().parent


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

    def settle(self) -> bool:
        """Wait until no thread of it wants a core: ONNX Runtime's spin on after a call, and would slow the next arm."""
        end = time.monotonic() + SETTLE_LIMIT_S
        while time.monotonic() < end:
            if not tree_is_running(self._process.pid):
                return True
            time.sleep(SETTLE_LOOK_S)
        return False

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

    def race(self, case: Case, process: int, known: Mapping[str, str]) -> Raced:
        """One set of fresh processes; known: arms that were lost before, and why."""
        lost = {**shapes_models.cannot_run(case.model), **known}
        while True:
            arms = [arm for arm in ARMS if arm not in lost]
            try:
                return self._raced(case, arms, process, lost)
            except ArmLost as gone:
                arm, _, why = str(gone).partition(": ")
                if arm == "eager":
                    raise SystemExit(f"eager itself cannot be raced: {why}") from gone
                lost[arm] = why

    def _raced(self, case: Case, arms: Sequence[str], process: int, lost: Mapping[str, str]) -> Raced:
        with ExitStack() as stack:
            live, answers = list[ArmProcess](), dict[str, FirstAnswers]()
            for arm in arms:  # one after the other: their first answers are timed
                live.append(ArmProcess(case, arm, self._requests, self.plan(case), self._cache(case, arm, process)))
                stack.callback(live[-1].end)
                try:
                    told = live[-1].hear()
                except ArmLost as gone:
                    raise ArmLost(f"{arm}: {gone}") from gone
                live[-1].settle()
                answers.setdefault(arm, FirstAnswers(first_s=told["first_s"], ten_s=told["ten_s"]))
            samples = windows(live, int(told["requests"]), process)
            ends = {one.arm: one.ask(end=True) for one in live}
        return Raced(
            case=case.name,
            process=process,
            arms=tuple(arms),
            samples=samples,
            answers=answers,
            recompiles={arm: int(one["recompiles"]) for arm, one in ends.items()},
            fast_share=ends.get("plan", {}).get("fast_share"),
            lost=dict(lost),
        )

    def _cache(self, case: Case, arm: str, process: int) -> Path:
        """The arm's own compile cache; emptied before the first set."""
        folder = self._work.absolute() / "caches" / case.name / arm
        if process == COLD:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


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
        replayed=verdict.sizes.replayed if verdict.sizes is not None else None,
        refused=tuple(leaks),
    )


def windows(live: Sequence[Any], requests: int, seed: int) -> ProcessSamples:
    """Every request in every arm; each row has the arms' own order."""
    means_s, late = [_mean_s(one, min(requests, CALIBRATED)) for one in live], 0
    width = window_of(means_s[0], requests)
    passes = [passes_of(mean_s, width) for mean_s in means_s]
    order, rows = random.Random(seed), list[tuple[float, ...]]()
    for first in range(0, requests, width):
        columns: list[Sequence[float]] = [()] * len(live)
        for index in order.sample(range(len(live)), len(live)):
            columns[index] = live[index].ask(first=first, count=width, passes=passes[index])["seconds"]
            late += not live[index].settle()
        rows += zip(*columns, strict=True)
    return ProcessSamples(rounds=tuple(rows), settle_timeouts=late, window=width)


def _mean_s(arm: Any, count: int) -> float:
    seconds = arm.ask(first=0, count=count, passes=1)["seconds"]
    arm.settle()
    return float(sum(seconds) / count)
