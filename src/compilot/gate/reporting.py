"""From what a check found to its report. In: metrics, sides. Out: a `CheckReport`, with the doctor's findings in it.

The doctor looks at the head where a count of the compiler got worse, or where it was asked for: it names the line. At a
base of another commit it looks as well, so that a finding is known as new. Whatever fails there is a note.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot._version import __version__
from compilot.errors import CompilotError, cannot_write
from compilot.files import atomic
from compilot.gate.checking import Checked, Stored, is_red
from compilot.gate.effects import HEAD_COLUMN
from compilot.gate.judging import overall
from compilot.gate.report_records import (
    CHECK_SCHEMA,
    CheckReport,
    GateVerdict,
    MetricResult,
    PlacedFinding,
    RaceSamples,
    SideInfo,
)
from compilot.gate.sides import BASE, HEAD, Side
from compilot.identity.machine import machine_fingerprint
from compilot.records import ProcessSamples
from compilot.tuning.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from compilot.diagnose.report_records import DoctorReport

EXPLAINED = ("graph-breaks", "recompiles", "left-to-eager")  # what the doctor can name the line of
FILE = "check.json"


class About(NamedTuple):
    """What was compared."""

    target: str
    base: Side | None
    head: Side
    stored: Stored | None
    file: str  # of the stored baseline
    budget_s: float
    wall_s: float


class Found(NamedTuple):
    """What the doctor said."""

    findings: tuple[PlacedFinding, ...] = ()
    notes: tuple[str, ...] = ()


def findings_for(
    checked: Checked, base: Side | None, head: Side, folder: Path, *, wanted: bool, tell: Callable[[str], None]
) -> Found:
    """The doctor's findings in the head's code, where something calls for them."""
    if not wanted and not any(is_red(checked.metrics, name) for name in EXPLAINED):
        return Found()
    tell("asking the doctor which line it is")
    try:
        now_ = _examined(head, folder / "head")
        before = _examined(base, folder / "base") if base is not None and base.foreign else None
    except CompilotError as problem:
        return Found(notes=(f"the doctor could not look at the code: {problem}",))
    known = None if before is None else {_identity(one) for one in before.findings}
    placed = tuple(
        PlacedFinding(finding=one, is_new=None if known is None else _identity(one) not in known)
        for one in now_.findings
    )
    return Found(placed, tuple(now_.unseen))


def _examined(side: Side, folder: Path) -> DoctorReport:
    from compilot.doctor import checkup

    folder.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("PYTHONPATH")
    paths = [*side.shipment.sys_path, *([given] if given else [])]  # its own first: others may hold the other side's
    env = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return checkup.run(side.shipment, folder, env=env)


def _identity(finding: object) -> tuple[str, ...]:
    """What makes it the same finding in two trees: its kind and its line of source, not where that line is."""
    fields = ("kind", "category", "snippet", "what")
    return tuple(str(getattr(finding, name)) for name in fields)


def report_of(checked: Checked, about: About, found: Found) -> CheckReport:
    """Everything in one record."""
    metrics = tuple(_explained(one, found.findings) for one in checked.metrics)
    verdict, because = overall(metrics, without_times=about.stored is not None and bool(about.stored.no_times))
    return CheckReport(
        schema=CHECK_SCHEMA,
        compilot=__version__,
        created=now(),
        target=about.target,
        label=checked.label,
        verdict=verdict,
        because=because,
        base=_base_info(checked, about),
        head=_info(checked, about.head, HEAD),
        metrics=metrics,
        notes=(*_notes(checked, about), *found.notes),
        findings=found.findings,
        races=_samples(checked),
        wall_s=about.wall_s,
        budget_s=about.budget_s,
        machine=machine_fingerprint(),
    )


def _explained(one: MetricResult, findings: tuple[PlacedFinding, ...]) -> MetricResult:
    """A count that got worse names the line, as far as the doctor found it."""
    kinds = {"graph-breaks": "graph-break", "left-to-eager": "graph-break", "recompiles": "recompile"}
    if not one.verdict.is_red or one.metric not in kinds:
        return one
    fitting = [p.finding for p in findings if p.is_new is not False and p.finding.kind.startswith(kinds[one.metric])]
    if not fitting:
        return one
    first = fitting[0]
    where = first.where.removeprefix(f"{Path.cwd()}/")
    return msgspec.structs.replace(one, because=f"{one.because}: {first.explanation} ({where}); {first.advice}")


def _base_info(checked: Checked, about: About) -> SideInfo:
    if about.stored is not None:
        kept = about.stored.baseline
        what = f"{about.file} of {kept.created[:10]}"
        return SideInfo(what=what, commit=kept.commit, torch=kept.machine.torch, python=kept.machine.python)
    assert about.base is not None
    return _info(checked, about.base, BASE)


def _info(checked: Checked, side: Side, name: str) -> SideInfo:
    facts = [f for one in checked.races[0] for arm, f in one.facts.items() if arm.startswith(f"{name} ")]
    torch, python = (facts[0].torch, facts[0].python) if facts else ("", "")
    return SideInfo(what=side.what, commit=side.commit, torch=torch, python=python)


def _notes(checked: Checked, about: About) -> list[str]:
    sets = [one for race in checked.races for one in race]
    notes = dict.fromkeys(f"meanwhile {one.load}" for one in sets if one.load)
    if about.stored is not None and about.stored.no_times:
        notes[about.stored.no_times] = None
    if not all(arm in one.with_aa for one in sets for arm in one.samples) and about.base is not None:
        notes["there was no room for a second process of the base: its noise is assumed, not measured"] = None
    unmeasured = [one for one in checked.metrics if one.verdict is GateVerdict.NOT_MEASURED]
    notes |= dict.fromkeys(f"{one.metric} of {one.arm} was not measured: {one.because}" for one in unmeasured)
    return list(notes)


def _samples(checked: Checked) -> tuple[RaceSamples, ...]:
    found = []
    for race in checked.races:
        for arm in dict.fromkeys(name for one in race for name in one.samples):
            sets = [one for one in race if arm in one.samples]
            columns = ("base", "base again", f"base {arm}", f"head {arm}")
            processes = tuple(one.samples[arm] for one in sets)
            load = next((one.load for one in sets if one.load), "")
            found.append(RaceSamples(columns=columns, processes=processes, load=load))
    return tuple(found)


def write_report(report: CheckReport, folder: Path) -> None:
    """check.json in the run directory."""
    path = folder / FILE
    try:
        atomic.write_bytes(path, msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem


def head_times(samples: ProcessSamples) -> list[float]:
    """Seconds per call of the head, one for each round."""
    return [row[HEAD_COLUMN] for row in samples.rounds]
