"""`compilot.check` and `compilot.baseline`: is the model still as fast, as small and as right as it was?

In: a target, and what it is compared with: a git ref, a stored baseline, or an older environment. Out: a `CheckReport`,
or a `Baseline`. Both run the target in processes of their own; the working tree is not touched. Not covered: printing
and exit codes (the command line).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot._durations import parse_duration
from compilot.api.given import name_of, run_dir_for
from compilot.artifacts.rundir import RunDir
from compilot.errors import EnvironmentProblem, InputError, RunDirError, cannot_write
from compilot.records import Plan
from compilot.showing.steps import steps

if TYPE_CHECKING:
    from compilot.gate.checking import CheckOptions, Stored
    from compilot.gate.report_records import Baseline, CheckReport
    from compilot.gate.sides import Side
    from compilot.records import Candidate, DynamicDim
    from compilot.trials.limits import Limits

AnyPath = str | os.PathLike[str]
BUDGET = "3m"
ARMS = ("eager", "compile")
LEAST_BUDGET_S = 10.0
MOST_CALLERS = 256
MOST_PROCESSES = 20
WARM_S = 3.0  # of an arm at the most, five times per set; a small model is steady after one


def check(
    target: str,
    *,
    base_ref: str | None = None,
    baseline: AnyPath | None = None,
    old_python: AnyPath | None = None,
    link: Sequence[AnyPath] = (),
    arms: Sequence[str] | str = ARMS,
    plan: Plan | AnyPath | None = None,
    budget: str | float = BUDGET,
    margin: float = 0.03,
    rule_out: float = 0.10,
    allow: Sequence[str] = (),
    processes: int | None = None,
    concurrency: int = 1,
    findings: bool = False,
    junit: AnyPath | None = None,
    markdown: AnyPath | None = None,
    sarif: AnyPath | None = None,
    benchmark_json: AnyPath | None = None,
    out: AnyPath | None = None,
    progress: bool = True,
) -> CheckReport:
    """Compare the target as it stands with what it was; what `compilot check` does.

    Give one of three: base_ref, a git branch, tag or commit whose code is raced against the working tree on this
    machine; baseline, a file that `compilot.baseline` wrote; old_python, the interpreter of an environment with an
    older torch, in which nothing of compilot need be installed. link names untracked files that the factory reads.

    arms are "eager" and "compile", which is plain torch.compile; plan measures a plan's candidate on both sides
    instead. margin is the relative slow-down that still counts as none. A pass can exclude a slow-down of rule_out.
    allow names metrics that may get worse. findings=True has the doctor look at the code, too. The report, the samples
    and the logs of all processes are kept in out; junit, markdown, sarif and benchmark_json are files to write besides.
    One that cannot be written is a note of the report: the verdict stands.
    """
    from compilot.gate.metrics import NAMES
    from compilot.gate.reporting import FILE

    options = _options(budget, margin, rule_out, allow, processes, NAMES)
    given = [name for name, one in (("base_ref", base_ref), ("baseline", baseline), ("old_python", old_python)) if one]
    if len(given) != 1:
        raise InputError("give one of base ref, baseline and old python: what to compare with.")
    if link and base_ref is None:
        raise InputError("links are for a base ref: only there is the old code in a folder of its own.")
    asked = _asked(arms, plan)
    if plan is not None and old_python is not None:
        raise InputError("a plan needs compilot on both sides; leave it out for an old python.")
    folder = RunDir.make(run_dir_for(out, f"check-{name_of(target)}")).path
    (folder / FILE).unlink(missing_ok=True)  # of an earlier check: nobody shall take it for this one's
    with steps(quiet=not progress) as tell:
        wanted = findings or sarif is not None
        job = _Job(target, asked, options, folder, _callers(concurrency), wanted, tell)
        if baseline is not None:
            report = _with_baseline(job, Path(baseline))
        elif old_python is not None:
            report = _with_old(job, old_python)
        else:
            assert base_ref is not None
            report = _with_ref(job, base_ref, link)
    return _with_forms(report, junit=junit, markdown=markdown, sarif=sarif, benchmark_json=benchmark_json)


def baseline(
    target: str,
    *,
    output: AnyPath = "compilot-baseline.json",
    arms: Sequence[str] | str = ARMS,
    plan: Plan | AnyPath | None = None,
    budget: str | float = BUDGET,
    processes: int | None = None,
    concurrency: int = 1,
    out: AnyPath | None = None,
    progress: bool = True,
) -> Baseline:
    """Measure the target and keep the figures in output, for a later check; what `compilot baseline` does.

    Times count on this very machine only, memory and what a compiler makes where processor, torch and threads are the
    same; graph breaks, recompiles and answers count anywhere.
    """
    from compilot.gate import baselines
    from compilot.gate.checking import run_race
    from compilot.gate.races import LocalRaces
    from compilot.gate.sides import HEAD, head_side, with_dimensions
    from compilot.identity.machine import machine_fingerprint

    options, asked = _options(budget, 0.03, 0.10, (), processes, ()), _asked(arms, plan)
    candidates = asked.candidates
    folder = RunDir.make(run_dir_for(out, f"baseline-{name_of(target)}")).path
    with steps(quiet=not progress) as tell:
        head, limits = with_dimensions(head_side(target), asked.dynamic), _limits(options.budget_s)
        callers = _callers(concurrency)
        races = LocalRaces([head], candidates, folder, limits=limits, callers=callers, tell=tell, weights=True)
        labels = [one.label for one in candidates]
        with contextlib.closing(races):  # whose files hold the answers
            sets = run_race(races, 0, options)
            failures = [one.failures.get(f"{HEAD} {labels[0]}") for one in sets]
            if all(failures) and failures[0]:
                raise EnvironmentProblem(f"the target cannot be measured: {failures[0].reason}")
            for label in labels[1:]:
                if all(f"{HEAD} {label}" in one.failures for one in sets):
                    reason = sets[0].failures[f"{HEAD} {label}"].reason
                    tell(f"{label} is not in the baseline, since it failed: {reason}")
            answers = sets[0].answers.get(f"{HEAD} {labels[0]}") if sets[0].repeats else None
            made = baselines.make_baseline(head, sets, labels, machine_fingerprint(), answers=answers, callers=callers)
    baselines.write_baseline(made, Path(output))
    return made


def _with_forms(
    report: CheckReport,
    *,
    junit: AnyPath | None,
    markdown: AnyPath | None,
    sarif: AnyPath | None,
    benchmark_json: AnyPath | None,
) -> CheckReport:
    """Write a check's result in the forms that other tools read; the report, with a note for each that failed."""
    from compilot.gate.outputs import benchmark_json as benchmarks
    from compilot.gate.outputs import junit as junits
    from compilot.gate.outputs import markdown as pages
    from compilot.gate.outputs import sarif as scans

    forms = ((junit, junits.junit), (markdown, pages.markdown), (sarif, scans.sarif))
    notes = []
    for place, form in (*forms, (benchmark_json, benchmarks.benchmark_json)):
        if place is not None:
            try:
                _write(Path(place), form(report))
            except RunDirError as problem:
                notes.append(str(problem))
    return msgspec.structs.replace(report, notes=(*report.notes, *notes)) if notes else report


