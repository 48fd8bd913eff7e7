"""When a machine is too busy to measure on, and how that is said."""

from __future__ import annotations

import pytest

from compilot.engines.eager.build import EAGER
from compilot.records import BusyProcess, Comparison, Decision, MachineLoad, Outcome, Verdict
from compilot.verdict.busy import busy_note, is_busy, noisy_note, quiet_words, smallest_shown, told_of_busy

HOG = BusyProcess(name="python3", pid=812, share=0.95)
BUSY = MachineLoad(others=1.0, cores=2, processes=(HOG,))
STOLEN = MachineLoad(others=0.01, steal=0.3, cores=2)


@pytest.mark.parametrize(
    ("load", "busy"),
    [
        (None, False),
        (MachineLoad(others=0.0, cores=2), False),
        (MachineLoad(others=0.2, steal=0.02, cores=2), False),  # a desktop, a shared host
        (MachineLoad(others=0.3, cores=2), True),
        (MachineLoad(others=1.0, cores=64), False),  # lost among so many cores
        (MachineLoad(others=20.0, cores=64), True),
        (MachineLoad(others=0.0, steal=0.2, cores=2), True),
        (MachineLoad(others=0.0, steal=0.06, cores=8), False),
    ],
)
def test_what_is_busy(load: MachineLoad | None, busy: bool) -> None:
    assert is_busy(load) is busy


def test_the_note_has_the_share_the_names_what_follows_and_the_next_step() -> None:
    assert busy_note(BUSY) == (
        "this machine is busy: other processes use 100 % of a core (python3, pid 812: 95 %); "
        "differences below about 1.5x cannot be shown now; "
        "stop them, or run again later; Ctrl-C ends this run, nothing is lost"
    )
    assert smallest_shown(BUSY) == 1.5


def test_processes_that_cannot_be_seen_are_said_to_be_unseen() -> None:
    assert "use 80 % of a core (which ones cannot be seen from here);" in busy_note(MachineLoad(others=0.8, cores=2))


def test_nobody_can_stop_a_hypervisor() -> None:
    note = busy_note(STOLEN)
    assert note.startswith("this machine is busy: the hypervisor takes 30 % of a core; ")
    assert "stop them" not in note
    assert "run again later; Ctrl-C" in note


def test_both_are_said_where_both_are_so() -> None:
    both = MachineLoad(others=0.5, steal=0.3, cores=2, processes=(HOG,))
    assert ": 95 %) and the hypervisor takes 30 % of a core; differences below about 1.4x " in busy_note(both)


def test_other_words() -> None:
    assert quiet_words(MachineLoad(others=0.03, cores=2)) == "quiet: other processes use 3 % of a core"
    assert noisy_note(2.44).startswith("eager's own calls vary much on this machine now; differences below about 2.4x ")


def verdict(outcome: Outcome, decision: Decision = Decision.KEEP_EAGER) -> Verdict:
    seen = Comparison(
        candidate_id="x",
        baseline_id=EAGER.id,
        ratio=1.2,
        low=0.9,
        high=1.5,
        outcome=outcome,
        margin=0.2,
        mde=0.3,
        aa_noise=0.2,
        processes=3,
        pairs=20,
    )
    return Verdict(decision=decision, chosen_id=EAGER.id, because="not proven", comparisons=(seen,))


@pytest.mark.parametrize("outcome", [Outcome.NO_DIFFERENCE, Outcome.UNDECIDED])
def test_what_was_not_proven_on_a_busy_machine_says_so(outcome: Outcome) -> None:
    assert told_of_busy(verdict(outcome), BUSY).because == (
        "not proven; the machine was busy when the run began: "
        "other processes used 100 % of a core (python3: 95 %): stop them and run again"
    )
    assert told_of_busy(verdict(outcome), STOLEN).because.endswith("took 30 % of a core: run again later")


@pytest.mark.parametrize(
    ("seen", "load"),
    [
        (verdict(Outcome.NO_DIFFERENCE), MachineLoad(others=0.1, cores=2)),
        (verdict(Outcome.NO_DIFFERENCE), None),
        (verdict(Outcome.SLOWER), BUSY),  # that was shown all the same
        (verdict(Outcome.FASTER, Decision.USE), BUSY),
    ],
)
def test_nothing_is_added_where_it_explains_nothing(seen: Verdict, load: MachineLoad | None) -> None:
    assert told_of_busy(seen, load) is seen
