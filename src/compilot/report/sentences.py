"""The honest sentence of any arm. In: RunData and one of its trials. Out: one sentence, as a plan would carry it.

Covered: arms that nobody decided on (`compilot bench`), and arms that failed. Figures come from the proving race.
"""

from __future__ import annotations

import statistics

from compilot.records import BreakEven, Evidence, State, Trial
from compilot.report.data import RunData, best_race, column, comparison
from compilot.verdict.breakeven import break_even
from compilot.verdict.plan import honest_sentence


def arm_sentence(data: RunData, trial: Trial) -> str:
    """What can honestly be said about one arm against eager."""
    found = comparison(data, trial.candidate.id)
    if trial.state is not State.OK or found is None:
        row = next(row for row in data.rows if row["id"] == trial.candidate.id)
        return f"{trial.state.value}: {row['note']}" if trial.state is not State.OK else "not compared with eager."
    row = next(row for row in data.rows if row["id"] == trial.candidate.id)
    evidence = Evidence(
        versus_eager=found[0],
        cold_s=row["cold_s"],
        warm_s=row["warm_s"],
        break_even=_break_even(data, trial, row["warm_s"]),
        candidates_tried=sum(not t.candidate.is_eager for t in data.trials.values()),
        tolerance=trial.check.tolerance if trial.check else None,
        relative_error=trial.check.relative_error if trial.check else None,
    )
    return honest_sentence(evidence, data.header.fingerprint.machine, trial.candidate)


def _break_even(data: RunData, trial: Trial, warm_s: float | None) -> BreakEven | None:
    eager = next((t for t in data.trials.values() if t.candidate.is_eager), None)
    race = best_race(data, trial.candidate.id)  # the one that the speed-up comes from
    if eager is None or race is None or eager.measurement is None or trial.measurement is None:
        return None
    eager_s, own_s = (statistics.median(column(race, i)) for i in (0, race.arms.index(trial.candidate.id)))
    return break_even(eager_s, own_s, trial.measurement.cold_s, warm_s, eager.measurement.cold_s)
