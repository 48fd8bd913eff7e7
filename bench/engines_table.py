"""From the journal of bench/engines.py to its table, CSV and geometric means. Pure: reads no clock, starts nothing.

In: a Journal. Out: one Row per model, the verdict of each, and text. The plan is compared directly with plain
torch.compile and with the best hand-written arm: the best of the screening, raced again on fresh data. Where the
screening cannot tell the best two apart both are raced, and the one that leaves the plan less counts. Two columns: the
plan has its threads and allocator and the arms by hand have the machine's own; and the arms by hand may have the plan's
as well, whichever is better for them. A plan fails only when its whole interval against the first lies below 0.98,
twice. Not covered: the mean over models with its interval (engines_mean.py).
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilot.measure.stats import log_ratios
from compilot.records import Comparison, ProcessSettings, Race
from compilot.verdict.compare import compare
from engines_journal import AGAIN, GIVEN_SCREENING, JUDGED, SCREENING, Built, Journal, Tuned

CONV_NETS = ("resnet18", "mobilenetv2", "efficientnet_b0", "convnext_tiny", "segformer_b0")
OTHERS = ("vit_small", "bert_small", "gpt2_small", "t5_small", "whisper_tiny_encoder", "lstm", "mlp")
LIMIT = 0.98  # of the best hand-written engine; less is not shown to be lost to noise alone
EAGER, COMPILE, PLAN = "eager", "compile", "compilot"
BY_HAND = (COMPILE, "tuned", "onnxruntime", "openvino", "aoti")
GIVEN = "_given"  # an arm by hand with the plan's threads and allocator (as by_hand.py names it)
BY_HAND_GIVEN = tuple(f"{arm}{GIVEN}" for arm in BY_HAND)
LogRatios = Sequence[Sequence[float]]
TITLES = {
    COMPILE: "torch.compile",
    "tuned": "tuned compile",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "aoti": "AOTInductor",
}
MOST_RIVALS = 2  # more would make the judged race longer for arms that are hardly ever the best
AIMS = {"conv nets": 2.0, "others": 1.15}  # geometric mean over plain torch.compile


class Row(NamedTuple):
    """Everything about one model. Ratios are speed-ups: above 1, the first-named is faster."""

    model: str
    tuned: Tuned | None
    built: dict[str, Built]
    eager_ms: float | None
    compile_ms: float | None
    plan_ms: float | None
    over_eager: dict[str, Comparison]  # by arm, from the screening
    best: str | None  # of the hand-written arms
    plan_eager: Comparison | None  # from the screening too
    plan_compile: Comparison | None  # this and the next from the judged race
    plan_best: Comparison | None
    again: Comparison | None  # plan over best in the second race, where one was needed
    best_given: str | None = None  # of the arms by hand with and without the plan's threads and allocator
    plan_given: Comparison | None = None  # plan over that one, from the judged race
    again_given: Comparison | None = None
    logs_best: LogRatios | None = None  # of each process and pair, for the mean over models
    logs_given: LogRatios | None = None

    @property
    def verdict(self) -> str:
        return verdict(self)

    @property
    def settings(self) -> str:
        """What the plan asks of its process, "" where that is nothing."""
        return told(self.tuned.process) if self.tuned is not None else ""


def told(process: ProcessSettings) -> str:
    """Process settings in a few words."""
    threads = [f"{process.threads} thread{'s' if process.threads > 1 else ''}"] if process.threads else []
    flags = {"memory kept": process.keep_memory, "denormals as zero": process.flush_denormals}
    return ", ".join([*threads, *(name for name, holds in flags.items() if holds)])


def row(journal: Journal, model: str) -> Row:
    """What the journal says of one model so far."""
    screening, judged, again = (journal.race(model, name) for name in (SCREENING, JUDGED, AGAIN))
    built = journal.arms(model)
    over_eager = _over_eager(screening)
    plain = rivals(over_eager, built)
    best, best_given = hardest(judged, plain), hardest(judged, [*plain, *given_rivals(journal, model)])
    return Row(
        model=model,
        tuned=journal.tuned(model),
        built=built,
        eager_ms=_median_ms(screening, EAGER),
        compile_ms=_median_ms(judged or screening, COMPILE),
        plan_ms=_median_ms(judged, PLAN),
        over_eager=over_eager,
        best=best,
        plan_eager=over_eager.get(PLAN),
        plan_compile=_compared(judged, COMPILE),
        plan_best=_compared(judged, best),
        again=_compared(again, best),
        best_given=best_given,
        plan_given=_compared(judged, best_given),
        again_given=_compared(again, best_given),
        logs_best=_logs(judged, best),
        logs_given=_logs(judged, best_given),
    )


def given_rivals(journal: Journal, model: str) -> list[str]:
    """The quickest arms by hand that have the plan's settings; none where the plan has no settings of its own."""
    return rivals(_over_eager(journal.race(model, GIVEN_SCREENING)), journal.arms(model), BY_HAND_GIVEN)


