"""The sections of words and tables. In: View. Out: Sections, or None where there is nothing to say.

The doctor's findings, correctness per output, the environment, how to do it again.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from compilot.files.naming import nearby
from compilot.records import Check, Finding, MachineFingerprint, RunHeader, Trial
from compilot.report.cells import MISSING
from compilot.report.loads import load_words, seen_load
from compilot.report.page_records import Section, Table, View
from compilot.verdict.unreached import minutes

NOT_AGAIN = {"--out": 1, "--resume": 1, "--json": 0, "--quiet": 0, "-q": 0, "--debug": 0}  # option -> values after it
ERROR = "{:.2g}"
NOTED = "What the checks passed over or could not compare"


class Findings(NamedTuple):
    """What the template draws of the doctor's findings."""

    findings: tuple[Finding, ...]
    spread: int  # calls that the cost of a recompile is spread over
    page: str  # address of the doctor's own page


def findings(view: View) -> Section | None:
    """What the doctor has to say, with a link to its page."""
    found = view.data.diagnosis.findings if view.data.diagnosis is not None else ()
    if not found and not view.doctor_page:
        return None
    about = "What is worth knowing about the model, the most costly first." if found else "Nothing to fix was found."
    spread = view.examined.spread if view.examined is not None else 1
    return Section("findings", "The doctor's findings", about, body=Findings(found, spread, view.doctor_page))


# --------------------------------------------------------------------------------------------------------- correctness


def correctness(view: View) -> Section | None:
    """How far every candidate is from the reference; of each, the worst output of every case."""
    checked = [trial for trial in view.data.trials.values() if trial.check is not None]
    if not checked:
        return None
    references = sorted({trial.check.reference for trial in checked if trial.check is not None})
    own = view.data.diagnosis.eager_error if view.data.diagnosis is not None else None
    about = f"Every candidate is compared with {' and '.join(references)} before it is timed, on seeds and edge inputs."
    about += f" Eager's own relative error against float64 is {ERROR.format(own)}." if own is not None else ""
    chosen = view.data.verdict.chosen_id if view.data.verdict is not None else ""
    first = sorted(checked, key=lambda trial: trial.candidate.id != chosen)
    details = [_outputs(trial, trial.check) for trial in first if trial.check is not None and trial.check.worst]
    tables = (_summary(checked, chosen), *_noted(first, chosen), *details)
    return Section("correctness", "Correctness", about, tables=tables)


def _summary(checked: list[Trial], chosen: str) -> Table:
    rows = []
    for trial in checked:
        check = trial.check
        assert check is not None
        error = MISSING if check.relative_error is None else ERROR.format(check.relative_error)
        mark = "► " if trial.candidate.id == chosen else ""
        rows.append((mark + trial.candidate.label, "passed" if check.passed else "failed", error, check.why))
    marked = frozenset(n for n, trial in enumerate(checked) if trial.candidate.id == chosen)
    columns = ("candidate", "check", "worst relative error", "what was seen")
    return Table("Checks", columns, tuple(rows), frozenset({2}), marked)


def _noted(checked: list[Trial], chosen: str) -> list[Table]:
    """What the checks passed over or could not compare, each note once with all that have it."""
    names: dict[str, list[str]] = {}
    of_chosen: set[str] = set()
    for trial in checked:
        for note in dict.fromkeys(trial.check.notes if trial.check is not None else ()):
            names.setdefault(note, []).append(trial.candidate.label)
            of_chosen |= {note} if trial.candidate.id == chosen else set()
    if not names:
        return []
    every = len(checked)
    rows = tuple(("all" if len(who) == every > 1 else "; ".join(who), note) for note, who in names.items())
    marked = frozenset(number for number, note in enumerate(names) if note in of_chosen)
    return [Table(NOTED, ("candidate", "note"), rows, marked=marked)]


def _outputs(trial: Trial, check: Check) -> Table:
    columns = ("case", "output", "RMSE", "eager's own", "limit", "largest difference", "result")
    rows = tuple(
        (
            one.case,
            one.output,
            *(ERROR.format(figure) for figure in (one.rmse, one.eager_rmse, one.limit, one.max_abs)),
            "passed" if one.passed else f"failed: {one.why}",
        )
        for one in check.worst
    )
    return Table(f"Outputs of {trial.candidate.label}", columns, rows, frozenset(range(2, 6)), folded=True)


# --------------------------------------------------------------------------------------------------------- environment


def environment(view: View) -> Section:
    """What the figures depend on."""
    header, asked = view.data.header, view.data.asked
    tables = (
        _pairs("The machine", _machine(header.fingerprint.machine, view)),
        _pairs("The model", _model(header)),
        _pairs("What was asked for", _asked(asked)),
    )
    return Section("environment", "Environment", "What the figures depend on.", tables=tables)


