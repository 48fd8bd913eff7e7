"""Why was this start cold? What changed between two starts, named in plain words.

In: the key components of a start that was warm (or of the build) and of the one that was cold. Out: `Cause` records,
the most decisive first: an empty cache explains everything, then what is in every key, then what only may matter.
`not_compared` says what one of the two did not write down, so that nothing is taken for "the same" in silence.
Pure: no torch, no clock. Not covered: what no fingerprint can read; that is said.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from compilot.identity import isa
from compilot.identity.keys import KeyComponents
from compilot.records import Guard, MachineFingerprint, ModelFingerprint, Record, Settings


class Weight(enum.IntEnum):
    """How surely a change makes a start cold."""

    DECISIVE = 0  # nothing can be found, whatever the key
    KEY = 1  # part of every key
    LIKELY = 2  # part of some keys


class Cause(Record, frozen=True, kw_only=True):
    """One thing that made a start cold."""

    component: str  # "threads", "torch", "config freezing", "input args[0]", ...
    old: str
    new: str
    sentence: str
    advice: str
    weight: Weight = Weight.KEY


class ColdCauses(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Why a start was cold, as far as that was recorded."""

    compared_with: str | None = None  # the second start; None: there was nothing to compare
    causes: tuple[Cause, ...] = ()  # the most decisive first; none: nothing that was recorded differs
    not_compared: tuple[str, ...] = ()  # what one of the two has no record of
    answer: str | None = None  # why no start of it is ever cold; None: one can be


UNKNOWN = (
    "nothing that was recorded differs; what remains is something in the model that cannot be read (an iterator, an "
    "object of compiled code) or a cache that another program emptied in between"
)
_MACHINE = (
    ("torch", "torch", Weight.KEY, "every torch version has a cache of its own: build the artifacts again"),
    ("python", "Python", Weight.KEY, "compiled code is bound to the Python version: build the artifacts again"),
    ("platform", "platform", Weight.KEY, "build the artifacts on this platform"),
    ("threads", "number of torch threads", Weight.KEY, "call torch.set_num_threads or set OMP_NUM_THREADS as before"),
    ("cpu_isa", "CPU instructions", Weight.KEY, "build on a machine like this one, or pin ATEN_CPU_CAPABILITY"),
    ("compiler", "C++ compiler", Weight.KEY, "use the same compiler version, or build the artifacts again"),
    ("glibc", "C library", Weight.LIKELY, "build on the image that runs"),
    ("cpu_model", "CPU", Weight.LIKELY, "build on a machine like this one"),
    ("gpu", "GPU", Weight.KEY, "build for this GPU"),
    ("gpu_driver", "GPU driver", Weight.LIKELY, "build with this driver"),
)
_MODEL = (
    ("code_sha256", "the code of the model's classes or of functions they call", "code"),
    ("structure_sha256", "the model's structure (submodules or their settings)", "structure"),
    ("parameters_sha256", "the model's parameters (names, shapes or dtypes)", "parameters"),
)


def why_cold(before: KeyComponents, after: KeyComponents) -> tuple[Cause, ...]:
    """Everything that may have made `after` cold, the most decisive first."""
    recorded = before.complete and after.complete
    found = [
        *_cache(before, after),
        *_standing(after),
        *_machine(before.machine, after.machine),
        *_settings(before.settings, after.settings),
        *(_compiler_path(before, after) if recorded else ()),
        *(_tables(before, after) if recorded else ()),  # before the model: another default dtype changes its weights
        *_model(before.model, after.model),
        *_inputs(before.guard, after.guard),
    ]
    return tuple(sorted(found, key=lambda cause: cause.weight))


def not_compared(before: KeyComponents, after: KeyComponents) -> tuple[str, ...]:
    """What at least one of the two starts has no record of, in plain words."""
    both = (before, after)
    missing = (
        (any(one.guard is None for one in both), "the inputs (shapes, strides, dtypes, values), grad and train mode"),
        (any(one.model is None for one in both), "the model's code, structure and parameters"),
        (any(one.settings is None for one in both), "the plan's settings"),
        (not all(one.complete for one in both), "compiler configuration, default dtype, environment, compiler path"),
        (after.cached_files is None or _no_cache(before), "how many compiled files lie in the cache directory"),
    )
    return tuple(words for is_missing, words in missing if is_missing)


def _cause(component: str, what: str, old: Any, new: Any, advice: str, weight: Weight = Weight.KEY) -> Cause:
    a, b = (_text(value) for value in (old, new))
    return Cause(component=component, old=a, new=b, sentence=f"{what}: {a} -> {b}", advice=advice, weight=weight)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    text = str(value)
    is_digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text[:10] if is_digest else text


def _cache(before: KeyComponents, after: KeyComponents) -> Iterator[Cause]:
    if after.cached_files != 0 or before.cached_files == 0 or _no_cache(before):
        return
    if before.cache_dir and before.cache_dir != after.cache_dir:
        advice = "set TORCHINDUCTOR_CACHE_DIR to the old folder, or copy its files along"
        what = "the cache directory moved, and nothing compiled is in the new one"
        yield _cause("cache directory", what, before.cache_dir, after.cache_dir, advice, Weight.DECISIVE)
    else:
        advice = "keep the folder between starts: mount it, or ship it with the plan"
        what = f"the cache directory {after.cache_dir} was empty at the start: compiled files"
        yield _cause("cache files", what, before.cached_files or "unknown", 0, advice, Weight.DECISIVE)


