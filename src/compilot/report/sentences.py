"""The honest sentence of any arm. In: RunData and one of its trials. Out: one sentence, as a plan would carry it.

Covered: arms that nobody decided on (`compilot bench`), and arms that failed. Figures come from the proving race.
"""

from __future__ import annotations

from compilot.records import Evidence, State, Trial
from compilot.report.data import RunData, comparison, paid_back
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
        callers=data.header.concurrency,
        cold_s=row["cold_s"],
        warm_s=row["warm_s"],
        break_even=paid_back(data, trial),
        candidates_tried=sum(not t.candidate.is_eager for t in data.trials.values()),
        tolerance=trial.check.tolerance if trial.check else None,
        relative_error=trial.check.relative_error if trial.check else None,
    )
    return honest_sentence(evidence, data.header.fingerprint.machine, trial.candidate)
