"""One model over time. In: its runs. Out: pictures of the time of a call and of the speed-up, and what changed between.

Runs stand in the order in which they began, evenly apart. A dashed line says that the runs before and after it differ
in the machine, torch or the commit: two runs were not timed in turns, so a step there may be any of these. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from compilot.ledger.entries import RunEntry
from compilot.ledger.words import result_words, when_words
from compilot.report import svg
from compilot.report.chart_labels import Axis, spread
from compilot.report.figures import time_text

MOST = 40  # runs of a picture, the newest; the table has all
HEIGHT = 260.0
EAGER, CHOSEN = "cn", "c0"


class Step(NamedTuple):
    """Something that differs between a run and the one before it."""

    run: RunEntry
    words: str  # "torch 2.12.0 -> 2.13.0, commit 1a2b3c4d -> 9f8e7d6c"


class Trend(NamedTuple):
    """The runs of one model."""

    model: str
    runs: tuple[RunEntry, ...]  # the oldest first
    calls: svg.Picture | None  # None: no run has timed calls in fresh processes
    speed_ups: svg.Picture | None  # None: no run has a plan
    steps: tuple[Step, ...]
    left_out: int  # runs that the pictures have no room for


def trend_of(runs: Iterable[RunEntry], model: str) -> Trend:
    """What the runs of a model show."""
    own = sorted((run for run in runs if run.model == model and run.id), key=lambda run: run.created)
    drawn = own[-MOST:]
    steps = tuple(Step(now, words) for before, now in pairwise(own) if (words := _changed(before, now)))
    timed = [run for run in drawn if run.eager_call_s is not None]
    faster = [run for run in drawn if run.speedup is not None]
    return Trend(
        model=model,
        runs=tuple(own),
        calls=svg.both(lambda width: _calls(timed, width)) if timed else None,
        speed_ups=svg.both(lambda width: _speed_ups(faster, width)) if faster else None,
        steps=steps,
        left_out=len(own) - len(drawn),
    )


def _changed(before: RunEntry, now: RunEntry) -> str:
    found = []
    for name, old, new in (
        ("torch", before.torch, now.torch),
        ("machine", before.cpu or before.machine, now.cpu or now.machine),
        ("commit", (before.commit or "")[:8], (now.commit or "")[:8]),
    ):
        if old != new:
            found.append(f"{name} {old or 'not known'} -> {new or 'not known'}")
    if not found and before.machine != now.machine:
        found.append("other versions or threads")
    return ", ".join(found)


# ------------------------------------------------------------------------------------------------------------- pictures


def _calls(runs: Sequence[RunEntry], width: float) -> str:
    frame = svg.Frame(width, HEIGHT, 58.0, 16.0, 28.0, 44.0)
    x = _across(runs, frame)
    pairs = [(run.eager_call_s or 0.0, run.chosen_call_s) for run in runs]
    y = Axis(0.0, 1.1 * max(one for pair in pairs for one in pair if one is not None), frame.up)
    body = [*_time_axis(frame, x, runs), *svg.upwards(frame, y, "time of a call, median", svg.seconds_tick)]
    for kind, seconds in ((EAGER, [one for one, _ in pairs]), (CHOSEN, [one for _, one in pairs])):
        places = [(frame.x(x, n), frame.y(y, one)) for n, one in enumerate(seconds) if one is not None]
        body.append(svg.polyline(f"curve {kind}", places))
        words = [_call_words(run, kind) for run, one in zip(runs, seconds, strict=True) if one is not None]
        body += [svg.dot(f"dot {kind}", *place, 4.5, said) for place, said in zip(places, words, strict=True)]
    told = "; ".join(f"{_call_words(run, EAGER)}, {_call_words(run, CHOSEN)}" for run in runs)
    return svg.picture("plot", frame, body, f"Time of a call over the runs: {told}.")


def _call_words(run: RunEntry, kind: str) -> str:
    seconds = run.eager_call_s if kind == EAGER else run.chosen_call_s
    name = "eager" if kind == EAGER else run.chosen or "the plan"
    return f"{when_words(run)}: {name} {time_text(seconds) if seconds is not None else 'kept'}"


def _speed_ups(runs: Sequence[RunEntry], width: float) -> str:
    frame = svg.Frame(width, HEIGHT, 58.0, 16.0, 28.0, 44.0)
    x = _across(runs, frame)
    ends = [end for run in runs for end in (run.speedup, run.speedup_low, run.speedup_high) if end is not None]
    y = spread([1.0, *ends], frame.up, 0.1)
    body = [*_time_axis(frame, x, runs), *svg.upwards(frame, y, "speed-up over eager", "{:g}x".format)]
    body.append(svg.line("eager", frame.left, frame.y(y, 1.0), frame.width - frame.right, frame.y(y, 1.0)))
    for number, run in enumerate(runs):
        across = frame.x(x, number)
        low, high, ratio = (frame.y(y, one or 1.0) for one in (run.speedup_low, run.speedup_high, run.speedup))
        body += [svg.line(f"whisker {CHOSEN}", across, low, across, high)]
        body += [svg.dot(f"dot {CHOSEN}", across, ratio, 4.5, f"{when_words(run)}: {result_words(run)}")]
    told = "; ".join(f"{when_words(run)} {result_words(run)}" for run in runs)
    return svg.picture("plot", frame, body, f"Speed-up over eager with its 95 % interval: {told}.")


def _across(runs: Sequence[RunEntry], frame: svg.Frame) -> Axis:
    return Axis(-0.5, max(len(runs) - 0.5, 0.5), frame.across)


def _time_axis(frame: svg.Frame, x: Axis, runs: Sequence[RunEntry]) -> list[str]:
    """Days below, as many as there is room for, and dashed lines where something else changed, too."""
    foot, last, found = frame.height - frame.bottom, -1e9, []
    for number, run in enumerate(runs):
        across = frame.x(x, number)
        if across - last >= 84.0:
            found.append(svg.text("tick", across, foot + 16, run.created[:10], "middle"))
            last = across
    found.append(svg.text("tick", frame.left + frame.across / 2, foot + 34, "runs, the newest last", "middle"))
    for number, (before, now) in enumerate(pairwise(runs)):
        if _changed(before, now):
            between = frame.x(x, number + 0.5)
            found.append(svg.line("step", between, frame.top, between, foot))
    return found
