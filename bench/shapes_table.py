"""The tables of bench/shapes.py and whether its aims are met. In: the journal. Out: Markdown, and problems.

Total time of every arm over eager's with its interval; plan against the best torch.compile policy; tune's forecast
against tune's own replay, which had the same requests; recompiles and the share of fast calls; in a second table the
time to the first answers, of the set with empty compile caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.records import Comparison, Outcome, Race
from compilot.verdict.replays import compare_totals
from shapes_journal import Journal, Raced, Tuned, race_of
from shapes_lab import Case

NOT_SLOWER, WINS_OF, WIN, FORECAST, FAST = ["eager", "compile", "dynamic", "powers"], 2, 1.3, 0.10, 0.999
COMPILED = ("compile", "dynamic", "powers")


class Seen:
    """What is known of one case."""

    def __init__(self, case: Case, tuned: Tuned, sets: Sequence[Raced], cold: Raced | None) -> None:
        """cold: the set with empty compile caches."""
        self.case, self.tuned, self.sets, self.cold = case, tuned, sets, cold
        self.race: Race = race_of(sets)

    @property
    def arms(self) -> list[str]:
        """Without eager."""
        return [arm for arm in dict.fromkeys(self.race.arms) if arm != "eager"]

    def versus(self, arm: str, other: str = "eager") -> Comparison:
        """By the total of the requests."""
        return compare_totals(self.race, arm, other)

    @property
    def over_compile(self) -> Comparison | None:
        """The plan over the best torch.compile policy."""
        able = [arm for arm in self.arms if arm in COMPILED]
        if "plan" not in self.arms or not able:
            return None
        return self.versus("plan", max(able, key=lambda arm: self.versus(arm).ratio))

    @property
    def forecast_error(self) -> float | None:
        """Of the forecast ratio against the replayed one, both of the tune; None: the plan has none."""
        if self.tuned.forecast is None or self.tuned.replayed is None or not self.tuned.entries:
            return None
        return self.tuned.forecast / self.tuned.replayed - 1.0


def seen(cases: Sequence[Case], journal: Journal) -> list[Seen]:
    """The cases that have been raced."""
    found = []
    for case in cases:
        tuned, sets = journal.tuned(case.name), journal.raced(case.name)
        if tuned is not None and sets:
            found.append(Seen(case, tuned, sets, journal.cold(case.name)))
    return found


def problems(found: Sequence[Seen], expected: int) -> list[str]:
    """Aims that are not met."""
    told = [] if len(found) == expected else [f"{len(found)} of {expected} cases were measured"]
    for one in found:
        name = one.case.name
        if "plan" not in one.arms:
            told.append(f"{name}: the plan was not raced ({one.sets[-1].lost.get('plan', 'it keeps eager')})")
            continue
        for arm in NOT_SLOWER:
            if arm in one.race.arms and one.versus("plan", arm).outcome is Outcome.SLOWER:
                told.append(f"{name}: the plan is slower than {arm} ({one.versus('plan', arm).ratio:.2f}x)")
        if (again := max(line.recompiles.get("plan", 0) for line in one.sets)) > 0:
            told.append(f"{name}: {again} programs were compiled after the warm-up")
        share = min((line.fast_share for line in one.sets if line.fast_share is not None), default=1.0)
        if share < FAST and one.tuned.entries:
            told.append(f"{name}: {share:.2%} of the calls were fast")
        told += _forecast_problem(one)
    wins = sum(1 for one in found if (over := one.over_compile) is not None and over.ratio >= WIN)
    return (
        told
        if wins >= WINS_OF
        else [*told, f"{wins} cases are {WIN}x over the best torch.compile policy, not {WINS_OF}"]
    )


def _forecast_problem(one: Seen) -> list[str]:
    """A plan that keeps eager has nothing to forecast."""
    error = one.forecast_error
    if error is None:
        why = "what was chosen has no forecast" if one.tuned.forecast is None else "the forecast has no replay"
        return [f"{one.case.name}: {why}"] if one.tuned.entries else []
    return [f"{one.case.name}: the forecast was off by {error:+.0%}"] if abs(error) > FORECAST else []


def tables(found: Sequence[Seen]) -> str:
    """Both tables."""
    return "\n".join([*_speed(found), "", *_answers(found)])


def _speed(found: Sequence[Seen]) -> list[str]:
    lines = [
        "| case | policy | programs | plan | torch.compile | dynamic=True | powers of two | over the best compile |"
        " forecast | recompiles | fast |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        cells = [one.case.name, one.tuned.policy, str(len(one.tuned.entries))]
        cells += [_ratio(one, arm) for arm in ("plan", "compile", "dynamic", "powers")]
        over, error = one.over_compile, one.forecast_error
        share = min((line.fast_share for line in one.sets if line.fast_share is not None), default=None)
        cells += [_told(over) if over is not None else "-"]
        cells += [f"{one.tuned.forecast:.2f}x ({error:+.0%})" if error is not None else "-"]
        cells += [str(max(line.recompiles.get("plan", 0) for line in one.sets)), f"{share:.2%}" if share else "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(one: Seen, arm: str) -> str:
    return _told(one.versus(arm)) if arm in one.arms else f"- ({one.sets[-1].lost.get(arm, 'absent')})"


def _told(versus: Comparison) -> str:
    return f"{versus.ratio:.2f}x ({versus.low:.2f}-{versus.high:.2f})"


def _answers(found: Sequence[Seen]) -> list[str]:
    arms = ("eager", "compile", "dynamic", "powers", "plan")
    head = "first / tenth answer, s; one process with an empty compile cache, the plan with its files"
    lines = [f"| {head} | {' | '.join(arms)} |", "|---|" + "---|" * len(arms)]
    for one in found:
        known = one.cold.answers if one.cold is not None else {}
        cells = [f"{known[arm].first_s:.2f} / {known[arm].ten_s:.2f}" if arm in known else "-" for arm in arms]
        lines.append(f"| {one.case.name} | {' | '.join(cells)} |")
    return lines
