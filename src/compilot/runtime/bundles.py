"""Bundles in the user's process: verify, load, run the golden calls, ready.

In: a bundle and, where there is one, the user's model. Out: a Fast that has already given one right answer per entry;
its `startup` says what each step took. `start` is the whole story; its steps are in artifacts/ (trust, digests,
unpacking), staleness.py (machine and model), attachment.py (engines) and proving.py (golden calls). Covered: bundles
whose files are all there is (`load`), and bundles for a model (`compile`). Not covered: packing (tuning plane),
fetching (stores).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from compilot._collector import no_collector
from compilot.artifacts.bundle import PLAN, Bundle, open_bundle
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.unpack import unpacked
from compilot.artifacts.vouching import Trust
from compilot.engines import registry
from compilot.errors import BundleError
from compilot.records import BundleEntry, Manifest, Plan, PlanEntry, Weights
from compilot.runtime.staleness import refuse_stale

if TYPE_CHECKING:
    from compilot.runtime.fast import Fast

HEED_SIGNALS_S = 0.1  # a signal that comes just before an endless wait begins would be heeded at its end


class Options(NamedTuple):
    """What the user says about a bundle besides its path."""

    trust: Trust
    allow_stale: bool = False
    keep_model: bool = True
    plain_outputs: bool = False
    inplace: bool = False
    check_indices: bool = True
    strict_weights: bool = False


class Opened(NamedTuple):
    """A bundle whose every file is checked, on disk."""

    path: Path  # what the user gave
    folder: Path  # where its files are
    plan: Plan
    manifest: Manifest
    digest: str  # the bundle's identity

    @property
    def entries(self) -> list[tuple[PlanEntry, BundleEntry]]:
        """What the plan and what the manifest say about each entry."""
        return list(zip(self.plan.entries, self.manifest.entries, strict=True))


class Clock:
    """How long each step of the start took."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, step: str) -> None:
        """The step that ends now."""
        now = time.perf_counter()
        self.steps[step] = now - self._last
        self._last = now


def load(
    path: str | os.PathLike[str],
    *,
    trusted_keys: Sequence[str | os.PathLike[str]] = (),
    require_signature: bool = False,
    allow_stale: bool = False,
    plain_outputs: bool = False,
    check_indices: bool = True,
) -> Fast:
    """The bundle's model without a model object; every call that it does not take raises NoFallback.

    check_indices=False saves the look at the values of inputs that are used as indices: see compilot.compile.
    """
    trust = Trust(trusted_keys, require_signature)
    options = Options(trust, allow_stale=allow_stale, plain_outputs=plain_outputs, check_indices=check_indices)
    return start(None, Path(path), options)


def start(model: nn.Module | None, path: Path, options: Options, *, copy_of: str = "") -> Fast:
    """Open, verify, load, run the golden calls; raises where any of it fails. The model's class is changed last."""
    clock = Clock()
    with no_collector(), _undone_on_failure(model) as keep_weights:
        with open_bundle(path, options.trust) as bundle:
            _refuse_another(bundle, copy_of)
            refuse_stale(bundle, model, options.allow_stale)
            clock.mark("open")
            folder = _checked_beside_imports(bundle)
            clock.mark("verify")
        from compilot.runtime import attaching, proving  # here: imported while the files were checked

        opened = _read(path, folder, bundle)
        if model is not None and opened.manifest.weights is Weights.CARRIED and not copy_of:
            keep_weights()
            attaching.give_weights(model, folder)
        fast = attaching.attach_bundle(model, opened, options)
        clock.mark("load")
        proving.prove(fast, opened, by_model=bool(copy_of))  # a copy's weights may have changed since
        clock.mark("golden call")
    fast = attaching.hand_over(fast, model, opened, options)
    fast.startup.update(clock.steps)
    return fast


def start_again(model: nn.Module, path: Path, digest: str, options: Options) -> Fast:
    """What copies and pickles of a Fast are made with: the same bundle, started anew for the copied model."""
    return start(model, path, options, copy_of=digest)


def _refuse_another(bundle: Bundle, copy_of: str) -> None:
    if copy_of and bundle.digest != copy_of:
        text = f"{bundle.path} is not the bundle any more that the copied model was started from"
        raise BundleError(f"{text}; call compilot.compile(model, bundle) with the model itself.")


@contextmanager
def _undone_on_failure(model: nn.Module | None) -> Iterator[Callable[[], None]]:
    """Whatever fails on the way, the user's model has afterwards the weights that were kept."""
    kept: dict[str, torch.Tensor] = {}

    def keep_weights() -> None:
        if model is not None:
            kept.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})

    try:
        yield keep_weights
    except BaseException:
        if model is not None and kept:
            model.load_state_dict(kept)
        raise


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
            from compilot.runtime import attaching, proving  # noqa: F401

            getattr(registry.load_half(bundle.manifest.engine), "import_engine", lambda: None)()
        while not checking.done():
            wait((checking,), timeout=HEED_SIGNALS_S)
        return checking.result()


def _read(path: Path, folder: Path, bundle: Bundle) -> Opened:
    plan = load_plan(folder / PLAN)
    if len(plan.entries) != len(bundle.manifest.entries):
        raise BundleError(f"{path} is not a usable bundle: plan and manifest have different entries. Pack it again.")
    return Opened(path, folder, plan, bundle.manifest, bundle.digest)


def opened_bundle(path: Path, trust: Trust) -> Opened:
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