def _pairs(caption: str, pairs: list[tuple[str, str]]) -> Table:
    return Table(caption, ("what", "value"), tuple((name, value) for name, value in pairs if value))


def _machine(machine: MachineFingerprint, view: View) -> list[tuple[str, str]]:
    load = view.data.diagnosis.load if view.data.diagnosis is not None else None
    return [
        ("CPU", machine.cpu_model),
        ("cores, torch threads", f"{machine.cores}, {machine.threads}"),
        ("torch", machine.torch),
        ("Python", machine.python),
        ("system", f"{machine.platform}, {machine.glibc}"),
        ("C++ compiler", machine.compiler or "none"),
        ("engines", ", ".join(f"{name} {version}" for name, version in machine.engines.items())),
        ("GPU", " ".join(filter(None, (machine.gpu, machine.gpu_driver)))),
        ("others on the machine", load_words(seen_load(load)) if load is not None else ""),
        ("instruction sets", ", ".join(machine.cpu_isa)),
    ]


def _model(header: RunHeader) -> list[tuple[str, str]]:
    model, workload = header.fingerprint.model, header.workload
    dims = (f"{one.input}:{one.dim} from {one.min} to {one.max}" for one in workload.dynamic)
    return [
        ("class", model.class_name),
        ("parameters", f"{model.parameter_count:,}, {model.parameter_bytes / 1e6:.1f} MB"),
        ("libraries", ", ".join(f"{name} {version}" for name, version in model.libraries.items())),
        ("dimensions that vary", ", ".join(dims)),
        ("gradients", "enabled" if workload.grad else "off"),
        ("seed of the inputs", str(workload.seed)),
        (
            "code, structure, parameters",
            " ".join(digest[:12] for digest in (model.code_sha256, model.structure_sha256, model.parameters_sha256)),
        ),
    ]


def _asked(asked: RunHeader) -> list[tuple[str, str]]:
    memory = f"{asked.max_memory_bytes / 2**20:.0f} MiB" if asked.max_memory_bytes is not None else ""
    return [
        ("budget", f"{asked.budget_s:g} s"),
        ("objective", str(asked.objective)),
        ("calls of a process", f"{asked.horizon_calls:,}" if asked.horizon_calls is not None else ""),
        ("callers at the same time", str(asked.concurrency) if asked.concurrency > 1 else ""),
        ("only these engines", ", ".join(asked.engines)),
        ("lower precisions allowed", ", ".join(precision.value for precision in asked.allow_precision)),
        ("most memory", memory),
        ("longest cold start", f"{asked.max_compile_s:g} s" if asked.max_compile_s is not None else ""),
        ("largest error", ERROR.format(asked.max_error) if asked.max_error is not None else ""),
        ("preset", asked.preset or ""),
    ]


# ------------------------------------------------------------------------------------------------------ doing it again


class Again(NamedTuple):
    """What the template draws of how to do it again."""

    command: str  # "": the run was begun with live objects
    rewrite: str  # writes this page once more
    measure: str  # measures the claim again; "": there is none that could be
    files: tuple[tuple[str, str], ...]  # name, what is in it


def again(view: View) -> Section:
    """The command, and where the raw samples are."""
    folder = nearby(view.data.run_dir)
    files = (
        ("journal.jsonl", "every trial and race with its raw samples, one record a line"),
        ("trials.csv", "one row for each candidate"),
        ("plan.json", "the decision, which compilot.compile applies"),
        ("logs/", "what every process wrote to stderr"),
    )
    rewrite, measure = (shlex.join(["compilot", word, str(folder)]) for word in ("report", "reproduce"))
    verdict = view.data.verdict
    claims = view.plan is not None and bool(view.plan.entries) and verdict is not None and verdict.sizes is None
    body = Again(again_command(view.data.asked), rewrite, measure if claims else "", files)
    return Section(
        "again", "Do it again", "Every figure here is computed from journal.jsonl in the run directory.", body=body
    )


def again_command(asked: RunHeader) -> str:
    """The same run once more, in a new folder; "": its model came from a program."""
    if asked.workload.target is None:
        return ""
    words = list(asked.argv[1:])
    if not words or "--resume" in words:
        return shlex.join(["compilot", "tune", asked.workload.target, "--budget", minutes(asked.budget_s)])
    kept, skip = [], 0
    for word in words:
        name, has_value, _ = word.partition("=")
        if skip:
            skip -= 1
        elif name in NOT_AGAIN:
            skip = 0 if has_value else NOT_AGAIN[name]
        else:
            kept.append(word)
    return shlex.join(["compilot", *kept])
