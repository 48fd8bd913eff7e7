"""What changed between two runs. In: two run directories. Out: `Change` records, by area, causes before numbers.

Areas: code (model and git commit), versions, machine, options (what was asked for), settings (of the chosen candidate,
and torch's own options where the run noted them), numbers. Covered: changed layers and attributes by name, another CPU,
another option of torch, candidates that ended otherwise, speed-ups with their intervals. Numbers are compared by their
intervals and nothing more: two runs were not timed in turns. Not covered: why a number changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.identity import isa
from compilot.identity.differences import Difference, differences
from compilot.identity.layers import changed_layers
from compilot.ledger.entries import RunEntry, chosen_comparison, last_trials, last_verdict, layers_in
from compilot.records import (
    Candidate,
    Comparison,
    JournalLine,
    Record,
    RunHeader,
    Trial,
    Verdict,
    normal_form,
)

CODE, VERSIONS, MACHINE, OPTIONS, SETTINGS, NUMBERS = "code", "versions", "machine", "options", "settings", "numbers"
MAX_TOLD = 5  # candidates that ended otherwise; the rest is counted
_OF_MACHINE = ("machine.cpu_model", "machine.cores", "machine.threads", "machine.gpu")
_CALLS = {"eager's median call": "eager_call_s", "the chosen candidate's median call": "chosen_call_s"}
_TABLES = {"config": "torch's compiler option ", "state": "torch's ", "environment": "environment variable "}
_NOT_ASKED = ("schema", "compilot", "created", "workload", "fingerprint", "argv", "expected", "source")


class Change(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One thing that is not the same in both runs."""

    area: str  # "code", "versions", "machine", "options", "settings" or "numbers"
    what: str  # "torch", "options.freezing", "speed-up", ...
    old: str
    new: str
    sentence: str


