"""Repair: a candidate that failed, without what is to blame for it.

In: a diagnosis and all trials so far. Out: the next candidate that brings a repair forward; at the end who is to blame.
A candidate that gave wrong answers, crashed or could not be built is taken apart: first what is set in it, against the
same engine with nothing set; then the model, submodule by submodule (bisect.py), the rest in eager; then, where it did
not stop an export, the engine's own passes, which are left out one after another on the whole model. Everything follows
from the trials, so that an interrupted run goes on where it was. Covered: one repair for each engine that cannot have
the whole model; options where it can; submodules that the doctor or a trial's reason names; models without repeated
blocks or parts, of which passes can be left out. Not covered: lower precisions, whose error the user has allowed or
not; what a step promises (repair_worth.py). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot.candidates import boundary
from compilot.candidates.parts import cut, grouped, is_within, known_in, selector_of, shares_by_path, with_breaks
from compilot.candidates.spaces import space_of
from compilot.engines import registry
from compilot.engines.space import fitting
from compilot.modules.selectors import culprit
from compilot.records import (
    Candidate,
    Diagnosis,
    MemoryFormat,
    OptionValue,
    Precision,
    ProcessSettings,
    Region,
    Repair,
    Settings,
    State,
    Trial,
)
from compilot.tuning.bisect import FAILED, PASSED, Found, Questions, culprits

WORTH_OPENING = 0.15  # of an eager call: a culprit that takes more is looked into
OPTIONS, MODULES, AROUND, PASSES = "options", "modules", "around", "passes"  # kinds of a repair


class Progress(NamedTuple):
    """How far the repair of one failure has come."""

    failure: Trial
    settings: Settings  # of the engine in the regions
    kind: str  # OPTIONS, MODULES or PASSES
    next: Candidate | None  # to try; None: it is over
    asked: tuple[Trial, ...]  # that were answered already
    found: Found | None  # None: not yet


def repairs(diagnosis: Diagnosis, trials: Sequence[Trial]) -> list[Progress]:
    """Every failure that is worth repairing, and how far that has come."""
    known = {trial.candidate.id: trial for trial in trials}
    found = list[Progress]()
    for failure in failures(diagnosis, trials):
        modules = _replayed(failure, diagnosis, known)
        whole = any(_leaves_out(trial, modules.settings.engine, diagnosis) for trial in trials)
        if modules.found is not None or not whole:  # else the engine can have the whole model, without some passes
            found.append(modules)
        if modules.found is not None or whole:
            found += _in_passes(modules, diagnosis, known)
    return found


def records_of(diagnosis: Diagnosis, trials: Sequence[Trial]) -> list[Repair]:
    """What the repairs have found out so far."""
    every = [(progress.kind, _record(progress, diagnosis)) for progress in repairs(diagnosis, trials)]
    return [found for kind, found in every if kind != PASSES or found.culprits]  # mostly it is no pass


# ------------------------------------------------------------------------------------------------------------- failures


def failures(diagnosis: Diagnosis, trials: Sequence[Trial]) -> Iterator[Trial]:
    """One for each engine that cannot have the whole model, the plainest; else those with several things set.

    Of an engine whose whole model nobody has seen to its end, a boundary that failed.
    """
    engines = [boundary.main_engine(trial.candidate, diagnosis) for trial in trials]
    for engine in dict.fromkeys(engines):
        own = [trial for trial, main in zip(trials, engines, strict=True) if main == engine]
        failed = [t for t in own if t.state in FAILED and _settings(t, diagnosis).precision is Precision.AS_IS]
        whole = [t for t in failed if not t.candidate.regions]
        if engine == Settings().engine or not _can_be_repaired(engine, diagnosis):
            continue
        passed = [t for t in own if t.state in PASSED and not t.candidate.regions]
        if any(not _leaves_out(t, engine, diagnosis) for t in passed):
            yield from (t for t in whole if t.state is State.WRONG and len(_set_in(t.candidate)) > 1)
        elif whole:
            yield min(whole, key=lambda t: len(_set_in(t.candidate)))
        else:
            yield from failed[:1]


def _settings(trial: Trial, diagnosis: Diagnosis) -> Settings:
    """What the main engine runs with, on the whole model or in its largest region."""
    candidate = trial.candidate
    return boundary.main_region(candidate, diagnosis).settings if candidate.regions else candidate.settings


def _can_be_repaired(engine: str, diagnosis: Diagnosis) -> bool:
    """Not where every candidate of the engine is refused: without a compiler, or because of the model's indices."""
    compiler = diagnosis.compiler_problem is None or not registry.traits(engine).compiler_at_build
    return compiler and not diagnosis.indices.unproven and diagnosis.unjudgeable is None


