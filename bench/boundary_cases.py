"""What bench/boundary.py measures: its cases, the arms of each, and which step comes next. Pure.

In: a journal. Out: a step, or None where a case is done. Parts: `gpt2` (whole against regional compile, and the picks
of two horizons), `six` (whole, regional, bottleneck, hybrid and the pick, on six models), `repair` (three faults, some
seeds of each). Arms are made from what one look at the model says, by the search's own rules for cutting a model.
Not covered: processes (boundary_lab.py), figures (boundary_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import boundary_faults
from boundary_journal import EAGER_ARM, UNREPAIRED, CaseLines
from compilot.candidates import boundary
from compilot.candidates.parts import Piece, cut, instances_of
from compilot.candidates.spaces import candidates_of
from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, Diagnosis, Settings

HERE = Path(__file__).resolve().parent
SIX = ("gpt2", "bert", "vit", "llama", "unet", "mixer")
FAULTS = {"backend": boundary_faults.SEEDS, "miscompile": boundary_faults.SEEDS, "branch": 2}  # kind -> seeds
PARTS = ("gpt2", "six", "repair")
COMPILER = "inductor"  # of whole and regional arms: torch.compile as its users have it
OF_FILES = ("openvino", "onnxruntime")  # the other engine of a hybrid: the first that is here
EXPORTING = ("aoti", *OF_FILES)  # engines that one block stops
WHOLE, REGIONAL, BOTTLENECK, HYBRID, PICK = "whole", "regional", "bottleneck", "hybrid", "pick"
FEW, MANY = "horizon 100", "horizon 1000000"
CALLS = 100

Arms = Callable[[Diagnosis], dict[str, Candidate | str]]  # a string: why there is no such arm


class Case(NamedTuple):
    """One model and what is done with it."""

    name: str
    part: str
    target: str
    arms: Arms
    tunes: Mapping[str, tuple[str, ...]]  # arm -> words of `compilot tune`
    lives: tuple[str, ...] = ()  # arms whose first calls in fresh processes are counted


class Rules(NamedTuple):
    """How much is done."""

    processes: int = 3
    pairs: int = 60
    rounds: int = 5  # of lives
    calls: int = CALLS


# ---------------------------------------------------------------------------------------------------------------- cases


def cases(parts: Sequence[str], only: Sequence[str] = (), engine_of_files: str = OF_FILES[0]) -> list[Case]:
    """In the order in which they are run. engine_of_files: the other engine of hybrids."""
    found = {
        "gpt2": [_gpt2()],
        "six": [_of_six(model, engine_of_files) for model in SIX],
        "repair": [
            _fault(kind, seed)
            for seed in range(boundary_faults.SEEDS)
            for kind, seeds in FAULTS.items()
            if seed < seeds
        ],
    }
    chosen = [case for part in PARTS if part in parts for case in found[part]]
    if unknown := set(only) - {case.name for case in chosen}:
        known = ", ".join(case.name for case in chosen)
        raise SystemExit(f"unknown cases: {', '.join(sorted(unknown))}; there are {known}")
    return [case for case in chosen if not only or case.name in only]


def _gpt2() -> Case:
    tunes = {FEW: ("--horizon", "100"), MANY: ("--horizon", "1000000")}
    target = f"{HERE / 'boundary_models.py'}:gpt2_24"
    return Case("gpt2-24", "gpt2", target, two_arms, tunes, (EAGER_ARM, WHOLE, REGIONAL, FEW, MANY))


def _of_six(model: str, engine_of_files: str) -> Case:
    def arms(diagnosis: Diagnosis) -> dict[str, Candidate | str]:
        return four_arms(diagnosis, engine_of_files)

    return Case(model, "six", f"{HERE / 'boundary_models.py'}:{model}", arms, {PICK: ()})


def _fault(kind: str, seed: int) -> Case:
    """The engine that has the fault alone; where an export stops, those that export."""
    engines = {"backend": f"dynamo:{boundary_faults.CHEAP}", "miscompile": COMPILER, "branch": ",".join(EXPORTING)}
    words = ("--engines", engines[kind])
    arms: Arms = whole_arm if kind == "branch" else no_arms
    return Case(f"{kind}-{seed}", "repair", f"{HERE / 'boundary_faults.py'}:{kind}_{seed}", arms, {PICK: words})


# ----------------------------------------------------------------------------------------------------------------- arms


def no_arms(diagnosis: Diagnosis) -> dict[str, Candidate | str]:
    return {}


def whole_arm(diagnosis: Diagnosis) -> dict[str, Candidate | str]:
    """torch.compile of the whole model, as its users have it."""
    return {WHOLE: candidates_of(COMPILER, diagnosis)[0]}


def two_arms(diagnosis: Diagnosis) -> dict[str, Candidate | str]:
    """The whole model, and every repeated block compiled once."""
    blocks = [piece for piece in cut(diagnosis) if piece.repeated]
    return {**whole_arm(diagnosis), REGIONAL: _on(blocks, diagnosis) or "no block is repeated"}


def four_arms(diagnosis: Diagnosis, engine_of_files: str) -> dict[str, Candidate | str]:
    """Also: the one part that takes most of a call, and two engines side by side."""
    inner = _opened(diagnosis)
    pieces = cut(diagnosis) if len(cut(diagnosis)) > 1 else inner
    return {
        **two_arms(diagnosis),
        BOTTLENECK: _on(inner[:1], diagnosis) or "no part takes much of a call",
        HYBRID: _hybrid(pieces, engine_of_files, diagnosis) or "there is one part only",
    }


def _opened(diagnosis: Diagnosis) -> list[Piece]:
    """The parts of a model with its largest kind of block opened, the largest first; as they are where it has none."""
    pieces = cut(diagnosis)
    blocks = [piece for piece in pieces if piece.repeated]
    return (cut(diagnosis, instances_of(blocks[0])) if blocks else []) or pieces


def _on(pieces: Sequence[Piece], diagnosis: Diagnosis) -> Candidate | None:
    return boundary.regional(pieces, Settings(engine=COMPILER), "an arm", diagnosis) if pieces else None


def _hybrid(pieces: Sequence[Piece], engine: str, diagnosis: Diagnosis) -> Candidate | None:
    """The largest part with an engine of files, the others with the compiler."""
    if len(pieces) < 2:
        return None
    whole = boundary.regional(pieces, Settings(engine=COMPILER), "an arm", diagnosis)
    changed = [
        region if region.selector != pieces[0].selector else type(region)(selector=region.selector, settings=other)
        for region in whole.regions
        for other in (Settings(engine=engine),)
    ]
    return boundary.with_regions(changed, "an arm", diagnosis)


# ------------------------------------------------------------------------------------------------------------ next step


class Look(NamedTuple):
    """Open the model and look at it."""


class Build(NamedTuple):
    """Try an arm: build, check."""

    arm: str
    candidate: Candidate


class Tune(NamedTuple):
    """Run the search."""

    arm: str
    words: tuple[str, ...]


class RaceSet(NamedTuple):
    """One more set of fresh processes."""

    arms: tuple[Candidate, ...]
    process: int


class Live(NamedTuple):
    """A fresh process with empty caches makes its calls."""

    arm: str
    candidate: Candidate
    round: int
    calls: int


Step = Look | Build | Tune | RaceSet | Live


def next_step(case: Case, lines: CaseLines, rules: Rules) -> Step | None:
    """What comes next; None: the case is done, or cannot be."""
    looked = lines.looked
    if looked is None:
        return Look()
    if looked.reason:
        return None
    for arm, candidate in looked.arms.items():
        if arm not in lines.built:
            return Build(arm, candidate)
    for arm, words in case.tunes.items():
        if arm not in lines.tuned:
            return Tune(arm, words)
    return _next_race(lines, rules) or _next_life(case, lines, rules)


def _next_race(lines: CaseLines, rules: Rules) -> RaceSet | None:
    arms = race_arms(lines)
    done = len(lines.race(ids(arms)).processes)
    return RaceSet(arms, done) if arms and done < rules.processes else None


def race_arms(lines: CaseLines) -> tuple[Candidate, ...]:
    """Eager twice (A/A) and everybody else once; nobody where there is nobody else."""
    able = {one.id: one for one in lines.candidates().values() if one.id not in lines.lost}
    others = [one for own, one in able.items() if own != EAGER.id]
    return (EAGER, EAGER, *others) if others else ()


def _next_life(case: Case, lines: CaseLines, rules: Rules) -> Live | None:
    """Round after round over all arms, so that what drifts hits all of them; each round begins with another one.

    Arms that are the same candidate have the same lives.
    """
    candidates = lines.candidates()
    first = {candidates[arm].id: arm for arm in reversed(case.lives) if arm in candidates}
    arms = [arm for arm in case.lives if arm in first.values()]
    for number in range(rules.rounds if arms else 0):
        for arm in (*arms[number % len(arms) :], *arms[: number % len(arms)]):
            if number not in lines.lives(arm, rules.calls):
                return Live(arm, candidates[arm], number, rules.calls)
    return None


def ids(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.id for candidate in candidates)


def unrepaired_of(case: Case) -> str:
    """The arm that a repaired plan is compared with."""
    return WHOLE if case.name.startswith("branch") else UNREPAIRED
