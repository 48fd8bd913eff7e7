"""How busy the machine was, as one record. In: what a look at other processes found, and how much eager varied.

Out: a SeenLoad, as `tune --json`, `bench --json` and `env --json` print it, and its words. Light to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilot.records import BusyProcess, MachineLoad, Record

if TYPE_CHECKING:
    from compilot.measure.scatter import Scatter


class SeenLoad(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What others did with the machine when the run began, in shares of one core, and how much eager varied."""

    busy: bool  # too much for small differences to be shown
    others: float | None = None  # used by processes that are not ours; None: not known
    steal: float | None = None  # taken by the hypervisor
    cores: int | None = None  # that this process may use
    processes: tuple[BusyProcess, ...] = ()  # the busiest, as far as they may be seen
    eager_noise: float | None = None  # of eager's own calls; None: not measured
    smallest_shown: float | None = None  # ratio, about, below which no difference can be shown; None: no such limit


def seen_load(load: MachineLoad | None, own: Scatter | None = None) -> SeenLoad | None:
    """The record; None: neither is known."""
    from compilot.verdict.busy import is_busy, smallest_shown
    from compilot.verdict.words import NOISY

    if load is None and own is None:
        return None
    busy = is_busy(load)
    least = [smallest_shown(load)] if load is not None and busy else []
    least += [own.smallest] if own is not None and own.noise > NOISY else []
    return SeenLoad(
        busy=busy,
        others=load.others if load else None,
        steal=load.steal if load else None,
        cores=load.cores if load else None,
        processes=load.processes if load else (),
        eager_noise=own.noise if own else None,
        smallest_shown=max(least, default=None),
    )


def load_words(seen: SeenLoad | None) -> str:
    """Whether others use the machine now, as a run would say it."""
    from compilot.verdict.busy import busy_words, quiet_words

    if seen is None or seen.others is None:
        return "not known: this machine does not say what other processes use"
    load = MachineLoad(others=seen.others, steal=seen.steal or 0.0, cores=seen.cores or 1, processes=seen.processes)
    return busy_words(load) if seen.busy else quiet_words(load)
