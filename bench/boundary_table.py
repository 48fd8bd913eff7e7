"""The tables of bench/boundary.py, and whether its aims are met. In: the journal. Out: Markdown and CSV. Pure but for
the files that `report` writes.

A plan is shown slower where the whole 95 % interval of its speed-up over an arm lies below 1 by more than the race's
own margin; shown below a share of an arm's speed where the whole interval does. Lives are paired by round: their
interval is Student's, on logarithms. What was not measured is said to be so, never met.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import boundary_faults
from boundary_cases import (
    BOTTLENECK,
    FAULTS,
    FEW,
    HYBRID,
    MANY,
    PICK,
    REGIONAL,
    WHOLE,
    Case,
    Rules,
    ids,
    race_arms,
    unrepaired_of,
)
from boundary_journal import EAGER_ARM, CaseLines, Journal
from compilot.records import Comparison, Outcome
from compilot.verdict.compare import compare_columns

SHORTER = 4.0  # times: whole-model compile over regional compile
LEAST_SPEED = 0.9  # of the unrepaired speed
SMALL_GAIN = 2.0  # the last one counts on models whose compile gain is below this
MARGIN = 0.01  # of total times: as of every race
STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}  # 95 %, two-sided
MET, NOT_MET, OPEN = "met", "not met", "not measured"

Table = list[list[str]]  # the first row is the head


class Told(NamedTuple):
    """What a part's cases say."""

    table: Table
    notes: list[str]


def report(wanted: Sequence[Case], journal: Journal, rules: Rules, out: Path) -> None:
    """A table, notes and a CSV for each part, from the journal alone."""
    makers: dict[str, Callable[[Sequence[Case], Journal, Rules], Told]] = {
        "gpt2": told_of_gpt2,
        "six": told_of_six,
        "repair": told_of_repair,
    }
    out.mkdir(parents=True, exist_ok=True)
    for part, make in makers.items():
        own = [case for case in wanted if case.part == part]
        if own:
            told = make(own, journal, rules)
            text = "\n".join([f"## {part}", "", markdown(told.table), "", *(f"- {line}" for line in told.notes), ""])
            (out / f"{part}.md").write_text(text)
            (out / f"{part}.csv").write_text(as_csv(told.table))
            print(text)


# --------------------------------------------------------------------------------------------------------------- races


def over(lines: CaseLines, arm: str, other: str, rules: Rules) -> Comparison | None:
    """Speed-up of one arm over another in the finished race; None: it is not finished, or has not both."""
    arms, candidates = race_arms(lines), lines.candidates()
    race = lines.race(ids(arms))
    if len(race.processes) < rules.processes or arm not in candidates or other not in candidates:
        return None
    one, two = candidates[arm].id, candidates[other].id
    if one not in race.arms or two not in race.arms:
        return None
    return compare_columns(race, race.arms.index(one), race.arms.index(two))


def is_same(lines: CaseLines, arm: str, other: str) -> bool:
    """Whether two arms are the same candidate: then neither can be slower."""
    found = lines.candidates()
    return arm in found and other in found and found[arm].id == found[other].id


def figures(found: Comparison | None) -> str:
    return OPEN if found is None else f"{found.ratio:.3f}x ({found.low:.3f}-{found.high:.3f})"


def fastest(lines: CaseLines, arms: Sequence[str], rules: Rules) -> str | None:
    """The arm with the largest speed-up over eager; None: nothing was measured."""
    speeds = {arm: found.ratio for arm in arms if (found := over(lines, arm, EAGER_ARM, rules)) is not None}
    return max(speeds, key=speeds.__getitem__) if speeds else None


def aim(claims: Sequence[bool | None]) -> str:
    """None: not measured."""
    if any(claim is False for claim in claims):
        return NOT_MET
    return OPEN if not claims or None in claims else MET


# --------------------------------------------------------------------------------------------------------------- lives


