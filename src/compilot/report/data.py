"""From the journal to rows. In: a run directory. Out: RunData with one plain dict per candidate, in the order tried.

Covered: call times, start-up times, memory and the speed-up with its interval, all computed again from the raw
samples. The speed-up comes from the best source there is: confirmation, else race, else screening (which has no
interval). The times beside it, eager's too, are the medians of that same source: figures of different moments cannot
be divided by each other. Tails come from single calls, with a median of their own. Not covered: what is shown and how
(files.py, terminal.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from compilot.artifacts.rundir import RunDir
from compilot.engines.of_candidate import engines_of
from compilot.measure.stats import Summary, calls_needed, summary
from compilot.records import (
    BreakEven,
    Candidate,
    Check,
    Comparison,
    Diagnosis,
    DiagnosisLine,
    JournalLine,
    Measurement,
    Outcome,
    Race,
    RaceLine,
    RunHeader,
    State,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
    WarmStartLine,
)
from compilot.verdict.breakeven import break_even_in
from compilot.verdict.compare import compare
from compilot.verdict.plan import precision_words

MIB = 2**20
FRESH, TRIAL = "fresh process", "trial"  # where memory was measured; the two cannot be set against each other
PROVING = ("bench", "confirm")  # races in fresh processes: what they say counts for more than any earlier race


class Row(TypedDict):
    """One candidate. None: not measured, or too few samples to say."""

    candidate: str
    id: str
    model: str
    batch: int | None
    callers: int  # at the same time: p50_ms, eager_p50_ms and samples_per_s are over all of them
    engine: str
    mode: str | None
    precision: str  # "as-is", or a lower one that the user allows
    relative_error: float | None  # worst RMSE of an output against the reference, relative to its RMS; eager's, too
    state: str
    chosen: bool
    cold_s: float | None  # build and first call, empty cache
    warm_s: float | None  # first call of a fresh process that finds the files of an earlier one
    p50_ms: float | None  # in the race or screening that the speed-up comes from; without one, of single calls
    eager_p50_ms: float | None  # eager's, from the same rounds
    samples_per_s: float | None  # from the same rounds as p50_ms
    request_ms: float | None  # of one request, where requests are timed (then p50_ms is a request's, too)
    model_ms: float | None  # of request_ms: inside the model
    calls: int  # single calls behind the next four, as their caller sees them; timed apart from the race
    call_p50_ms: float | None  # their median: what the tails may be set against
    p95_ms: float | None
    p99_ms: float | None
    std_ms: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    speedup_from: str  # "baseline", "confirm", "bench", "race", "twin", "screening" or ""
    break_even_calls: int | None  # after which a cold start is paid back; only of a gain that was shown
    break_even_low: int | None
    break_even_high: int | None  # None beside a low end: the other end of the interval never pays back
    peak_rss_mib: float | None
    steady_rss_mib: float | None
    memory_from: str  # "fresh process": it only loads and runs; "trial": it exported, built and checked, too; or ""
    compiler_runs: int | None
    compile_cpu_s: float | None
    caveats: str  # what a user of it must know: checks that it leaves out, outputs that share no memory
    note: str
    rationale: str


class RunData(NamedTuple):
    """Everything a report needs to know about a run."""

    run_dir: Path
    header: RunHeader
    diagnosis: Diagnosis | None
    prepare_s: float  # building the shared C++ header, paid once per machine
    trials: dict[str, Trial]
    races: tuple[Race, ...]
    warm: dict[str, tuple[Measurement, ...]]
    verdict: Verdict | None  # None: the run was interrupted, or compared without deciding
    rows: list[Row]
    asked: RunHeader  # of the last part: what a resumed run was asked for in the end


class SpeedUp(NamedTuple):
    """How much faster than eager, who says so, and the seconds per call that it says so from."""

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    source: str = ""
    own_s: tuple[float, ...] = ()
    eager_s: tuple[float, ...] = ()


class Memory(NamedTuple):
    """Resident memory of a process, and which kind of process that was."""

    peak_mib: float | None = None
    steady_mib: float | None = None
    source: str = ""


def read_run(run_dir: Path) -> RunData:
    """Read a run's journal; raises RunDirError where there is none."""
    lines = RunDir(run_dir).lines()
    headers = [line for line in lines if isinstance(line, RunHeader)]
    diagnosed = [line for line in lines if isinstance(line, DiagnosisLine)]
    trials = {line.trial.candidate.id: line.trial for line in lines if isinstance(line, TrialLine)}
    races = tuple(line.race for line in lines if isinstance(line, RaceLine))
    verdicts = [line.verdict for line in lines if isinstance(line, VerdictLine)]
    data = RunData(
        run_dir=run_dir,
        header=headers[0],
        diagnosis=diagnosed[-1].diagnosis if diagnosed else None,
        prepare_s=sum(line.prepare_s for line in diagnosed),
        trials=trials,
        races=races,
        warm=_warm_starts(lines),
        verdict=verdicts[-1] if verdicts else None,
        rows=[],
        asked=headers[-1],
    )
    return data._replace(rows=[_row(data, trial) for trial in trials.values()])


