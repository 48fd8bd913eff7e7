"""Which bundle of a store fits this machine? Pure: fingerprints in, an order and words out.

In: index entries, this machine's fingerprint and, where it is known, the model's. Out: a Fit for each, those that may
run here first, the best one in front: fewest unproven differences, then the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilot.artifacts.store.layout import StoreEntry
from compilot.identity.differences import COMPILER, Difference, Severity, differences
from compilot.records import Fingerprint, MachineFingerprint, ModelFingerprint

MOST_REASONS = 3  # distinct ones that a sentence names


class Fit(NamedTuple):
    """How one bundle suits this machine."""

    entry: StoreEntry
    unsafe: tuple[Difference, ...]  # it would not be loaded here
    unproven: tuple[Difference, ...]  # right answers, speed measured elsewhere

    @property
    def ok(self) -> bool:
        return not self.unsafe


def rank(
    entries: Iterable[StoreEntry], machine: MachineFingerprint, model: ModelFingerprint | None = None
) -> list[Fit]:
    """Every entry with its fit, best first."""
    newest_first = sorted(entries, key=lambda entry: (entry.created, entry.sha256), reverse=True)
    fits = [_fit(entry, machine, model) for entry in newest_first]
    return sorted(fits, key=lambda fit: (len(fit.unsafe), len(fit.unproven)))


def none_fits(fits: Sequence[Fit]) -> str:
    """ "none fits: needs avx512_vnni, this has avx2"."""
    reasons = list(dict.fromkeys(_reason(fit) for fit in fits))
    more = f"; and {len(reasons) - MOST_REASONS} other reasons" if len(reasons) > MOST_REASONS else ""
    return f"none fits: {'; another '.join(reasons[:MOST_REASONS])}{more}"


def _fit(entry: StoreEntry, machine: MachineFingerprint, model: ModelFingerprint | None) -> Fit:
    here = Fingerprint(machine=machine, model=model or entry.fingerprint.model)
    found = differences(entry.fingerprint, here, {entry.engine, *entry.engines})
    found = [difference for difference in found if entry.needs_compiler or difference.field != COMPILER]
    unsafe = tuple(difference for difference in found if difference.severity is Severity.UNSAFE)
    return Fit(entry, unsafe, tuple(difference for difference in found if difference not in unsafe))


def _reason(fit: Fit) -> str:
    about_model = [difference for difference in fit.unsafe if difference.field.startswith("model.")]
    if about_model:
        return f"is for another model: {about_model[0].sentence.rstrip('.')}"
    needs, has = zip(*(_needs(difference) for difference in fit.unsafe), strict=True)
    return f"needs {' and '.join(needs)}, this has {' and '.join(has)}"


def _needs(difference: Difference) -> tuple[str, str]:
    """What the bundle needs and what is here, in as few words as can be."""
    name = difference.field.rpartition(".")[2]
    if name == "cpu_isa":
        old, new = set(difference.old.split()), set(difference.new.split())
        if old < new:
            return f"a CPU without {', '.join(sorted(new - old))}", "it"
        return ", ".join(sorted(old - new)), ", ".join(difference.new.split()) or "no vector instructions"
    return f"{name} {difference.old}", f"no {name}" if difference.new == "none" else f"{name} {difference.new}"