# ------------------------------------------------------------------------------------------------------------ questions


def _replayed(failure: Trial, diagnosis: Diagnosis, known: Mapping[str, Trial]) -> Progress:
    """Ask the questions again that were answered; the first that was not is what to try next."""
    start = Progress(failure, _settings(failure, diagnosis), MODULES, None, (failure,), None)
    things = _set_in(failure.candidate)
    if not things or failure.candidate.regions or failure.state is State.INFEASIBLE:  # no option stops an export
        return _answered(start, _submodules(start.settings, failure, diagnosis), known)
    plain = _with(failure.candidate, ())
    if plain.id not in known:
        return start._replace(kind=OPTIONS, next=plain)
    start = start._replace(settings=plain.settings, asked=(failure, known[plain.id]))
    if known[plain.id].state in PASSED:
        questions = culprits(things, lambda some: _with(failure.candidate, some))
        return _answered(start._replace(kind=OPTIONS), questions, known)
    return _answered(start, _submodules(plain.settings, failure, diagnosis), known)


def _answered(progress: Progress, questions: Questions, known: Mapping[str, Trial]) -> Progress:
    asked = list(progress.asked)
    try:
        candidate = next(questions)
        while candidate.id in known:
            asked.append(known[candidate.id])
            candidate = questions.send(asked[-1])
    except StopIteration as over:
        return progress._replace(asked=tuple(asked), found=over.value)
    return progress._replace(asked=tuple(asked), next=candidate)


def _submodules(settings: Settings, failure: Trial, diagnosis: Diagnosis) -> Questions:
    """Which submodules the engine can have; those in which it is known to stop are not asked for."""
    blocked = with_breaks(diagnosis, exports_only=registry.traits(settings.engine).whole_graph, certain=True)
    places = [path for piece in cut(diagnosis, blocked) for path in piece.paths]
    shares = shares_by_path(diagnosis)

    def inside(path: str) -> list[str]:
        if shares.get(path, 0.0) < WORTH_OPENING:
            return []
        opened = cut(diagnosis, lambda other: blocked(other) or other == path)
        return [inner for piece in opened for inner in piece.paths if is_within(inner, path)]

    def make(paths: Sequence[str]) -> Candidate:
        return _in_regions(paths, settings, failure, diagnosis)

    return culprits(places, make, named=lambda trial: culprit(trial.reason), inside=inside)


def _in_regions(paths: Sequence[str], settings: Settings, failure: Trial, diagnosis: Diagnosis) -> Candidate:
    """These submodules with the engine, one region for those that are alike."""
    regions = [
        Region(selector=selector_of(sorted(group, key=paths.index), diagnosis.repeated), settings=settings)
        for group in grouped(paths, diagnosis.repeated)
    ]
    why = f"{failure.candidate.label} failed: which part of the model is to blame, and how fast are the others?"
    return boundary.with_regions(regions, why, diagnosis)


def _in_passes(modules: Progress, diagnosis: Diagnosis, known: Mapping[str, Trial]) -> Iterator[Progress]:
    """The same failure by the engine's passes: that leaves more of the model to it, but mostly it is no pass, and the
    engine without any of them fails as well.
    """
    failure, passes = modules.failure, passes_of(modules.settings.engine, diagnosis)
    if modules.kind == OPTIONS or not passes or failure.candidate.regions or failure.state is State.INFEASIBLE:
        return

    def make(some: Sequence[str]) -> Candidate:
        return _with_passes(modules.settings, some, passes, failure)

    start, bare = Progress(failure, modules.settings, PASSES, None, (failure,), None), make(())
    if bare.id not in known:
        yield start._replace(next=bare)
    elif known[bare.id].state in PASSED:
        asked = (failure, known[bare.id])
        yield _answered(start._replace(asked=asked), culprits(list(passes), make), known)


def passes_of(engine: str, diagnosis: Diagnosis) -> dict[str, OptionValue]:
    """The engine's own passes that can be left out: the option, and its value without it."""
    if engine not in registry.names():
        return {}
    knobs = fitting(space_of(engine, diagnosis).knobs, diagnosis)
    return {knob.name: knob.without for knob in knobs if knob.without is not None and not knob.only_with}


