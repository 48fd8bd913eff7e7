"""The manifest of a fleet: which models, for which machines. In: a TOML file. Out: `Manifest`, or ManifestError.

    [defaults]                     # of every model
    budget = "10m"

    [machines]                     # which kinds; without this table every kind that is there
    big = { labels = { pool = "big" } }
    edge = { cpu = "Cortex-A78", cores = 4 }

    [models]
    resnet = { target = "models.py:resnet18" }
    bert = { target = "models.py:bert", dynamic = "input_ids:1=8..128", priority = 5, machines = ["big"] }

An error names the file, the line and the field, and what was probably meant. Everything that can be told without
opening a model is checked here, before any work. Not covered: whether a machine has an engine (its node says so).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from compilot._choices import names_in, nearest
from compilot._durations import parse_duration
from compilot.api.asking import Given, options_for
from compilot.errors import CompilotError, ManifestError
from compilot.fleet.places import line_of
from compilot.records import DynamicDim, Record
from compilot.tuning.options import TuneOptions
from compilot.workload.dynamic import parse_dynamic

TABLES = ("defaults", "machines", "models")
MOST_BYTES = 2**20  # a manifest of a thousand models has a tenth of that
_PLAIN = {"str": "text", "int": "a whole number", "float": "a number", "array": "a list", "object": "a table"}


class MachineLine(Record, frozen=True, kw_only=True):
    """Which nodes are meant. All that is given must hold; a fingerprint tells what they are, never their labels."""

    labels: dict[str, str] = {}  # that the cluster gives them
    cpu: str = ""  # part of the CPU's name
    cores: int | None = None
    gpu: str = ""  # part of the GPU's name


class ModelLine(Record, frozen=True, kw_only=True):
    """One model, as the user wrote it; "" and None: not given."""

    target: str = ""  # file.py:factory, from the manifest's folder on, or package.module:factory
    dynamic: str | tuple[str, ...] = ()  # as --dynamic
    trace: str = ""  # file of recorded sizes: what varies there is dynamic, in its range
    budget: str = ""
    objective: str = ""
    preset: str = ""
    engines: str | tuple[str, ...] = ()
    precision: str | tuple[str, ...] = ()  # lower ones that may be used
    tolerance: float | None = None
    max_error: float | None = None
    max_memory: str = ""
    seed: int | None = None
    carry_weights: bool = False  # put the weights in, for those who bring a model of their own
    priority: int = 0  # larger ones first
    deadline: str = ""  # a moment (ISO 8601), or a duration from the start: nothing begins after it
    machines: str | tuple[str, ...] = ()  # names of [machines]; (): all of them


class Line(NamedTuple):
    """One model, checked."""

    name: str
    target: str
    options: TuneOptions
    given: ModelLine
    dynamic: tuple[DynamicDim, ...]
    trace: Path | None
    machines: tuple[str, ...]  # (): all


class Manifest(NamedTuple):
    """A fleet's wishes."""

    path: Path
    lines: tuple[Line, ...]  # in the order of the file
    machines: dict[str, MachineLine]  # {}: every kind that is there

    @property
    def folder(self) -> Path:
        """From which targets and traces are named."""
        return self.path.parent


_Kind = TypeVar("_Kind", bound=Record)


