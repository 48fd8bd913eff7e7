"""`compilot doctor TARGET`: what is wrong, where, what it costs, how to fix it. Prints what `compilot.examine` finds.

Exit codes: 0 examined, 1 a finding that --fail-on names, 2 could not run, or --fail-on and not everything was seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.api.examining import Examination
    from compilot.diagnose.report_records import DoctorReport
    from compilot.records import Finding

RED = 1
FAMILIES = {  # what --fail-on may name -> kinds of findings
    "graph-break": ("graph-break", "compile-failure"),
    "recompile": ("recompile", "recompile-limit"),
    "recompile-limit": ("recompile-limit",),
    "compile-failure": ("compile-failure",),
}


def doctor(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="path/to/file.py:factory or package.module:factory")],
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS", help="Exit 1 on these findings: graph-break,recompile,recompile-limit,compile-failure."
        ),
    ] = None,
    fix_check: Annotated[
        bool, typer.Option("--fix-check", help="After an edit: which findings of the last report went away?")
    ] = False,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIMENSION",
            help="An input dimension that varies: NAME:DIM=MIN..MAX, or batch=MIN..MAX, seq=MIN..MAX for all inputs. "
            "Repeatable.",
        ),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Drive with these sizes: a trace, or one call per line: input_ids:1=37."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the inputs, instead of the target's own.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where report.json goes. Default: compilot-doctor/FILE-FACTORY."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another place for the page that goes beside report.json.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A plan to show beside eager under the roofline: plan.json or its folder."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Graphs only: no compile, no timing of the machine.")] = False,
    tlparse: Annotated[bool, typer.Option("--tlparse", help="Also write tlparse's pages, if it is installed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Examine a model: graph breaks, recompiles, where time goes; each with its cost and a fix."""
    from compilot.api import examining
    from compilot.doctor import report_files

    with common.guarded(debug=debug, as_json=json):
        kinds = _kinds(fail_on)
        folder = out or report_files.default_folder(target)
        found = examining.examination(
            target,
            dynamic=common.parse_dims(dynamic),
            shapes=shapes,
            seed=seed,
            plan=plan,
            quick=quick,
            out=folder,
            html=html,
            tlparse=tlparse,
            fix_check=fix_check,
            note=common.tell,
            progress=not quiet,
        )
        hits = [one for one in found.report.findings if _is_wanted(one, kinds)]
        _show(found, folder, hits, as_json=json)
        if found.fix_check is not None and found.fix_check.not_checked:
            common.tell(f"{common.nearby(folder)} keeps the last report: its findings were not all checked.")
        _gate(found.report, hits, wanted=bool(kinds))


def _is_wanted(one: Finding, kinds: set[str]) -> bool:
    """A recompile that is reported with the graph break behind it is a recompile all the same."""
    return one.kind in kinds or ("recompile" in kinds and one.recompiles > 0)


def _gate(report: DoctorReport, hits: list[Finding], *, wanted: bool) -> None:
    """The exit code of --fail-on: a finding that is there counts more than a look that was not complete."""
    if hits:
        names = ", ".join(dict.fromkeys(one.kind for one in hits))
        common.tell(f"failed: {len(hits)} finding{'' if len(hits) == 1 else 's'} of --fail-on ({names}).")
        raise typer.Exit(RED)
    if wanted and report.unseen:
        why = report.unseen[0].rstrip(".") + (f" (and {len(report.unseen) - 1} more)" if report.unseen[1:] else "")
        common.tell(f"error: not everything was looked at, so --fail-on cannot pass: {why}; fix that and look again.")
        raise typer.Exit(common.FAILED)


def _kinds(fail_on: str | None) -> set[str]:
    from compilot.errors import InputError

    names = common.parse_names(fail_on)
    wrong = next((name for name in names if name not in FAMILIES), None)
    if wrong is not None:
        raise InputError(f"--fail-on knows no '{wrong}'; it knows {', '.join(FAMILIES)}.")
    return {kind for name in names for kind in FAMILIES[name]}


def _show(found: Examination, folder: Path, hits: list[Finding], *, as_json: bool) -> None:
    from compilot.doctor.tlparsing import INDEX

    report, check, pages = found
    if as_json:
        return common.print_json(
            {
                "report": common.document(report),
                "fix_check": common.document(check),
                "failed_on": common.document(hits),
                "file": str(folder / "report.json"),
                "tlparse": str(pages / INDEX) if pages is not None else None,
            }
        )
    from rich.console import Console
    from rich.table import Table

    from compilot.report import doctor_terminal, doctor_times

    console = Console(highlight=False)
    if check is not None:
        console.print(doctor_terminal.checked(check, root=Path.cwd()))
        console.print()
    console.print(doctor_terminal.summary(report, root=Path.cwd()))
    for part in doctor_times.times(report):
        if isinstance(part, Table):
            console.print()
        console.print(part)
    console.print()
    if check is None or not check.not_checked:
        files = f"{common.nearby(folder)}: report.json, and report.html with pictures, for any browser"
        console.print(files, soft_wrap=True, markup=False)
    if pages is not None:
        console.print(f"{common.nearby(pages / INDEX)}: tlparse's pages", soft_wrap=True, markup=False)
    return None
