"""Which bundle of a store fits this machine? Pure: fingerprints in, an order and words out.

In: index entries of one model, this machine's fingerprint and, where it is known, the model's. Out: a Fit for each,
those that may run here first, the best one in front: the newest weights, then fewest unproven differences, then the
newest bundle. Weights are as old as the first bundle with them: packing old ones again does not make them new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilot.artifacts.store.layout import StoreEntry
from compilot.identity import isa
from compilot.identity.differences import WEIGHTS, Difference, Severity, differences
from compilot.records import BUNDLE_SCHEMA, Fingerprint, MachineFingerprint, ModelFingerprint

MOST_REASONS = 3  # distinct ones that a sentence names
WEIGHTS_DIGITS = 12  # of a digest of weights that are shown
SCHEMA = "bundle.schema"
OF_ALL_ENGINES = {"machine.torch", "machine.python", "machine.platform", "machine.gpu"}  # no engine does without


class Fit(NamedTuple):
    """How one bundle suits this machine."""

    entry: StoreEntry
    unsafe: tuple[Difference, ...]  # it would not be loaded here
    unproven: tuple[Difference, ...]  # right answers, speed measured elsewhere
    note: str = ""  # what else could have been chosen
    because: str = ""  # why it was

    @property
    def ok(self) -> bool:
        return not self.unsafe


def rank(
    entries: Iterable[StoreEntry], machine: MachineFingerprint, model: ModelFingerprint | None = None
) -> list[Fit]:
    """Every entry with its fit, best first."""
    newest_first = sorted(entries, key=lambda entry: (entry.created, entry.sha256), reverse=True)
    ages = {weights: age for age, weights in enumerate(weights_by_age(newest_first))}
    fits = [_fit(entry, machine, model) for entry in newest_first]
    return sorted(fits, key=lambda fit: (len(fit.unsafe), ages.get(fit.entry.weights, 0), len(fit.unproven)))


def rules_all_out(entry: StoreEntry, machine: MachineFingerprint) -> bool:
    """Whether no bundle that was made where this one was can run here, whatever engine it has."""
    here = Fingerprint(machine=machine, model=entry.fingerprint.model)
    found = differences(entry.fingerprint, here, (), compiles=False)
    unsafe = {difference.field for difference in found if difference.severity is Severity.UNSAFE}
    lacking = isa.at_run_time(entry.fingerprint.machine.cpu_isa) - isa.at_run_time(machine.cpu_isa)
    return bool(unsafe & OF_ALL_ENGINES or lacking)


def about_weights(newest_first: Sequence[str], chosen: Fit) -> str:
    """Which weights the chosen one has, where bundles of one model have several; "" where there is no choice.

    newest_first: the beginnings of the digests of all of them.
    """
    ages, taken = [one[:WEIGHTS_DIGITS] for one in newest_first], chosen.entry.weights[:WEIGHTS_DIGITS]
    if not taken or len(ages) < 2:
        return ""
    newer = ages[: ages.index(taken)]
    rank = f"no bundle with the newer {', '.join(newer)} can be used here" if newer else "the newest"
    others = ", ".join(one for one in ages if one != taken)
    words = f"bundles of this model have different weights; this one has {taken}, {rank}"
    return f"{words}. Others: {others}; to have one of them, name it as the model"


def chosen_because(fit: Fit, seen: int) -> str:
    """Why this one was taken; seen: how many bundles of the model are there."""
    near = "made on a machine like this one" if not fit.unproven else f"{len(fit.unproven)} differences, none unsafe"
    return near if seen == 1 else f"{near}; the best fit of {seen} bundles of this model"


def weights_by_age(entries: Iterable[StoreEntry]) -> list[str]:
    """The sets of weights that bundles are bound to, the newest first."""
    first: dict[str, str] = {}
    for entry in entries:
        if entry.weights:
            first[entry.weights] = min(entry.created, first.get(entry.weights, entry.created))
    return sorted(first, key=lambda weights: (first[weights], weights), reverse=True)


def none_fits(fits: Sequence[Fit]) -> str:
    """ "none fits: needs avx512_vnni, this has avx2"."""
    reasons = list(dict.fromkeys(_reason(fit) for fit in fits))
    more = f"; and {len(reasons) - MOST_REASONS} other reasons" if len(reasons) > MOST_REASONS else ""
    return f"none fits: {'; another '.join(reasons[:MOST_REASONS])}{more}"


def machine_line(machine: MachineFingerprint) -> str:
    """The line that asks a fleet for bundles of machines like this one, for [machines] of its manifest."""
    cpu = re.sub(r"\((?:R|TM)\)|\bCPU\b|@.*", " ", machine.gpu or machine.cpu_model)
    words = "-".join(re.findall(r"[a-z0-9]+", cpu.lower()))
    facts = {"cpu": json.dumps(machine.cpu_model), "cores": machine.cores}
    facts |= {"gpu": json.dumps(machine.gpu)} if machine.gpu else {}
    told = ", ".join(f"{name} = {value}" for name, value in facts.items())
    return f"{words or 'machine'}-{machine.cores} = {{ {told} }}"


def _fit(entry: StoreEntry, machine: MachineFingerprint, model: ModelFingerprint | None) -> Fit:
    here = Fingerprint(machine=machine, model=model or entry.fingerprint.model)
    found = differences(entry.fingerprint, here, {entry.engine, *entry.engines}, compiles=entry.needs_compiler)
    found = [difference for difference in found if not (entry.carries_weights and difference.field == WEIGHTS)]
    found += _schema(entry)
    unsafe = tuple(difference for difference in found if difference.severity is Severity.UNSAFE)
    return Fit(entry, unsafe, tuple(difference for difference in found if difference not in unsafe))


def _schema(entry: StoreEntry) -> list[Difference]:
    """A bundle of another schema would be refused when it is opened, so it is not even fetched."""
    if entry.bundle_schema == BUNDLE_SCHEMA:
        return []
    words = f"it has bundle schema {entry.bundle_schema}, this compilot reads {BUNDLE_SCHEMA}."
    return [Difference(SCHEMA, str(entry.bundle_schema), str(BUNDLE_SCHEMA), Severity.UNSAFE, words)]


def _reason(fit: Fit) -> str:
    schema = next((difference for difference in fit.unsafe if difference.field == SCHEMA), None)
    if schema is not None:
        return schema.sentence.removeprefix("it ").rstrip(".")
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
            return f"a CPU without {isa.named(isa.at_run_time(new - old))}", "it"
        return isa.named(old - new), isa.best(new)
    return f"{name} {difference.old}", f"no {name}" if difference.new == "none" else f"{name} {difference.new}"
