"""`compilot doctor TARGET`: what is wrong, where, what it costs, how to fix it. In: a target. Out: findings.

Exit codes: 0 examined, 1 a finding that --fail-on names, 2 could not run, or --fail-on and not everything was seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from compilot.cli import common, tlparsing

if TYPE_CHECKING:
    from compilot.diagnose.fixcheck import FixCheck
    from compilot.diagnose.report_records import DoctorReport
    from compilot.records import Finding, Plan, Shipment
    from compilot.workload.shapetrace import CallSizes

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
        list[str] | None,
        typer.Option(
            help="An input dimension that varies: NAME:DIM=MIN..MAX, or batch=MIN..MAX, seq=MIN..MAX for all inputs. "
            "Repeatable."
        ),
    ] = None,
    shapes: Annotated[
        Path | None, typer.Option(help="Drive with these sizes: a file, one call per line, such as input_ids:1=37.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs, instead of the target's own.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where report.json goes. Default: compilot-doctor/FILE-FACTORY.")
    ] = None,
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
    from compilot.diagnose import fixcheck
    from compilot.doctor import report_files
    from compilot.workload.dispatch import ship_target
    from compilot.workload.dynamic import parse_dynamic
    from compilot.workload.shapetrace import read_trace

    with common.guarded(debug=debug, as_json=json):
        kinds = _kinds(fail_on)
        shipment = ship_target(target, seed=seed, extra_dynamic=[parse_dynamic(text) for text in dynamic or []])
        folder = out or report_files.default_folder(target)
        before = report_files.last_report(folder, shipment.target) if fix_check else None
        pages = tlparsing.folder_for(folder) if tlparse else None
        trace = read_trace(shapes) if shapes is not None else ()
        wish = _Wish(folder, keep=before is None, pages=pages, plan=_plan(plan), quick=quick, shapes=trace)
        report, pages = _examine(shipment, wish, quiet=quiet)
        if html is not None:
            _write_html(report, html, pages)
        check = fixcheck.compare(before, report) if before is not None else None
        hits = [one for one in report.findings if _is_wanted(one, kinds)]
        _show(report, check, folder, hits, pages, as_json=json)
        if check is not None:
            _replace_last(report, check, folder, pages)
        _gate(report, hits, wanted=bool(kinds))


class _Wish(NamedTuple):
    """What is to be made of one examination."""

    folder: Path
    keep: bool  # write the report as soon as there is one; False: the last one is still needed
    pages: Path | None
    plan: Plan | None
    quick: bool
    shapes: tuple[CallSizes, ...] = ()


def _is_wanted(one: Finding, kinds: set[str]) -> bool:
    """A recompile that is told with the graph break behind it is a recompile all the same."""
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


def _replace_last(report: DoctorReport, check: FixCheck, folder: Path, pages: Path | None) -> None:
    """The new report takes the last one's place, unless findings of that one are still to be checked."""
    from compilot.doctor import report_files

    if check.not_checked:
        common.tell(f"{common.nearby(folder)} keeps the last report: its findings were not all checked.")
    else:
        report_files.save(report, folder, pages)


def _kinds(fail_on: str | None) -> set[str]:
    from compilot.errors import InputError

    names = common.parse_names(fail_on)
    wrong = next((name for name in names if name not in FAMILIES), None)
    if wrong is not None:
        raise InputError(f"--fail-on knows no '{wrong}'; it knows {', '.join(FAMILIES)}.")
    return {kind for name in names for kind in FAMILIES[name]}


def _write_html(report: DoctorReport, path: Path, pages: Path | None) -> None:
    from compilot.errors import RunDirError
    from compilot.report.doctor_html import write_page

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(report, path, pages)
    except OSError as problem:
        raise RunDirError(f"cannot write {path}: {problem.strerror}; choose another --html.") from problem


def _plan(path: Path | None) -> Plan | None:
    from compilot.artifacts.planfolder import open_plan
    from compilot.artifacts.rundir import RunDir

    return open_plan(RunDir(path).plan if path.is_dir() else path) if path is not None else None


def _examine(shipment: Shipment, wish: _Wish, *, quiet: bool) -> tuple[DoctorReport, Path | None]:
    """The report, saved after each half where that is wished for, and where tlparse's pages are."""
    from compilot.doctor import checkup
    from compilot.doctor.report_files import save

    pages = wish.pages
    with tempfile.TemporaryDirectory(prefix="compilot-doctor-") as folder, _progress(quiet) as tell:
        trace = Path(folder) / "trace"
        env = {"TORCH_TRACE": str(trace)} if pages else None
        report = checkup.run(shipment, Path(folder), tell, env=env, shapes=wish.shapes)
        if wish.keep:
            save(report, wish.folder)  # before anything else can fail
        if wish.plan is not None:
            checkup.must_fit(wish.plan, report)
        if pages is not None:
            tell("writing tlparse's pages")
            pages = tlparsing.write_pages(trace, pages)
        if not wish.quick:
            report = checkup.add_times(report, shipment, Path(folder), tell, plan=wish.plan)
        if wish.keep:
            save(report, wish.folder, pages)
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
    report: DoctorReport,
    check: FixCheck | None,
    folder: Path,
    hits: list[Finding],
    pages: Path | None,
    *,
    as_json: bool,
) -> None:
    import msgspec

    if as_json:
        common.print_json(
            {
                "report": msgspec.to_builtins(report),
                "fix_check": msgspec.to_builtins(check),
                "failed_on": msgspec.to_builtins(hits),
                "file": str(folder / "report.json"),
                "tlparse": str(pages / tlparsing.INDEX) if pages is not None else None,
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
    if check is None or not check.not_checked:
        files = f"{common.nearby(folder)}: report.json, and report.html with pictures, for any browser"
        console.print(files, soft_wrap=True, markup=False)
    if pages is not None:
        index = common.nearby(pages / tlparsing.INDEX)
        console.print(f"{index}: tlparse's pages", soft_wrap=True, markup=False)
