"""Does a bundle fit here? Asked after it is trusted and before any of its files is used.

In: a bundle's manifest and, where there is one, the user's model. Out: what differs from where it was packed, as
sentences; StaleBundle for differences that make answers unsafe (versions, CPU instructions, model code, baked-in
weights), a warning for those that leave only the speed unproven (threads, cores, CPU model). Not covered: plans
(apply.py), which bundle of a store fits (artifacts/store).
"""

from __future__ import annotations

from torch import nn

from compilot.artifacts.bundle import Bundle
from compilot.errors import StaleBundle
from compilot.identity.differences import Difference, Severity, differences, sentences
from compilot.identity.machine import machine_fingerprint
from compilot.records import Fingerprint, Manifest, ModelFingerprint, Weights


def refuse_stale(bundle: Bundle, model: nn.Module | None, allow_stale: bool) -> None:
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
    used = {manifest.engine, *manifest.engines}
    machine = machine_fingerprint(compiler=compiler, engines=used)
    here = manifest.fingerprint.model if model is None else _fingerprint_of(model, manifest)
    return differences(manifest.fingerprint, Fingerprint(machine=machine, model=here), used, compiles=compiler)


def _fingerprint_of(model: nn.Module, manifest: Manifest) -> ModelFingerprint:
    """With the weights' values where an engine freezes the model's own; one with baked ones looks at them itself."""
    from compilot.identity.model import model_fingerprint  # here: a start without a model does not pay for it

    frozen = manifest.weights is Weights.MODEL and manifest.fingerprint.model.weights_sha256 is not None
    return model_fingerprint(model, weights=frozen)
