"""Bundles in the user's process: verify, load, run the golden call, ready.

In: a bundle and, where there is one, the user's model. Out: a Fast that has already given one right answer; its
`startup` says what each step took. Refused with reasons: damaged or untrusted files (BundleError), another machine,
version, model or other weights (StaleBundle). Covered: bundles whose files are all there is (`load`), and bundles for
a model (`compile`). Not covered: packing (tuning plane), fetching (stores).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from compilot._collector import no_collector
from compilot.artifacts.bundle import PLAN, WEIGHTS, Bundle, open_bundle
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.unpack import unpacked
from compilot.artifacts.vouching import Trust
from compilot.engines import registry
from compilot.errors import BundleError, NoFallback, StaleBundle, first_cause
from compilot.identity.differences import COMPILER, Difference, Severity, differences, sentences
from compilot.identity.machine import machine_fingerprint
from compilot.records import BundleEntry, Fingerprint, Manifest, ModelFingerprint, Plan, PlanEntry, Weights

if TYPE_CHECKING:
    from compilot._tree import Call
    from compilot.runtime.fast import Fast


class Options(NamedTuple):
    """What the user says about a bundle besides its path."""

    trust: Trust
    allow_stale: bool = False
    keep_model: bool = True
    plain_outputs: bool = False
    inplace: bool = False


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
) -> Fast:
    """The bundle's model without a model object; every call that it does not take raises NoFallback."""
    trust = Trust(trusted_keys, require_signature)
    return start(None, Path(path), Options(trust, allow_stale=allow_stale, plain_outputs=plain_outputs))


def start(model: nn.Module | None, path: Path, options: Options) -> Fast:
    """Open, verify, load, run the golden call; raises where any of it fails."""
    clock = Clock()
    with no_collector(), _undone_on_failure(model) as keep_weights:
        with open_bundle(path, options.trust) as bundle:
            manifest = bundle.manifest
            _refuse_stale(bundle, model, options.allow_stale)
            clock.mark("open")
            folder = _checked_beside_imports(bundle)
            clock.mark("verify")
        plan = load_plan(folder / PLAN)
        _refuse_odd(path, plan, manifest)
        if model is not None and manifest.weights is Weights.CARRIED:
            keep_weights()
            _give_weights(model, folder)
        fast = _attach(model, path, folder, plan, manifest, options)
        clock.mark("load")
        for entry, packed in zip(plan.entries, manifest.entries, strict=True):
            _golden_call(fast, path, folder, entry, packed)
        clock.mark("golden call")
    fast.startup.update(clock.steps)
    return fast


@contextmanager
def _undone_on_failure(model: nn.Module | None) -> Iterator[Callable[[], None]]:
    """Whatever fails on the way, the user's model is afterwards as it was: its class, and its weights once kept."""
    kept: dict[str, torch.Tensor] = {}

    def keep_weights() -> None:
        if model is not None:
            kept.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})

    try:
        yield keep_weights
    except BaseException:
        if model is not None:
            from compilot.runtime.fast import restore

            restore(model)
            if kept:
                model.load_state_dict(kept)
        raise


def _checked_beside_imports(bundle: Bundle) -> Path:
    """Check and unpack the files in a thread (hashing needs no interpreter) while the engine and the rest are imported.

    What fails to be imported here fails again, and is told, when it is used.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="compilot-check") as pool:
        checking = pool.submit(unpacked, bundle)
        with suppress(Exception):
            from compilot.runtime import fast, golden, stand_in  # noqa: F401

            getattr(registry.load_half(bundle.manifest.engine), "import_engine", lambda: None)()
        return checking.result()


class Example(NamedTuple):
    """A call that a bundle takes."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool


def example_call(path: Path, trust: Trust) -> Example:
    """The golden call of a bundle's first entry."""
    from compilot.runtime import golden

    with open_bundle(path, trust) as bundle:
        folder, packed = unpacked(bundle), bundle.manifest.entries[0]
    entry = load_plan(folder / PLAN).entries[0]
    assert packed.golden is not None
    call = golden.rebuild_call(entry.guard, golden.read(folder / packed.golden.inputs))
    return Example(call.args, call.kwargs, entry.guard.grad_enabled)


def plan_in(path: Path) -> Plan:
    """The plan of a bundle that may be loaded."""
    with open_bundle(path, Trust()) as bundle:
        return load_plan(unpacked(bundle) / PLAN)


