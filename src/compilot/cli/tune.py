"""`compilot tune TARGET`: the main job. In: a target. Out: a run directory: plan.json, journal.jsonl, trials.csv."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import default_run_dir, precision_options
from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import asked_engines
from compilot.cli import common
from compilot.cli import pack as packing
from compilot.records import Objective
from compilot.showing import watching

if TYPE_CHECKING:
    from compilot.packing import Packed
    from compilot.tuning.options import TuneOptions
    from compilot.tuning.pipeline import Tuned


def tune(
    target: Annotated[str, typer.Argument(help="path/to/file.py:factory or package.module:factory")],
    budget: Annotated[str, typer.Option(help="Time for everything: 90s, 5m, 1h30m.")] = "5m",
    objective: Annotated[Objective, typer.Option(help="What the plan is chosen for.")] = Objective.LATENCY,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Calls a process will make in its life; compile cost counts.")
    ] = None,
    engines: Annotated[str | None, typer.Option(help="Only these engines: a,b. Default: every one found.")] = None,
    dynamic: Annotated[
        list[str] | None, typer.Option(help="An input dimension that varies: NAME:DIM=MIN..MAX. Repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs, instead of the target's own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: compilot-runs/NAME-TIME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run in this directory.")] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Memory that a candidate may use at any moment, building included: 8GiB.")
    ] = None,
    allow_precision: Annotated[
        str | None, typer.Option(help="Also try lower precisions: bf16,fp16,int8-dynamic. Default: none.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Relative error allowed to lower precisions. Default: bf16 0.02, fp16 0.005, int8 0.05."),
    ] = None,
    pack: Annotated[Path | None, typer.Option(help="Pack the plan into this bundle when it is done.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find the fastest correct way to run a model, prove it, and write a plan."""
    from compilot.errors import InputError

    run_dir = resume or out or default_run_dir(common.factory_name(target))
    with common.guarded(debug=debug, as_json=json, hint=lambda: _resume(target, run_dir)):
        if resume is not None and out is not None:
            raise InputError("--resume names the run directory already; leave --out away.")
        options = _options(budget, objective, horizon, engines, max_memory)
        options = options._replace(**precision_options(common.parse_names(allow_precision), tolerance))
        options = options._replace(engines=asked_engines(options.engines))
        from compilot.tuning import pipeline  # after what can be said without it
        from compilot.workload.dispatch import ship_target
        from compilot.workload.dynamic import parse_dynamic

        shipment = ship_target(target, seed=seed, extra_dynamic=[parse_dynamic(text) for text in dynamic or []])
        with watching(options.budget_s, quiet=quiet) as observer:
            outcome = pipeline.run(shipment, run_dir, options, observer, resume=resume is not None)
        finish(outcome, pack, as_json=json, quiet=quiet)


def finish(outcome: Tuned, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Show the result, and pack it where that was asked for: packing may take minutes, the result does not wait."""
    from compilot import report

    if not as_json:
        show(outcome)
        return None if out is None else packing.show(_pack(outcome, out, quiet=quiet), as_json=False)
    document = report.as_json(outcome)
    if out is not None:
        document["bundle"] = packing.summary(_pack(outcome, out, quiet=quiet))
    return common.print_json(document)


def _pack(outcome: Tuned, out: Path, *, quiet: bool) -> Packed:
    from compilot.packing import PackOptions, pack
    from compilot.progress import Observer
    from compilot.showing.plain import PlainObserver

    return pack([outcome.run_dir], out, PackOptions(), Observer() if quiet else PlainObserver())


def _resume(target: str, run_dir: Path) -> str:
    """What to do after an interruption; before the journal began there is nothing to go on with."""
    begun = RunDir(run_dir).holds_run
    return f"resume with: compilot tune {target} --resume {run_dir}" if begun else "nothing was measured yet."


def _options(
    budget: str, objective: Objective, horizon: int | None, engines: str | None, max_memory: str | None
) -> TuneOptions:
    from compilot._durations import parse_duration
    from compilot.records import Goal
    from compilot.tuning.options import TuneOptions

    return TuneOptions(
        budget_s=parse_duration(budget),
        goal=Goal(objective=objective, horizon_calls=horizon),
        engines=common.parse_names(engines),
        max_memory_bytes=common.parse_size(max_memory) if max_memory else None,
        argv=tuple(sys.argv),
    )


def show(outcome: Tuned) -> None:
    """The result on stdout: the table, the sentence and how to use the plan."""
    from rich.console import Console

    from compilot import report
    from compilot.report import terminal

    console = Console()
    data = report.read_run(outcome.run_dir)
    where = RunDir(common.nearby(outcome.run_dir))
    console.print(terminal.summary(data, outcome.plan, width=console.width))
    console.print()
    console.print(terminal.usage(outcome.plan, where.plan), soft_wrap=True, highlight=False, markup=False)
    console.print()
    files = f"{where}: {where.plan.name}, {where.journal.name} (raw samples), {where.trials_csv.name}"
    console.print(files, soft_wrap=True, highlight=False, markup=False)
