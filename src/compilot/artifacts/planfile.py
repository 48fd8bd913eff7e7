"""Plan files: a Plan to plan.json and back, strictly.

In: a Plan, or a file of unknown origin. Out: a file that is either the old or the new plan (never half of one), or a
Plan of which every field was checked; otherwise a PlanError that names the field ("$.entries[0].guard.positional").
Covered: malformed JSON, other schema versions, huge files, NaN and infinity, duplicate keys, wrong types, unknown
fields, artifact paths that leave the plan's folder.
Not covered: whether the plan fits this model and machine (identity), who could have changed it (planfolder.py).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import msgspec

from compilot.artifacts.container import open_plain
from compilot.errors import PlanError, cannot_write
from compilot.files import atomic
from compilot.records import PLAN_SCHEMA, Plan, encode

MAX_BYTES = 16 * 2**20  # a plan is a few kilobytes; artifacts lie beside it
Permit = Callable[[os.stat_result], None]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as read, duplicate keys included."""


def save_plan(plan: Plan, path: Path) -> None:
    """Write the plan; a reader sees the old file or the new one, whole."""
    data = encode(plan)
    if not _survives(plan, data):
        raise ValueError("the plan cannot be written as JSON: it holds a value that JSON does not have.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, msgspec.json.format(data, indent=2) + b"\n")
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem


def load_plan(path: Path, place: Path | None = None, permit: Permit | None = None) -> Plan:
    """The plan in a file; raises PlanError before anything of it is used.

    place: where the path leads without links. permit: asked about the open file before it is read; raises.
    """
    data = _read(path, place or path, permit)
    tree = _parse(path, data)
    _check_values(path, tree)
    _check_schema(path, tree)
    try:
        plan: Plan = msgspec.json.decode(data, type=Plan)
    except msgspec.DecodeError as problem:
        _fail(path, str(problem).replace(" - at `", ", at `"))
    _check_paths(path, plan)
    return plan


def _survives(plan: Plan, data: bytes) -> bool:
    """NaN and infinity become null, which is another plan or none."""
    try:
        return bool(msgspec.json.decode(data, type=Plan) == plan)
    except msgspec.ValidationError:
        return False


def _fail(path: Path, why: str) -> NoReturn:
    raise PlanError(f"{path} is not a usable plan: {why}. Make a new one with 'compilot tune'.")


def _read(path: Path, place: Path, permit: Permit | None) -> bytes:
    try:
        with place.open("rb") if permit is None else open_plain(place) as file:
            found = os.fstat(file.fileno())
            if permit is not None:
                permit(found)
            if found.st_size > MAX_BYTES:
                mb = f"{found.st_size / 2**20:.0f} MB, more than the {MAX_BYTES // 2**20} MB any plan needs"
                _fail(path, f"it has {mb}")
            return file.read(MAX_BYTES)
    except OSError as problem:
        raise PlanError(f"cannot read plan {path}: {problem.strerror}; check the path.") from problem


def _parse(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_Pairs)
    except RecursionError:
        _fail(path, "it is nested too deeply")
    except (ValueError, UnicodeDecodeError) as problem:
        _fail(path, f"malformed JSON, {problem}")


def _check_values(path: Path, tree: Any) -> None:
    problem = next(_problems(tree, "$"), None)
    if problem is not None:
        _fail(path, problem)


def _problems(node: Any, where: str) -> Iterator[str]:
    """Duplicate keys and numbers that are none, which the typed decoder does not report by field."""
    if isinstance(node, float) and not math.isfinite(node):
        yield f"{node} is not a number that JSON allows, at `{where}`"
    elif isinstance(node, _Pairs):
        keys: set[str] = set()
        for key, value in node:
            if key in keys:
                yield f"duplicate key, at `{where}.{key}`"
            keys.add(key)
            yield from _problems(value, f"{where}.{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _problems(value, f"{where}[{number}]")


def _check_schema(path: Path, tree: Any) -> None:
    schema = dict(tree).get("schema") if isinstance(tree, _Pairs) else None
    if isinstance(schema, int) and not isinstance(schema, bool) and schema != PLAN_SCHEMA:
        raise PlanError(
            f"{path} has plan schema {schema}, this compilot reads {PLAN_SCHEMA}; make a new plan with "
            "'compilot tune', or use the compilot that wrote it."
        )


def _check_paths(path: Path, plan: Plan) -> None:
    for number, entry in enumerate(plan.entries):
        named = {f"$.entries[{number}].artifacts_dir": entry.artifacts_dir}
        named |= {f"$.entries[{number}].artifacts[{i}].name": file.name for i, file in enumerate(entry.artifacts)}
        for where, text in named.items():
            if PurePosixPath(text).is_absolute() or ".." in PurePosixPath(text).parts or "\0" in text:
                _fail(path, f"'{text}' leaves the plan's folder, at `{where}`")
