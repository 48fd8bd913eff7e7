"""`compilot.push` and `compilot.pull`: bundles to and from a place that many machines can reach; runs to it, too.

In: a bundle or a run directory, and a URL (a folder, file, s3, gs, http, sftp). Out: the entry in that store, and how
it went. A run directory is known by its journal; `compilot.history(store=URL)` lists them.
What else a store takes is in `compilot.store`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from compilot.artifacts.store.answers import PulledBundle, PushedBundle
    from compilot.ledger.sharing import PushedRun
    from compilot.records import ModelFingerprint

AnyPath = str | os.PathLike[str]


def push(bundle: AnyPath, url: AnyPath) -> PushedBundle | PushedRun:
    """Put a bundle into a store, for every machine like this one; what `compilot push` does.

    A run directory goes there, too: its journal, plan and tables, for everybody to look at and to compare.
    """
    from compilot.artifacts.rundir import RunDir

    if RunDir(Path(bundle)).holds_run:
        from compilot.ledger.sharing import push_run

        return push_run(RunDir(Path(bundle).absolute()), os.fspath(url))
    from compilot.artifacts import store
    from compilot.artifacts.store.answers import pushed_bundle

    return pushed_bundle(store.push(Path(bundle), os.fspath(url)))


def pull(
    url: AnyPath,
    out: AnyPath,
    *,
    model: nn.Module | str | None = None,
    trusted_keys: Sequence[AnyPath] = (),
    require_signature: bool = False,
) -> PulledBundle:
    """Get the bundle that fits this machine best, or NoneFits with what is missing; what `compilot pull` does.

    out is the file to write, or a folder to write it to. model says which one: a model, "FILE.py:factory", a class name
    or an id of `compilot.store.ls`. trusted_keys are public keys to trust besides the usual ones. Look at `unproven`
    and `signed_by` of what is returned before you rely on it.
    """
    from compilot.artifacts import store
    from compilot.artifacts.bundle_trust import Trust
    from compilot.artifacts.store.answers import pulled_bundle
    from compilot.identity.machine import machine_fingerprint

    trust = Trust(keys=tuple(trusted_keys), require_signature=require_signature)
    done = store.pull(os.fspath(url), Path(out), machine_fingerprint(), wanted_model(model), trust)
    return pulled_bundle(done)


def wanted_model(model: nn.Module | str | None) -> str | ModelFingerprint | None:
    """A target is opened here, as `tune` would, to know what model it is."""
    if model is None or (isinstance(model, str) and ":" not in model):
        return model
    from compilot.identity.model import model_fingerprint
    from compilot.workload.target import load_target

    return model_fingerprint(load_target(model).model if isinstance(model, str) else model, weights=True)
