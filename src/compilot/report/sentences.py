"""The honest sentence of any arm, and what is said beside a plan's. In: RunData, a trial or a plan. Out: sentences.

Covered: arms that nobody decided on (`compilot bench`), and arms that failed. Figures come from the proving race.
"""

from __future__ import annotations

from typing import NamedTuple

from compilot.records import Evidence, Plan, State, Trial
from compilot.report.data import RunData, comparison, paid_back
from compilot.report.foreseen import foreseen
from compilot.verdict.boundary_words import clauses
from compilot.verdict.plan import honest_sentence
from compilot.verdict.step_words import in_words_of
from compilot.verdict.words import count, shown

PLAIN, QUIET, CAVEAT = "plain", "quiet", "caveat"
MOST_NOTES = 3  # of a check beside the verdict


class Remark(NamedTuple):
    """One sentence, and how loudly to say it."""

    text: str
    kind: str = PLAIN


def beside(plan: Plan | None, data: RunData) -> list[Remark]:
    """What else there is to say of a run: against torch.compile, earlier runs, its boundary, its check, its caveats."""
    entry = plan.entries[0] if plan is not None and plan.entries else None
    versus = entry.evidence.versus_compile if entry is not None else None
    found = [Remark(f"Against plain torch.compile: {shown(versus, 'torch.compile')}.")] if versus is not None else []
    if (expected := foreseen(data)) is not None:
        found.append(Remark(expected.sentence, QUIET))
    for clause in clauses(data.verdict)[len(data.verdict.repairs) :] if data.verdict is not None else ():
        found.append(Remark(f"{clause[0].upper()}{clause[1:]}."))  # repairs are among the caveats
    found += [Remark(text, QUIET) for text in noted(data)]
    return [*found, *(Remark(f"{caveat}.", CAVEAT) for caveat in (entry.caveats if entry is not None else ()))]


def noted(data: RunData) -> list[str]:
    """What the check of the chosen candidate passed over or could not compare; the page has all of it."""
    chosen = data.trials.get(data.verdict.chosen_id) if data.verdict is not None else None
    if chosen is None or chosen.candidate.is_eager or chosen.check is None:
        return []
    notes = list(dict.fromkeys(chosen.check.notes))
    more = len(notes) - MOST_NOTES
    said = [f"Correctness check: {note}." for note in notes[:MOST_NOTES]]
    return [*said, *([f"The correctness check has {count(more, 'more note')}: see the report."] if more > 0 else [])]


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
    told = honest_sentence(evidence, data.header.fingerprint.machine, trial.candidate)
    return in_words_of(data.header.workload.kind, told)