def rivals(over_eager: dict[str, Comparison], built: dict[str, Built], among: Sequence[str] = BY_HAND) -> list[str]:
    """The quickest hand-written arm of the screening that agrees with eager; and the second, if it may be the first."""
    able = [arm for arm in among if arm in over_eager and arm in built and built[arm].ok]
    best, *others = sorted(able, key=lambda arm: -over_eager[arm].ratio) or [None]
    close = [arm for arm in others if best is not None and over_eager[arm].high >= over_eager[best].low]
    return [] if best is None else [best, *close[: MOST_RIVALS - 1]]


def hardest(judged: Race | None, arms: Sequence[str]) -> str | None:
    """Of the rivals the one that leaves the plan the smallest ratio; before the judged race the first."""
    ratios = {arm: found.ratio for arm in arms if (found := _compared(judged, arm)) is not None}
    return min(ratios, key=lambda arm: ratios[arm]) if ratios else next(iter(arms), None)


def below(comparison: Comparison | None) -> bool:
    """The whole interval lies below the limit."""
    return comparison is not None and comparison.high < LIMIT


def verdict(row: Row) -> str:
    """One or two words, and the reason where it is bad."""
    if row.tuned is not None and not row.tuned.ok:
        return f"no plan: {row.tuned.because}"
    if PLAN in row.built and not row.built[PLAN].ok:
        return f"plan failed: {row.built[PLAN].reason}"
    if row.plan_best is None:
        return "not measured"
    if not below(row.plan_best):
        return "met"
    if row.again is None:
        return "below once, second race missing"
    return f"below {LIMIT} twice" if below(row.again) else "met (second race)"


def shown_below(row: Row) -> bool:
    """Whether the plan is shown below the limit against arms by hand that have the plan's settings too."""
    return below(row.plan_given) and (row.again_given is None or below(row.again_given))


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """None of nothing."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logs)) if logs else None


def group_line(name: str, rows: Sequence[Row]) -> str:
    """The group's geometric mean of plan over plain torch.compile, and what is missing in it."""
    known = {r.model: r.plan_compile.ratio for r in rows if r.plan_compile is not None}
    mean = geometric_mean(known.values())
    missing = [r.model for r in rows if r.model not in known]
    without = f"; without {', '.join(missing)}" if missing else ""
    if mean is None:
        return f"{name}: not measured"
    aim = AIMS[name]
    return (
        f"{name}: plan over plain torch.compile {mean:.2f}x (geometric mean of {len(known)} models{without}); "
        f"aim {aim:.2f}x: {'met' if mean >= aim else 'not met'}"
    )