def _attach(
    model: nn.Module | None, path: Path, folder: Path, plan: Plan, manifest: Manifest, options: Options
) -> Fast:
    from compilot.engines.baked import OtherWeights
    from compilot.engines.protocol import Infeasible
    from compilot.runtime.fast import Part, Terms, attach_eager, attach_parts
    from compilot.runtime.process import tell_differing
    from compilot.runtime.stand_in import make_stand_in

    if model is None:
        _refuse_without_model(path, plan, manifest)
    if not plan.entries:
        assert model is not None
        return attach_eager(model, inplace=options.inplace)
    tell_differing(plan.entries[0].candidate.process)
    parts = tuple(
        Part(entry.candidate, entry.guard, folder / packed.folder if packed.folder else None)
        for entry, packed in zip(plan.entries, manifest.entries, strict=True)
    )
    terms = Terms(options.keep_model and model is not None, stand_in=model is None, plain_outputs=options.plain_outputs)
    whole = model if model is not None else make_stand_in(manifest, training=plan.entries[0].guard.training)
    try:
        return attach_parts(whole, parts, terms=terms, inplace=options.inplace)
    except OtherWeights as error:
        raise StaleBundle(f"{path} is stale: {error}.", (str(error),)) from error
    except Infeasible as error:
        raise BundleError(f"{path} cannot be loaded: {error}.") from error


def _give_weights(model: nn.Module, folder: Path) -> None:
    """The carried weights into the user's model: that is what carrying them is for."""
    from compilot.runtime import golden

    try:
        model.load_state_dict(golden.read(folder / WEIGHTS), strict=True)
    except RuntimeError as error:
        raise StaleBundle(f"the carried weights do not fit the model: {first_cause(error)}.") from error


def _refuse_odd(path: Path, plan: Plan, manifest: Manifest) -> None:
    if len(plan.entries) != len(manifest.entries):
        raise BundleError(f"{path} is not a usable bundle: plan and manifest have different entries. Pack it again.")


def _refuse_without_model(path: Path, plan: Plan, manifest: Manifest) -> None:
    if not plan.entries:
        text = "its plan keeps the model as it is, so the model itself is needed"
    elif not manifest.standalone:
        text = f"its engine, {manifest.engine}, runs the model's own code and weights"
    else:
        return
    raise NoFallback(f"{path} holds no whole model: {text}; call compilot.compile(model, {str(path)!r}).")


# ---------------------------------------------------------------------------------------------------------- staleness


def _refuse_stale(bundle: Bundle, model: nn.Module | None, allow_stale: bool) -> None:
    """StaleBundle with each difference that makes it unsafe; a warning for those that leave only the speed unproven."""
    found = machine_differences(bundle.manifest, model)
    unsafe = [one for one in found if one.severity is Severity.UNSAFE]
    if unsafe and not allow_stale:
        told = tuple(one.sentence for one in unsafe)
        text = f"{bundle.path} was packed for something else: {sentences(unsafe)}"
        raise StaleBundle(f"{text} Pack it here, or pull the bundle that fits this machine.", told)
    if found:
        from compilot.runtime.notices import warn

        warn(f"{bundle.path} was packed under other conditions, so its speed is unproven here: {sentences(found)}")


def machine_differences(manifest: Manifest, model: nn.Module | None = None) -> list[Difference]:
    """What is not as it was where the bundle was packed; the model is compared where there is one."""
    compiler = any(entry.needs_compiler for entry in manifest.entries)
    machine = machine_fingerprint(compiler=compiler)
    here = manifest.fingerprint.model if model is None else _fingerprint_of(model)
    found = differences(manifest.fingerprint, Fingerprint(machine=machine, model=here), set(manifest.engines))
    return [one for one in found if compiler or one.field != COMPILER]


def _fingerprint_of(model: nn.Module) -> ModelFingerprint:
    from compilot.identity.model import model_fingerprint

    return model_fingerprint(model)


# --------------------------------------------------------------------------------------------------------- golden call


def _golden_call(fast: Fast, path: Path, folder: Path, entry: PlanEntry, packed: BundleEntry) -> None:
    """One call whose answer is known; the variant it needs is ready afterwards."""
    from compilot.runtime import golden

    if packed.golden is None:
        return
    call = golden.rebuild_call(entry.guard, golden.read(folder / packed.golden.inputs))
    right = golden.read(folder / packed.golden.outputs)
    with torch.set_grad_enabled(entry.guard.grad_enabled):
        problem = golden.difference(packed.golden, _answer(fast, call, path), right)
    if problem is not None:
        raise BundleError(f"{path} gives a wrong answer to its golden call: {problem}. Pack it again on this machine.")


def _answer(fast: Fast, call: Call, path: Path) -> object:
    before = fast.stats()
    try:
        answer = fast(*call.args, **call.kwargs)
    except NoFallback as error:
        raise BundleError(f"{path} does not answer its golden call: {error}") from error
    if fast.stats().fast == before.fast and fast.stats().fallbacks:
        reason = next(iter(fast.stats().fallbacks))
        raise BundleError(f"{path} does not answer its golden call by its engine: {reason}.")
    return answer
