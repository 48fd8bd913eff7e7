"""The attacking process of bench/redteam.py: builds one engine for one model, has the gate judge it, then attacks it.

In: a line of JSON per attack on standard input ({"model": 7, "engine": "onnxruntime", "draws": 40}). Out: a line of
JSON with what happened: `state` is "infeasible", "wrong" (refused by the gate), "slow-path" (it does not serve its
example) or "passed"; of those that passed how many calls the engine answered, what was wrong, and what differed on
NaN, infinite or denormal inputs only (a note, as in the product). Everything goes through the product's own steps:
reference, guard, build, gate. An engine that ends this process is the parent's finding.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import redteam_judge as judge
from compilot.candidates.spaces import candidates_of
from compilot.identity.model import model_fingerprint
from compilot.records import Check, Diagnosis, Reference
from compilot.trials.protocol import Build, Built, Failed, Inspect, Verify
from compilot.trials.steps import trial
from compilot.trials.steps.state import WorkerState
from compilot.workload import Workload
from redteam_models import CLASSES, COLUMNS, LOWEST, Program, make

Fill = Callable[[torch.Generator, Tensor], Tensor]


def _normal(g: torch.Generator, t: Tensor) -> Tensor:
    return torch.randn(t.shape, generator=g)


def _whole(low: int, high: int) -> Fill:
    return lambda g, t: torch.randint(low, high + 1, t.shape, generator=g, dtype=torch.int64).to(t.dtype)


def _chosen(*values: int) -> Fill:
    return lambda g, t: torch.tensor(values)[torch.randint(len(values), t.shape, generator=g)].to(t.dtype)


def _spotted(value: float) -> Fill:
    return lambda g, t: torch.where(torch.rand(t.shape, generator=g) < 0.2, value, _normal(g, t))


def _range_of(t: Tensor) -> tuple[int, int]:
    limits = torch.iinfo(t.dtype)
    return limits.min, limits.max


SPECIAL = ("nan", "inf", "denormal")  # differences there are notes
STYLES: dict[str, dict[str, Fill]] = {
    "f": {
        "usual": _normal,
        "small": lambda g, t: _normal(g, t) * 1e-6,
        "thousandths": lambda g, t: _normal(g, t) * 1e-3,
        "large": lambda g, t: _normal(g, t) * 1e3,
        "huge": lambda g, t: _normal(g, t) * 1e10,
        "negative": lambda g, t: -_normal(g, t).abs() * 20,
        "zeros": lambda g, t: torch.zeros(t.shape),
        "minus zeros": lambda g, t: -torch.zeros(t.shape),
        "ones": lambda g, t: torch.ones(t.shape),
        "halves": lambda g, t: torch.randint(-9, 10, t.shape, generator=g) / 2,
        "mixed": lambda g, t: _normal(g, t) * 10 ** (torch.rand(t.shape, generator=g) * 16 - 8),
        "denormal": lambda g, t: _normal(g, t) * 1e-40,
        "nan": _spotted(float("nan")),
        "inf": _spotted(float("inf")),
    },
    "a": {
        "usual": lambda g, t: torch.where(torch.rand(t.shape, generator=g) < 0.7, 0.0, LOWEST),
        "all masked": lambda g, t: torch.full(t.shape, LOWEST),
        "row masked": lambda g, t: torch.cat([torch.full((1, COLUMNS), LOWEST), torch.zeros(t.shape[0] - 1, COLUMNS)]),
        "nothing masked": lambda g, t: torch.zeros(t.shape),
        "inf": lambda g, t: torch.where(torch.rand(t.shape, generator=g) < 0.7, 0.0, float("-inf")),
    },
    "m": {
        "usual": lambda g, t: torch.rand(t.shape, generator=g) < 0.5,
        "none": lambda g, t: torch.zeros(t.shape, dtype=torch.bool),
        "all": lambda g, t: torch.ones(t.shape, dtype=torch.bool),
        "row": lambda g, t: torch.cat([torch.zeros(1, COLUMNS), torch.ones(t.shape[0] - 1, COLUMNS)]).bool(),
    },
    "i": {
        "usual": _whole(0, 19),
        "negative": _whole(-40, -1),
        "around zero": _whole(-3, 3),
        "32 bits": _chosen(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 7, -7),
        "53 bits": _chosen(2**53, 2**53 + 1, -(2**53) - 1, 2**24 + 1, 5),
        "64 bits": _chosen(2**63 - 1, -(2**63), 2**62, -1, 0, 1),
        "anything": _whole(-(2**62), 2**62),
    },
    "n": {
        "usual": _whole(1, 8),
        "limits": lambda g, t: _chosen(*_range_of(t), 0, 1)(g, t),
        "anything": lambda g, t: _whole(*_range_of(t))(g, t),
    },
    "x": {
        "usual": _whole(0, COLUMNS - 1),
        "end": _chosen(0, COLUMNS - 1),
        "beyond": _chosen(0, 1, COLUMNS, CLASSES),
        "far beyond": _chosen(0, 2**40, 2**31),
        "negative": _chosen(0, -1, -COLUMNS - 1),
    },
}


class Attacker:
    """One model at a time; its reference is made once for all engines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = -1

    def attack(self, number: int, engine: str, draws: int) -> dict[str, Any]:
        """Build, judge, attack."""
        if number != self.number:
            self._open(number)
        candidates = candidates_of(engine, self.diagnosis)
        if not candidates:
            return {"state": "infeasible", "reason": "not offered"}
        steps = self.steps = self._steps()
        steps.candidate = candidates[number % min(2, len(candidates))]
        steps.workspace = self.folder / f"{number}-{engine}"
        steps.workspace.mkdir(exist_ok=True)
        built = trial.build(steps, Build(indices=self.diagnosis.indices))
        if isinstance(built, Failed):
            return {"state": str(built.state), "reason": built.reason}
        if built.fallbacks:
            return {"state": "slow-path", "reason": "; ".join(built.fallbacks)}
        refused = self._refused(built)
        return refused or {"state": "passed", "label": steps.candidate.label, **self._calls(steps.fn, number, draws)}

    def _steps(self) -> WorkerState:
        steps = WorkerState()
        steps.workload, steps.model_fingerprint = self.workload, self.fingerprint
        return steps

    def _open(self, number: int) -> None:
        self.model, self.example = make(number)
        self.workload = Workload(self.model, self.example)
        self.fingerprint = model_fingerprint(self.model)
        self.references = self.folder / f"references-{number}"
        self.references.mkdir(exist_ok=True)
        seen = trial.inspect(self._steps(), Inspect(references=str(self.references)))
        self.reference: Reference = seen.reference
        self.diagnosis: Diagnosis = seen.diagnosis
        self.number = number

    def _refused(self, built: Built) -> dict[str, Any] | None:
        verified = trial.verify(self.steps, Verify(references=str(self.references), reference=self.reference))
        if isinstance(verified, Failed):
            return {"state": str(verified.state), "reason": verified.reason}
        check: Check = verified.check
        return None if check.passed else {"state": "wrong", "reason": check.why}

    def _calls(self, fast: Any, number: int, draws: int) -> dict[str, Any]:
        draw = random.Random(f"attack {number}")
        found: dict[str, Any] = {"calls": 0, "raised": 0, "faults": [], "notes": 0}
        before = fast.stats()
        for turn in range(draws):
            styles = [draw.choice(list(STYLES[kind])) for kind in self.model.inputs]
            g = torch.Generator().manual_seed(number * 1000 + turn)
            pairs = zip(self.model.inputs, styles, self.example, strict=True)
            inputs = tuple(STYLES[kind][style](g, t) for kind, style, t in pairs)
            found["calls"] += 1
            told = self._one(self.model, fast, inputs, found)
            if told and any(style in SPECIAL for style in styles):
                found["notes"] += 1
            elif told:
                found["faults"].append(f"{', '.join(styles)}: {told}")
        after = fast.stats()
        found["fast"] = after.fast - before.fast
        found["faults"] = found["faults"][:3]
        return found

    def _one(self, model: Program, fast: Any, inputs: tuple[Tensor, ...], found: dict[str, Any]) -> str:
        kept = [t.clone() for t in inputs]
        eager, error = _answer(model, inputs)
        answer, trouble = _answer(fast, tuple(kept))
        if error or trouble:
            found["raised"] += bool(error)
            return "" if error and trouble else f"eager: {error or 'answers'}; the engine: {trouble or 'answers'}"
        return judge.fault(model, inputs, eager, answer)


def _answer(fn: Any, inputs: tuple[Tensor, ...]) -> tuple[Any, str]:
    try:
        return fn(*inputs), ""
    except Exception as error:
        return None, f"{type(error).__name__} {str(error)[:80]}"


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print is no reply
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        attacker = Attacker(Path(folder))
        for line in sys.stdin:
            wanted = json.loads(line)
            try:
                found = attacker.attack(wanted["model"], wanted["engine"], wanted["draws"])
            except Exception as error:
                found = {"state": "broken", "reason": f"{type(error).__name__}: {error}"}
            print(json.dumps(found), file=replies, flush=True)


if __name__ == "__main__":
    main()