def tell_github(report: CheckReport, wanted: bool | None) -> list[str]:
    """Lines for a workflow's log; the summary is written. wanted: None where it is one, by itself."""
    from compilot.gate.outputs import github

    if not (github.in_github() if wanted is None else wanted):
        return []
    lines = github.workflow_lines(report)
    try:
        github.write_summary(report)
    except OSError as problem:  # a full disk is no verdict
        lines.append(f"::warning title=compilot::the summary cannot be written: {problem.strerror}")
    return lines


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem


class _Asked(NamedTuple):
    """Which arms are run."""

    candidates: list[Candidate]
    dynamic: tuple[DynamicDim, ...] = ()  # of the plan


class _Job(NamedTuple):
    """What is asked for."""

    target: str
    asked: _Asked
    options: CheckOptions
    folder: Path
    callers: int
    findings: bool
    tell: Callable[[str], None]


# ------------------------------------------------------------------------------------------- what it is compared with


def _with_ref(job: _Job, ref: str, link: Sequence[AnyPath]) -> CheckReport:
    from compilot.gate import worktree
    from compilot.gate.sides import head_side, moved_side, repository_root
    from compilot.records import SourceCommit
    from compilot.workload.place import parse_target

    place = parse_target(job.target)
    root = repository_root(place.file.parent if place.file else Path.cwd())
    if root is None:
        raise InputError("a base ref needs the target in a git repository; use a baseline elsewhere.")
    job.tell(f"checking out {ref}")
    with worktree.checked_out(root, ref, link) as tree:
        head = head_side(job.target, foreign=str(tree.path))._replace(root=str(root))
        short = tree.commit[:9]
        base = moved_side(head, root, tree.path, short if ref == tree.commit else f"{ref} ({short})")
        return _checked(job, base._replace(commit=SourceCommit(commit=tree.commit), root=str(tree.path)), head)


def _with_old(job: _Job, python: AnyPath) -> CheckReport:
    from compilot.gate.sides import head_side, old_side

    head = head_side(job.target)
    job.tell(f"asking {os.fspath(python)} for its torch")
    return _checked(job, old_side(head, python), head)


def _with_baseline(job: _Job, file: Path) -> CheckReport:
    from compilot.gate import baselines
    from compilot.gate.checking import Stored
    from compilot.gate.sides import head_side
    from compilot.identity.machine import machine_fingerprint

    kept = baselines.read_baseline(file)
    no_times = baselines.why_no_times(kept, machine_fingerprint())
    head = head_side(job.target)
    other_work = baselines.why_other_work(kept, head.shipment.target or "", job.callers)
    no_costs = baselines.why_no_costs(kept, machine_fingerprint())
    return _checked(job, None, head, Stored(kept, no_times, job.folder, other_work, no_costs), str(file))


