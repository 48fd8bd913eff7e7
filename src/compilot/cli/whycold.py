"""`compilot why-cold A [B]`: why did this start compile although it had before?

In: two starts, each as a run directory, a plan file, a bundle or a key file. With one: its build against its last start
on this machine, or against this machine as it is now. Out: what changed, the most decisive first, and what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.diagnose.cachemiss import Cause
    from compilot.identity.keys import KeyComponents


def why_cold(
    before: Annotated[Path, typer.Argument(help="What was built: a run directory, plan.json, bundle or key.json.")],
    after: Annotated[
        Path | None, typer.Argument(help="The cold start. Default: the last one on this machine, or this machine now.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Say what changed between two starts, so that the second found nothing in the compile cache."""
    with common.guarded(debug=debug, as_json=json):
        import msgspec

        from compilot.diagnose.cachemiss import not_compared
        from compilot.diagnose.cachemiss import why_cold as compare

        old = read(before)
        new, which = (read(after), str(after)) if after is not None else latest(before)
        causes, unknown = compare(old, new), not_compared(old, new)
        if json:
            document = {"compared_with": which, "causes": msgspec.to_builtins(causes), "not_compared": unknown}
            common.print_json(document)
        else:
            print("\n".join(lines(causes, which, unknown)))


def read(path: Path) -> KeyComponents:
    """The components behind a run directory, a plan, a bundle or a key file; a plan alone leaves some open."""
    from compilot.artifacts.bundle import is_bundle
    from compilot.artifacts.planfile import load_plan
    from compilot.identity.keys import KEY_FILE, plan_components
    from compilot.runtime.bundles import plan_in

    if is_bundle(path):
        return plan_components(plan_in(path))
    plan_path = path / "plan.json" if path.is_dir() else path
    if path.is_dir() and not plan_path.exists():
        return _decode(path / KEY_FILE)
    if plan_path.name != "plan.json":
        return _decode(path)
    plan = load_plan(plan_path)
    key = _artifacts(plan_path) / KEY_FILE
    return _decode(key) if key.exists() else plan_components(plan)


def latest(path: Path) -> tuple[KeyComponents, str]:
    """The last noted start of the plan's artifacts, else this machine now."""
    import msgspec

    from compilot.identity.keys import key_components, start_file

    plan_path = path / "plan.json" if path.is_dir() else path
    if plan_path.name == "plan.json" and plan_path.exists():
        noted = start_file(_artifacts(plan_path))
        if noted.exists():
            return _decode(noted), "its last start on this machine"
        return key_components(cache_dir=_artifacts(plan_path) / "inductor"), "this machine now"
    cache_dir = read(path).cache_dir
    now = key_components(cache_dir=Path(cache_dir) if cache_dir else None)
    if not cache_dir:  # a bundle brings its compiled code along; the usual folder says nothing about it
        now = msgspec.structs.replace(now, cached_files=None)
    return now, "this machine now"


def _artifacts(plan_path: Path) -> Path:
    from compilot.artifacts.planfile import load_plan

    plan = load_plan(plan_path)
    return plan_path.absolute().parent / (plan.entries[0].artifacts_dir if plan.entries else "")


def _decode(path: Path) -> KeyComponents:
    import msgspec

    from compilot.errors import InputError
    from compilot.identity.keys import KeyComponents

    try:
        return msgspec.json.decode(path.read_bytes(), type=KeyComponents)
    except OSError as problem:
        why = f"cannot read {path}: {problem.strerror}"
    except msgspec.DecodeError as problem:
        why = f"{path} is not a key file ({problem})"
    raise InputError(f"{why}; give a run directory, plan.json or key.json.")


def lines(causes: tuple[Cause, ...], which: str, unknown: tuple[str, ...] = ()) -> list[str]:
    """The answer for people: causes, and what could not be looked at."""
    from compilot.diagnose.cachemiss import UNKNOWN

    if causes:
        text = [f"Compared with {which}, this start was cold because:"]
    else:
        text = [f"Compared with {which}: {UNKNOWN}."]
    for number, cause in enumerate(causes, 1):
        text += [f"{number}. {cause.sentence}", f"   {cause.advice}"]
    if unknown:
        text += ["Not compared, because one of the two has no record of it:", *(f"- {words}" for words in unknown)]
    return text