def unavailable(q: float) -> str:
    """What stands in the place of a percentile that too few calls can carry."""
    return f"n/a (needs {calls_needed(q)} calls)"


def comparison(data: RunData, candidate_id: str, baseline_id: str | None = None) -> tuple[Comparison, str] | None:
    """The best comparison of a candidate with eager (or another arm), and the purpose of its race."""
    race = best_race(data, candidate_id, baseline_id)
    if race is None:
        return None
    return compare(race, candidate_id, baseline_id or race.arms[0]), race.purpose


def best_race(data: RunData, candidate_id: str, baseline_id: str | None = None) -> Race | None:
    """The race that says most about a candidate against eager (or another arm)."""
    for race in _best_first(data.races):
        baseline = baseline_id or race.arms[0]
        if candidate_id != baseline and candidate_id in race.arms and baseline in race.arms:
            return race
    return None


def paid_back(data: RunData, trial: Trial) -> BreakEven | None:
    """When a candidate's start is paid back, by the race that its speed-up comes from; None: no gain was shown."""
    race, first = best_race(data, trial.candidate.id), trial.measurement
    if trial.candidate.is_eager or race is None or first is None:
        return None
    baseline = data.trials.get(race.arms[0])
    return break_even_in(
        race,
        compare(race, trial.candidate.id, race.arms[0]),
        cold_s=first.cold_s,
        warm_s=_warm_s(data.warm.get(trial.candidate.id, ())),
        eager_first_s=baseline.measurement.cold_s if baseline is not None and baseline.measurement else None,
    )


def _best_first(races: Sequence[Race]) -> list[Race]:
    """Proving races before others, later ones before earlier ones: a resumed run may have several."""
    latest_first = list(reversed(races))
    return sorted(latest_first, key=lambda race: race.purpose not in PROVING)


def _warm_starts(lines: Sequence[JournalLine]) -> dict[str, tuple[Measurement, ...]]:
    """Those of each candidate's last proving race, which they follow: the plan quotes no earlier ones either."""
    found: dict[str, tuple[Measurement, ...]] = {}
    for line in lines:
        if isinstance(line, RaceLine) and line.race.purpose in PROVING:
            found = {name: measured for name, measured in found.items() if name not in line.race.arms}
        elif isinstance(line, WarmStartLine):
            found[line.candidate_id] = (*found.get(line.candidate_id, ()), line.measurement)
    return found


def _row(data: RunData, trial: Trial) -> Row:
    candidate, first = trial.candidate, trial.measurement
    calls = single_calls(data, trial)
    figures = summary(calls)
    memory = _memory(first, data.warm.get(candidate.id, ()))
    speed = _speed_up(data, trial)
    timed = summary(speed.own_s or _shared(data, calls))
    even = paid_back(data, trial)
    return Row(
        candidate=candidate.label,
        id=candidate.id,
        model=data.header.workload.label,
        batch=first.samples_per_call if first else None,
        callers=data.header.concurrency,
        engine=" + ".join(engines_of(candidate)),
        mode=candidate.settings.mode,
        precision=candidate.settings.precision.value,
        relative_error=_relative_error(data, trial),
        state=trial.state.value,
        chosen=data.verdict is not None and data.verdict.chosen_id == candidate.id,
        cold_s=first.cold_s if first and trial.same_as is None else None,  # a twin's build was stopped half-way
        warm_s=_warm_s(data.warm.get(candidate.id, ())),
        p50_ms=_ms(timed, "median_s"),
        eager_p50_ms=_ms(summary(speed.eager_s), "median_s"),
        samples_per_s=_throughput(first, timed),
        request_ms=_request_ms(first, "request_s"),
        model_ms=_request_ms(first, "model_s"),
        calls=len(calls),
        call_p50_ms=_ms(figures, "median_s"),
        p95_ms=_ms(figures, "p95_s"),
        p99_ms=_ms(figures, "p99_s"),
        std_ms=_ms(figures, "std_s"),
        speedup=speed.ratio,
        speedup_low=speed.low,
        speedup_high=speed.high,
        speedup_from=speed.source,
        break_even_calls=even.cold_calls if even else None,
        break_even_low=even.cold_low if even else None,
        break_even_high=even.cold_high if even else None,
        peak_rss_mib=memory.peak_mib,
        steady_rss_mib=memory.steady_mib,
        memory_from=memory.source,
        compiler_runs=first.compiler_runs if first else None,
        compile_cpu_s=first.cold_cpu_s if first else None,
        caveats="; ".join(trial.check.caveats) if trial.check else "",
        note=_note(data, trial),
        rationale=candidate.rationale,
    )


