"""Do earlier runs help? Leave one model out: would what the others taught have found its winner sooner?

    python bench/prior.py RUN_DIR... [--regret JOURNAL] [--take-features] [--out FILE]

For each model the search is played again twice, with the usual order and with the order that the other models' runs
suggest; its own runs are left out. Every answer comes from the recorded trials, with the seconds that they took;
nothing is measured here. What was not recorded is passed over and costs nothing. The result is the seconds of trials
until the final winner (the fastest at the screening) was first tried, and until the first candidate within 1 % of it: a
winner by less is a matter of luck. The prior ships switched on only if the sum over the models is smaller with it.
--regret: a journal of bench/regret.py, whose trials are exhaustive. --take-features: take those of bench/engines.py's
models now where a journal has none (on a quiet machine: it runs each model).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compilot.candidates import worth
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.past import PastRun, past_trials
from compilot.candidates.prior import Prior, Recalled
from compilot.engines.eager.build import EAGER
from compilot.records import (
    Diagnosis,
    Expectation,
    Fingerprint,
    MachineFingerprint,
    ModelFingerprint,
    State,
    Trial,
)
from prior_cases import Case, from_folders, from_regret, usable, with_features

CLOSE = 0.01  # of log speed-up behind the winner: nobody would notice
HERE = MachineFingerprint(  # all cases are of one machine
    torch="", python="", platform="", glibc="", cpu_model="", cpu_isa=(), cores=1, threads=1
)


class Endless(NamedTuple):
    """A budget that does not end."""

    remaining_s: float = float("inf")


class Played(NamedTuple):
    """How one search went; None: it asked for no such candidate."""

    winner_s: float | None
    close_s: float | None
    expected: Expectation | None


class Row(NamedTuple):
    """One model."""

    model: str
    trials: int
    winner: str  # label
    engine: str  # of the winner
    usual: Played
    learned: Played


def rows(cases: Mapping[str, Case]) -> list[Row]:
    """Each model with the others' runs; a model for which nothing was faster than eager has no winner to find."""
    return [row(name, cases) for name in cases if winner_of(cases[name].trials) is not None]


def row(name: str, cases: Mapping[str, Case]) -> Row:
    """One model against all others."""
    case = cases[name]
    winner = winner_of(case.trials)
    assert winner is not None  # the caller has looked
    others = [as_past(other, *cases[other]) for other in cases if other != name]
    return Row(
        model=name,
        trials=len({trial.candidate.id for trial in case.trials if not trial.candidate.is_eager}),
        winner=winner.candidate.label,
        engine=winner.candidate.settings.engine,
        usual=play(name, case, winner, []),
        learned=play(name, case, winner, others),
    )


def winner_of(trials: Sequence[Trial]) -> Trial | None:
    """The fastest at the screening; None: nothing was faster than eager."""
    able = [trial for trial in trials if not trial.candidate.is_eager and (worth.speed(trial) or 0.0) > 0.0]
    return max(able, key=lambda trial: worth.speed(trial) or 0.0, default=None)


def as_past(name: str, diagnosis: Diagnosis, trials: Sequence[Trial]) -> PastRun:
    """A model's trials as a run that later ones remember."""
    assert diagnosis.features is not None  # `usable` has looked
    return PastRun(
        label=name, model=name, machine=HERE, callers=1, features=diagnosis.features, trials=past_trials(trials)
    )


def play(name: str, case: Case, winner: Trial, others: Sequence[PastRun]) -> Played:
    """One search over the recorded trials."""
    prior = Prior(lambda: Recalled(others))
    expected = prior.begin(Fingerprint(machine=HERE, model=_model(name)), case.diagnosis)
    search = GuidedSearch(prior=prior)
    search.begin(case.diagnosis)
    known = {trial.candidate.id: trial for trial in case.trials}
    search.tell(known.get(EAGER.id) or Trial(candidate=EAGER, state=State.OK, reason="not recorded"))
    enough = (worth.speed(winner) or 0.0) - CLOSE
    spent, close_s = 0.0, None
    while jobs := search.ask(1, Endless()):
        trial = known.get(jobs[0].id)
        if trial is None:
            continue  # nobody knows how it would have gone
        spent += trial.wall_s
        search.tell(trial)
        if close_s is None and (worth.speed(trial) or 0.0) >= enough:
            close_s = spent
        if trial.candidate.id == winner.candidate.id:
            return Played(spent, close_s, expected)
    return Played(None, close_s, expected)


def _model(name: str) -> ModelFingerprint:
    return ModelFingerprint(
        class_name=name,
        code_sha256=name,
        structure_sha256="",
        parameters_sha256="",
        parameter_count=0,
        parameter_bytes=0,
    )


# ----------------------------------------------------------------------------------------------------------- the table


def table(found: Sequence[Row]) -> str:
    """One line per model, and the sums over those whose winner both searches ask for."""
    lines = [
        "| model | trials | winner | to it, usual s | learned s | within 1 %, usual s | learned s | suggested |",
        "|---|---:|---|---:|---:|---:|---:|---|",
    ]
    for one in found:
        times = (one.usual.winner_s, one.learned.winner_s, one.usual.close_s, one.learned.close_s)
        cells = " | ".join("not asked for" if s is None else f"{s:.1f}" for s in times)
        lines.append(f"| {one.model} | {one.trials} | {one.winner} | {cells} | {_suggested(one)} |")
    both = [one for one in found if one.usual.winner_s is not None and one.learned.winner_s is not None]
    sums = [sum(getattr(getattr(one, who), what) for one in both) for what, who in COLUMNS]
    lines.append(f"| **all {len(both)}** | | | {' | '.join(f'**{s:.1f}**' for s in sums)} | |")
    return "\n".join([*lines, "", conclusion(both, len(found))])


COLUMNS = (("winner_s", "usual"), ("winner_s", "learned"), ("close_s", "usual"), ("close_s", "learned"))


def conclusion(both: Sequence[Row], models: int) -> str:
    """Whether there is a gain, and how many models it is from."""
    usual, learned = (sum(getattr(one, who).winner_s for one in both) for who in ("usual", "learned"))
    sooner = sum(one.learned.winner_s < one.usual.winner_s for one in both)  # type: ignore[operator]
    later = sum(one.learned.winner_s > one.usual.winner_s for one in both)  # type: ignore[operator]
    share = f"{learned / usual:.2f} of the usual seconds" if usual else "nothing to compare"
    gain = "a gain" if learned < usual else "no gain"
    return f"Learned order: {share} ({gain}); sooner on {sooner}, later on {later}, of {models} models."


def _suggested(one: Row) -> str:
    expected = one.learned.expected
    if expected is None:
        return "nothing: no model is alike"
    right = "right" if expected.suggested == one.engine else "wrong"
    return f"{expected.suggested}: {right} ({', '.join(expected.nearest)})"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUN_DIR")
    parser.add_argument("--regret", type=Path, help="a journal of bench/regret.py")
    parser.add_argument("--take-features", action="store_true", help="of bench/engines.py's models, now")
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args(argv)
    cases = from_folders(options.folders) | (from_regret(options.regret) if options.regret else {})
    cases = usable(with_features(cases) if options.take_features else cases)
    text = table(rows(cases))
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