def started(lines: CaseLines, arm: str, rules: Rules) -> float | None:
    """Median seconds of build and first call in a fresh process with empty caches."""
    found = [life.start_s for life in lines.lives(arm, rules.calls).values() if not life.problem]
    return statistics.median(found) if found else None


def total_over(
    lines: CaseLines, arm: str, other: str, rules: Rules, seconds: str = "wall_s"
) -> tuple[float, float, float] | None:
    """Ratio of the whole walls, or of the starts, by round, and its interval; None: fewer than two rounds have both."""
    mine, theirs = (lines.lives(name, rules.calls) for name in (arm, other))
    both = [n for n in mine if n in theirs and not mine[n].problem and not theirs[n].problem]
    logs = [math.log(getattr(mine[n], seconds) / getattr(theirs[n], seconds)) for n in both]
    if len(logs) < 2:
        return None
    middle, half = statistics.fmean(logs), STUDENT.get(len(logs) - 1, 2.262) * statistics.stdev(logs) / len(logs) ** 0.5
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def told_of_gpt2(wanted: Sequence[Case], journal: Journal, rules: Rules) -> Told:
    """One row per arm."""
    (case,) = wanted
    lines = journal.of(case.name)
    head = ["arm", "candidate", "over eager (95 %)", "cold start s", "compiler runs", "programs"]
    head += [f"{rules.calls} calls, wall s", "error"]
    rows = [_gpt2_row(lines, arm, rules) for arm in (EAGER_ARM, WHOLE, REGIONAL, FEW, MANY)]
    return Told([head, *rows], [*_start_notes(lines, rules), *_few_notes(lines, case, rules), _many_note(lines, rules)])


def _gpt2_row(lines: CaseLines, arm: str, rules: Rules) -> list[str]:
    candidates, lives = lines.candidates(), list(lines.lives(arm, rules.calls).values())
    good = [life for life in lives if not life.problem]
    label = candidates[arm].label if arm in candidates else OPEN
    speed = "1" if arm == EAGER_ARM else figures(over(lines, arm, EAGER_ARM, rules))
    if not good:
        return [arm, label or arm, speed, *([next((x.problem for x in lives), OPEN)] * 5)]
    start, wall = statistics.median(x.start_s for x in good), statistics.median(x.wall_s for x in good)
    counts = ["/".join(sorted({str(getattr(x, name)) for x in good})) for name in ("compiler_runs", "programs")]
    worst = max(x.error for x in good if x.error is not None)
    return [arm, label or arm, speed, f"{start:.2f}", *counts, f"{wall:.2f}", f"{worst:.1e}"]


def _start_notes(lines: CaseLines, rules: Rules) -> list[str]:
    whole, regional = (started(lines, arm, rules) for arm in (WHOLE, REGIONAL))
    programs = {life.programs for life in lines.lives(REGIONAL, rules.calls).values() if not life.problem}
    times = None if whole is None or regional is None else whole / regional
    shorter = aim([None if times is None else times >= SHORTER])
    once = aim([programs == {1} if programs else None])
    found = OPEN if times is None else f"{times:.1f} times shorter"
    if (by_round := total_over(lines, WHOLE, REGIONAL, rules, "start_s")) is not None:
        found += f" (by round {by_round[0]:.2f}, 95 % {by_round[1]:.2f}-{by_round[2]:.2f})"
    return [
        f"regional compile against whole-model compile: {found}; aim {SHORTER:g}: {shorter}",
        f"programs of regional compile: {', '.join(map(str, sorted(programs))) or OPEN}; aim 1: {once}",
        f"whole over regional in steady speed: {figures(over(lines, WHOLE, REGIONAL, rules))}",
    ]


