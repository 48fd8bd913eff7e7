"""What a worker makes for a bundle: the golden call, from the very files that will be packed, and the weights.

In: a run, a plan entry, and the folder where the entry's files were put. Out: the golden record, and how long the
entry took to start there. Loading the copies in a fresh process is the first proof that they can be moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.packing.runs import FinishedRun
from compilot.records import Candidate, Golden, Guard, IndexFacts, Parameter, PlanEntry
from compilot.runtime.split_guards import engine_guard
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits, worker_env
from compilot.trials.opening import ask_to_open, opening
from compilot.trials.protocol import (
    Build,
    Built,
    Failed,
    GoldenMade,
    MakeGolden,
    Reply,
    SaveWeights,
    WeightsSaved,
)
from compilot.trials.replies import raise_user_error

LIMITS = Limits()

R = TypeVar("R", bound=Reply)


class Made(NamedTuple):
    """What the worker gave."""

    golden: Golden
    parameters: tuple[Parameter, ...]
    start_s: float
    weights_sha256: str
    frozen: bool  # the callable holds weight values of its own


def make_golden(run: FinishedRun, entry: PlanEntry, place: Path, staged: Path, number: int) -> Made:
    """Start the entry from its copied files, answer the example call, and keep the call and eager's answer."""
    inputs, outputs = (f"golden/{number}-{end}.safetensors" for end in ("inputs", "outputs"))
    (staged / "golden").mkdir(exist_ok=True)
    with _worker(run, entry.candidate, place) as child:
        load = Build(reuse=True, indices=_indices(entry.guard))
        built = _must(child.ask(load, Built, limit_s=LIMITS.build_s, doing="loading the packed files"))
        wanted = engine_guard(entry.guard, entry.padding, entry.split)
        if built.guard != wanted or built.fallbacks:
            why = "; ".join(built.fallbacks) or "its example call is not the one that was tuned"
            raise EnvironmentProblem(f"the model changed since it was tuned: {why}. Run 'compilot tune' again.")
        request = MakeGolden(folder=str(staged), inputs=inputs, outputs=outputs)
        made = _must(child.ask(request, GoldenMade, limit_s=LIMITS.check_s, doing="the golden call"))
    return Made(made.golden, made.parameters, built.cold_s, made.weights_sha256, built.frozen_weights)


def _indices(guard: Guard) -> IndexFacts:
    """The ranges that were found when the entry was tuned."""
    ranges = {tensor.path: tensor.index for tensor in guard.tensors if tensor.index is not None}
    return IndexFacts(ranges=ranges, at_all_sizes=ranges)


def save_weights(run: FinishedRun, place: Path, path: Path) -> str:
    """The weights of the run's model as safetensors; returns the digest of their values."""
    with _worker(run, EAGER, place) as child:
        request = SaveWeights(path=str(path))
        saved = _must(child.ask(request, WeightsSaved, limit_s=LIMITS.check_s, doing="writing the weights"))
    return saved.weights_sha256


@contextmanager
def _worker(run: FinishedRun, candidate: Candidate, place: Path) -> Iterator[Child]:
    child = Child(candidate.id, log=run.run_dir.log("pack"), env=worker_env(place))
    try:
        _must(ask_to_open(child, opening(run.shipment, candidate, place), LIMITS))
        yield child
    except Dead as dead:
        raise EnvironmentProblem(f"the packed files cannot be started: {dead.reason}.") from dead
    finally:
        child.quit()


def _must(reply: R | Failed) -> R:
    if isinstance(reply, Failed):
        if reply.error:
            raise_user_error(reply)
        raise EnvironmentProblem(f"the packed files cannot be started: {reply.reason}.")
    return reply