def _checked(job: _Job, base: Side | None, head: Side, stored: Stored | None = None, file: str = "") -> CheckReport:
    from compilot.gate import reporting
    from compilot.gate.checking import check_sides
    from compilot.gate.races import LocalRaces
    from compilot.gate.sides import with_dimensions

    began = time.monotonic()
    sides = [with_dimensions(side, job.asked.dynamic) for side in (base, head) if side is not None]
    limits = _limits(job.options.budget_s)
    races = LocalRaces(
        sides,
        job.asked.candidates,
        job.folder,
        limits=limits,
        callers=job.callers,
        tell=job.tell,
        weights=stored is not None,
    )
    labels = [one.label for one in job.asked.candidates]
    with contextlib.closing(races):
        checked = check_sides(races, labels, job.options, stored=stored, tell=job.tell)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=job.folder, ignore_cleanup_errors=True) as place:
        found = reporting.findings_for(checked, base, head, Path(place), wanted=job.findings, tell=job.tell)
    about = reporting.About(job.target, base, head, stored, file, job.options.budget_s, time.monotonic() - began)
    report = reporting.report_of(checked, about, found)
    try:
        reporting.write_report(report, job.folder)
    except RunDirError as problem:
        return msgspec.structs.replace(report, notes=(*report.notes, str(problem)))
    return report


# ------------------------------------------------------------------------------------------------------------ options


def _options(
    budget: str | float,
    margin: float,
    rule_out: float,
    allow: Sequence[str],
    processes: int | None,
    names: Sequence[str],
) -> CheckOptions:
    from compilot.gate.checking import CheckOptions

    seconds = parse_duration(budget) if isinstance(budget, str) else float(budget)
    if seconds < LEAST_BUDGET_S:
        raise InputError(f"a check takes at least {LEAST_BUDGET_S:.0f} s; give a larger budget.")
    if not 0.0 < margin < 1.0 or not 0.0 < rule_out < 10.0:
        raise InputError("margin and rule-out are shares: write 0.05 for 5 %.")
    if rule_out <= margin:
        text = f"a pass excludes more than the margin: rule-out is {rule_out:g} and the margin {margin:g}"
        raise InputError(f"{text}; give a larger rule-out, such as {2 * margin:g}.")
    if unknown := [name for name in allow if name not in names]:
        raise InputError(f"there is no metric '{unknown[0]}'; there are {', '.join(names)}.")
    if processes is not None and not 1 <= processes <= MOST_PROCESSES:
        raise InputError(f"give 1 to {MOST_PROCESSES} processes.")
    return CheckOptions(seconds, margin, rule_out, tuple(allow), processes)


def _callers(concurrency: int) -> int:
    if not 1 <= concurrency <= MOST_CALLERS:
        raise InputError(f"give 1 to {MOST_CALLERS} callers.")
    return concurrency


def _asked(arms: Sequence[str] | str, plan: Plan | AnyPath | None) -> _Asked:
    from compilot.engines import registry
    from compilot.engines.eager.build import EAGER
    from compilot.gate.arm import PLAIN_COMPILE
    from compilot.records import Candidate, Settings

    if plan is not None:
        return _planned(plan)
    compiled = Candidate(
        settings=Settings(engine=registry.plain_compile()),
        label=PLAIN_COMPILE,
        rationale="torch.compile with nothing chosen",
    )
    known = {"eager": EAGER, "compile": compiled}
    asked = [part.strip() for part in arms.split(",")] if isinstance(arms, str) else list(arms)
    if not asked or (unknown := [name for name in asked if name not in known]):
        raise InputError(f"there is no arm '{', '.join(unknown) if asked else ''}'; there are eager and compile.")
    return _Asked([known[name] for name in dict.fromkeys(asked)])


def _planned(plan: Plan | AnyPath) -> _Asked:
    from compilot.artifacts.planfolder import PLAN_NAME, open_plan

    path = None if isinstance(plan, Plan) else Path(plan)
    opened = (
        plan if isinstance(plan, Plan) else open_plan(Path(plan) / PLAN_NAME if Path(plan).is_dir() else Path(plan))
    )
    where = "the plan" if path is None else str(path)
    if not opened.entries:
        raise InputError(f"{where} keeps the model eager; leave the plan out and check the arms eager and compile.")
    first = opened.entries[0]
    if len(opened.entries) > 1 or first.module or first.is_for_sizes:
        text = f"{where} has programs for several sizes or for parts of the model, and a check builds one for the whole"
        raise InputError(f"{text}; leave the plan out, or measure it with 'compilot bench --plan'.")
    return _Asked([first.candidate], opened.workload.dynamic)


def _limits(budget_s: float) -> Limits:
    from compilot.trials.limits import Limits, default_memory_limit

    return Limits(machine_bytes=default_memory_limit(), warm_s=WARM_S).within(budget_s)