def _no_cache(one: KeyComponents) -> bool:
    """Nobody wrote down that there ever was a cache: an empty one explains nothing."""
    return one.cached_files is None and not one.cache_dir


def _standing(after: KeyComponents) -> Iterator[Cause]:
    """Settings under which torch never caches, changed or not."""
    disabled = after.config.get("force_disable_caches") == "True" or any(
        after.environment.get(name) == "1"
        for name in ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_FORCE_DISABLE_CACHES")
    )
    if disabled:
        what = "torch's caches are switched off by force_disable_caches"
        advice = "unset TORCHINDUCTOR_FORCE_DISABLE_CACHES"
        yield _cause("caches", what, "on", "off", advice, Weight.DECISIVE)


def _machine(old: MachineFingerprint, new: MachineFingerprint) -> Iterator[Cause]:
    for field, words, weight, advice in _MACHINE:
        a, b = getattr(old, field), getattr(new, field)
        if field == "cpu_isa":
            if other := isa.changed(a, b):
                yield _cause(
                    field, f"{words}: gone or new: {isa.named(other)}", isa.best(a), isa.best(b), advice, weight
                )
        elif a != b:
            yield _cause(field, words, a, b, advice, weight)


def _model(old: ModelFingerprint | None, new: ModelFingerprint | None) -> Iterator[Cause]:
    if old is None or new is None:
        return
    advice = "a changed model is compiled again once; build the artifacts again and ship them"
    for field, words, component in _MODEL:
        a, b = getattr(old, field), getattr(new, field)
        if a != b:
            yield _cause(component, f"{words} changed", a, b, advice)
    for path in sorted(old.input_settings.keys() & new.input_settings.keys()):
        a, b = old.input_settings[path], new.input_settings[path]
        if a != b:
            yield _cause(f"setting {path}", f"the model's setting '{path}' changed", a, b, advice)


def _inputs(old: Guard | None, new: Guard | None) -> Iterator[Cause]:
    if old is None or new is None:
        return
    advice = "warm up with the inputs that production sends, or declare the dimension dynamic"
    before, after = ({tensor.path: tensor for tensor in guard.tensors} for guard in (old, new))
    for path in sorted(before.keys() | after.keys()):
        a, b = before.get(path), after.get(path)
        if a is None or b is None:
            yield _cause(f"input {path}", f"the inputs: {path}", a and a.dtype, b and b.dtype, advice)
            continue
        for field in ("dtype", "shape", "stride", "device", "requires_grad"):
            if getattr(a, field) != getattr(b, field):
                yield _cause(f"input {path}", f"{field} of {path}", getattr(a, field), getattr(b, field), advice)
    values = [{value.path: value.value for value in guard.values} for guard in (old, new)]
    yield from _changed_entries("input", "value of", values[0], values[1], advice)
    for field, words in (("grad_enabled", "grad mode"), ("autocast", "autocast"), ("training", "train mode")):
        if getattr(old, field) != getattr(new, field):
            yield _cause(
                words, words, getattr(old, field), getattr(new, field), f"call the model with the same {words}"
            )


def _settings(old: Settings | None, new: Settings | None) -> Iterator[Cause]:
    if old is None or new is None or old == new:
        return
    a, b = (msgspec.to_builtins(msgspec.structs.replace(one, options={})) for one in (old, new))
    advice = "the plan's settings changed: its artifacts were built with the old ones; build them again"
    yield from _changed_entries("setting", "plan setting", a, b, advice)
    yield from _changed_entries("option", "option", old.options, new.options, advice)


def _compiler_path(before: KeyComponents, after: KeyComponents) -> Iterator[Cause]:
    if before.compiler_path != after.compiler_path:
        advice = "use the same CXX: its path is part of the key even when the version is the same"
        yield _cause("compiler path", "path of the C++ compiler", before.compiler_path, after.compiler_path, advice)


def _tables(before: KeyComponents, after: KeyComponents) -> Iterator[Cause]:
    config = "the whole compiler configuration is in the key: set the old value, or build again with the new one"
    yield from _changed_entries("config", "compiler configuration", before.config, after.config, config, "default")
    state = "set it as it was when the code was built"
    yield from _changed_entries("state", "torch's", before.state, after.state, state)
    names = "set it as it was when the code was built, or build again with the new value"
    changed = _changed_entries("environment", "environment variable", before.environment, after.environment, names)
    for cause in changed:
        yield msgspec.structs.replace(cause, weight=Weight.LIKELY)


def _changed_entries(
    kind: str, what: str, old: Mapping[str, Any], new: Mapping[str, Any], advice: str, absent: str = "none"
) -> Iterator[Cause]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            values = old.get(name, absent), new.get(name, absent)
            yield _cause(f"{kind} {name}", f"{what} {name}", *values, advice)
