"""May two machines share the candidates of one model? In: what each is, and eager's times there. Out: yes or why not.

Candidates of one model are tried on several nodes only where the fingerprints are equal (machine and model) and eager
against itself across the nodes shows no difference that could reorder them. Each candidate is compared with eager on
its own node, so a node that is a little slower as a whole does no harm; races and confirmations stay on one node.
Pure: samples in, an interval and a sentence out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compilot.records import Fingerprint, MachineFingerprint, Trial

LIMIT = 1.10  # screening pairs scatter by 18 % each: a machine within 10 % sorts candidates as the first one does
FEWEST_CALLS = 5
DRAWS = 400
KIND = ("torch", "python", "platform", "cpu_model", "cpu_isa", "cores", "gpu")  # known before a model is opened
TOLD = 2  # differences that are named


class Likeness(NamedTuple):
    """Whether a node may take candidates."""

    used: bool
    because: str
    low: float | None = None  # eager's time there over eager's time on the first node, 95 % interval
    high: float | None = None


def likeness(first: Fingerprint, first_eager: Trial, other: Fingerprint, other_eager: Trial) -> Likeness:
    """Of another node, beside the first one."""
    if first != other:
        return Likeness(False, f"its fingerprint is another one ({machine_words(first.machine, other.machine)})")
    interval = ratio_interval(_calls(first_eager), _calls(other_eager))
    if interval is None:
        return Likeness(False, "too few calls of eager to compare it with the first node")
    low, high = interval
    alike = low >= 1 / LIMIT and high <= LIMIT
    seen = f"eager takes {low:.2f} to {high:.2f} times as long as on the first node"
    apart = "" if alike else f", which may be more than {100 * (LIMIT - 1):.0f} % apart"
    return Likeness(alike, seen + apart, low, high)


def same_kind(one: MachineFingerprint, other: MachineFingerprint) -> bool:
    """Whether two nodes are worth comparing."""
    return all(getattr(one, field) == getattr(other, field) for field in KIND)


def machine_words(first: MachineFingerprint, other: MachineFingerprint) -> str:
    """How another machine differs from the first one, for people."""
    fields = [field for field in first.__struct_fields__ if getattr(first, field) != getattr(other, field)]
    told = [f"{field.replace('_', ' ')} {getattr(other, field)} instead of {getattr(first, field)}" for field in fields]
    return "; ".join(told[:TOLD]) or "the model is not the same there"


def ratio_interval(first: Sequence[float], other: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """95 % interval of the ratio of medians, other over first; None: too few samples."""
    if min(len(first), len(other)) < FEWEST_CALLS:
        return None
    random = np.random.default_rng(seed)
    medians = [
        np.median(random.choice(np.asarray(calls), size=(DRAWS, len(calls))), axis=1) for calls in (first, other)
    ]
    low, high = np.quantile(medians[1] / medians[0], [0.025, 0.975])
    return float(low), float(high)


def _calls(eager: Trial) -> tuple[float, ...]:
    return eager.measurement.call_s if eager.measurement is not None else ()
