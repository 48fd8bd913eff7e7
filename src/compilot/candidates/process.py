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


def threads_knob(diagnosis: Diagnosis) -> Knob:
    """Other thread counts than the process has: one, and half the cores where that is more."""
    counts = sorted({1, diagnosis.cores // 2, diagnosis.cores} - {diagnosis.threads, 0})
    why = "less waiting of threads for each other"
    tried = tuple(
        Variation(n, f"{n} thread{'s' if n > 1 else ''}", f"the best so far with {n} of {diagnosis.cores} cores: {why}")
        for n in counts
    )
    return Knob("threads", Acts.PROCESS, (None, *counts), why, variations=tried)
