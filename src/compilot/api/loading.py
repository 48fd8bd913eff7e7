"""`compilot.load`: a bundle's model, from a file or from a store. In: a path or a store's URL. Out: a Fast.

Of a store, the bundle that fits this machine best is fetched into the cache first, by the rules of `compilot.pull`; the
run plane itself knows files only. At each start the store is asked again, so that newer bundles are taken up; a store
that cannot be reached does not stop a start that was possible before: the last bundle is used, with a warning.
Light to import: without a URL nothing of stores is loaded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compilot.errors import CompilotWarning, InputError, StoreUnreachable

if TYPE_CHECKING:
    from torch import nn

    from compilot.runtime import Fast

AnyPath = str | os.PathLike[str]
PULLED = "pulled"  # in the cache: a folder for each store and model that was asked for
KEEP_S = 24 * 3600.0  # an older bundle stays so long: another process may be about to open it

logger = logging.getLogger("compilot")


def load(
    path: AnyPath,
    *,
    model: nn.Module | str | None = None,
    trusted_keys: Sequence[AnyPath] = (),
    require_signature: bool = False,
    allow_stale: bool = False,
    plain_outputs: bool = False,
    check_indices: bool = True,
    record: AnyPath | None = None,
) -> Fast:
    """The bundle's model without a model object; every call that it does not take raises NoFallback.

    path is a bundle, or a store: its URL or folder. Of a store, the bundle that fits this machine best is taken, as
    `compilot.pull` does; model says which one, as there. New bundles of a store are picked up at the next start.

    check_indices=False saves the look at the values of inputs that are used as indices: see compilot.compile.
    record is a file in which the sizes of all calls are counted: see compilot.record.
    """
    from compilot import runtime

    return runtime.load(
        found(path, model, trusted_keys, require_signature=require_signature),
        trusted_keys=trusted_keys,
        require_signature=require_signature,
        allow_stale=allow_stale,
        plain_outputs=plain_outputs,
        check_indices=check_indices,
        record=record,
    )


def found(
    path: AnyPath,
    model: nn.Module | str | None = None,
    trusted_keys: Sequence[AnyPath] = (),
    *,
    require_signature: bool = False,
) -> Path:
    """The bundle's file: the path itself, or what a store has for this machine.

    With a model, a path at which nothing is means a store, too: its file server may not be mounted.
    """
    if not is_store(path) and not (model is not None and _is_nothing(path)):
        if model is not None:
            raise InputError(f"{os.fspath(path)} is a bundle, not a store; leave out model.")
        return Path(path)
    return _pulled(os.fspath(path), model, trusted_keys, require_signature)


def is_store(path: AnyPath) -> bool:
    """A URL, or a folder that is a store; a bundle may be a folder, too."""
    text = os.fspath(path)
    if "://" in text:
        return True
    return os.path.isdir(os.path.join(text, "index")) and not os.path.exists(os.path.join(text, "manifest.json"))


def _is_nothing(path: AnyPath) -> bool:
    """No such file or folder, or a folder without anything in it: a mount point without its file server."""
    try:
        return not os.listdir(path)
    except NotADirectoryError:
        return False
    except OSError:  # also a file server that went away while it was mounted
        return not os.path.isfile(path)


def _pulled(url: str, model: nn.Module | str | None, keys: Sequence[AnyPath], require_signature: bool) -> Path:
    from compilot.api.sharing import wanted_model
    from compilot.artifacts import store
    from compilot.artifacts.bundle_trust import Trust
    from compilot.identity.machine import machine_fingerprint

    wanted = wanted_model(model)
    folder = _folder(url, wanted)
    trust = Trust(keys=tuple(keys), require_signature=require_signature)
    try:
        if "://" not in url and os.path.isdir(url) and _is_nothing(url):
            advice = "mount its file server, or put a bundle there with 'compilot push'"
            raise StoreUnreachable(f"the folder {url} is empty; {advice}.")
        done = store.pull(url, folder, machine_fingerprint(), wanted, trust, by_digest=True)
    except StoreUnreachable as problem:
        return _last(folder, problem)
    logger.info("%s: %s (%s)", done.path, done.fit.because, url)
    for refusal in done.skipped:
        warnings.warn(CompilotWarning(f"skipped: {refusal}"), stacklevel=4)
    os.utime(done.path)  # the last one, by its time
    _drop_older(folder, done.path)
    return done.path


def _folder(url: str, wanted: object) -> Path:
    from compilot.files.private import cache_home, private_directory

    key = hashlib.sha256(f"{url}\0{wanted!r}".encode()).hexdigest()[:16]
    return private_directory(private_directory(cache_home() / PULLED) / key)


def _last(folder: Path, problem: StoreUnreachable) -> Path:
    """The bundle that was taken last; without one the store's error is all there is to say."""
    known = sorted(folder.glob("*.cpbundle"), key=lambda path: path.stat().st_mtime)
    if not known:
        raise problem
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(known[-1].stat().st_mtime))
    text = f"{str(problem).rstrip('.')}; the bundle of the last start ({when}) is used"
    warnings.warn(CompilotWarning(f"{text}: newer ones are not seen."), stacklevel=5)
    return known[-1]


def _drop_older(folder: Path, used: Path) -> None:
    """Bundles that newer ones have replaced; what cannot be removed stays."""
    for path in folder.glob("*.cpbundle"):
        try:
            if path != used and time.time() - path.stat().st_mtime > KEEP_S:
                path.unlink()
        except OSError:
            continue
