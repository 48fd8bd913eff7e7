"""Which metrics there are, how much of a change counts, and how each is read from what the arms said.

In: `ArmFacts`. Out: figures. What does not depend on noise is a `Count`: compared exactly, with a growth that is
accepted where a small one means nothing. What does is a `Figure` of each process, for Student's t. Latency and
throughput come from the races (effects.py), numbers from answers (answers.py). Constants carry their reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from compilot.trials.protocol import ArmFacts

LATENCY, THROUGHPUT, NUMBERS, RUNS, MEMORY = "latency", "throughput", "numbers", "runs", "memory"
LATENCY_MARGIN = 0.03  # smaller slow-downs are not worth a red pull request
RULE_OUT = 0.10  # a pass must be able to exclude a slow-down of this much
# Added for stored times: a shared machine is another one an hour later. Here a server's capacity fell from 447 to 351
# requests per second within one (bench/LOG.md), and a second race now has the same stored figures to compare with.
OTHER_DAY = 0.25


class Figure(NamedTuple):
    """One noisy figure per process."""

    name: str
    unit: str
    read: Callable[[ArmFacts], float | None]
    margin: float
    rule_out: float
    floor: float  # the least spread that is believed, relative
    is_time: bool = True
    cold: bool = False  # only of processes that found no earlier build
    compiled: bool = False  # only of arms that compile


class Count(NamedTuple):
    """Something that is the same at every run of the same code."""

    name: str
    unit: str
    read: Callable[[ArmFacts], int | None]
    growth: float = 0.0  # relative, accepted
    is_portable: bool = True  # the same on every processor, with every torch and any number of threads


FIGURES = (
    # a start is mostly imports, whose files may be in the page cache or not
    Figure("startup", "s", lambda facts: facts.first_s or None, 0.25, 1.0, 0.05),
    # libraries are mapped as they are used; the model's own memory is what grows
    Figure(MEMORY, "bytes", lambda facts: float(facts.peak_rss_bytes) or None, 0.05, 0.25, 0.005, is_time=False),
    Figure(
        "compile-cpu", "s", lambda facts: facts.cpu_s or None, 0.25, 1.0, 0.05, is_time=True, cold=True, compiled=True
    ),
)
COUNTS = (
    Count("graph-breaks", "", lambda facts: facts.graph_breaks),
    Count("recompiles", "", lambda facts: facts.recompiles),
    Count("left-to-eager", "", lambda facts: facts.left_to_eager),
    Count("fallbacks", "", lambda facts: facts.fallbacks),
    # one kernel more is what a new layer brings: it is said, and red from a tenth on
    Count("kernels", "", lambda facts: facts.kernels, growth=0.10, is_portable=False),
    Count("compiler-runs", "", lambda facts: facts.compiler_runs, growth=0.10, is_portable=False),
    Count("artifact-bytes", "bytes", lambda facts: facts.artifact_bytes, growth=0.10, is_portable=False),
)
# What may be allowed to get worse. Throughput is its latency; a head that does not run is nothing to allow.
NAMES = (LATENCY, *(one.name for one in FIGURES), *(one.name for one in COUNTS), NUMBERS)
