"""How two fingerprints differ, in plain words.

In: the fingerprint a plan was made for, and today's. Out: one Difference per field, with what it means: *unsafe* (the
plan's artifacts may give wrong answers) or *unproven* (the answers stay right, the speed was measured elsewhere).
Not covered: what to do about it (runtime refuses or warns).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from compilot.engines import registry
from compilot.engines.traits import InstructionSets
from compilot.identity import isa
from compilot.identity.known_settings import input_of
from compilot.records import MAX_NAMED, Fingerprint, MachineFingerprint, ModelFingerprint


class Severity(enum.StrEnum):
    """What a difference means for a plan."""

    UNSAFE = "unsafe"
    UNPROVEN = "unproven"


class Difference(NamedTuple):
    """One field in which two fingerprints differ."""

    field: str  # "machine.torch"
    old: str
    new: str
    severity: Severity
    sentence: str


_MODEL_FIELDS = {
    "class_name": "the model's class",
    "code_sha256": "the code of the model's classes or of functions they call",
    "structure_sha256": "the model's structure (submodules or their settings)",
    "parameters_sha256": "the model's parameters (names, shapes or dtypes)",
}
WEIGHTS = "model.weights_sha256"
MAX_TOLD = 3  # of the things that changed: the first few lead to the cause, forty are a wall of text
_SPEED_FIELDS = {
    "cpu_model": "CPU",
    "cores": "number of usable cores",
    "threads": "number of torch threads",
    "glibc": "C library",
    "gpu_driver": "GPU driver",
}


def differences(
    old: Fingerprint, new: Fingerprint, engines: Collection[str] | None = None, *, compiles: bool | None = None
) -> list[Difference]:
    """Every difference, the unsafe ones first.

    engines: those in use (None: all that the old one has versions of). compiles: what a C++ compiler left is loaded at
    each start, and more is compiled then; False: no compiler is needed; None: what it left can be compiled again.
    """
    used = frozenset(old.machine.engines if engines is None else engines)
    found = [*_model(old.model, new.model), *_machine(old.machine, new.machine)]
    if compiles is not False:
        severity = Severity.UNSAFE if compiles else Severity.UNPROVEN
        found += _changed("compiler", "C++ compiler", old.machine.compiler, new.machine.compiler, severity)
    found += _isa(old.machine.cpu_isa, new.machine.cpu_isa, frozenset() if engines is None else used)
    found += [one for name in sorted(used) for one in _engine(name, old.machine, new.machine)]
    return sorted(found, key=lambda difference: difference.severity is not Severity.UNSAFE)


def explain_difference(old: Fingerprint, new: Fingerprint, engines: Collection[str] | None = None) -> list[str]:
    """The same as sentences."""
    return [difference.sentence for difference in differences(old, new, engines)]


def sentences(found: Iterable[Difference]) -> str:
    """All of them as one text."""
    return " ".join(one.sentence.rstrip(".") + "." for one in found)


def _model(old: ModelFingerprint, new: ModelFingerprint) -> Iterator[Difference]:
    for field, words in _MODEL_FIELDS.items():
        a, b = getattr(old, field), getattr(new, field)
        if a != b:
            detail = _detail(field, old, new) or _both(a, b)  # digests only where nothing better is known
            yield _unsafe(f"model.{field}", _short(a), _short(b), f"{words} changed{detail}")
    yield from _input_settings(old.input_settings, new.input_settings)
    a, b = old.weights_sha256, new.weights_sha256
    if a is not None and b is not None and a != b:
        yield _unsafe(WEIGHTS, _short(a), _short(b), f"the weight values frozen into the plan changed{_both(a, b)}")


def _input_settings(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    """Those that both depend on: what only one of them has, the calls of the other do not read."""
    for path in sorted(old.keys() & new.keys()):
        if old[path] != new[path]:
            words = f"the model's setting '{path}', which calls with '{input_of(path)}' use, changed"
            yield _unsafe(f"model.{path}", old[path], new[path], words + _from_to(old[path], new[path]))


def _both(old: str, new: str) -> str:
    return f" ({_short(old)} -> {_short(new)})"


def _detail(field: str, old: ModelFingerprint, new: ModelFingerprint) -> str:
    """What exactly changed, where it was written down."""
    if field == "parameters_sha256" and old.parameter_count != new.parameter_count:
        return f", from {old.parameter_count} to {new.parameter_count} values"
    if field == "code_sha256":
        found = [*_versions(old.libraries, new.libraries), *_units(old.code, new.code)]
    elif field == "structure_sha256":
        found = [*_attributes(old.attributes, new.attributes)]
    else:
        return ""
    more = f", and {len(found) - MAX_TOLD} more" if len(found) > MAX_TOLD else ""
    return f": {', '.join(found[:MAX_TOLD])}{more}" if found else ""


def _versions(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}"


def _units(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """What changed, then what is new or gone; a list that was cut says nothing of what it does not have."""
    found = [label for label in sorted(old.keys() & new.keys()) if old[label] != new[label]]
    for words, there, elsewhere in ((" is new", new, old), (" is gone", old, new)):
        if len(elsewhere) < MAX_NAMED:
            found += [label + words for label in sorted(there.keys() - elsewhere.keys())]
    yield from dict.fromkeys(re.sub(r"~\d+", "", label) for label in found)  # "scale~2": another of that name


def _attributes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    changed = [path for path in sorted(old.keys() & new.keys()) if old[path] != new[path]]
    for path in changed:
        if not any(other.startswith(f"{path}.") for other in changed):  # a part says more than the whole
            yield f"attribute '{path}'" + _from_to(old[path], new[path])
    for words, there, elsewhere in (("is new", new, old), ("is gone", old, new)):
        if len(elsewhere) < MAX_NAMED:
            yield from (f"attribute '{path}' {words}" for path in sorted(there.keys() - elsewhere.keys()))


def _from_to(old: str, new: str) -> str:
    """Plain values as they are; a digest says nothing to people."""
    kinds = [value.rpartition(" ")[0] for value in (old, new)]
    shown = [kind or value for kind, value in zip(kinds, (old, new), strict=True)]
    return "" if shown[0] == shown[1] else f" from {shown[0]} to {shown[1]}"


def _machine(old: MachineFingerprint, new: MachineFingerprint) -> Iterator[Difference]:
    yield from _changed("torch", "torch", old.torch, new.torch)
    if old.python != new.python:
        yield from _changed("python", "Python", _minor(old.python), _minor(new.python))
    yield from _changed("platform", "platform", old.platform, new.platform)
    yield from _changed("gpu", "GPU", old.gpu, new.gpu)
    for field, words in _SPEED_FIELDS.items():
        yield from _changed(field, words, getattr(old, field), getattr(new, field), Severity.UNPROVEN)


def _changed(field: str, words: str, old: Any, new: Any, severity: Severity = Severity.UNSAFE) -> Iterator[Difference]:
    if old == new:
        return
    a, b = ("none" if value is None else str(value) for value in (old, new))
    yield Difference(f"machine.{field}", a, b, severity, f"{words}: the plan was made with {a}, this process has {b}.")


def _engine(name: str, old: MachineFingerprint, new: MachineFingerprint) -> Iterator[Difference]:
    """Another version is unsafe; one that nobody wrote down may be another."""
    before, now = old.engines.get(name), new.engines.get(name)
    if before is not None:
        yield from _changed(f"engines.{name}", name, before, now)
    elif not registry.goes_by_torch(name):
        words = f"{name}: its version was not recorded, so it may be another one now ({now or 'unknown'})."
        yield Difference(f"machine.engines.{name}", "unknown", now or "unknown", Severity.UNPROVEN, words)


def _isa(old: Collection[str], new: Collection[str], engines: frozenset[str]) -> Iterator[Difference]:
    """More instructions are harmless to code, but not to data laid out for them; a missing one ends the process."""
    if set(old) == set(new):
        return
    wanted = {name: registry.traits(name).instruction_sets for name in sorted(engines)}
    if wanted and InstructionSets.AS_COMPILED not in wanted.values():
        old, new = isa.at_run_time(old), isa.at_run_time(new)
    missing = sorted(set(old) - set(new))
    if missing:
        words = f"CPU instructions: the plan was made with {isa.named(missing)}, which this machine does not have"
        yield _unsafe("machine.cpu_isa", " ".join(sorted(old)), " ".join(sorted(new)), words)
    more = isa.at_run_time(new) - isa.at_run_time(old)
    exact = [registry.title(name) for name, which in wanted.items() if which is InstructionSets.EXACT]
    if exact and more and not missing:
        words = f"CPU instructions: {' and '.join(exact)} laid the weights out for a CPU without {isa.named(more)}"
        yield _unsafe("machine.cpu_isa", " ".join(sorted(old)), " ".join(sorted(new)), words)


def _unsafe(field: str, old: str, new: str, words: str) -> Difference:
    return Difference(field, old, new, Severity.UNSAFE, f"{words}.")


def _short(value: str) -> str:
    is_digest = len(value) == 64 and set(value) <= set("0123456789abcdef")
    return value[:10] if is_digest else value


def _minor(version: str) -> str:
    from packaging.version import InvalidVersion, Version  # here: 5 ms that no start with the same Python pays

    try:
        parsed = Version(version)
    except InvalidVersion:
        return version
    return f"{parsed.major}.{parsed.minor}"
