"""`compilot.examine` and `compilot.check_fixes`: the doctor. In: a model with its inputs, a Workload, or a target.

Out: a DoctorReport: what is wrong with compiling this model, where, what it costs, how to fix it; and what became of
the findings after an edit. `examination` is all that `compilot doctor` does, with the files that it keeps: the last
report stays until it has been compared. Not covered: showing a report, and failing because of one (the command line).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compilot.api.given import as_dims, opened, shipped
from compilot.errors import CompilotWarning, InputError, RunDirError, UntrustedPlan
from compilot.records import Plan, Shipment
from compilot.showing.steps import steps

if TYPE_CHECKING:
    from torch import nn

    from compilot.diagnose.fixcheck import FixCheck
    from compilot.diagnose.report_records import DoctorReport
    from compilot.traces.reading import Scan, ShapeSpec
    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec

AnyPath = str | os.PathLike[str]
Note = Callable[[str], None]


def examine(
    model: nn.Module | Workload | str,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: DynamicSpec | None = None,
    shapes: ShapeSpec | None = None,
    seed: int | None = None,
    plan: Plan | AnyPath | None = None,
    quick: bool = False,
    out: AnyPath | None = None,
    html: AnyPath | None = None,
    tlparse: bool = False,
    progress: bool = True,
) -> DoctorReport:
    """What is wrong with compiling this model, where, what it costs, how to fix it; what `compilot doctor` shows.

    shapes are the calls to drive it with, by the sizes of dimensions: [{"x:0": 4}, {"x:0": 9}], or a file: a list of
    such calls, or a trace that `record` wrote. What varies there and is not declared gets its range from there.
    seed makes the inputs that are varied. plan is one of this model, to stand beside eager under the roofline. quick
    leaves out what takes longest: the compile that is timed. out keeps report.json and report.html in that folder; html
    writes the page to another place; tlparse writes tlparse's pages into out, too, if that program is installed.
    """
    return examination(
        model,
        args,
        kwargs,
        dynamic=dynamic,
        shapes=shapes,
        seed=seed,
        plan=plan,
        quick=quick,
        out=out,
        html=html,
        tlparse=tlparse,
        progress=progress,
    ).report


def check_fixes(before: DoctorReport | AnyPath, now: DoctorReport | AnyPath) -> FixCheck:
    """After an edit: which findings of the last report went away, stayed or are new? As `compilot doctor --fix-check`.

    Each is a report, or the folder that `examine` kept one in.
    """
    from compilot.diagnose.fixcheck import compare

    return compare(_report(before), _report(now))


class Examination(NamedTuple):
    """What an examination came to."""

    report: DoctorReport
    fix_check: FixCheck | None = None
    tlparse: Path | None = None  # where tlparse's pages are


def _warn(text: str) -> None:
    warnings.warn(text, CompilotWarning, stacklevel=6)  # the caller of `examine`


def examination(
    model: nn.Module | Workload | str,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: DynamicSpec | None = None,
    shapes: ShapeSpec | None = None,
    seed: int | None = None,
    plan: Plan | AnyPath | None = None,
    quick: bool = False,
    out: AnyPath | None = None,
    html: AnyPath | None = None,
    tlparse: bool = False,
    fix_check: bool = False,
    note: Note = _warn,
    progress: bool = True,
) -> Examination:
    """Examine a model and write what is wished for; note hears what else the user should know.

    fix_check compares with the report in out, which stays until all its findings were checked.
    """
    from compilot.diagnose import fixcheck
    from compilot.doctor import report_files

    if out is None and (tlparse or fix_check):
        raise InputError("tlparse and fix_check need the folder of the report; give out.")
    with tempfile.TemporaryDirectory(prefix="compilot-doctor-") as folder:
        shipment = shipped(opened(model, args, kwargs), Path(folder), as_dims(dynamic), seed)
        before = report_files.last_report(Path(out or ""), shipment.target) if fix_check else None
        wish = _Wish(
            out=None if out is None else Path(out),
            keep=before is None,
            plan=_plan(plan),
            quick=quick,
            tlparse=tlparse,
            trace=_trace(shapes, note),
        )
        report, pages = _examined(shipment, Path(folder), wish, note, progress=progress)
    if html is not None:
        _write_html(report, Path(html), pages)
    check = fixcheck.compare(before, report) if before is not None else None
    if check is not None and not check.not_checked:
        report_files.save(report, Path(out or ""), pages)
    return Examination(report, check, pages)


class _Wish(NamedTuple):
    """What is to be made of one examination."""

    out: Path | None  # where report.json goes; None: nowhere
    keep: bool  # write the report as soon as there is one; False: the last one is still needed
    plan: Plan | None
    quick: bool
    tlparse: bool
    trace: Scan | None


def _examined(
    shipment: Shipment, folder: Path, wish: _Wish, note: Note, *, progress: bool
) -> tuple[DoctorReport, Path | None]:
    """The report, saved after each half where that is wished for, and where tlparse's pages are."""
    from compilot.doctor import checkup, tlparsing
    from compilot.doctor.report_files import save

    keep = wish.out if wish.keep else None
    pages = tlparsing.folder_for(wish.out, note) if wish.tlparse and wish.out is not None else None
    with steps(quiet=not progress) as tell:
        trace = folder / "trace"
        env = {"TORCH_TRACE": str(trace)} if pages else None
        shapes, ranges = ((), None) if wish.trace is None else (wish.trace.calls(), wish.trace.ranges)
        report = checkup.run(shipment, folder, tell, env=env, shapes=shapes, ranges=ranges)
        if keep is not None:
            save(report, keep)  # before anything else can fail
        if wish.plan is not None:
            checkup.must_fit(wish.plan, report)
        if pages is not None:
            tell("writing tlparse's pages")
            pages = tlparsing.write_pages(trace, pages, note)
        if not wish.quick:
            report = checkup.add_times(report, shipment, folder, tell, plan=wish.plan)
        if keep is not None:
            save(report, keep, pages)
    return report, pages


def _plan(plan: Plan | AnyPath | None) -> Plan | None:
    """A plan that nobody else could have changed."""
    from compilot.artifacts.homes import doubt_about
    from compilot.artifacts.planfolder import PLAN_NAME, open_plan

    if plan is None or isinstance(plan, Plan):
        if plan is not None and (why := doubt_about(plan)):
            raise UntrustedPlan(why)
        return plan
    path = Path(plan)
    return open_plan(path / PLAN_NAME if path.is_dir() else path)


def _trace(shapes: ShapeSpec | None, note: Note) -> Scan | None:
    from compilot.traces.reading import DRIVEN_CALLS, scan

    found = None if shapes is None else scan(shapes, first=DRIVEN_CALLS)
    if found is not None and len(found.first) == DRIVEN_CALLS < found.tally.calls:
        note(f"the trace has {found.tally.calls} calls; the model is driven with the first {DRIVEN_CALLS} of them.")
    return found


def _report(given: DoctorReport | AnyPath) -> DoctorReport:
    from compilot.doctor.report_files import last_report

    return last_report(Path(given)) if isinstance(given, str | os.PathLike) else given


def _write_html(report: DoctorReport, path: Path, pages: Path | None) -> None:
    from compilot.report.doctor_html import write_page

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(report, path, pages)
    except OSError as problem:
        raise RunDirError(f"cannot write {path}: {problem.strerror}; choose another place for the page.") from problem