def _few_notes(lines: CaseLines, case: Case, rules: Rules) -> list[str]:
    """Totals of the plan for few calls against every other arm's."""
    found: list[str] = []
    claims: list[bool | None] = []
    for other in (arm for arm in case.lives if arm != FEW):
        same, ratio = is_same(lines, FEW, other), total_over(lines, FEW, other, rules)
        claims.append(True if same else None if ratio is None else ratio[1] <= 1.0 + MARGIN)
        words = (
            "the same candidate"
            if same
            else OPEN
            if ratio is None
            else f"{ratio[0]:.3f} ({ratio[1]:.3f}-{ratio[2]:.3f})"
        )
        found.append(f"total of {rules.calls} calls, '{FEW}' / {other}: {words}")
    return [*found, f"'{FEW}' not shown above any other arm's total: {aim(claims)}"]


def _many_note(lines: CaseLines, rules: Rules) -> str:
    others = (WHOLE, REGIONAL, FEW)
    claims = [True if is_same(lines, MANY, arm) else _not_slower(lines, MANY, arm, rules) for arm in others]
    return f"'{MANY}' not shown slower than any other arm: {aim(claims)}"


def _not_slower(lines: CaseLines, arm: str, other: str, rules: Rules) -> bool | None:
    found = over(lines, arm, other, rules)
    return None if found is None else found.outcome is not Outcome.SLOWER


# ---------------------------------------------------------------------------------------------------------- six models


def told_of_six(wanted: Sequence[Case], journal: Journal, rules: Rules) -> Told:
    """One row per model: its arms over eager, and the pick against the best of them."""
    arms = (WHOLE, REGIONAL, BOTTLENECK, HYBRID)
    head = ["model", *(f"{arm} (cold s)" for arm in arms), "pick over eager", "pick", "best arm", "pick / best arm"]
    rows, claims, notes = [], [], []
    for case in wanted:
        lines = journal.of(case.name)
        best = fastest(lines, arms, rules)
        against = over(lines, PICK, best, rules) if best is not None else None
        same = best is not None and is_same(lines, PICK, best)
        claims.append(True if same else None if against is None else against.outcome is not Outcome.SLOWER)
        picked = lines.tuned.get(PICK)
        label = OPEN if picked is None else picked.problem or picked.chosen.label or EAGER_ARM
        verdict = "the same candidate" if same else figures(against)
        speed = figures(over(lines, PICK, EAGER_ARM, rules)) if label != EAGER_ARM else "1"
        cells = [_arm_cell(lines, arm, rules) for arm in arms]
        rows.append([case.name, *cells, speed, label, best or OPEN, verdict])
        notes += _lost_notes(case, lines)
    return Told([head, *rows], [f"picks not shown slower than the best arm: {aim(claims)}", *notes])


def _arm_cell(lines: CaseLines, arm: str, rules: Rules) -> str:
    looked, trial = lines.looked, lines.built.get(arm)
    if looked is not None and arm in looked.absent:
        return f"none: {looked.absent[arm]}"
    if trial is None:
        return OPEN
    if trial.measurement is None or arm not in lines.candidates():
        return f"{trial.state.value}: {trial.reason[:80]}"
    return f"{figures(over(lines, arm, EAGER_ARM, rules))} ({trial.measurement.cold_s:.1f})"


def _lost_notes(case: Case, lines: CaseLines) -> list[str]:
    labels = {candidate.id: candidate.label for candidate in lines.candidates().values()}
    found = [f"{case.name}: {labels.get(own, own)} failed in the race: {why}" for own, why in lines.lost.items()]
    race = lines.race(ids(race_arms(lines)))
    return [*found, *([f"{case.name}: {race.load}"] if race.load else [])]


# -------------------------------------------------------------------------------------------------------------- repair


def told_of_repair(wanted: Sequence[Case], journal: Journal, rules: Rules) -> Told:
    """One row per fault and seed."""
    head = ["case", "culprit", "named", "trials", "plan", "over eager (95 %)", "unrepaired over eager"]
    head += ["plan / unrepaired", "check"]
    rows, notes = [], []
    for case in wanted:
        rows.append(_repair_row(case, journal.of(case.name), rules))
        notes += _lost_notes(case, journal.of(case.name))
    kinds = [kind for kind in FAULTS if any(case.name.startswith(kind) for case in wanted)]
    told = [line for kind in kinds for line in _kind_notes(kind, wanted, journal, rules)]
    return Told([head, *rows], [*told, *notes])


