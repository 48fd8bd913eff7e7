"""What decides whether a start finds compiled code: the parts of torch's cache keys, written down.

In: the settings and the guard that a start uses, and its cache folder. Out: `KeyComponents`, a small file at tune time
(`key.json` beside the artifacts) and at each start in a user's process (`starts/` in compilot's cache folder).
Both planes use it. Values that may hold secrets are kept as digests. Not covered: what no fingerprint covers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from compilot._torch.cachekey import changed_config, global_state
from compilot._torch.compiling import CACHE_VARIABLE
from compilot.engines import registry
from compilot.engines.of_candidate import compiled_settings
from compilot.files.atomic import write_bytes
from compilot.files.private import cache_home
from compilot.identity.machine import machine_fingerprint
from compilot.records import Guard, MachineFingerprint, ModelFingerprint, Plan, Record, Settings, encode

KEY_FILE = "key.json"
# The variables that torch's compiler, its C++ compiler or its thread pools read.
_VARIABLES = re.compile(
    r"(TORCHINDUCTOR|TORCHDYNAMO|TORCH_COMPILE|TORCH_CACHING|OMP|MKL|KMP|GOMP)_.*|ATEN_CPU_CAPABILITY|CXX|CC|LD_PRELOAD"
)
_SECRET = re.compile(r"URL|TOKEN|PASSWORD|SECRET|HOST", re.IGNORECASE)


class KeyComponents(Record, frozen=True, kw_only=True):
    """One start, as far as compile caches can tell it from another."""

    created: str  # ISO 8601, UTC
    machine: MachineFingerprint
    compiler_path: str = ""  # the compiler's path is part of the key, not only its version
    model: ModelFingerprint | None = None
    guard: Guard | None = None  # shapes, strides, dtypes and values of the inputs; None: not recorded
    settings: Settings | None = None
    config: dict[str, str] = {}  # compiler configuration that is not torch's default
    state: dict[str, str] = {}  # default dtype, matmul precision, ...
    environment: dict[str, str] = {}
    cache_dir: str = ""
    cached_files: int | None = None  # compiled files in it: after a build, before a start; None: not looked at
    complete: bool = True  # False: made from a plan alone, what is missing was not recorded


def key_components(
    *,
    settings: Settings | None = None,
    guard: Guard | None = None,
    model: ModelFingerprint | None = None,
    cache_dir: Path | None = None,
) -> KeyComponents:
    """The components of a start in this process, now."""
    folder = cache_dir or _default_cache_dir()
    return KeyComponents(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_fingerprint(engines=() if settings is None else (settings.engine,)),
        compiler_path=shutil.which(os.environ.get("CXX", "g++")) or "",
        model=model,
        guard=guard,
        settings=settings,
        config=changed_config(),
        state=dict(global_state()),
        environment=relevant_environment(os.environ),
        cache_dir=str(folder),
        cached_files=count_compiled(folder),
    )


def plan_components(plan: Plan) -> KeyComponents:
    """What a plan itself says about the start it was made for."""
    entry = plan.entries[0] if plan.entries else None
    return KeyComponents(
        created=plan.created,
        machine=plan.fingerprint.machine,
        model=plan.fingerprint.model,
        guard=entry.guard if entry else None,
        settings=compiled_settings(entry.candidate) or entry.candidate.settings if entry else None,
        complete=False,
    )


def relevant_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that the compiler reads; the cache directory is told apart, and secrets by their digest."""
    names = sorted(name for name in environment if _VARIABLES.fullmatch(name) and name != CACHE_VARIABLE)
    return {name: _shown(name, environment[name]) for name in names}


def count_compiled(folder: Path) -> int:
    """Compiled files in a cache directory."""
    return sum(1 for _ in folder.rglob("*.so")) if folder.is_dir() else 0


def save_components(components: KeyComponents, path: Path) -> None:
    """Write the file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, msgspec.json.format(encode(components), indent=2) + b"\n")


def note_start(settings: Settings, model: ModelFingerprint, artifacts: Path) -> None:
    """Note a start in a user's process; a note that cannot be written is left out, the start is what matters.

    It is noted before the first call, so nothing is known of the inputs and the grad mode that the user will bring.
    """
    with contextlib.suppress(Exception):
        cache = artifacts / registry.traits(settings.engine).cache_folder
        components = key_components(settings=settings, model=model, cache_dir=cache)
        save_components(components, start_file(artifacts))


def start_file(artifacts: Path) -> Path:
    """Where the last start of the artifacts in this folder is noted."""
    digest = hashlib.sha256(os.fspath(artifacts.absolute()).encode()).hexdigest()[:16]
    return cache_home() / "starts" / f"{digest}.json"


def _shown(name: str, value: str) -> str:
    return f"(hidden, {hashlib.sha256(value.encode()).hexdigest()[:8]})" if _SECRET.search(name) else value


def _default_cache_dir() -> Path:
    import getpass
    import tempfile

    return Path(os.environ.get(CACHE_VARIABLE) or Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}")
