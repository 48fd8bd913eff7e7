"""One small rule per objective: whom to choose, and why.

In: a Field. Out: a Choice, whose contender is None when eager is to be kept. Covered: latency and throughput, a horizon
of calls, p99, start-up, memory. Not covered: reading trials and races (contenders.py), doubts (decide.py).
No rule but memory's ever chooses a candidate that was not shown faster than eager; memory's never one shown slower.
"""

from __future__ import annotations

from dataclasses import dataclass

from compilot.measure.stats import MIN_MARGIN, calls_needed, percentile_or_none
from compilot.records import BreakEven, Outcome
from compilot.verdict.breakeven import break_even_in, total_time_s
from compilot.verdict.compare import compare
from compilot.verdict.contenders import Contender, Field
from compilot.verdict.words import call_time, count, pays_back, percent, seconds, shown, times

CHEAPER_START = 0.5  # a start must be this much cheaper to count among equals
MEMORY_MARGIN = 0.02  # peak memory of the same program varies by about this between processes


@dataclass(frozen=True)
class Choice:
    """Who was chosen (None: keep eager) and why."""

    contender: Contender | None
    because: str


def by_speed(field: Field) -> Choice:
    """The best shown speed-up; a peer within 1 % that starts in half the time, or sets nothing, is as good."""
    winners = field.faster
    if not winners:
        return Choice(None, not_faster(field))
    best = winners[0]
    peers = [best, *(c for c in winners[1:] if _as_good(field, best, c))]
    chosen = min(peers, key=lambda c: (c.sets_process, c.cold_s))
    return Choice(chosen, _speed(chosen) + _instead_of(chosen, best))


def by_horizon(field: Field, calls: int) -> Choice:
    """The least total time over so many calls of one process that starts cold, eager included.

    Importing torch's compiler counts. A total that is hardly below eager's is no reason to compile.
    """
    winners = field.faster
    if not winners:
        return Choice(None, not_faster(field))
    best = min(winners, key=lambda c: (_total(c, calls), c.per_call_s))
    ours, eagers = _total(best, calls), _total(field.eager, calls)
    totals = f"over {count(calls, 'call')} {seconds(ours)} in total{_imports(best)} against eager's {seconds(eagers)}"
    if ours * (1.0 + MIN_MARGIN) < eagers:
        return Choice(best, f"{_speed(best)}; {totals}")
    if ours < eagers:
        return Choice(None, f"{_speed(best)}, but {totals}: less than {percent(MIN_MARGIN)} saved")
    return Choice(None, f"{_speed(best)}, but {totals}: {pays_back(paid_back(field, best, imported=True))}")


def by_p99(field: Field) -> Choice:
    """The lowest p99 below eager's among those shown faster; by latency, saying so, when there are too few calls."""
    eager = percentile_or_none(field.eager.call_s, 0.99)
    tails = {c.id: tail for c in field.faster if (tail := percentile_or_none(c.call_s, 0.99)) is not None}
    if eager is None or (field.faster and not tails):
        choice = by_speed(field)
        return Choice(choice.contender, f"{choice.because}; judged by the median: p99 needs {calls_needed(0.99)} calls")
    if not tails:
        return Choice(None, not_faster(field))
    best = min((c for c in field.faster if c.id in tails), key=lambda c: tails[c.id])
    own = tails[best.id]
    words = f"p99 {call_time(own)} against eager's {call_time(eager)} ({times(eager / own)})"
    if own < eager:
        return Choice(best, f"{_speed(best)}; {words}")
    return Choice(None, f"{_speed(best)}, but {words}")


def by_startup(field: Field) -> Choice:
    """The quickest first call of a fresh process with kept artifacts, among those shown faster per call."""
    winners = field.faster
    if not winners:
        return Choice(None, not_faster(field))
    best = min(winners, key=lambda c: c.start_s)
    start = f"first call {_start(best)} with kept artifacts, the quickest of {len(winners)} faster than eager"
    return Choice(best, f"{_speed(best)}; {start} (eager: {_start(field.eager)})")


