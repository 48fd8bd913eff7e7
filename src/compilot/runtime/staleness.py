"""Does a plan or a bundle fit here? Asked after it is trusted and before any of its files is used.

In: a plan, or a bundle's manifest, and the user's model where there is one. Out: what differs from where it was made,
as sentences; StalePlan or StaleBundle for differences that make answers unsafe (versions, CPU instructions, model code,
baked-in weights), a warning for those that leave only the speed unproven (threads, cores, CPU model). Not covered:
which bundle of a store fits (artifacts/store).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from torch import nn

from compilot.artifacts.bundle import Bundle
from compilot.engines.of_candidate import engines_of
from compilot.errors import StaleBundle, StalePlan, UnprovenSpeedWarning
from compilot.identity.differences import Difference, Severity, differences, sentences
from compilot.identity.machine import machine_fingerprint
from compilot.records import Fingerprint, Manifest, ModelFingerprint, Plan, Weights


def refuse_stale_plan(plan: Plan, model: nn.Module, allow_stale: bool) -> None:
    """StalePlan with each difference that makes it unsafe; a warning for those that leave only the speed unproven."""
    from compilot.identity.model import model_fingerprint  # here, as below

    used = {name for entry in plan.entries for name in engines_of(entry.candidate)}
    now = Fingerprint(machine=machine_fingerprint(engines=used), model=model_fingerprint(model))
    found = differences(_in_own_process(plan, now), now, used)
    if (unsafe := _unsafe(found)) and not allow_stale:
        text = f"the plan is out of date: {sentences(unsafe)} Run 'compilot tune' here, or pass allow_stale=True."
        raise StalePlan(text, tuple(one.sentence for one in unsafe))
    _warn_unproven("the plan was measured", found)


def refuse_stale_bundle(bundle: Bundle, model: nn.Module | None, allow_stale: bool) -> None:
    """The same of a bundle: StaleBundle."""
    found = machine_differences(bundle.manifest, model)
    if (unsafe := _unsafe(found)) and not allow_stale:
        text = f"{bundle.path} was packed for something else: {sentences(unsafe)}"
        told = tuple(one.sentence for one in unsafe)
        raise StaleBundle(f"{text} Pack it here, or pull the bundle that fits this machine.", told)
    _warn_unproven(f"{bundle.path} was packed", found)


def _in_own_process(plan: Plan, now: Fingerprint) -> Fingerprint:
    """What the plan was made with; a thread count of its own is compared with the process's settings instead."""
    if plan.process.threads is None:
        return plan.fingerprint
    machine = msgspec.structs.replace(plan.fingerprint.machine, threads=now.machine.threads)
    return msgspec.structs.replace(plan.fingerprint, machine=machine)


def _unsafe(found: Sequence[Difference]) -> list[Difference]:
    return [one for one in found if one.severity is Severity.UNSAFE]


def _warn_unproven(made: str, found: Sequence[Difference]) -> None:
    if found:
        from compilot.runtime.notices import warn

        warn(f"{made} under other conditions, so its speed is unproven here: {sentences(found)}", UnprovenSpeedWarning)


def machine_differences(manifest: Manifest, model: nn.Module | None = None) -> list[Difference]:
    """What is not as it was where the bundle was packed; the model is compared where there is one."""
    compiler = any(entry.needs_compiler for entry in manifest.entries)
    used = {manifest.engine, *manifest.engines}
    machine = machine_fingerprint(compiler=compiler, engines=used)
    here = manifest.fingerprint.model if model is None else _fingerprint_of(model, manifest)
    return differences(manifest.fingerprint, Fingerprint(machine=machine, model=here), used, compiles=compiler)


def _fingerprint_of(model: nn.Module, manifest: Manifest) -> ModelFingerprint:
    """With the weights' values where an engine freezes the model's own; one with baked ones looks at them itself."""
    from compilot.identity.model import model_fingerprint  # here: a start without a model does not pay for it

    frozen = manifest.weights is Weights.MODEL and manifest.fingerprint.model.weights_sha256 is not None
    return model_fingerprint(model, weights=frozen)
