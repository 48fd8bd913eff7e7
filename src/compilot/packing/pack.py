"""`pack`, the whole story in one function: run directories in, one bundle out.

In: finished runs of one model, with one set of weights, on one machine. Out: a bundle with the plan, the files of its
engines, a golden call per entry and a manifest, optionally signed. Each run gives one entry; several runs (other batch
sizes, say) make one bundle. Covered: plans that keep eager; torch.compile plans as their ahead-of-time twin or with
their cache directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot._version import __version__
from compilot.artifacts.bundle import PLAN, WEIGHTS
from compilot.artifacts.planfile import save_plan
from compilot.engines.of_candidate import engines_of, needs_compiler, traits_of
from compilot.errors import InputError, RunDirError
from compilot.files import atomic
from compilot.identity.differences import differences
from compilot.packing.golden import make_golden, save_weights
from compilot.packing.runs import FinishedRun, entry_files, how_tuned, open_run
from compilot.packing.twin import find_twin
from compilot.packing.writing import publish, seal
from compilot.progress import Observer
from compilot.records import BUNDLE_SCHEMA, BundleEntry, Fingerprint, Manifest, Parameter, Plan, PlanEntry, Weights


class PackOptions(NamedTuple):
    """What the user may choose."""

    folder: bool = False  # a folder instead of one file
    carry_weights: bool = False  # the model's weights go along as safetensors
    twin: bool = True  # look for a form that needs no compiler
    key: Path | None = None  # private key to sign with


class Packed(NamedTuple):
    """What was made."""

    path: Path
    manifest: Manifest
    size_bytes: int


class _StagedEntry(NamedTuple):
    entry: PlanEntry
    packed: BundleEntry
    parameters: tuple[Parameter, ...]
    weights_sha256: str
    frozen: bool  # weight values are in the files, or in what is compiled with their help
    said: str


def pack(folders: Sequence[Path], out: Path, options: PackOptions, observer: Observer) -> Packed:
    """Collect the entries, make a golden call for each, and write the bundle."""
    runs = [open_run(folder) for folder in folders]
    fingerprint = _refuse_mixed(runs)
    with _staging(out) as staged:
        parts: list[_StagedEntry] = []
        for run in runs:
            for entry in run.plan.entries:
                parts.append(_stage(run, entry, staged, len(parts), options, observer))
                _refuse_other_weights(run, parts[-1].weights_sha256, parts[0].weights_sha256)
        weights = _weights(runs[0], parts, staged, options, observer)
        plan = _plan(runs[0].plan, fingerprint, parts)
        save_plan(plan, staged / PLAN)
        observer.stage("writing the bundle")
        described = msgspec.structs.replace(_manifest(plan, parts, options, weights), built=_built(runs))
        manifest = seal(staged, described, options.key)
        publish(staged, out, as_folder=options.folder)
    return Packed(out, manifest, sum(file.size_bytes for file in manifest.files))


def _stage(
    run: FinishedRun, entry: PlanEntry, staged: Path, number: int, options: PackOptions, observer: Observer
) -> _StagedEntry:
    """One entry's files copied, started from the copies, and its golden call made."""
    said = ""
    alone = len(run.plan.entries) == 1 and not entry.is_for_sizes  # others are as the replay measured them together
    if options.twin and _needs_compiler(entry) and alone:
        entry, said = _or_twin(run, entry, observer)
    inner = f"artifacts/{number}"
    place = staged / inner
    files = _copy_files(run, entry, place)
    observer.stage(f"starting the packed {entry.candidate.label} and making its golden call")
    before = {p for p in place.rglob("*") if p.is_file()}
    made = make_golden(run, entry, place, staged, number)
    _drop_new(place, before, keep=_needs_compiler(entry))
    entry = msgspec.structs.replace(entry, artifacts_dir=inner if files else "")
    packed = BundleEntry(
        folder=inner if files else "",
        golden=made.golden,
        needs_compiler=_needs_compiler(entry),
        start_s=made.start_s,
    )
    if packed.needs_compiler:
        said = f"{said}; needs g++, starts in about {made.start_s:.0f} s".removeprefix("; ")
    return _StagedEntry(entry, packed, made.parameters, made.weights_sha256, made.frozen and bool(files), said)


def _weights(
    run: FinishedRun, parts: Sequence[_StagedEntry], staged: Path, options: PackOptions, observer: Observer
) -> str | None:
    """The digest of the bundle's weights; those that are to be carried are written on the way."""
    known = parts[0].weights_sha256 if parts else None
    if not options.carry_weights:
        return known
    observer.stage("writing the weights")
    carried = save_weights(run, staged, staged / WEIGHTS)
    _refuse_other_weights(run, carried, known or carried)
    return carried


def _copy_files(run: FinishedRun, entry: PlanEntry, place: Path) -> list[Path]:
    """The entry's files at their place in the bundle; with a compile cache goes what its keys are made of."""
    source, files = entry_files(run, entry)
    if files and _needs_compiler(entry):
        from compilot.identity.keys import KEY_FILE  # here: such an engine has imported torch anyway

        files += [key] if (key := source / KEY_FILE).is_file() else []
    place.mkdir(parents=True, exist_ok=True)
    for file in files:
        copy = place / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return files


