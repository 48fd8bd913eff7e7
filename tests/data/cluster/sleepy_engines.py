"""Three engines for the cluster's tests: traces of the model that pause for less long than eager does.

`quick` leads eager six times, `middling` three times and `plodding` twice, whatever else the machine does. Each build
takes a second and leaves a line with its node in the file SLEEPY_BUILDS: what was built twice is seen there. Importing
this shortens a run, in the driver and on the nodes: who sleeps six times as long needs no long look.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from compilot.candidates import guided
from compilot.engines import registry
from compilot.engines.protocol import Availability, BuildRequest, Loaded, LoadRequest
from compilot.engines.space import Seed, Space
from compilot.engines.traits import EngineTraits
from compilot.records import ArtifactFile, Diagnosis, Settings
from compilot.trials import attempt
from compilot.trials.limits import Limits
from compilot.tuning import budget, final, pipeline

PAUSES_S = {"quick": 0.002, "middling": 0.004, "plodding": 0.006}  # per call; eager's is in sleepy_model.py
BUILD_S = float(os.environ.get("SLEEPY_BUILD_S", "0.5"))
TRACE = "model.ts"


class Engine:
    """Both halves of an engine of this name."""

    TRAITS = EngineTraits(version="1", standalone=True)
    __name__ = "sleepy_engines"  # the module that a worker imports to know it

    def __init__(self, name: str) -> None:
        self.name = name

    def available(self) -> Availability:
        return Availability(ok=True, version=str(self.TRAITS.version))

    def space(self, diagnosis: Diagnosis) -> Space:
        return Space(seeds=(Seed("", "it sleeps less"),))

    def validate(self, settings: Settings) -> str | None:
        return None

    def build(self, request: BuildRequest) -> Sequence[ArtifactFile]:
        time.sleep(BUILD_S)
        path = request.workspace / TRACE
        with torch.no_grad():
            torch.jit.freeze(torch.jit.trace(request.model, request.call.args)).save(str(path))
        with Path(os.environ["SLEEPY_BUILDS"]).open("a") as builds:
            alone = " alone" if request.workspace.name.endswith("-alone") else ""
            builds.write(f"{self.name} {os.environ.get('COMPILOT_NODE', 'here')}{alone}\n")
        data = path.read_bytes()
        return [ArtifactFile(name=path.name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))]

    def load(self, request: LoadRequest) -> Loaded:
        traced = torch.jit.load(str(request.artifacts / TRACE))  # type: ignore[operator]
        pause_s = PAUSES_S[self.name]

        def call(x: torch.Tensor) -> torch.Tensor:
            time.sleep(pause_s)
            return traced(x)  # type: ignore[no-any-return]

        return Loaded(call=call, frozen_weights=True, needs_model=False)


pipeline.PREPARE_FROM_S = math.inf
pipeline.Limits = functools.partial(Limits, warm_s=0.3)  # type: ignore[assignment,misc]
attempt.SCREENING_TAIL_S = budget.TAIL_S = 0.2
final.RACE_PAIRS = budget.CONFIRM_PAIRS = 20
guided.turns = lambda candidate, knobs: []
budget.CONFIRM_PROCESSES = budget.MOST_CONFIRM_PROCESSES = 1

for _name in PAUSES_S:
    registry.register(_name, Engine(_name), Engine(_name))

quick = registry.Halves(Engine("quick"), Engine("quick"))  # as an installed package would announce it
