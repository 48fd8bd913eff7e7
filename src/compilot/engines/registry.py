"""Engines by name: built in, registered in this process, or installed by others (entry-point group `compilot.engines`).

In: a name. Out: the engine's build half, load half, traits or version. "dynamo:NAME" is torch.compile with the backend
NAME, by the same halves as inductor. Not covered: whether an engine works here; its build half says that.
"""

from __future__ import annotations

import functools
import importlib
from importlib import metadata
from typing import Any, NamedTuple, cast

from compilot._choices import unknown
from compilot.engines.protocol import BuildHalf, LoadHalf
from compilot.engines.traits import TORCH, EngineTraits
from compilot.errors import InputError

GROUP = "compilot.engines"
BUILT_IN = ("eager", "inductor", "onnxruntime", "openvino", "aoti", "cudagraphs", "tensorrt")
DYNAMO = "dynamo:"
BACKEND_GROUP = "torch_dynamo_backends"  # torch's own entry-point group


class Halves(NamedTuple):
    """Both halves of an engine, as modules or module-like objects. An entry point may name one of these."""

    build: BuildHalf | None
    load: LoadHalf
    traits: EngineTraits | None = None  # None: `TRAITS` of the load half, where there is one


_registered: dict[str, Halves] = {}


def register(name: str, build: BuildHalf | None, load: LoadHalf, traits: EngineTraits | None = None) -> None:
    """Make an engine known to this process; a name can be given again to replace it."""
    _registered[name] = Halves(build, load, traits)


def registered_modules() -> tuple[str, ...]:
    """Modules that registered engines live in: a child process imports them to know the same engines."""
    found = [getattr(halves.load, "__name__", type(halves.load).__module__) for halves in _registered.values()]
    return tuple(dict.fromkeys(name for name in found if name != "__main__"))


def unregister(name: str) -> None:
    """Forget an engine that was registered in this process."""
    _registered.pop(name, None)


def names() -> tuple[str, ...]:
    """Every known engine: built in, installed, registered, and other packages' torch.compile backends."""
    return tuple(dict.fromkeys([*BUILT_IN, *_installed(), *_registered, *backends()]))


def refuse_unknown(name: str) -> None:
    """InputError for a name that no engine here has; nothing of the engine is imported."""
    if name not in _registered and name not in _installed():
        _built_in(name)


def backends() -> tuple[str, ...]:
    """torch.compile backends that installed packages announce, as "dynamo:NAME"; trying tells if they work."""
    return tuple(sorted(DYNAMO + name for name in _announced()))


@functools.cache
def _announced() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=BACKEND_GROUP)}


def traits(name: str) -> EngineTraits:
    """What an engine declares of itself, the defaults where it declares nothing; an unknown one has the defaults."""
    known = _known_traits(name)
    if known is None and name in _installed():
        known = _declared(_load_installed(name))
    return known or EngineTraits()


def standalone() -> tuple[str, ...]:
    """Engines whose files are the whole model, as far as that is known without importing an installed one."""
    return tuple(name for name in names() if (known := _known_traits(name)) is not None and known.standalone)


def title(name: str) -> str:
    """What an engine is called in a sentence."""
    return traits(name).title or name


def _known_traits(name: str) -> EngineTraits | None:
    """The same without an import of an installed engine, which may take seconds; None: it would take that."""
    if name in _registered and (told := _declared(_registered[name])) is not None:
        return told
    if name.startswith(DYNAMO):
        from compilot.engines.inductor import backend_traits

        return backend_traits(name.removeprefix(DYNAMO))
    if name in BUILT_IN:
        return cast(EngineTraits, importlib.import_module(f"compilot.engines.{name}").TRAITS)
    return None


def _declared(halves: Halves) -> EngineTraits | None:
    return halves.traits or getattr(halves.load, "TRAITS", None)


def goes_by_torch(name: str) -> bool:
    """Whether an engine is part of torch, so that torch's version says everything."""
    known = _known_traits(name)
    return known is not None and known.package == TORCH


def version(name: str) -> str | None:
    """Which version of an engine is here: what it declares itself, or that of the package that brings it.

    None: it goes by torch's, it is not here, or nobody can tell. Nothing is imported: that may take seconds.
    """
    known = _known_traits(name) or EngineTraits()
    if known.package == TORCH or known.version is not None:
        return None if known.package == TORCH else known.version
    if known.package:
        return _package_version(known.package)
    if name.startswith(DYNAMO):
        return _package_of(_announced().get(name.removeprefix(DYNAMO)))
    return _package_of(_installed().get(name))


def _package_of(point: metadata.EntryPoint | None) -> str | None:
    return point.dist.version if point is not None and point.dist is not None else None


@functools.cache
def _package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def build_half(name: str) -> BuildHalf:
    """The tuning-plane half of an engine."""
    if name in _registered or (name not in BUILT_IN and name in _installed()):
        half = _halves(name).build
        if half is None:
            raise InputError(f"engine '{name}' can load plans but offers nothing to tune.")
        return half
    return cast(BuildHalf, importlib.import_module(f"compilot.engines.{_built_in(name)}.build"))


def load_half(name: str) -> LoadHalf:
    """The run-plane half of an engine; a built-in one without a look at every installed package, which takes 20 ms."""
    if name in _registered or (name not in BUILT_IN and name in _installed()):
        return _halves(name).load
    return cast(LoadHalf, importlib.import_module(f"compilot.engines.{_built_in(name)}.load"))


def plain_compile() -> str:
    """The engine that is torch.compile as users know it, with nothing chosen."""
    return next(name for name in BUILT_IN if traits(name).plain_compile)


def needs_compiler(name: str) -> bool:
    """Does the engine compile at every start?"""
    return traits(name).compiler_at_start


def _halves(name: str) -> Halves:
    return _registered[name] if name in _registered else _load_installed(name)


def _built_in(name: str) -> str:
    if name.startswith(DYNAMO) and name != DYNAMO:
        return "inductor"
    if name not in BUILT_IN:
        raise unknown("engine", name, [*names(), f"{DYNAMO}BACKEND"], "Install the package that provides it.")
    return name


@functools.cache
def _installed() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


@functools.cache
def _load_installed(name: str) -> Halves:
    """An entry point names a Halves, or a module with `build`, `load` and perhaps `TRAITS` in it."""
    found: Any = _installed()[name].load()
    if isinstance(found, Halves):
        return found
    return Halves(getattr(found, "build", None), found.load, getattr(found, "TRAITS", None))