def markdown(rows: Sequence[Row]) -> str:
    """The table. Hand-written arms: speed-up over eager in the screening; the best one is bold."""
    head = ["model", "eager ms", *(f"{TITLES[arm]}" for arm in BY_HAND), "plan"]
    head += ["its settings", "plan / eager", "plan / torch.compile", "plan / best by hand", "verdict"]
    head += ["plan / best by hand, its settings given to both", f"shown below {LIMIT}"]
    lines = [head, ["---"] * len(head), *(_cells(r) for r in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def failures(rows: Sequence[Row]) -> list[str]:
    """Arms that could not be built or raced, with the reason."""
    return [f"{r.model}, {b.arm}: {b.reason}" for r in rows for b in r.built.values() if not b.ok]


def doubts(rows: Sequence[Row]) -> list[str]:
    """What made a judged race less than it seems: a busy machine, few processes, arms that were not idle in time."""
    found = []
    for r in rows:
        told = [text for one in (r.plan_best, r.again) if one for text in one.doubts if not text.startswith("no A/A")]
        found += [f"{r.model}: {text}" for text in dict.fromkeys(told)]
    return found


def as_csv(rows: Sequence[Row]) -> str:
    """The same with every figure in a column of its own."""
    out = io.StringIO()
    table = [_flat(r) for r in rows]
    writer = csv.DictWriter(out, fieldnames=list(table[0]) if table else ["model"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _over_eager(screening: Race | None) -> dict[str, Comparison]:
    return {} if screening is None else {arm: compare(screening, arm, EAGER) for arm in screening.arms[1:]}


def _compared(race: Race | None, baseline: str | None) -> Comparison | None:
    if race is None or PLAN not in race.arms or baseline not in race.arms:
        return None
    return compare(race, PLAN, baseline)


def _logs(race: Race | None, baseline: str | None) -> LogRatios | None:
    if race is None or PLAN not in race.arms or baseline not in race.arms:
        return None
    return log_ratios(race, race.arms.index(PLAN), race.arms.index(baseline))


def _median_ms(race: Race | None, arm: str) -> float | None:
    """Median over all rounds; for the eye only, comparisons are paired."""
    if race is None or arm not in race.arms:
        return None
    column = race.arms.index(arm)
    return 1e3 * statistics.median(rounds[column] for process in race.processes for rounds in process.rounds)


def _cells(row: Row) -> list[str]:
    hand = [_hand(row, arm) for arm in BY_HAND]
    plan = row.tuned.label if row.tuned is not None and row.tuned.ok else "none"
    versus, given = _versus(row.best, row.plan_best), _versus(row.best_given, row.plan_given)
    judged = [row.settings or "none", _ratio(row.plan_eager), _ratio(row.plan_compile), versus, row.verdict]
    shown = "n/a" if row.plan_given is None else "yes" if shown_below(row) else "no"
    return [row.model, _ms(row.eager_ms), *hand, plan, *judged, given, shown]


def _versus(best: str | None, comparison: Comparison | None) -> str:
    if best is None or comparison is None:
        return "n/a"
    with_settings = " with its settings" if best.endswith(GIVEN) else ""
    return f"{_ratio(comparison)}, {TITLES[best.removesuffix(GIVEN)]}{with_settings}"


def _hand(row: Row, arm: str) -> str:
    if arm in row.built and not row.built[arm].ok:
        return "failed"
    if arm not in row.over_eager:
        return "n/a"
    text = f"{row.over_eager[arm].ratio:.2f}x"
    return f"**{text}**" if arm == row.best else text


def _ratio(comparison: Comparison | None) -> str:
    return "n/a" if comparison is None else f"{comparison.ratio:.2f}x ({comparison.low:.2f}-{comparison.high:.2f})"


def _ms(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g}"


def _flat(row: Row) -> dict[str, object]:
    flat: dict[str, object] = {"model": row.model, "eager_ms": row.eager_ms, "torch_compile_ms": row.compile_ms}
    flat["plan_ms"] = row.plan_ms
    flat["plan_engine"] = row.tuned.engine if row.tuned else ""
    flat["plan_label"] = row.tuned.label if row.tuned else ""
    for arm in (*BY_HAND, PLAN):
        found = row.over_eager.get(arm)
        flat[f"{arm}_over_eager_screening"] = found and found.ratio
        flat[f"{arm}_failure"] = row.built[arm].reason if arm in row.built and not row.built[arm].ok else ""
    flat["best_by_hand"] = row.best or ""
    flat["best_by_hand_given"] = row.best_given or ""
    flat["plan_settings"] = row.settings
    for name in ("plan_eager", "plan_compile", "plan_best", "again", "plan_given", "again_given"):
        found = getattr(row, name)
        for field in ("ratio", "low", "high", "processes", "pairs"):
            flat[f"{name}_{field}"] = found and getattr(found, field)
    flat["verdict"] = row.verdict
    flat["given_shown_below"] = "" if row.plan_given is None else shown_below(row)
    return flat
