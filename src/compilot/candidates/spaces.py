"""What the engines can do with a model: the space of each, and candidates in the order it would try them.

In: engine names, a diagnosis, the precisions that the user allows. Out: spaces, candidates by engine, and a Finding for
each precision that nobody here can serve. Covered: an engine that is not usable is left out, unless it was asked for by
name. Not covered: the order between engines (guided.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot._choices import names_in
from compilot.engines import registry
from compilot.engines.space import Seed, Space, seeded
from compilot.errors import InputError
from compilot.records import Candidate, Diagnosis, Finding, Precision


def asked_engines(engines: str | Sequence[str]) -> tuple[str, ...]:
    """The names that the user gave, each known and usable here; "a,b" is taken too. InputError says what is not."""
    names = tuple(dict.fromkeys(names_in(engines)))
    for name in names:  # before `usable_engines` imports any of them
        registry.refuse_unknown(name)
    if names:
        usable_engines(names)
    return names


def usable_engines(engines: Sequence[str]) -> list[str]:
    """Those asked for, or all that can be used here; an unknown name is the user's mistake."""
    found = []
    for name in engines or registry.names():
        usable = registry.build_half(name).available()
        if engines and not usable.ok:
            raise InputError(f"engine '{name}' is not usable here: {usable.why}. {usable.install}".strip())
        if usable.ok:
            found.append(name)
    return found


def space_of(name: str, diagnosis: Diagnosis) -> Space:
    """What an engine declares; of torch.compile with a backend that somebody else registered nothing is known."""
    if name.startswith(registry.DYNAMO):
        return Space(seeds=(Seed("", "torch.compile with another package's backend"),))
    return registry.build_half(name).space(diagnosis)


def candidates_of(name: str, diagnosis: Diagnosis, precisions: Sequence[Precision] = ()) -> list[Candidate]:
    """An engine's seeds in its own order; those in an allowed precision directly after the first of the model's own."""
    found = seeded(name, space_of(name, diagnosis), diagnosis)
    plain = [c for c in found if c.settings.precision is Precision.AS_IS]
    lower = [c for precision in precisions for c in found if c.settings.precision is precision]
    return [*plain[:1], *lower, *plain[1:]]


def serving(engines: Sequence[str], diagnosis: Diagnosis, precision: Precision) -> list[str]:
    """The usable engines that have a seed in a precision."""
    able = {name: seeded(name, space_of(name, diagnosis), diagnosis) for name in usable_engines(engines)}
    return [name for name, found in able.items() if any(c.settings.precision is precision for c in found)]


def unserved(engines: Sequence[str], diagnosis: Diagnosis, precisions: Sequence[Precision]) -> list[Finding]:
    """One finding for each precision that was allowed and that no usable engine offers, with the reasons."""
    found = []
    for precision in precisions:
        if why := why_nobody(engines, diagnosis, precision):
            told = f"no engine here can run the model in {precision}: {why}"
            advice = "everything else is tried as usual"
            found.append(Finding(kind="precision", where="", explanation=told, advice=advice))
    return found


def why_nobody(engines: Sequence[str], diagnosis: Diagnosis, precision: Precision) -> str:
    """Why no usable engine offers a precision, each reason once; "" where one does."""
    if serving(engines, diagnosis, precision):
        return ""
    whys = [space_of(name, diagnosis).lacks.get(precision, "") for name in usable_engines(engines)]
    return "; ".join(dict.fromkeys(filter(None, whys))) or "none of them offers it"
