"""`compilot tune TARGET`: the main job. In: a target. Out: a run directory: plan.json, journal.jsonl, trials.csv.

A run that is resumed has the target and the options that it was begun with, except those that are given again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot._durations import parse_duration, seconds_note
from compilot.api import default_run_dir, precision_options
from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import asked_engines
from compilot.cli import common
from compilot.cli import pack as packing
from compilot.records import Objective
from compilot.showing import watching

if TYPE_CHECKING:
    from compilot.packing import Packed
    from compilot.records import DynamicDim, RunHeader
    from compilot.tuning.options import TuneOptions
    from compilot.tuning.pipeline import Tuned


def tune(
    target: Annotated[
        str | None,
        typer.Argument(help="path/to/file.py:factory or package.module:factory. With --resume: the run's own."),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time for everything: 90s, 5m, 1h30m. Default: 5m.")] = None,
    objective: Annotated[Objective | None, typer.Option(help="What the plan is chosen for. Default: latency.")] = None,
    horizon: Annotated[
        int | None,
        typer.Option(help="Calls a process will make in its life; compile cost counts. For latency and throughput."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Callers at the same time, for --objective throughput. Default: 1.")
    ] = None,
    engines: Annotated[str | None, typer.Option(help="Only these engines: a,b. Default: every one found.")] = None,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            help="An input dimension that varies: NAME:DIM=MIN..MAX, or batch=MIN..MAX, seq=MIN..MAX for all inputs. "
            "Repeatable."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs, instead of the target's own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: compilot-runs/NAME-TIME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory, with its options.")] = None,
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
    from compilot.tuning.goals import make_goal

    run_dir = resume or out or default_run_dir(common.factory_name(target or ""))
    with common.guarded(debug=debug, as_json=json, hint=lambda: _resume(target, run_dir)):
        if resume is not None and out is not None:
            raise InputError("--resume names the run directory already; leave out --out.")
        earlier = RunDir(resume.absolute()).last_header() if resume is not None else None
        place = target or _target_of(earlier, run_dir)
        options = _options(earlier, budget, engines, max_memory)
        options = options._replace(goal=make_goal(objective, horizon, concurrency, before=options.goal))
        options = _with_precisions(options, allow_precision, tolerance)
        options = options._replace(engines=asked_engines(options.engines))
        if budget is not None and (doubt := seconds_note(budget)) and not quiet:
            common.tell(f"note: {doubt}")
        from compilot.tuning import pipeline  # after what can be said without it
        from compilot.workload.dispatch import ship_target
        from compilot.workload.dynamic import parse_dynamic

        dims: Sequence[DynamicDim] = [parse_dynamic(text) for text in dynamic or []]
        if earlier is not None:
            dims, seed = dims or earlier.workload.dynamic, earlier.workload.seed if seed is None else seed
        shipment = ship_target(place, seed=seed, extra_dynamic=dims)
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


def _resume(target: str | None, run_dir: Path) -> str:
    """What to do after an interruption; before the journal began there is nothing to go on with."""
    begun = RunDir(run_dir).holds_run
    again = f"{target} --resume" if target else "--resume"
    return f"resume with: compilot tune {again} {run_dir}" if begun else "nothing was measured yet."


def _target_of(earlier: RunHeader | None, run_dir: Path) -> str:
    """The target of the run that is resumed, where the command line names none."""
    from compilot.errors import InputError

    if earlier is None:
        raise InputError("name what to tune: path/to/file.py:factory or package.module:factory, or --resume DIR.")
    if earlier.workload.target is None:
        raise InputError(f"{run_dir} was tuned from Python objects and cannot be resumed here; tune again in Python.")
    return earlier.workload.target


def _options(
    earlier: RunHeader | None,
    budget: str | None,
    engines: str | None,
    max_memory: str | None,
) -> TuneOptions:
    """What the command line asks for; where it is silent, what the earlier part of the run was asked for."""
    from compilot.tuning.options import TuneOptions, options_of

    base = TuneOptions() if earlier is None else options_of(earlier)
    return base._replace(
        budget_s=base.budget_s if budget is None else parse_duration(budget),
        engines=base.engines if engines is None else common.parse_names(engines),
        max_memory_bytes=common.parse_size(max_memory) if max_memory else base.max_memory_bytes,
        argv=tuple(sys.argv),
    )


def _with_precisions(base: TuneOptions, allow_precision: str | None, tolerance: float | None) -> TuneOptions:
    """The same with lower precisions; a tolerance of before stays only while there are any."""
    allowed = base.allow_precision if allow_precision is None else common.parse_names(allow_precision)
    if tolerance is None and allowed:
        tolerance = base.tolerance
    return base._replace(**precision_options(allowed, tolerance))


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
