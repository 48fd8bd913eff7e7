"""What the user asked for. In: the command line, keyword arguments, or the header of a run that is resumed.

Out: one record for a whole run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from compilot.records import PRIOR_BY_DEFAULT, Goal, Objective, Precision, RunHeader, Trace
from compilot.verdict.finalists import FINALISTS

LATENCY = Goal()


class TuneOptions(NamedTuple):
    """Everything that a run depends on beside the workload."""

    budget_s: float = 300.0
    goal: Goal = LATENCY
    engines: tuple[str, ...] = ()  # () means every engine found
    finalists: int = FINALISTS
    max_memory_bytes: int | None = None
    argv: tuple[str, ...] = ()
    allow_precision: tuple[Precision, ...] = ()  # lower ones that may be tried
    tolerance: float | None = None  # relative RMSE allowed to those; None: each one's default
    max_compile_s: float | None = None  # of a candidate's cold start
    max_error: float | None = None  # relative RMSE that any candidate may have
    preset: str | None = None  # that some of these come from
    prior: bool = PRIOR_BY_DEFAULT  # earlier runs order the trials
    batch_sizes: tuple[int, ...] = ()  # at which eager and the plan are timed; with a trace: that it was made from
    trace: Trace | None = None  # sizes that the plan is to serve
    max_entries: int | None = None  # programs of such a plan; None: the usual number
    on: str = ""  # address of a cluster that runs the candidates; "": this machine does
    nodes: Mapping[str, str] = {}  # labels that its nodes must have
    exchange: str = ""  # URL that large files between the machines go through; "": through the cluster itself


def options_of(header: RunHeader) -> TuneOptions:
    """What a run was asked for, so that it can be resumed without saying it again."""
    return TuneOptions(
        budget_s=header.budget_s,
        goal=Goal(
            objective=Objective(header.objective), horizon_calls=header.horizon_calls, concurrency=header.concurrency
        ),
        engines=header.engines,
        max_memory_bytes=header.max_memory_bytes,
        argv=header.argv,
        allow_precision=header.allow_precision,
        tolerance=header.tolerance,
        max_compile_s=header.max_compile_s,
        max_error=header.max_error,
        preset=header.preset,
        prior=header.prior,
        batch_sizes=header.batch_sizes,
        max_entries=header.max_entries,
        on=header.on,
        nodes=header.nodes,
        exchange=header.exchange,
    )
