"""From the journal of bench/regret.py to its table, CSV and totals. Pure: reads no clock, starts nothing.

In: a Journal. Out: one Row per model and text. Regret is how much longer a call of the chosen candidate takes than one
of the re-raced best, from a direct race on fresh data: 0 by identity where both are the same candidate or generate the
same program. Shown above a limit: the whole 95 % interval lies above it. An A/A arm wins where its whole interval lies
more than 1 % from 1. Trial seconds, here and in the search, include eager's own trial; exhaustive ones are of what is
offered now, not of what an earlier version of the space had. Totals are over models whose every step is done.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import regret_steps as steps
from compilot.engines.eager.build import EAGER
from compilot.measure.stats import MIN_MARGIN
from compilot.records import Candidate, Comparison, Race
from compilot.verdict.compare import compare_columns
from regret_journal import Journal
from regret_steps import Rules

MEDIAN_AIM, SHOWN_AIM, SHARE_AIM, MODELS_AIM = 0.01, 0.03, 0.30, 8
DONE_STATE = "done"
CHOSEN_COLUMN = 2  # of the direct race; the first two are the best and its twin


class Regret(NamedTuple):
    """Relative; 0.01 is 1 %."""

    value: float
    low: float
    high: float
    raced: bool = True  # False: by identity

    @property
    def text(self) -> str:
        if not self.raced:
            return "0 (same candidate)"
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


class Row(NamedTuple):
    """Everything about one model."""

    model: str
    offered: int  # candidates of the space, as far as it is known
    tried: int
    left_out: tuple[str, ...]  # labels of those beyond the cap
    close: int  # candidates that the trials cannot tell from the best
    raced: int  # candidates in the re-race
    exhaustive_s: float
    best: str
    chosen: str
    regret: Regret | None
    until_s: float | None  # trial seconds of the search until its winner was first tried
    search_tried: int
    aa: tuple[Comparison, ...]  # of the re-race and of the direct race
    state: str  # "done", or what is missing
    doubts: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """Of the exhaustive seconds."""
        return self.until_s / self.exhaustive_s if self.until_s is not None and self.exhaustive_s else None


def row(journal: Journal, model: str, rules: Rules) -> Row:
    """What the journal says of one model so far."""
    looked, searched = journal.looked(model), journal.searched(model)
    trials = journal.trials(model)
    known = steps.known_space(journal, model, rules) if looked is not None and not looked.reason else None
    planned = known.planned if known is not None else ()
    races = [race for race in _races(journal, model, rules) if race.processes]
    return Row(
        model=model,
        offered=len(planned) + (len(known.left_out) if known is not None else 0),
        tried=len(journal.tried(model)),
        left_out=tuple(one.candidate.label for one in known.left_out) if known is not None else (),
        close=len(steps.within_noise(journal, model)),
        raced=len(set(races[0].arms)) if races else 0,
        exhaustive_s=sum(trials[i].wall_s for i in (EAGER.id, *(one.candidate.id for one in planned)) if i in trials),
        best=steps.label_of(_best(journal, model, rules)),
        chosen=steps.label_of(searched.chosen) if searched is not None and not searched.problem else "n/a",
        regret=regret(journal, model, rules),
        until_s=searched.story.spent_s if searched is not None else None,
        search_tried=len(searched.story.tried) if searched is not None else 0,
        aa=tuple(compare_columns(race, 1, 0) for race in races),
        state=state(journal, model, rules),
        doubts=_doubts(journal, model, races),
    )


def regret(journal: Journal, model: str, rules: Rules) -> Regret | None:
    """Of what the search chose; None: not known yet, or it cannot be."""
    picked, best = steps.chosen(journal, model), _best(journal, model, rules)
    if picked is None or best is None or steps.chosen_lost(journal, model):
        return None
    if picked.id == best.id:
        return Regret(0.0, 0.0, 0.0, raced=False)
    race = steps.direct(journal, model, rules)
    if len(race.processes) < rules.processes:
        return None
    faster = compare_columns(race, CHOSEN_COLUMN, 0)  # below 1: the chosen one is slower
    return Regret(1 / faster.ratio - 1, 1 / faster.high - 1, 1 / faster.low - 1)


def state(journal: Journal, model: str, rules: Rules) -> str:
    """How far a model has come."""
    looked, searched = journal.looked(model), journal.searched(model)
    if looked is not None and looked.reason:
        return f"cannot be tuned: {looked.reason}"
    if searched is not None and searched.problem:
        return f"no plan: {searched.problem}"
    if why := steps.chosen_lost(journal, model):
        return f"the chosen one failed in a race: {why}"
    step = steps.next_step(journal, model, rules)
    return DONE_STATE if step is None else f"not done, next: {type(step).__name__.lower()}"


def _best(journal: Journal, model: str, rules: Rules) -> Candidate | None:
    """The re-raced best, once the space was tried and the search has ended."""
    searched = journal.searched(model)
    if searched is None or searched.problem:
        return None
    return steps.reraced_best(journal, model, rules)


def _races(journal: Journal, model: str, rules: Rules) -> list[Race]:
    if journal.looked(model) is None or journal.searched(model) is None:
        return []
    return [steps.rerace(journal, model, rules), steps.direct(journal, model, rules)]


def _doubts(journal: Journal, model: str, races: Sequence[Race]) -> tuple[str, ...]:
    codes = journal.codes(model)
    mixed = [f"lines of {len(codes)} versions of the code: {', '.join(codes)}"] if len(codes) > 1 else []
    lost = [f"failed in a race: {i} ({why})" for i, why in journal.lost(model).items()]
    return (*mixed, *lost, *dict.fromkeys(race.load for race in races if race.load))


# -------------------------------------------------------------------------------------------------------------- totals


def wins(aa: Comparison) -> bool:
    """Whether an arm that is the same as the other one looks different by more than the least margin."""
    return aa.low > 1 + MIN_MARGIN or aa.high < 1 - MIN_MARGIN


def totals(rows: Sequence[Row]) -> list[str]:
    """One line per aim of the bench."""
    known = [r for r in rows if r.regret is not None and r.state == DONE_STATE]
    lines = [f"models done: {len(known)} of {len(rows)}; aim at least {MODELS_AIM}: {_met(len(known) >= MODELS_AIM)}"]
    if known:
        middle = statistics.median(r.regret.value for r in known if r.regret is not None)
        shown = [r.model for r in known if r.regret is not None and r.regret.low > SHOWN_AIM]
        lines.append(f"median regret {100 * middle:.2f} %; aim at most 1 %: {_met(middle <= MEDIAN_AIM)}")
        lines.append(f"shown above 3 %: {', '.join(shown) or 'none'}; aim none: {_met(not shown)}")
    both = [r for r in known if r.until_s is not None and r.exhaustive_s > 0]
    if both:
        until, whole = sum(r.until_s or 0.0 for r in both), sum(r.exhaustive_s for r in both)
        share = f"{until:.0f} of {whole:.0f} s = {100 * until / whole:.1f} %"
        lines.append(
            f"trial seconds until the winner was first tried, over {len(both)} models: {share} of the exhaustive "
            f"trial time; aim at most 30 %: {_met(until / whole <= SHARE_AIM)}"
        )
    arms = [one for r in rows for one in r.aa]
    if arms:
        won = sum(wins(one) for one in arms)
        lines.append(f"A/A arms that win: {won} of {len(arms)}; aim none: {_met(won == 0)}")
    return lines


def _met(holds: bool) -> str:
    return "met" if holds else "not met"


# ---------------------------------------------------------------------------------------------------------------- text


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    head = ["model", "offered", "tried", "exhaustive s", "best", "chosen", "regret (95 %)", "winner after s"]
    head += ["share", "search tried", "A/A (95 %)", "state"]
    lines = [head, ["---"] * len(head), *(_cells(r) for r in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def notes(rows: Sequence[Row]) -> list[str]:
    """What the cap left out, whom the re-race had no room for, and doubts."""
    found = []
    for r in rows:
        if r.left_out:
            found.append(f"{r.model}: the cap left out {len(r.left_out)}: {', '.join(r.left_out)}")
        if r.raced and r.close > r.raced:
            found.append(
                f"{r.model}: {r.close} candidates within noise of the best at the trial, {r.raced} raced again"
            )
        found += [f"{r.model}: {doubt}" for doubt in r.doubts]
    return found


def as_csv(rows: Sequence[Row]) -> str:
    """The same with every figure in a column of its own."""
    out = io.StringIO()
    table = [_flat(r) for r in rows]
    writer = csv.DictWriter(out, fieldnames=list(table[0]) if table else ["model"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _cells(row: Row) -> list[str]:
    share = "n/a" if row.share is None else f"{100 * row.share:.1f} %"
    until = "n/a" if row.until_s is None else f"{row.until_s:.0f}"
    aa = f"{row.aa[-1].ratio:.3f}x ({row.aa[-1].low:.3f}-{row.aa[-1].high:.3f})" if row.aa else "n/a"
    regret_text = "n/a" if row.regret is None else row.regret.text
    figures = [str(row.offered), str(row.tried), f"{row.exhaustive_s:.0f}", row.best, row.chosen, regret_text]
    return [row.model, *figures, until, share, str(row.search_tried), aa, row.state]


def _flat(row: Row) -> dict[str, object]:
    flat: dict[str, object] = {
        name: getattr(row, name)
        for name in ("model", "offered", "tried", "close", "raced", "exhaustive_s", "best", "chosen")
    }
    flat["left_out"] = len(row.left_out)
    for name in ("value", "low", "high", "raced"):
        flat[f"regret_{name}"] = "" if row.regret is None else getattr(row.regret, name)
    flat |= {"until_s": row.until_s, "share": row.share, "search_tried": row.search_tried}
    for number, kind in enumerate(("rerace", "direct")):
        for name in ("ratio", "low", "high", "processes", "pairs"):
            flat[f"aa_{kind}_{name}"] = getattr(row.aa[number], name) if number < len(row.aa) else ""
    return {**flat, "state": row.state}
