"""`compilot check TARGET` and `compilot baseline TARGET`: a speed test for a model. In: a target. Out: a verdict.

Prints what `compilot.check` found, writes the forms that were asked for, and sets the exit code: 0 for a pass, 0 with a
warning where it is inconclusive, 1 where something got worse, 2 where nothing could be measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.api import gating
from compilot.cli import common

if TYPE_CHECKING:
    from compilot.gate.report_records import CheckReport

Target = Annotated[str, typer.Argument(metavar="TARGET", help="path/to/file.py:factory or package.module:factory")]
Arms = Annotated[str, typer.Option(metavar="ARMS", help="What is timed on each side: eager, compile, or both.")]
PlanFile = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Time this plan's candidate on each side, in place of the arms.")
]
Budget = Annotated[str, typer.Option(metavar="TIME", help="90s, 5m, 1h30m. More time shows smaller changes.")]
Processes = Annotated[
    int | None, typer.Option(min=1, max=gating.MOST_PROCESSES, metavar="N", help="Sets of fresh processes per race.")
]
Callers = Annotated[
    int, typer.Option(min=1, max=gating.MOST_CALLERS, metavar="N", help="Callers at the same time, when timed.")
]
Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the report, samples and logs are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def check(
    target: Target,
    base_ref: Annotated[
        str | None, typer.Option(metavar="GITREF", help="Compare with this branch, tag or commit, on this machine.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with a file that 'compilot baseline' wrote.")
    ] = None,
    old_python: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON", help="Compare with an older environment: its VENV/bin/python; only torch is needed."
        ),
    ] = None,
    link: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="An untracked file or folder that the factory reads. Repeatable."),
    ] = None,
    arms: Arms = ",".join(gating.ARMS),
    plan: PlanFile = None,
    budget: Budget = gating.BUDGET,
    margin: Annotated[
        float, typer.Option(metavar="SHARE", help="A slow-down up to here counts as none: 0.03 is 3 %.")
    ] = 0.03,
    rule_out: Annotated[
        float, typer.Option(metavar="SHARE", help="A pass must be able to exclude a slow-down of this much.")
    ] = 0.10,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="METRIC", help="A metric that may get worse. Repeatable.")
    ] = None,
    processes: Processes = None,
    concurrency: Callers = 1,
    out: Out = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a comment for the pull request.")] = None,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the doctor's findings as SARIF; the doctor looks then.")
    ] = None,
    benchmark_json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the samples as pytest-benchmark does.")
    ] = None,
    github: Annotated[
        bool | None,
        typer.Option("--github/--no-github", help="Annotations and summary; by itself in a GitHub workflow."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Is the model slower, larger or less right than it was? Exit code 1 if so."""
    with common.guarded(debug=debug, as_json=json):
        report = gating.check(
            target,
            base_ref=base_ref,
            baseline=baseline,
            old_python=old_python,
            link=link or (),
            arms=arms,
            plan=plan,
            budget=budget,
            margin=margin,
            rule_out=rule_out,
            allow=allow or (),
            processes=processes,
            concurrency=concurrency,
            junit=junit,
            markdown=markdown,
            sarif=sarif,
            benchmark_json=benchmark_json,
            out=out,
            progress=not quiet,
        )
        common.print_json(common.document(report)) if json else show(report)
        for line in gating.tell_github(report, github):
            common.tell(line)
        if report.exit_code:
            raise typer.Exit(report.exit_code)


def show(report: CheckReport) -> None:
    """The result on stdout."""
    from rich.console import Console

    from compilot.gate.outputs import terminal

    console = Console(highlight=False)
    console.print(terminal.shown(report, console.width))


def baseline(
    target: Target,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")] = Path(
        "compilot-baseline.json"
    ),
    arms: Arms = ",".join(gating.ARMS),
    plan: PlanFile = None,
    budget: Budget = gating.BUDGET,
    processes: Processes = None,
    concurrency: Callers = 1,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure a target and keep the figures, for 'compilot check --baseline'."""
    with common.guarded(debug=debug, as_json=json):
        made = gating.baseline(
            target,
            output=output,
            arms=arms,
            plan=plan,
            budget=budget,
            processes=processes,
            concurrency=concurrency,
            out=out,
            progress=not quiet,
        )
        if json:
            common.print_json(common.document(made))
            return
        print(f"baseline of {made.label}: {output}")
        print("times count on this machine only, memory and kernels where processor and torch are the same;")
        print("graph breaks, recompiles and answers count anywhere.")
        print(f"compare with it: compilot check {target} --baseline {output}")