class ComparedRuns(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Two runs side by side."""

    first: RunEntry
    second: RunEntry
    changes: tuple[Change, ...]  # causes first, numbers last; none: nothing that was recorded differs
    not_compared: tuple[str, ...] = ()  # what at least one of the two has no record of
    sentence: str = ""  # the result in one


class Read(NamedTuple):
    """One run, as far as it is compared."""

    entry: RunEntry
    run_dir: RunDir
    header: RunHeader  # the first: what it is about
    asked: RunHeader  # the last: what was asked for in the end
    trials: dict[str, Trial]
    verdict: Verdict | None
    lines: tuple[JournalLine, ...]

    @property
    def chosen(self) -> Candidate | None:
        """None: there is no verdict."""
        return self.trials[self.verdict.chosen_id].candidate if self.verdict is not None else None


def read(entry: RunEntry, run_dir: RunDir) -> Read:
    """A run, ready to be compared."""
    lines = tuple(run_dir.lines())
    headers = [line for line in lines if isinstance(line, RunHeader)]
    return Read(entry, run_dir, headers[0], headers[-1], last_trials(lines), last_verdict(lines), lines)


def compare_runs(first: Read, second: Read) -> ComparedRuns:
    """What changed from the first to the second."""
    found = (*_causes(first, second), *_numbers(first, second))
    missing = tuple(_not_compared(first, second))
    return ComparedRuns(
        first=first.entry, second=second.entry, changes=found, not_compared=missing, sentence=_sentence(found)
    )


def _causes(first: Read, second: Read) -> Iterator[Change]:
    yield from _commit(first.header, second.header)
    for sentence in changed_layers(layers_in(first.lines), layers_in(second.lines)):
        yield Change(area=CODE, what="layers", old="", new="", sentence=sentence)
    yield from sorted(_fingerprints(first.header, second.header), key=lambda c: (CODE, VERSIONS, MACHINE).index(c.area))
    yield from _mapped(OPTIONS, _asked(first), _asked(second))
    yield from _settings(first, second)


def _sentence(found: Iterable[Change]) -> str:
    """ "code, machine and numbers changed." """
    areas = list(dict.fromkeys(change.area for change in found))
    if not areas:
        return "nothing that was recorded differs."
    last = f" and {areas[-1]}" if len(areas) > 1 else areas[-1]
    return f"{', '.join(areas[:-1])}{last} changed."


def _change(area: str, what: str, old: Any, new: Any, more: str = "") -> Change:
    a, b = _text(old), _text(new)
    return Change(area=area, what=what, old=a, new=b, sentence=f"{what}: {a} -> {b}{more}")


def _text(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "none"
    return ", ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def _mapped(area: str, old: Mapping[str, Any], new: Mapping[str, Any], words: str = "") -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield _change(area, f"{words}{name}", old.get(name), new.get(name))


# ------------------------------------------------------------------------------------------- code, versions, machine


def _commit(old: RunHeader, new: RunHeader) -> Iterator[Change]:
    a, b = (
        f"{h.source.commit[:12]}{' with changes' if h.source.dirty else ''}" if h.source else "" for h in (old, new)
    )
    if a and b and a != b:
        yield _change(CODE, "git commit", a, b)


def _fingerprints(old: RunHeader, new: RunHeader) -> Iterator[Change]:
    for found in differences(old.fingerprint, new.fingerprint):
        if found.field.startswith("model."):
            yield Change(area=CODE, what=found.field, old=found.old, new=found.new, sentence=found.sentence.rstrip("."))
        elif found.field != "machine.cpu_isa":
            yield _of_machine(found)
    before, now = old.fingerprint.machine, new.fingerprint.machine
    yield from (_change(VERSIONS, name, None, now.engines[name]) for name in now.engines.keys() - before.engines.keys())
    if set(before.cpu_isa) != set(now.cpu_isa):
        lost, won = (set(before.cpu_isa) - set(now.cpu_isa), set(now.cpu_isa) - set(before.cpu_isa))
        words = [f"{verb} {isa.named(sorted(names))}" for verb, names in (("without", lost), ("with", won)) if names]
        text = f"CPU instructions: now {' and '.join(words)}"
        yield Change(
            area=MACHINE,
            what="CPU instructions",
            old=" ".join(before.cpu_isa),
            new=" ".join(now.cpu_isa),
            sentence=text,
        )
    if old.compilot != new.compilot:
        yield _change(VERSIONS, "compilot", old.compilot, new.compilot)


def _of_machine(found: Difference) -> Change:
    area = MACHINE if found.field in _OF_MACHINE else VERSIONS
    return _change(area, found.sentence.partition(":")[0], found.old, found.new)


# ------------------------------------------------------------------------------------------------ options, settings


def _asked(run: Read) -> dict[str, Any]:
    """What the user asked for, without what equals its default."""
    told = {name: value for name, value in normal_form(run.asked).items() if name not in _NOT_ASKED}
    workload = normal_form(run.header.workload)
    return {**told, **{name: workload.get(name) for name in ("target", "seed", "grad") if name in workload}} | {
        f"dynamic {dim.input}:{dim.dim}": f"{dim.min}..{dim.max}" for dim in run.header.workload.dynamic
    }


def _settings(first: Read, second: Read) -> Iterator[Change]:
    """How the chosen candidates differ, and torch's own options where both runs noted them."""
    old, new = first.chosen, second.chosen
    if old is None or new is None:
        return
    if old.label != new.label:
        yield _change(SETTINGS, "chosen", old.label, new.label)
    yield from _mapped(SETTINGS, _flat(old), _flat(new))
    a, b = (_noted(run, candidate) for run, candidate in ((first, old), (second, new)))
    if a is not None and b is not None:
        for table, words in _TABLES.items():
            yield from _mapped(SETTINGS, getattr(a, table), getattr(b, table), words)


def _flat(candidate: Candidate) -> dict[str, Any]:
    """Every setting that is not the default, by its path: "options.freezing", "process.threads"."""
    settings = normal_form(candidate.settings)
    options = {f"options.{name}": value for name, value in settings.pop("options", {}).items()}
    process = {f"process.{name}": value for name, value in normal_form(candidate.process).items()}
    regions = {f"region {region.selector}": str(normal_form(region.settings)) for region in candidate.regions}
    return {"engine": candidate.settings.engine, **settings, **options, **process, **regions}


class _Key(msgspec.Struct):
    """The part of a compile key that says how torch was set."""

    config: dict[str, str] = {}
    state: dict[str, str] = {}
    environment: dict[str, str] = {}


def _noted(run: Read, candidate: Candidate) -> _Key | None:
    try:
        return msgspec.json.decode(run.run_dir.compile_key(candidate.id).read_bytes(), type=_Key)
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------------------------------------------------- numbers


def _numbers(first: Read, second: Read) -> Iterator[Change]:
    yield from _speed_up(first, second)
    for what, field in _CALLS.items():
        old, new = (getattr(run.entry, field) for run in (first, second))
        if old is not None and new is not None and old != new:
            percent = f" ({(new / old - 1.0) * 100.0:+.1f} %)"
            yield _change(NUMBERS, what, f"{old * 1e3:.3g} ms", f"{new * 1e3:.3g} ms", percent)
    yield from _trials(first.trials, second.trials)


def _speed_up(first: Read, second: Read) -> Iterator[Change]:
    old, new = (chosen_comparison(run.verdict, run.trials) for run in (first, second))
    if (old is None and new is None) or (old is not None and new is not None and old.ratio == new.ratio):
        return
    more = ""
    if old is not None and new is not None:
        apart = old.low > new.high or new.low > old.high
        more = "; the intervals do not overlap" if apart else "; the intervals overlap, so no difference is shown"
    yield _change(NUMBERS, "speed-up over eager", _interval(old), _interval(new), more)


def _interval(shown: Comparison | None) -> str:
    return "eager stays" if shown is None else f"{shown.ratio:.2f}x (95 % {shown.low:.2f}-{shown.high:.2f})"


def _trials(old: Mapping[str, Trial], new: Mapping[str, Trial]) -> Iterator[Change]:
    both = [name for name in old if name in new and old[name].state is not new[name].state]
    for name in both[:MAX_TOLD]:
        why = f" ({new[name].reason})" if new[name].reason else ""
        yield _change(NUMBERS, f"candidate {new[name].candidate.label}", old[name].state, new[name].state, why)
    if len(both) > MAX_TOLD:
        yield _change(NUMBERS, "candidates that ended otherwise besides", None, len(both) - MAX_TOLD)
    if old.keys() != new.keys():
        tried = f"; {len(old.keys() - new.keys())} only in the first, {len(new.keys() - old.keys())} only in the second"
        yield _change(NUMBERS, "candidates tried", len(old), len(new), tried)


def _not_compared(first: Read, second: Read) -> Iterator[str]:
    both = (first, second)
    if any(run.header.source is None for run in both):
        yield "the git commit of the model's repository"
    if any(run.verdict is None for run in both):
        yield "the chosen candidate: a run has no verdict"
    elif any(_noted(run, run.chosen) is None for run in both if run.chosen is not None):
        yield "torch's own options and the environment at the build of the chosen candidate"