def _relative_error(data: RunData, trial: Trial) -> float | None:
    """Eager is not checked: how far it is from float64 was seen when the reference was made."""
    if trial.candidate.is_eager:
        return data.diagnosis.eager_error if data.diagnosis else None
    return trial.check.relative_error if trial.check else None


def single_calls(data: RunData, trial: Trial) -> tuple[float, ...]:
    """The single calls to quote: those of the fresh processes where there are any, else the trial's own."""
    warm = data.warm.get(trial.candidate.id, ())
    confirmed = tuple(s for measurement in warm for s in measurement.call_s)
    return confirmed or (trial.measurement.call_s if trial.measurement else ())


def _shared(data: RunData, calls: Sequence[float]) -> tuple[float, ...]:
    """Single calls as wall seconds per call over all callers: while one waits, the others are served, too."""
    return tuple(s / data.header.concurrency for s in calls)


def _warm_s(warm: Sequence[Measurement]) -> float | None:
    return statistics.median(m.cold_s for m in warm) if warm else None


def _ms(figures: Summary | None, field: str) -> float | None:
    seconds = getattr(figures, field) if figures else None
    return None if seconds is None else seconds * 1e3


def _request_ms(first: Measurement | None, field: str) -> float | None:
    seconds = getattr(first, field) if first else None
    return None if seconds is None else seconds * 1e3


def _throughput(first: Measurement | None, figures: Summary | None) -> float | None:
    """Work over time: the mean, not the median, says how much gets done."""
    if first is None or figures is None or not first.samples_per_call or figures.mean_s <= 0:
        return None
    return first.samples_per_call / figures.mean_s


def _memory(first: Measurement | None, warm: Sequence[Measurement]) -> Memory:
    """Of fresh processes with kept artifacts where there are any: they are what the user will run."""
    for source, measured in ((FRESH, warm), (TRIAL, [first] if first else [])):
        peak = max((m.peak_rss_bytes for m in measured), default=0)
        if peak:
            return Memory(peak / MIB, max(m.steady_rss_bytes for m in measured) / MIB or None, source)
    return Memory()


def _speed_up(data: RunData, trial: Trial) -> SpeedUp:
    if trial.candidate.is_eager:
        return _baseline(data, trial)
    race = best_race(data, trial.candidate.id)
    compared = compare(race, trial.candidate.id, race.arms[0]) if race is not None else None
    if race is not None and compared is not None and compared.outcome is not Outcome.UNDECIDED:  # that has no figures
        own_s = column(race, race.arms.index(trial.candidate.id))
        return SpeedUp(compared.ratio, compared.low, compared.high, race.purpose, own_s, column(race, 0))
    return _screened(trial)


def _baseline(data: RunData, trial: Trial) -> SpeedUp:
    """Eager beside itself: in the race that counts most, else by its single calls."""
    races = _best_first(data.races)
    own_s = column(races[0], 0) if races else _shared(data, single_calls(data, trial))
    return SpeedUp(1.0, source="baseline", own_s=own_s, eager_s=own_s)


def _screened(trial: Trial) -> SpeedUp:
    pairs = [(eager, own) for eager, own in trial.screening if eager > 0 and own > 0]
    if not pairs:
        return SpeedUp()
    ranked = sorted(pairs, key=lambda pair: pair[0] / pair[1])
    middle = ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1]  # whose ratio is the median, so their times give it
    eager_s, own_s = (statistics.geometric_mean(times) for times in zip(*middle, strict=True))
    return SpeedUp(eager_s / own_s, source="screening", own_s=(own_s,), eager_s=(eager_s,))


def column(race: Race, index: int) -> tuple[float, ...]:
    """The seconds per call of one arm, over all processes."""
    return tuple(row[index] for process in race.processes for row in process.rounds)


def _note(data: RunData, trial: Trial) -> str:
    if trial.same_as is not None:
        return f"same program as {_label(data, trial.same_as)}; not measured twice"
    if trial.state is not State.OK:
        return trial.reason
    check = trial.check
    words = precision_words(trial.candidate.settings.precision, *(_errors(check) if check else (None, None)))
    files = f"built as {_label(data, trial.files_of)}" if trial.files_of is not None else ""
    doubts = [*filter(None, (words, files)), *(trial.measurement.doubts if trial.measurement else ())]
    found = None if trial.candidate.is_eager else comparison(data, trial.candidate.id)
    doubts += [doubt for doubt in (found[0].doubts if found else ()) if doubt not in doubts]
    return "; ".join(doubts)


def _errors(check: Check) -> tuple[float | None, float | None]:
    return check.relative_error, check.tolerance


def _label(data: RunData, candidate_id: str) -> str:
    known: Candidate | None = data.trials[candidate_id].candidate if candidate_id in data.trials else None
    return known.label if known else candidate_id
