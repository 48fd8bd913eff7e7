"""What artifact engines need and when they are worth offering.

In: package names, a diagnosis, settings. Out: an Availability, or why not. Nothing is imported to find out.
Not covered: whether an installed package works; the first build shows that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata

from compilot.engines.protocol import Availability
from compilot.engines.space import Value
from compilot.records import Diagnosis, MemoryFormat, Precision, Settings


def installed(*packages: str) -> Availability:
    """Are these packages there? The first one's version is the engine's."""
    install = f"pip install {' '.join(packages)}"
    missing = [name for name in packages if _version(name) is None]
    if missing:
        return Availability(ok=False, why=f"{' and '.join(missing)} not installed", install=install)
    return Availability(ok=True, version=_version(packages[0]) or "", install=install)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cuda_problem() -> str:
    """Why nothing can run on a GPU here, "" where it can."""
    import torch

    return "" if torch.cuda.is_available() else "needs a CUDA GPU"


def not_for_exports(diagnosis: Diagnosis) -> bool:
    """An exported model is one fixed function on the CPU: no training, no random numbers of torch's."""
    odd = diagnosis.training or diagnosis.stochastic or diagnosis.unjudgeable is not None
    return odd or diagnosis.cuda


def other_precision(settings: Settings, known: Sequence[Precision] = ()) -> str | None:
    """Why an engine cannot compute in the precision asked for; None: it can."""
    if settings.precision in (Precision.AS_IS, *known):
        return None
    return f"{settings.engine} has no {settings.precision}; it knows {', '.join([Precision.AS_IS, *known])}"


def misfit(
    settings: Settings,
    options: Mapping[str, tuple[Value, ...] | type],
    precisions: Sequence[Precision] = (),
    *,
    layouts: bool = False,
) -> str | None:
    """Why settings make no sense for an engine that makes files; None: they do."""
    if settings.mode is not None:
        return f"{settings.engine} has no modes"
    if settings.memory_format is not MemoryFormat.PRESERVE and not layouts:
        return f"{settings.engine} chooses memory layouts itself"
    return other_precision(settings, precisions) or unknown_options(settings.engine, settings, options)


def unknown_options(engine: str, settings: Settings, known: Mapping[str, tuple[Value, ...] | type]) -> str | None:
    """Why the options make no sense; None: they do."""
    for name, value in settings.options.items():
        if name not in known:
            return f"{engine} has no option '{name}'; it knows {', '.join(known)}"
        wanted = known[name]
        if isinstance(wanted, tuple) and value not in wanted:
            return f"{engine} option '{name}' is {value!r}; choose from {', '.join(map(str, wanted))}"
        if isinstance(wanted, type) and type(value) is not wanted:
            return f"{engine} option '{name}' is {value!r}; it must be of type {wanted.__name__}"
    return None
