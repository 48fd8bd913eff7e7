"""`compilot.pack`: finished runs as one portable file. In: run directories, or plans of this process. Out: a bundle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compilot.api.reading import run_dir_of
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Plan, Record
from compilot.showing.plain import PlainObserver

if TYPE_CHECKING:
    from compilot.packing import Packed

AnyPath = str | os.PathLike[str]


class PackedBundle(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A bundle that was packed."""

    bundle: Path
    model: str  # its class
    engine: str  # of the first entry
    weights: str  # where they are: "baked", "model" or "carried"
    standalone: bool  # no model object is needed: `compilot.load` takes it
    size_bytes: int
    needs_compiler: bool  # at the start
    start_s: tuple[float | None, ...]  # of each entry, measured here
    sentences: tuple[str, ...]  # what the plan and the packing say
    openssf_signature: Path | None = None  # None: none was asked for


def pack(
    runs: Sequence[Plan | AnyPath] | Plan | AnyPath,
    out: AnyPath,
    *,
    folder: bool = False,
    carry_weights: bool = False,
    twin: bool = True,
    sign: AnyPath | None = None,
    openssf_key: AnyPath | None = None,
    observer: Observer | None = None,
    progress: bool = True,
) -> PackedBundle:
    """Pack a plan with everything it needs, so that it starts at once elsewhere; what `compilot pack` does.

    runs are run directories, or plans that `tune` returned; several give several entries. folder=True writes a folder,
    which is read in place. carry_weights puts the model's weights in. twin=False does not look for a form of a
    torch.compile plan that needs no compiler. sign is a private key (see `compilot.keys`); openssf_key one for an
    OpenSSF model signature beside the bundle.
    """
    from compilot import packing
    from compilot.artifacts import openssf

    watcher = observer or (PlainObserver() if progress else Observer())
    options = packing.PackOptions(
        folder=folder, carry_weights=carry_weights, twin=twin, key=None if sign is None else Path(sign)
    )
    directories = _directories(runs)
    if openssf_key is not None:
        openssf.ready_to_sign(Path(openssf_key))
    packed = packing.pack(directories, Path(out), options, watcher)
    signature = None if openssf_key is None else openssf.sign(packed.path, Path(openssf_key))
    return _summary(packed, signature)


def _directories(runs: Sequence[Plan | AnyPath] | Plan | AnyPath) -> list[Path]:
    given = [runs] if isinstance(runs, Plan | str | os.PathLike) else list(runs)
    if not given:
        raise InputError("name at least one run directory to pack.")
    return [run_dir_of(run) if isinstance(run, Plan) else Path(run) for run in given]


def _summary(packed: Packed, signature: Path | None) -> PackedBundle:
    manifest = packed.manifest
    return PackedBundle(
        bundle=packed.path,
        model=manifest.label,
        engine=manifest.engine,
        weights=str(manifest.weights),
        standalone=manifest.standalone,
        size_bytes=packed.size_bytes,
        needs_compiler=any(entry.needs_compiler for entry in manifest.entries),
        start_s=tuple(entry.start_s for entry in manifest.entries),
        sentences=manifest.sentences,
        openssf_signature=signature,
    )