def by_memory(field: Field) -> Choice:
    """The lowest peak memory, if 2 % below eager's, among those not shown slower than eager."""
    eager = field.eager.peak_rss_bytes
    able = [c for c in field.candidates if _not_slower(c) and c.peak_rss_bytes > 0]
    if not able or eager <= 0:
        return Choice(None, "no candidate with a known peak memory was shown to be no slower than eager")
    best = min(able, key=lambda c: c.peak_rss_bytes)
    words = f"{best.label}: peak memory {_mib(best.peak_rss_bytes)} against eager's {_mib(eager)}"
    if best.peak_rss_bytes >= (1.0 - MEMORY_MARGIN) * eager:
        return Choice(None, f"{words}, not {percent(MEMORY_MARGIN)} lower")
    assert best.versus_eager is not None
    return Choice(best, f"{words}; {shown(best.versus_eager)}")


def paid_back(field: Field, contender: Contender, *, imported: bool = False) -> BreakEven | None:
    """When its start is paid back, by the race; None: it was not shown faster.

    imported: with the import of torch's compiler, as in a total.
    """
    if contender.versus_eager is None:
        return None
    beside = (contender.import_s, contender.warm_import_s) if imported else (0.0, 0.0)
    firsts = zip((contender.first_s, contender.warm_s), beside, strict=True)
    cold_s, warm_s = (None if first_s is None else first_s + more_s for first_s, more_s in firsts)
    eager_s = field.eager.first_s
    return break_even_in(field.race, contender.versus_eager, cold_s=cold_s, warm_s=warm_s, eager_first_s=eager_s)


def not_faster(field: Field) -> str:
    """Why no candidate replaces eager: the best of them, with its figures."""
    best = min(field.candidates, key=_rank)
    assert best.versus_eager is not None
    return f"best candidate {best.label}: {shown(best.versus_eager)}"


def _rank(contender: Contender) -> tuple[bool, float]:
    undecided = contender.versus_eager is None or contender.versus_eager.outcome is Outcome.UNDECIDED
    return undecided, contender.per_call_s


def _not_slower(contender: Contender) -> bool:
    versus = contender.versus_eager
    return versus is not None and versus.outcome in (Outcome.FASTER, Outcome.NO_DIFFERENCE)


def _as_good(field: Field, best: Contender, other: Contender) -> bool:
    """No slower as far as can be seen, and simpler or much cheaper to start: tenths of a second are not worth 1 %.

    Settings of the whole process ask something of the user, and one of many may look faster by chance.
    """
    versus = compare(field.race, best.id, other.id)
    alike = versus.outcome is not Outcome.FASTER and versus.ratio <= 1.0 + MIN_MARGIN
    simpler = best.sets_process and not other.sets_process
    cheaper = other.cold_s <= CHEAPER_START * best.cold_s and other.sets_process <= best.sets_process
    return alike and (simpler or cheaper)


def _total(contender: Contender, calls: int) -> float:
    """Eager needs no measured start: its first call is a call."""
    unknown = contender.per_call_s if contender.versus_eager is None else float("inf")
    first = unknown if contender.first_s is None else contender.first_s
    return total_time_s(calls, first + contender.import_s, contender.per_call_s)


def _imports(contender: Contender) -> str:
    """What of a total is no call and no compile; "": nothing."""
    return f" ({seconds(contender.import_s)} of it importing torch's compiler)" if contender.import_s > 0.0 else ""


def _speed(contender: Contender) -> str:
    assert contender.versus_eager is not None
    return f"{contender.label}: {shown(contender.versus_eager)}"


def _instead_of(chosen: Contender, best: Contender) -> str:
    if chosen is best:
        return ""
    assert best.versus_eager is not None
    known = f"{times(best.versus_eager.ratio)}, {seconds(best.cold_s)}"
    figures = known if best.first_s is not None else "start unknown"
    simpler = best.sets_process and not chosen.sets_process
    why = "it needs no settings of the process" if simpler else f"it starts in {seconds(chosen.cold_s)}"
    return f"; no difference from {best.label} shown ({figures}), and {why}"


def _start(contender: Contender) -> str:
    return seconds(contender.start_s) if contender.start_s < float("inf") else "unknown"


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
