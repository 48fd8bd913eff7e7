"""The words for a boundary: who was to blame for a failure, how a boundary grew, which graph breaks cost nothing.

In: records of a verdict. Out: clauses for its reason, for a plan's caveats and for the report. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from compilot.records import Decision, Repair, State, Verdict, WideningStep
from compilot.verdict.words import percent, times

LEAST_PRICE = 0.005  # of the speed: what costs less costs nothing to speak of
NAMED = 3  # names in a clause; more are counted
NOT_FOUND = "what is to blame was not found in time"
_DID = {State.WRONG: "gave wrong answers", State.CRASHED: "crashed"}


def clauses(verdict: Verdict) -> list[str]:
    """Everything that a verdict has to say of its boundary."""
    grown = [widening_words(verdict.widening)] if len(verdict.widening) > 1 else []
    free = [breaks_words(verdict.free_breaks)] if verdict.free_breaks else []
    words = repair_words if verdict.decision is Decision.USE else blame_words
    return [*map(words, verdict.repairs), *grown, *free]


def repair_words(repair: Repair) -> str:
    """ "layers.5 stays in eager: with it inductor gave wrong answers (8.0 % of an eager call, about 3.0 % slower)"."""
    if repair.kind == "options":
        return f"without {_names(repair.culprits)}, with which {_failed(repair)}"
    if repair.kind == "passes":
        return f"without the passes {_names(repair.culprits)}, with which {_failed(repair)}"
    if repair.kind == "around":
        return f"{_failed_whole(repair)}: the code around these parts is to blame and stays in eager"
    if not repair.culprits:
        return f"{_failed_whole(repair)}; {NOT_FOUND}"
    stays, runs = ("stays", "runs") if len(repair.culprits) == 1 else ("stay", "run")
    where = f"{runs} with {repair.runs_with}" if repair.runs_with else f"{stays} in eager"
    return f"{_names(repair.culprits)} {where}: {_failed_with(repair)}{_cost(repair)}"


def blame_words(repair: Repair) -> str:
    """Where eager is kept: "inductor gave wrong answers because of layers.5"."""
    if not repair.culprits:
        return f"{_failed(repair)}; {NOT_FOUND}"
    return f"{_failed(repair)} because of {_names(repair.culprits)}"


def _failed(repair: Repair) -> str:
    """ "inductor crashed", "openvino cannot take the model": what is to blame is in the model, not in the engine."""
    return f"{repair.engine} {_DID.get(repair.state, 'cannot take the model')}"


def _failed_whole(repair: Repair) -> str:
    if repair.state in _DID:
        return f"on the whole model {_failed(repair)}"
    return f"{repair.engine} cannot take the whole model"


def _failed_with(repair: Repair) -> str:
    """ "with it inductor crashed"; "openvino cannot take it, so it was left out for aoti, too"."""
    them, they_were = ("it", "it was") if len(repair.culprits) == 1 else ("them", "they were")
    others = " and ".join(repair.carried_to)
    carried = f", so {they_were} left out for {others}, too" if others else ""
    said = f"with {them} {_failed(repair)}" if repair.state in _DID else f"{repair.engine} cannot take {them}"
    return f"{said}{carried}"


def _cost(repair: Repair) -> str:
    known = [f"{percent(repair.share)} of an eager call"] if repair.share > 0.0 else []
    if repair.price is not None and repair.price >= LEAST_PRICE:
        known.append(f"about {percent(repair.price)} slower for it")
    return f" ({', '.join(known)})" if known else ""


def widening_words(steps: Sequence[WideningStep]) -> str:
    """ "the boundary grew by what paid: 12 x Block 1.31x, head 1.38x (1.05x as fast with it), not by tail (0.99x)"."""
    first = [f"{step.region} {times(step.speedup)}" for step in steps if step.gain is None]
    later = [(step, times(step.gain)) for step in steps if step.gain is not None]
    kept = [f"{step.region} {times(step.speedup)} ({gain} as fast with it)" for step, gain in later if step.kept]
    left = [f"{step.region} ({gain})" for step, gain in later if not step.kept]
    grown = ", ".join([*first, *kept])
    return f"the boundary grew by what paid: {grown}" + (f", not by {', '.join(left)}" if left else "")


def breaks_words(places: Sequence[str]) -> str:
    """ "2 graph breaks cost nothing any more, since they are outside of what is compiled: net.py:7, net.py:12"."""
    many = len(places) > 1
    what = f"{len(places)} graph breaks cost" if many else "a graph break costs"
    where = _names([f"{PurePath(place.rpartition(':')[0]).name}:{place.rpartition(':')[2]}" for place in places])
    return f"{what} nothing any more, since {'they are' if many else 'it is'} outside of what is compiled: {where}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