class _Reader:
    """One file; knows how to say where something is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    def error(self, place: Iterable[str], why: str) -> ManifestError:
        """Names file, line and field."""
        keys = tuple(place)
        where = f"{self.path.name} line {line_of(self.text, keys)}"
        return ManifestError(f"{where}: {'.'.join(keys)}: {why}" if keys else f"{where}: {why}")

    def known(self, place: tuple[str, ...], given: Iterable[str], known: Iterable[str], what: str) -> None:
        """Refuse what is none of the known names."""
        names = list(known)
        for name in given:
            if name not in names:
                near = nearest(name, names)
                meant = f"did you mean '{near}'?" if near else f"known are: {', '.join(names)}."
                raise self.error((*place, name), f"unknown {what}; {meant}")

    def table(self, place: tuple[str, ...], found: Any) -> dict[str, Any]:
        """A table and nothing else."""
        if not isinstance(found, dict):
            raise self.error(place, f"must be a table, such as {place[-1]} = {{ ... }}; it is {found!r}.")
        return found

    def record(self, place: tuple[str, ...], found: Mapping[str, Any], kind: type[_Kind]) -> _Kind:
        """A table as a record; a wrong type is named with its field."""
        self.known(place, found, kind.__struct_fields__, "field")
        try:
            return msgspec.convert(_as_text(found), kind)
        except msgspec.ValidationError as problem:
            why, _, field = str(problem).partition(" - at `$.")
            name = re.match(r"\w*", field)
            raise self.error((*place, *([name[0]] if name and name[0] else [])), f"{_plain(why)}.") from problem


def read_manifest(path: Path) -> Manifest:
    """The manifest, with everything checked that can be."""
    reader = _Reader(path, _text(path))
    try:
        whole = tomllib.loads(reader.text)
    except tomllib.TOMLDecodeError as problem:
        raise ManifestError(f"{path.name} is not TOML: {problem}.") from problem
    reader.known((), whole, TABLES, "table")
    tables = {name: reader.table((name,), whole.get(name, {})) for name in TABLES}
    reader.record(("defaults",), tables["defaults"], ModelLine)
    if "target" in tables["defaults"]:
        raise reader.error(("defaults", "target"), "every model has a target of its own.")
    machines = {
        name: reader.record(("machines", name), reader.table(("machines", name), found), MachineLine)
        for name, found in tables["machines"].items()
    }
    for name, machine in machines.items():
        if machine == MachineLine():
            raise reader.error(("machines", name), "says nothing; give labels, cpu, cores or gpu.")
    if not tables["models"]:
        raise ManifestError(f"{path.name} has no [models]; add a line such as net = {{ target = 'net.py:make' }}.")
    lines = tuple(_line(reader, name, found, tables["defaults"], machines) for name, found in tables["models"].items())
    return Manifest(path.absolute(), lines, machines)


def deadline_of(line: Line, start: datetime) -> datetime | None:
    """When a line must be done; start: of the whole run. None: whenever."""
    given = line.given.deadline
    if not given:
        return None
    return _moment(given) or start + timedelta(seconds=parse_duration(given, "the deadline"))


def _moment(given: str) -> datetime | None:
    """A moment as it is written in TOML; None: it is a duration."""
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        return None


def _as_text(found: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has moments of its own."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ManifestError(f"cannot read {path}: {problem.strerror or problem}; check the path.") from problem
    if len(data) > MOST_BYTES:
        raise ManifestError(f"{path} has {len(data)} bytes, too many for a manifest ({MOST_BYTES}).")
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise ManifestError(f"{path} is not UTF-8 text: {problem}.") from problem


def _line(
    reader: _Reader, name: str, found: Any, defaults: Mapping[str, Any], machines: Mapping[str, MachineLine]
) -> Line:
    place = ("models", name)
    own = reader.table(place, found)
    reader.record(place, own, ModelLine)
    given = reader.record(place, {**defaults, **own}, ModelLine)
    if not given.target:
        raise reader.error(place, "has no target; write target = 'file.py:factory'.")
    target, trace = _checked_target(reader, place, given), _checked_trace(reader, place, given)
    wanted = names_in(given.machines)
    reader.known((*place, "machines"), wanted, machines, "machine")
    _check_deadline(reader, place, given)
    dims = tuple(_spelled(reader, place, text) for text in _texts(given.dynamic))
    return Line(name, target, _options(reader, place, given), given, dims, trace, wanted)


def _options(reader: _Reader, place: tuple[str, ...], given: ModelLine) -> TuneOptions:
    """What `tune` will be asked for: the same checks, field by field, so that the line can be named."""
    asked = {
        "budget": given.budget or None,
        "objective": given.objective or None,
        "engines": given.engines or None,
        "max_memory": given.max_memory or None,
        "max_error": given.max_error,
    }
    for field, value in asked.items():
        with _named(reader, (*place, field)):
            options_for(Given(**{field: value}))  # type: ignore[arg-type]
    with _named(reader, (*place, "precision")):
        options_for(Given(allow_precision=given.precision or None))
    with _named(reader, (*place, "tolerance")):
        options_for(Given(allow_precision=given.precision or None, tolerance=given.tolerance))
    with _named(reader, (*place, "preset")):
        whole = Given(**asked, allow_precision=given.precision or None, tolerance=given.tolerance)  # type: ignore[arg-type]
        return options_for(whole, given.preset or None)


class _named:
    """What goes wrong inside is said with the place."""

    def __init__(self, reader: _Reader, place: tuple[str, ...]) -> None:
        self.reader, self.place = reader, place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, CompilotError) and not isinstance(problem, ManifestError):
            raise self.reader.error(self.place, str(problem)) from problem


def _checked_target(reader: _Reader, place: tuple[str, ...], given: ModelLine) -> str:
    """The target; a file is looked for from the manifest's folder on."""
    file, colon, factory = given.target.rpartition(":")
    if not colon or not file or not factory:
        raise reader.error((*place, "target"), f"'{given.target}' names no factory; write 'file.py:factory'.")
    if not file.endswith(".py"):
        return given.target
    path = reader.path.absolute().parent / file
    if not path.is_file():
        near = nearest(path.name, [one.name for one in path.parent.glob("*.py")]) if path.parent.is_dir() else None
        meant = f"; did you mean '{near}'?" if near else f" in {reader.path.absolute().parent}; check the path."
        raise reader.error((*place, "target"), f"there is no file '{file}'{meant}")
    return given.target


def _checked_trace(reader: _Reader, place: tuple[str, ...], given: ModelLine) -> Path | None:
    if not given.trace:
        return None
    path = reader.path.absolute().parent / given.trace
    if not path.is_file():
        raise reader.error((*place, "trace"), f"there is no file '{given.trace}'; record one, or check the path.")
    return path


def _check_deadline(reader: _Reader, place: tuple[str, ...], given: ModelLine) -> None:
    moment = _moment(given.deadline)
    if given.deadline and moment is None:
        with _named(reader, (*place, "deadline")):
            parse_duration(given.deadline, "the deadline")
    if moment is not None and moment.tzinfo is None:
        raise reader.error((*place, "deadline"), "has no time zone; write 2026-11-18T06:00:00Z, or a duration: '6h'.")


def _spelled(reader: _Reader, place: tuple[str, ...], text: str) -> DynamicDim:
    with _named(reader, (*place, "dynamic")):
        return parse_dynamic(text)
    raise AssertionError  # what goes wrong is raised again


def _texts(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) and given else tuple(given)


def _plain(why: str) -> str:
    """msgspec's words in the file's terms."""
    why = why.replace(" | null", "")
    for spelled, name in _PLAIN.items():
        why = why.replace(f"`{spelled}`", name)
    return why.replace("Expected", "must be").replace(", got", "; it is").replace("`", "")
