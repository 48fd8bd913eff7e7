"""The golden call of a bundle, made in a worker from the very files that will be packed.

In: a run, a plan entry, and the folder where the entry's files were put. Out: the golden record, and how long the
entry took to start there. Loading the copies in a fresh process is the first proof that they can be moved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from compilot.errors import EnvironmentProblem
from compilot.packing.runs import Run
from compilot.records import Candidate, Golden, Guard, Parameter
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits, worker_env
from compilot.trials.protocol import PROTOCOL, Build, Built, Failed, GoldenMade, MakeGolden, Open, Opened


class Made(NamedTuple):
    """What the worker gave."""

    golden: Golden
    parameters: tuple[Parameter, ...]
    start_s: float


class Names(NamedTuple):
    """Files of the golden call, relative to the bundle."""

    inputs: str
    outputs: str
    weights: str = ""


def make_golden(
    run: Run, candidate: Candidate, guard: Guard, place: Path, bundle: Path, names: Names, limits: Limits
) -> Made:
    """Start the entry from its copied files, answer the example call, and keep the call and eager's answer."""
    child = Child(candidate.id, log=run.folder / "logs" / "pack.log", env=worker_env(place))
    try:
        fields = {"shipment": run.shipment, "candidate": candidate, "workspace": str(place)}
        _must(child.ask(Open, Opened, limit_s=limits.open_s, doing="opening", protocol=PROTOCOL, **fields))
        built = _must(child.ask(Build, Built, limit_s=limits.build_s, doing="loading the packed files", reuse=True))
        if built.guard != guard or built.fallbacks:
            why = "; ".join(built.fallbacks) or "its example call is not the one that was tuned"
            raise EnvironmentProblem(f"the model changed since it was tuned: {why}. Run 'compilot tune' again.")
        wanted = {"inputs": names.inputs, "outputs": names.outputs, "weights": names.weights}
        made = _must(
            child.ask(
                MakeGolden,
                GoldenMade,
                limit_s=limits.check_s,
                doing="answering the golden call",
                folder=str(bundle),
                **wanted,
            )
        )
        return Made(made.golden, made.parameters, built.cold_s)
    except Dead as dead:
        raise EnvironmentProblem(f"the packed files cannot be started: {dead.reason}.") from dead
    finally:
        child.quit()


def _must(reply: Any) -> Any:
    if isinstance(reply, Failed):
        raise EnvironmentProblem(f"the packed files cannot be started: {reply.reason}.")
    return reply
