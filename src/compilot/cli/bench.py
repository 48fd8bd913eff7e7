"""`compilot bench TARGET --plan PLAN`: eager, plain torch.compile and plans side by side. In: a target. Out: one table.

Prints what `compilot.bench` measured.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import benching
from compilot.api.benching import LEAST_PAIRS, MOST_PAIRS, MOST_PROCESSES
from compilot.artifacts.rundir import RunDir
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.report import Bench


def bench(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="path/to/file.py:factory or package.module:factory")],
    plan: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A plan.json to measure, or its folder. Repeatable.")
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=LEAST_PAIRS, max=MOST_PAIRS, metavar="N", help="Interleaved pairs per process.")
    ] = 40,
    processes: Annotated[
        int, typer.Option(min=1, max=MOST_PROCESSES, metavar="N", help="Sets of fresh processes.")
    ] = 3,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIMENSION",
            help="An input dimension that varies: NAME:DIM=MIN..MAX, or batch=MIN..MAX, seq=MIN..MAX for all inputs. "
            "Repeatable. Default: the plans' own.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measure over requests of this trace, from compilot.record or one per line."),
    ] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Also time every arm at these batch sizes: 1,2,4,8. Dimension 0 of the inputs counts as dynamic then.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the inputs, instead of the target's own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run directory. Default: compilot-runs/bench-NAME-TIME.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Measure eager, plain torch.compile and the given plans side by side."""
    with common.guarded(debug=debug, as_json=json):
        measured = benching.bench(
            target,
            plans=plan or (),
            pairs=pairs,
            processes=processes,
            dynamic=common.parse_dims(dynamic),
            trace=trace,
            batch_sizes=batch_sizes,
            seed=seed,
            out=out,
            argv=sys.argv,
            progress=not quiet,
        )
        common.print_json(common.document(measured)) if json else show(measured)


def show(measured: Bench) -> None:
    """The result on stdout: the table and one sentence per arm."""
    from rich.console import Console

    from compilot.report import batches, read_run, sizes, terminal

    console = Console()
    data = read_run(measured.run_dir)
    if measured.sizes is not None:
        console.print(*sizes.shown_sizes(measured.sizes, console.width), sep="\n")
        console.print()
    console.print(terminal.table(data, width=console.width), *terminal.legend(data, console.width), sep="\n")
    console.print()
    for sentence in measured.sentences:
        console.print(sentence, highlight=False, markup=False)
    for line in terminal.request_lines(data):
        console.print(line, highlight=False)
    console.print()
    where = RunDir(common.nearby(measured.run_dir))
    files = [where.journal.name, where.trials_csv.name]
    if measured.batches is not None:
        console.print(*batches.shown(measured.batches), sep="\n")
        console.print()
        files.append(where.batches_csv.name)
    console.print(f"{where}: {', '.join(files)}", soft_wrap=True, highlight=False)
