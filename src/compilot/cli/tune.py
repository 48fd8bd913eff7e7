"""`compilot tune TARGET`: the main job. In: a target. Out: a run directory: plan.json, journal.jsonl, trials.csv,
report.html.

Prints what `compilot.tune` decided and what `compilot.results` has of it. A run that is resumed has the target and the
options that it was begun with, except those that are given again.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot._durations import seconds_note
from compilot.api import bundling, reading, tuning
from compilot.api import explaining as api_explaining
from compilot.api.clusters import labels_from
from compilot.api.given import default_run_dir
from compilot.api.presets import Preset
from compilot.artifacts.rundir import RunDir
from compilot.cli import common, explaining
from compilot.cli import pack as packing
from compilot.records import PRIOR_BY_DEFAULT, Objective
from compilot.showing import ending_said_later

if TYPE_CHECKING:
    from compilot.records import Plan


def tune(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET", help="path/to/file.py:factory or package.module:factory. With --resume: the run's own."
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time for everything: 90s, 5m, 1h30m. Default: 5m.")
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(metavar="GOAL", help=f"What the plan is chosen for: {', '.join(Objective)}. Default: latency."),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Calls a process will make in its life; compile cost counts. For latency and throughput."
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Callers at the same time, for --objective throughput. Default: 1.")
    ] = None,
    engines: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these engines: a,b. Default: every one found.")
    ] = None,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIMENSION",
            help="An input dimension that varies: NAME:DIM=MIN..MAX, or batch=MIN..MAX, seq=MIN..MAX for all inputs. "
            "Repeatable.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Choose the plan for the sizes in this trace, from compilot.record or one call per line.",
        ),
    ] = None,
    pad: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VALUE",
            help="What may be put into an input where a call is shorter than a program, as NAME=VALUE: input_ids=0. "
            "Repeatable. Used only where it is proven to change no answer.",
        ),
    ] = None,
    max_entries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Programs that a plan for a trace or batch sizes may have. Default: 8."),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Choose the plan for these batch sizes, and show eager and the plan at each: 1,2,4,8. "
            "Dimension 0 of the inputs counts as dynamic then. Not with --trace.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the inputs, instead of the target's own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run directory. Default: compilot-runs/NAME-TIME.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Continue the run in this directory, with its options.")
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory that a candidate may use at any moment, building included: 8GiB."),
    ] = None,
    allow_precision: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Also try lower precisions: bf16,fp16,int8-dynamic. Default: none."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="ERROR",
            help="Relative error allowed to lower precisions. Default: bf16 0.02, fp16 0.005, int8 0.05.",
        ),
    ] = None,
    max_compile: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Longest cold start (build and first call) that a candidate may have: 30s."),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(metavar="ERROR", help="Largest relative error against float64 of any candidate: 1e-4."),
    ] = None,
    prior: Annotated[
        bool | None,
        typer.Option(
            "--prior/--no-prior",
            help="Whether earlier runs on this machine order the trials; they decide nothing. "
            f"Default: {'on' if PRIOR_BY_DEFAULT else 'off'}.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(
            metavar="NAME",
            help=f"Options that go together: {', '.join(Preset)}. Those that you give count more. See --explain.",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the options that would be used, and where each comes from; no run.")
    ] = False,
    pack: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Pack the plan into this bundle when it is done.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Try the candidates on a Ray cluster: ray, auto, HOST:PORT or ray://HOST:PORT. Default: this machine.",
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="With --on: only nodes with this label, as KEY=VALUE. Repeatable."),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --on: a place that all machines reach, for large files between them."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find the fastest correct way to run a model, prove it, and write a plan."""
    from compilot.errors import InputError

    options: dict[str, Any] = {
        "budget": budget,
        "objective": objective,
        "horizon": horizon,
        "concurrency": concurrency,
        "engines": engines,
        "allow_precision": allow_precision,
        "tolerance": tolerance,
        "max_memory": max_memory,
        "max_compile": max_compile,
        "max_error": max_error,
        "prior": prior,
        "preset": preset,
        "resume": resume,
    }
    run_dir = resume or out or default_run_dir(common.factory_name(target or ""))
    if explain:
        with common.guarded(debug=debug, as_json=json):
            return explaining.show(api_explaining.explain(**options), as_json=json)
    with common.guarded(debug=debug, as_json=json, hint=lambda: _resume(target, run_dir)):
        if resume is not None and out is not None:
            raise InputError("--resume names the run directory already; leave out --out.")
        if budget is not None and (doubt := seconds_note(budget)) and not quiet:
            common.tell(f"note: {doubt}")
        with ending_said_later():
            plan = tuning.tune(
                target,
                **options,
                dynamic=common.parse_dims(dynamic),
                trace=trace,
                padding=common.parse_pads(pad),
                max_entries=max_entries,
                batch_sizes=batch_sizes,
                seed=seed,
                out=None if resume is not None else run_dir,
                on=on,
                nodes=labels_from(nodes),
                exchange=exchange,
                finish_early=True,
                argv=sys.argv,
                progress=not quiet,
            )
        finish(plan, run_dir, pack, as_json=json, quiet=quiet)
    return None


def finish(plan: Plan, run_dir: Path, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Show the result, and pack it where that was asked for: packing may take minutes, the result does not wait."""
    if not as_json:
        show(plan, run_dir)
        return None if out is None else packing.show(bundling.pack(run_dir, out, progress=not quiet), as_json=False)
    document = common.document(reading.results(plan))
    if out is not None:
        document["bundle"] = common.document(bundling.pack(run_dir, out, progress=not quiet))
    return common.print_json(document)


def _resume(target: str | None, run_dir: Path) -> str:
    """What to do after an interruption; before the journal began there is nothing to go on with."""
    if not RunDir(run_dir).holds_run:
        return "nothing was measured yet."
    again = shlex.join([*([target] if target else []), "--resume", str(run_dir)])
    return f"resume with: compilot tune {again}"


def show(plan: Plan, run_dir: Path) -> None:
    """The result on stdout: the table, the sentence and how to use the plan."""
    from rich.console import Console

    from compilot import report
    from compilot.report import batches, sizes, terminal

    console = Console()
    data = report.read_run(run_dir)
    where = RunDir(common.nearby(run_dir))
    console.print(terminal.summary(data, plan, width=console.width), crop=False)  # a long command stays whole
    console.print()
    if (served := sizes.served_sizes(RunDir(run_dir).lines())) is not None:
        console.print(*sizes.shown_sizes(served, console.width), sep="\n")
        console.print()
    if (found := batches.batch_sizes(RunDir(run_dir).lines())) is not None:
        console.print(*batches.shown(found), sep="\n")
        console.print()
    console.print(terminal.usage(plan, where.plan), soft_wrap=True, highlight=False, markup=False)
    console.print()
    files = f"{where}: {where.plan.name}, {where.journal.name} (raw samples), {where.trials_csv.name}"
    console.print(files, soft_wrap=True, highlight=False, markup=False)
    if RunDir(run_dir).report.exists():
        console.print(f"{where.report}: all of it with pictures, for any browser", soft_wrap=True, highlight=False)
