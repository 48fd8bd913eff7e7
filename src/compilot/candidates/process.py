"""Knobs of the whole process, the same for every engine. In: a diagnosis. Out: knobs. Not covered: setting them."""

from __future__ import annotations

from compilot.engines.space import Acts, Knob, Need, Risk, Variation
from compilot.records import Diagnosis

DENORMALS = Knob(
    "flush_denormals",
    Acts.PROCESS,
    (None, True),
    "numbers too small to be normal are taken as zero",
    risk=Risk.NUMERICS,
    needs=(Need.DENORMALS,),
    variations=(
        Variation(
            True,
            "denormals as zero",
            "the model meets numbers too small to be normal, which many CPUs compute far more slowly",
        ),
    ),
)

MEMORY = Knob(
    "keep_memory",
    Acts.PROCESS,
    (None, True),
    "freed memory stays in the process: large activations are not mapped and unmapped at each call",
    needs=(Need.KEEPS_MEMORY,),
    variations=(
        Variation(
            True,
            "memory kept",
            "the best so far, with freed memory kept: large activations are not mapped and unmapped at each call",
        ),
    ),
)


def threads_knob(diagnosis: Diagnosis, callers: int = 1) -> Knob:
    """Other thread counts than the process has: one, half the cores, and an even share of them for each caller."""
    share = max(1, diagnosis.cores // callers)
    counts = sorted({1, diagnosis.cores // 2, diagnosis.cores, share} - {diagnosis.threads, 0})
    why = "less waiting of threads for each other"
    whys = {n: why if callers == 1 or n > share else f"leaves cores to the other {callers - 1} callers" for n in counts}
    tried = tuple(
        Variation(
            n, f"{n} thread{'s' if n > 1 else ''}", f"the best so far with {n} of {diagnosis.cores} cores: {whys[n]}"
        )
        for n in counts
    )
    return Knob("threads", Acts.PROCESS, (None, *counts), why, variations=tried)


def fewer_threads_knob(diagnosis: Diagnosis, callers: int) -> Knob:
    """Only an even share of the cores and one: under several callers even eager may be best with so few."""
    most = min(max(1, diagnosis.cores // callers), diagnosis.threads - 1)
    knob = threads_knob(diagnosis, callers)
    fewer = tuple(
        v._replace(rationale=f"{v.value} of {diagnosis.cores} cores per call: leaves cores to the other callers")
        for v in knob.variations or ()
        if isinstance(v.value, int) and v.value <= most
    )
    return knob._replace(variations=fewer)
