"""`compilot.why_cold`: why did this start compile although it had before?

In: two starts, each as a run directory, a plan file, a bundle or a key file. With one: its build against its last start
on this machine, or against this machine as it is now. Out: what changed, the most decisive first, and what to do.
Plans and bundles are trusted by the same rules as for loading. Plans and bundles whose engines compile nothing at the
start have no cold one: that is the answer for them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compilot.errors import InputError

if TYPE_CHECKING:
    from compilot.diagnose.cachemiss import ColdCauses
    from compilot.identity.keys import KeyComponents
    from compilot.records import Plan


class NeverCold(InputError):
    """No start of it is cold. An answer of `why_cold`; a mistake only for who asks `read` for its components."""


def why_cold(before: str | os.PathLike[str], after: str | os.PathLike[str] | None = None) -> ColdCauses:
    """What changed between two starts, so that the second found nothing in the compile cache; as `compilot why-cold`.

    before is what was built, after the cold start: a run directory, plan.json, bundle or key.json. Without after it is
    the last start on this machine, or this machine now.
    """
    from compilot.diagnose import cachemiss

    try:
        old = read(Path(before))
        new, which = latest(Path(before)) if after is None else (read(Path(after)), str(after))
    except NeverCold as answer:
        return cachemiss.ColdCauses(answer=str(answer))
    unknown = cachemiss.not_compared(old, new)
    return cachemiss.ColdCauses(compared_with=which, causes=cachemiss.why_cold(old, new), not_compared=unknown)


def read(path: Path) -> KeyComponents:
    """The components behind a run directory, a plan, a bundle or a key file; a plan alone leaves some open."""
    import msgspec

    from compilot.artifacts.planfolder import refuse_foreign
    from compilot.identity.keys import KEY_FILE, plan_components

    built = _built(path)
    if built is None:
        return _decode(path / KEY_FILE if path.is_dir() else path)
    key = built.artifacts / KEY_FILE
    refuse_foreign(path, (key,))
    if not key.exists():
        return plan_components(built.plan)
    found = _decode(key)  # a bundle's cache directory came along: it has not moved away from the build
    return msgspec.structs.replace(found, cache_dir=str(built.cache)) if built.moved else found


def latest(path: Path) -> tuple[KeyComponents, str]:
    """The last noted start of the plan's artifacts, else this machine now."""
    from compilot.identity.keys import key_components, start_file

    built = _built(path)
    if built is None:
        folder = read(path).cache_dir
        return key_components(cache_dir=Path(folder) if folder else None), "this machine now"
    noted = start_file(built.artifacts)
    if noted.exists():
        return _decode(noted), "its last start on this machine"
    return key_components(cache_dir=built.cache), "this machine now"


class _Built(NamedTuple):
    plan: Plan  # its first entry compiles at the start
    artifacts: Path  # of that entry
    moved: bool  # it was built elsewhere and brought along

    @property
    def cache(self) -> Path:
        """That entry's compile cache."""
        from compilot.engines.of_candidate import traits_of

        return self.artifacts / traits_of(self.plan.entries[0].candidate).cache_folder


def _built(path: Path) -> _Built | None:
    """What a run directory, a plan file or a bundle holds; None: it is a key file, or a folder with one."""
    from compilot.artifacts.bundle import is_bundle
    from compilot.artifacts.planfolder import PLAN_NAME, open_plan

    if is_bundle(path):
        return _in_bundle(path)
    plan_path = path / PLAN_NAME if path.is_dir() else path
    if plan_path.name != PLAN_NAME or (path.is_dir() and not plan_path.exists()):
        return None
    return _in_run(open_plan(plan_path), plan_path)


def _in_run(plan: Plan, plan_path: Path) -> _Built:
    from compilot.engines.of_candidate import engines_of, needs_compiler

    compiled = [needs_compiler(entry.candidate) for entry in plan.entries]
    if not any(compiled):
        engine = engines_of(plan.entries[0].candidate)[0] if plan.entries else "eager"
        took = "the column cold_s of trials.csv shows what building it and its first call took."
        raise _never_cold(plan_path, engine, took)
    compiling = _compiling(plan, compiled)
    return _Built(compiling, plan_path.absolute().parent / compiling.entries[0].artifacts_dir, False)


def _compiling(plan: Plan, compiled: list[bool]) -> Plan:
    """The plan from the first entry on that compiles at the start."""
    import msgspec

    return msgspec.structs.replace(plan, entries=plan.entries[compiled.index(True) :])


def _never_cold(path: Path, engine: str, took: str) -> NeverCold:
    return NeverCold(f"{path} compiles nothing when it starts (it runs on {engine}), so no start is cold; {took}")


def _in_bundle(path: Path) -> _Built:
    from compilot.artifacts.bundle_trust import Trust
    from compilot.runtime.bundles import opened_bundle

    opened = opened_bundle(path, Trust())
    compiled = [packed.needs_compiler for packed in opened.manifest.entries]
    if not any(compiled):
        took = f"'compilot verify --time {path}' shows what each step of a start takes."
        raise _never_cold(path, opened.manifest.engine, took)
    folder = opened.folder / opened.manifest.entries[compiled.index(True)].folder
    return _Built(_compiling(opened.plan, compiled), folder, True)


def _decode(path: Path) -> KeyComponents:
    import msgspec

    from compilot.identity.keys import KeyComponents

    try:
        return msgspec.json.decode(path.read_bytes(), type=KeyComponents)
    except OSError as problem:
        why = f"cannot read {path}: {problem.strerror}"
    except msgspec.DecodeError as problem:
        why = f"{path} is not a key file ({problem})"
    raise InputError(f"{why}; give a run directory, plan.json, a bundle or key.json.")
