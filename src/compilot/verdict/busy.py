"""Is the machine too busy to measure on? The words for it, before the budget is spent and beside a verdict.

In: what other processes and the hypervisor took at the start (`MachineLoad`), how much eager varied against itself.
Out: yes or no, and sentences with what follows and what to do. Covered: thresholds with their reasons. Not covered:
looking at the machine (trials/load.py), the noise of a race (measure/noise.py). Pure.
"""

from __future__ import annotations

import msgspec

from compilot.records import Decision, MachineLoad, Outcome, Verdict
from compilot.verdict.words import NOISY

BUSY_SHARE = 0.25  # of one core used by others: from here on pairs are visibly disturbed
STEAL_SHARE = 0.05  # of one core taken by the hypervisor; a host that is merely shared takes 1 to 3 %
NEXT_STEP = "run again later; Ctrl-C ends this run, nothing is lost"


def is_busy(load: MachineLoad | None) -> bool:
    """Whether others take enough of a core to be seen, and enough of all cores to hide what a compiler usually gains.

    One process beside two cores is half of what we measure with; beside 64 cores it is lost in the noise.
    """
    if load is None:
        return False
    seen = load.others >= BUSY_SHARE or load.steal >= STEAL_SHARE
    return seen and smallest_shown(load) >= 1.0 + NOISY


def smallest_shown(load: MachineLoad) -> float:
    """The least ratio that can be told from who had the machine to itself: what comes and goes, of all there is."""
    return 1.0 + (load.others + load.steal) / max(1, load.cores)


def busy_note(load: MachineLoad) -> str:
    """What is the matter, what follows from it, and what to do."""
    step = f"stop them, or {NEXT_STEP}" if load.others >= BUSY_SHARE else NEXT_STEP
    return f"this machine is {busy_words(load)}; {step}"


def busy_words(load: MachineLoad) -> str:
    """What is the matter, and what follows from it."""
    return f"busy: {taken(load)}; {_hidden(smallest_shown(load))}"


def noisy_note(smallest: float) -> str:
    """The same where eager's own calls say it; smallest: the ratio that such samples could show."""
    return f"eager's own calls vary much on this machine now; {_hidden(smallest)}; {NEXT_STEP}"


def quiet_words(load: MachineLoad) -> str:
    """What is there to say of a machine that is not busy."""
    return f"quiet: {taken(load)}"


def taken(load: MachineLoad, *, past: bool = False) -> str:
    """ "other processes use 140 % of a core (python3, pid 812: 95 %)"."""
    use, take = ("used", "took") if past else ("use", "takes")
    parts = [f"other processes {use} {_share(load.others)}{_who(load, past=past)}"]
    if load.steal >= STEAL_SHARE:
        parts.append(f"the hypervisor {take} {_share(load.steal)}")
    return " and ".join(parts if load.others >= BUSY_SHARE else parts[1:] or parts)


def told_of_busy(verdict: Verdict, load: MachineLoad | None) -> Verdict:
    """Eager that was kept because nothing could be proven comes with the likely reason: others used the machine."""
    open_ = (Outcome.NO_DIFFERENCE, Outcome.UNDECIDED)
    unproven = verdict.decision is Decision.KEEP_EAGER and any(c.outcome in open_ for c in verdict.comparisons)
    if load is None or not unproven or not is_busy(load):
        return verdict
    step = "stop them and run again" if load.others >= BUSY_SHARE else "run again later"
    because = f"{verdict.because}; the machine was busy when the run began: {taken(load, past=True)}: {step}"
    return msgspec.structs.replace(verdict, because=because)


def _hidden(smallest: float) -> str:
    return f"differences below about {smallest:.1f}x cannot be shown now"


def _share(cores: float) -> str:
    return f"{cores * 100:.0f} % of a core"


def _who(load: MachineLoad, *, past: bool) -> str:
    """The busiest by name; a number only while it may still be theirs."""
    if load.others < BUSY_SHARE:
        return ""
    if not load.processes:
        return " (which ones cannot be seen from here)"
    names = [f"{one.name}{'' if past else f', pid {one.pid}'}: {one.share * 100:.0f} %" for one in load.processes]
    return f" ({'; '.join(names)})"
