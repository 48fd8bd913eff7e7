"""Bundles in the user's process: trusted, fitting, every file checked, on disk.

In: a bundle's path and, where there is one, the user's model. Out: a Source, while its engine is imported beside the
checking; or the opened bundle alone, to look at its plan and its calls. The questions of trust, digests and unpacking
are answered in artifacts/, whether it fits in staleness.py. Not covered: what is done with a Source (start.py), packing
(tuning plane), fetching (stores).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from compilot.artifacts.bundle import PLAN, Bundle, open_bundle
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.unpack import check_again, unpacked
from compilot.engines import registry
from compilot.errors import BundleError
from compilot.runtime.sources import ApplyOptions, OpenedBundle, Source, parts_of
from compilot.runtime.staleness import refuse_stale_bundle

HEED_SIGNALS_S = 0.1  # a signal that comes just before an endless wait begins would be heeded at its end


def bundle_source(
    path: Path, model: nn.Module | None, options: ApplyOptions, mark: Callable[[str], None], *, copy_of: str = ""
) -> Source:
    """The bundle, if it is trusted and fits; mark: told of each step that ends. copy_of: the one that it must be."""
    with open_bundle(path, options.trust) as bundle:
        _refuse_another(bundle, copy_of)
        refuse_stale_bundle(bundle, model, options.allow_stale)
        mark("open")
        folder = _checked_beside_imports(bundle)
        mark("verify")
    opened = _read(path, folder, bundle)
    folders = [folder / packed.folder if packed.folder else None for packed in opened.manifest.entries]
    return Source(opened.plan, parts_of(opened.plan, folders), partial(check_again, folder, opened.manifest), opened)


def _refuse_another(bundle: Bundle, copy_of: str) -> None:
    if copy_of and bundle.digest != copy_of:
        text = f"{bundle.path} is not the bundle any more that the copied model was started from"
        raise BundleError(f"{text}; call compilot.compile(model, bundle) with the model itself.")


def _checked_beside_imports(bundle: Bundle) -> Path:
    """Check and unpack the files in a thread (hashing needs no interpreter) while the engine and the rest are imported.

    What fails to be imported here fails again, and is told, when it is used. Ctrl-C must not wait, through the thread,
    for another process that unpacks.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="compilot-check") as pool, ExitStack() as at_the_end:
        at_the_end.callback(stop.set)
        checking = pool.submit(unpacked, bundle, stop)
        with suppress(Exception):
            from compilot.runtime import attachment, proving  # noqa: F401

            for engine in (bundle.manifest.engine, *bundle.manifest.engines[1:]):
                getattr(registry.load_half(engine), "import_engine", lambda: None)()
        while not checking.done():
            wait((checking,), timeout=HEED_SIGNALS_S)
        return checking.result()


def _read(path: Path, folder: Path, bundle: Bundle) -> OpenedBundle:
    plan = load_plan(folder / PLAN)
    if len(plan.entries) != len(bundle.manifest.entries):
        raise BundleError(f"{path} is not a usable bundle: plan and manifest have different entries. Pack it again.")
    return OpenedBundle(path, folder, plan, bundle.manifest, bundle.digest)


def opened_bundle(path: Path, trust: Trust) -> OpenedBundle:
    """A bundle that may be loaded, on disk, with nothing of it run: to look at its plan and its calls."""
    with open_bundle(path, trust) as bundle:
        return _read(path, unpacked(bundle), bundle)


class Example(NamedTuple):
    """A call that a bundle takes."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool


def example_call(path: Path, trust: Trust) -> Example:
    """The golden call of a bundle's first entry."""
    from compilot.runtime import golden

    opened = opened_bundle(path, trust)
    entry, packed = opened.entries[0]
    assert packed.golden is not None
    call = golden.rebuild_call(entry.guard, golden.read(opened.folder / packed.golden.inputs))
    return Example(call.args, call.kwargs, entry.guard.grad_enabled)
