"""`compilot doctor TARGET`: what is wrong, where, what it costs, how to mend it. In: a target. Out: findings.

Exit codes: 0 examined, 1 a finding that --fail-on names, 2 could not run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.diagnose.fixcheck import FixCheck
    from compilot.diagnose.report_records import DoctorReport
    from compilot.records import Plan

RED = 1
FAMILIES = {  # what --fail-on may name -> kinds of findings
    "graph-break": ("graph-break", "compile-failure"),
    "recompile": ("recompile", "recompile-limit"),
    "recompile-limit": ("recompile-limit",),
    "compile-failure": ("compile-failure",),
}


def doctor(
    target: Annotated[str, typer.Argument(help="path/to/file.py:factory or package.module:factory")],
    fail_on: Annotated[
        str | None,
        typer.Option(help="Exit 1 on these findings: graph-break,recompile,recompile-limit,compile-failure."),
    ] = None,
    fix_check: Annotated[
        bool, typer.Option("--fix-check", help="After an edit: which findings of the last report went away?")
    ] = False,
    dynamic: Annotated[
        list[str] | None, typer.Option(help="An input dimension that varies: NAME:DIM=MIN..MAX. Repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs, instead of the target's own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where report.json goes. Default: compilot-doctor/NAME.")] = None,
    html: Annotated[Path | None, typer.Option(help="Another place for the page that goes beside report.json.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A plan to show beside eager under the roofline: plan.json or its folder.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Graphs only: no compile, no timing of the machine.")] = False,
    tlparse: Annotated[bool, typer.Option("--tlparse", help="Also write tlparse's pages, if it is installed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Examine a model: graph breaks, recompiles, where time goes; each with its cost and a fix."""
    from compilot import checkup
    from compilot.diagnose import fixcheck

    with common.guarded(debug=debug, as_json=json):
        kinds = _kinds(fail_on)
        folder = out or checkup.default_folder(common.factory_name(target))
        before = checkup.last_report(folder) if fix_check else None
        pages = _tlparse_folder(folder) if tlparse else None
        shown = _plan(plan)
        report, pages = _examine(target, seed, dynamic or [], folder, pages, shown, quick=quick, quiet=quiet)
        if html is not None:
            _write_html(report, html)
        check = fixcheck.compare(before, report) if before is not None else None
        hits = [one for one in report.findings if one.kind in kinds]
        _show(report, check, folder, hits, pages, as_json=json)
        if hits:
            names = ", ".join(dict.fromkeys(one.kind for one in hits))
            common.tell(f"failed: {len(hits)} findings of --fail-on ({names}).")
            raise typer.Exit(RED)


def _kinds(fail_on: str | None) -> set[str]:
    from compilot.errors import InputError

    names = common.parse_names(fail_on)
    wrong = next((name for name in names if name not in FAMILIES), None)
    if wrong is not None:
        raise InputError(f"--fail-on knows no '{wrong}'; it knows {', '.join(FAMILIES)}.")
    return {kind for name in names for kind in FAMILIES[name]}


def _write_html(report: DoctorReport, path: Path) -> None:
    from compilot.errors import RunDirError
    from compilot.report.doctor_html import write_page

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(report, path)
    except OSError as problem:
        raise RunDirError(f"cannot write {path}: {problem.strerror}; choose another --html.") from problem


def _plan(path: Path | None) -> Plan | None:
    from compilot.artifacts.planfile import load_plan

    return load_plan(path / "plan.json" if path.is_dir() else path) if path is not None else None


def _examine(
    target: str,
    seed: int | None,
    dynamic: list[str],
    out: Path,
    pages: Path | None,
    plan: Plan | None,
    *,
    quick: bool,
    quiet: bool,
) -> tuple[DoctorReport, Path | None]:
    """The report, saved after each half, and where tlparse's pages are."""
    from compilot import checkup
    from compilot.workload.dispatch import ship_target
    from compilot.workload.dynamic import parse_dynamic

    shipment = ship_target(target, seed=seed, extra_dynamic=[parse_dynamic(text) for text in dynamic])
    with tempfile.TemporaryDirectory(prefix="compilot-doctor-") as folder, _progress(quiet) as tell:
        trace = Path(folder) / "trace"
        env = {"TORCH_TRACE": str(trace)} if pages else None
        report = checkup.run(shipment, Path(folder), tell, env=env)
        checkup.save(report, out)  # before anything else can fail
        if pages is not None:
            tell("writing tlparse's pages")
            pages = _run_tlparse(trace, pages)
        if not quick:
            report = checkup.add_times(report, shipment, Path(folder), tell, plan=plan)
            checkup.save(report, out)
    return report, pages


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """Who hears of the steps: nobody, a line that changes, or plain lines."""
    if quiet:
        yield lambda text: None
    elif not common.is_terminal():
        yield common.tell
    else:
        from rich.console import Console

        console = Console(stderr=True)
        with console.status("starting") as status:
            yield lambda text: status.update(text)


def _show(
    report: DoctorReport, check: FixCheck | None, folder: Path, hits: list[Any], pages: Path | None, *, as_json: bool
) -> None:
    import msgspec

    if as_json:
        common.print_json(
            {
                "report": msgspec.to_builtins(report),
                "fix_check": msgspec.to_builtins(check),
                "failed_on": msgspec.to_builtins(hits),
                "file": str(folder / "report.json"),
            }
        )
        return
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
    files = f"{common.nearby(folder)}: report.json, and report.html with pictures, for any browser"
    console.print(files, soft_wrap=True, markup=False)
    if pages is not None:
        console.print(f"{common.nearby(pages / 'index.html')}: tlparse's pages", soft_wrap=True, markup=False)


def _tlparse_folder(folder: Path) -> Path | None:
    """Where the pages go; None and one sentence where tlparse is missing."""
    import shutil

    if shutil.which("tlparse") is None:
        common.tell("tlparse is not installed; install it with: pip install tlparse")
        return None
    return folder / "tlparse"


def _run_tlparse(trace: Path, pages: Path) -> Path | None:
    """Where the pages are; None and one sentence where there are none: the report does not need them."""
    import subprocess

    logs = sorted(trace.glob("*.log"))
    if not logs:
        common.tell("tlparse has nothing to read: torch wrote no trace of this examination")
        return None
    command = ["tlparse", str(logs[-1]), "-o", str(pages), "--overwrite", "--no-browser"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        problem = " ".join(done.stderr.split())[-300:] if done.returncode else ""
        failed = bool(done.returncode)
    except OSError as cause:
        problem, failed = str(cause), True
    if failed:
        common.tell(f"tlparse failed, so its pages are missing: {problem or 'it gave no reason'}")
    return None if failed else pages