def _leaves_out(trial: Trial, engine: str, diagnosis: Diagnosis) -> bool:
    """Whether the engine had the whole model without some of its passes, and was right."""
    settings = trial.candidate.settings
    if settings.engine != engine or trial.candidate.regions or trial.state not in PASSED:
        return False
    passes = passes_of(engine, diagnosis)
    return any(name in passes and value == passes[name] for name, value in settings.options.items())


def _with_passes(
    settings: Settings, some: Sequence[str], passes: Mapping[str, OptionValue], failure: Trial
) -> Candidate:
    """The whole model with the engine, and of its passes only these."""
    out = {name: value for name, value in passes.items() if name not in some}
    return Candidate(
        settings=msgspec.structs.replace(settings, options={**settings.options, **out}),
        label=", ".join([settings.engine, *(f"no {option_words(name)}" for name in out)]),
        rationale=f"{failure.candidate.label} failed: which of its passes is to blame?",
    )


def known_stops(engine: str, diagnosis: Diagnosis) -> list[str]:
    """The submodules in which the doctor saw the engine's compiler stop; the model's own forward is none."""
    whole_graph = registry.traits(engine).whole_graph
    places = [place for place in diagnosis.breaks if place.stops_export or not whole_graph]
    return list(dict.fromkeys(module for place in places for module in known_in(place, diagnosis) if module))


# -------------------------------------------------------------------------------------------------------------- options


def _set_in(candidate: Candidate) -> list[str]:
    """Names of what is set beyond the engine's plain form."""
    settings = candidate.settings
    found = ["mode"] if settings.mode is not None else []
    found += [f"options.{name}" for name in settings.options]
    found += ["memory_format"] if settings.memory_format is not MemoryFormat.PRESERVE else []
    process = msgspec.structs.asdict(candidate.process)
    return found + [f"process.{name}" for name, value in process.items() if value is not None]


def words_of(candidate: Candidate) -> set[str]:
    """What is set in it, as its user knows it."""
    return set(map(option_words, _set_in(candidate)))


def _with(candidate: Candidate, some: Sequence[str]) -> Candidate:
    """The candidate with only these of the things that it sets."""
    settings = candidate.settings
    options = {name: value for name, value in settings.options.items() if f"options.{name}" in some}
    layout = settings.memory_format if "memory_format" in some else MemoryFormat.PRESERVE
    process = msgspec.structs.asdict(candidate.process)
    kept = {name: value for name, value in process.items() if f"process.{name}" in some}
    words = [option_words(name) for name in _set_in(candidate) if name in some]
    return msgspec.structs.replace(
        candidate,
        settings=msgspec.structs.replace(
            settings, mode=settings.mode if "mode" in some else None, options=options, memory_format=layout
        ),
        process=ProcessSettings(**kept),
        label=" ".join([settings.engine, " + ".join(words)]).strip(),
        rationale=f"{candidate.label} failed: what of it is to blame?",
    )


def option_words(name: str) -> str:
    """A thing that is set, as its user knows it: "freezing", "threads"."""
    return name.rpartition(".")[2]


# --------------------------------------------------------------------------------------------------------------- record


def _record(progress: Progress, diagnosis: Diagnosis) -> Repair:
    failure, found = progress.failure, progress.found
    blamed = found.culprits if found is not None else []
    passed = progress.kind == MODULES and found is not None and found.done and bool(found.good)
    if passed and failure.state is not State.WRONG:  # what the doctor knew was not even asked for
        blamed = [*blamed, *known_stops(progress.settings.engine, diagnosis)]
    around = passed and not blamed
    blamed = [one for one in blamed if not any(other != one and is_within(other, one) for other in blamed)]
    return Repair(
        engine=progress.settings.engine,
        failed=failure.candidate.label,
        state=failure.state,
        reason=failure.reason,
        culprits=tuple(blamed if progress.kind == MODULES else map(option_words, blamed)),
        kind=AROUND if around else progress.kind,
        share=_share(blamed, found.good if found is not None else (), diagnosis) if progress.kind == MODULES else 0.0,
        trials=len(progress.asked) - 1,
        found=found is not None and found.done,
    )


def _share(blamed: Sequence[str], good: Sequence[str], diagnosis: Diagnosis) -> float:
    """Of an eager call: the culprits, without what is right inside of them."""
    shares = shares_by_path(diagnosis)
    right = [path for path in good if any(is_within(path, one) for one in blamed)]
    share = sum(shares.get(path, 0.0) for path in blamed) - sum(shares.get(path, 0.0) for path in right)
    return min(1.0, max(0.0, share))