def culprit_in(case: Case) -> str:
    return boundary_faults.culprit_of(int(case.name.rpartition("-")[2]))


def is_named(case: Case, lines: CaseLines) -> bool | None:
    """Whether the plan says who is to blame, as data, in its reason and among its caveats; nobody else is blamed."""
    tuned = lines.tuned.get(PICK)
    if tuned is None:
        return None
    own = culprit_in(case)
    as_data = any(repair.culprits == (own,) for repair in tuned.repairs)
    return as_data and own in tuned.story.because and any(own in caveat for caveat in tuned.caveats)


def _repair_row(case: Case, lines: CaseLines, rules: Rules) -> list[str]:
    tuned, other, named = lines.tuned.get(PICK), unrepaired_of(case), is_named(case, lines)
    says = OPEN if named is None else "yes" if named else "no"
    trials = "/".join(str(one.trials) for one in tuned.repairs) if tuned is not None else ""
    label = OPEN if tuned is None else tuned.problem or tuned.chosen.label or EAGER_ARM
    speeds = [figures(over(lines, *pair, rules)) for pair in ((PICK, EAGER_ARM), (other, EAGER_ARM), (PICK, other))]
    return [case.name, culprit_in(case), says, trials, label, *speeds, tuned.check if tuned is not None else OPEN]


def _kind_notes(kind: str, wanted: Sequence[Case], journal: Journal, rules: Rules) -> list[str]:
    own = [(case, journal.of(case.name)) for case in wanted if case.name.startswith(kind)]
    named = [is_named(case, lines) for case, lines in own]
    planned = [_has_plan(lines) for _, lines in own]
    found = [f"{kind}: a plan with regions, proved correct: {sum(map(bool, planned))} of {len(own)}: {aim(planned)}"]
    if kind == "branch":  # nothing is repaired where an engine takes the block: nobody is to be named
        for other in (EAGER_ARM, WHOLE):
            faster = [_is_faster(lines, other, rules) for _, lines in own]
            found.append(f"{kind}: faster than {other}: {sum(map(bool, faster))} of {len(own)}: {aim(faster)}")
        return found
    found.append(f"{kind}: the block is named: {sum(map(bool, named))} of {len(own)}: {aim(named)}")
    gains = [gain.ratio for case, lines in own if (gain := over(lines, unrepaired_of(case), EAGER_ARM, rules))]
    claims = [_fast_enough(case, lines, rules) for case, lines in own]
    says = f" (compile gain {statistics.median(gains):.2f}x, should be below {SMALL_GAIN:g}x)" if gains else ""
    return [*found, f"{kind}: not shown below {LEAST_SPEED:g} of the unrepaired speed{says}: {aim(claims)}"]


def _has_plan(lines: CaseLines) -> bool | None:
    tuned = lines.tuned.get(PICK)
    return None if tuned is None else bool(not tuned.problem and tuned.chosen.regions and tuned.check)


def _is_faster(lines: CaseLines, other: str, rules: Rules) -> bool | None:
    found = over(lines, PICK, other, rules)
    return None if found is None else found.outcome is Outcome.FASTER


def _fast_enough(case: Case, lines: CaseLines, rules: Rules) -> bool | None:
    found = over(lines, PICK, unrepaired_of(case), rules)
    return None if found is None else found.high >= LEAST_SPEED


# --------------------------------------------------------------------------------------------------------------- files


def markdown(table: Table) -> str:
    head, *rows = ([cell.replace("|", "/").replace("\n", " ") for cell in row] for row in table)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def as_csv(table: Table) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()