def _or_twin(run: FinishedRun, entry: PlanEntry, observer: Observer) -> tuple[PlanEntry, str]:
    entry_files(run, entry)  # its twin is measured beside it: refused before that if a file was changed
    twin = find_twin(run, entry, observer)
    observer.note(twin.because)
    return (entry if twin.entry is None else twin.entry), twin.because


def _drop_new(place: Path, before: set[Path], *, keep: bool) -> None:
    """Only what was measured is packed; but what a moved compile cache was added makes it start faster."""
    for path in place.rglob("*"):
        if path.is_file() and path not in before and (not keep or path.name.endswith(".lock")):
            path.unlink()


def _plan(first: Plan, fingerprint: Fingerprint, parts: Sequence[_StagedEntry]) -> Plan:
    return msgspec.structs.replace(first, fingerprint=fingerprint, entries=tuple(part.entry for part in parts))


def _manifest(plan: Plan, parts: Sequence[_StagedEntry], options: PackOptions, weights: str | None) -> Manifest:
    engines = [name for part in parts for name in engines_of(part.entry.candidate)]
    standalone = bool(parts) and all(traits_of(part.entry.candidate).standalone for part in parts)
    where = Weights.CARRIED if options.carry_weights else Weights.BAKED if standalone else Weights.MODEL
    bound = standalone or options.carry_weights or any(part.frozen for part in parts)
    return Manifest(
        schema=BUNDLE_SCHEMA,
        compilot=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        label=plan.workload.label,
        engine=engines[0] if engines else "eager",
        engines=tuple(dict.fromkeys(engines)),
        fingerprint=_fingerprint(plan, weights) if bound else plan.fingerprint,
        weights=where,
        standalone=standalone,
        entries=tuple(part.packed for part in parts),
        parameters=parts[0].parameters if parts else (),
        sentences=_sentences(plan, parts),
    )


def _built(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """How it came about, for people: versions, and what each run was told to do."""
    machine = runs[0].plan.fingerprint.machine
    found = {"torch": machine.torch, "python": machine.python, **machine.engines}
    for number, run in enumerate(runs, 1):
        suffix = f" {number}" if len(runs) > 1 else ""
        found |= {name + suffix: value for name, value in how_tuned(run).items()}
    return found


def _sentences(plan: Plan, parts: Sequence[_StagedEntry]) -> tuple[str, ...]:
    """What the plan says for itself, and what packing has to add."""
    if not parts:
        return (f"eager is kept: {plan.because}",)
    return tuple(text for part in parts for text in (part.entry.sentence, *part.entry.caveats, part.said) if text)


def _fingerprint(plan: Plan, weights: str | None) -> Fingerprint:
    """The plan's, with the digest of the weight values that the bundle holds or is bound to."""
    model = msgspec.structs.replace(plan.fingerprint.model, weights_sha256=weights)
    return msgspec.structs.replace(plan.fingerprint, model=model)


def _needs_compiler(entry: PlanEntry) -> bool:
    return needs_compiler(entry.candidate)


def _refuse_mixed(runs: Sequence[FinishedRun]) -> Fingerprint:
    """One bundle is for one model on one machine; its entries must not take each other's calls.

    What comes back has every setting that calls of one of the runs depend on.
    """
    first = runs[0].plan
    together = first.fingerprint
    for run in runs[1:]:
        if changed := differences(together, run.plan.fingerprint):
            raise InputError(f"{run.folder} is about something else than {runs[0].folder}: {changed[0].sentence}")
        together = _with_settings(together, run.plan.fingerprint.model.input_settings)
        if run.plan.process != first.process:
            what = "other process settings (threads, denormal numbers)"
            raise InputError(
                f"{run.folder} has {what} than {runs[0].folder}, and a bundle has one for all: pack them apart."
            )
    guards = [entry.guard for run in runs for entry in run.plan.entries]
    if any(guard in guards[:i] for i, guard in enumerate(guards)):
        raise InputError("two of the runs take the same calls; pack the better one, or tune for other input sizes.")
    return together


def _with_settings(fingerprint: Fingerprint, settings: dict[str, str]) -> Fingerprint:
    model = fingerprint.model
    model = msgspec.structs.replace(model, input_settings=model.input_settings | settings)
    return msgspec.structs.replace(fingerprint, model=model)


def _refuse_other_weights(run: FinishedRun, found: str, first: str) -> None:
    """A model's fingerprint does not hold its weights: only its worker has seen them."""
    if found != first:
        text = f"the model of {run.folder} has other weights than the rest of the bundle, which holds one set"
        raise InputError(f"{text}: pack the runs apart, or let their targets make models with the same weights.")


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder beside the bundle to collect its files in; what a killed packer left there goes first."""
    folder = atomic.partial_name(out.absolute())
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        atomic.sweep(folder.parent)
        folder.mkdir(mode=0o700)
    except OSError as problem:
        raise _refusal(problem, folder, out) from problem
    try:
        yield folder
    except OSError as problem:
        raise _refusal(problem, folder, out) from problem
    finally:
        atomic.remove(folder)


def _refusal(problem: OSError, staged: Path, out: Path) -> RunDirError:
    """A disk that does not take the bundle, or does not give the run's files."""
    place = Path(problem.filename2 or problem.filename or staged)
    if place.is_relative_to(staged) or place in staged.parents:
        return RunDirError(f"cannot write {out}: {problem.strerror or problem}; choose another place.")
    return RunDirError(f"cannot use {place}: {problem.strerror or problem}; fix that file, then pack again.")
