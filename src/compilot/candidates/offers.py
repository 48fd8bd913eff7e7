"""What the engines have to offer: one list per engine, in the order it would try them.

In: engine names, a diagnosis, the precisions that the user allows. Out: candidates by engine, and a Finding for each
precision that nobody here can serve. Covered: an engine that is not usable is left out, unless it was asked for by
name. Not covered: the order between engines (search.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.engines import registry
from compilot.engines.protocol import Lower
from compilot.errors import InputError
from compilot.records import Candidate, Diagnosis, Finding, Precision, Settings, Shapes

Offers = dict[str, list[Candidate]]


def collect_offers(engines: Sequence[str], diagnosis: Diagnosis, precisions: Sequence[Precision] = ()) -> Offers:
    """What each usable engine thinks worth trying; a lower precision directly after its first candidate."""
    offers: Offers = {}
    for name in usable_engines(engines):
        plain = _plain(name, diagnosis)
        lower = [c for precision in precisions for c in lower_offer(name, diagnosis, precision).candidates]
        offers[name] = [*plain[:1], *lower, *plain[1:]]
    return offers


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


def _plain(name: str, diagnosis: Diagnosis) -> list[Candidate]:
    if name.startswith(registry.DYNAMO):
        return [backend_candidate(name, diagnosis)]
    return list(registry.build_half(name).offer(diagnosis))


def lower_offer(name: str, diagnosis: Diagnosis, precision: Precision) -> Lower:
    """What an engine has in a lower precision; engines need not know of any."""
    offer = None if name.startswith(registry.DYNAMO) else getattr(registry.build_half(name), "offer_precision", None)
    found: Lower = Lower() if offer is None else offer(diagnosis, precision)
    return found


def refine(best: Candidate, diagnosis: Diagnosis) -> Sequence[Candidate]:
    """Other settings of the best candidate's own engine; engines need not have any."""
    name = best.settings.engine
    more = None if name.startswith(registry.DYNAMO) else getattr(registry.build_half(name), "refine", None)
    return () if more is None else tuple(more(best, diagnosis))


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
    offers = [lower_offer(name, diagnosis, precision) for name in usable_engines(engines)]
    if any(offer.candidates for offer in offers):
        return ""
    return "; ".join(dict.fromkeys(offer.why for offer in offers if offer.why)) or "none of them offers it"


def backend_candidate(name: str, diagnosis: Diagnosis) -> Candidate:
    """torch.compile with a backend that somebody else registered."""
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    settings = Settings(engine=name, shapes=shapes)
    return Candidate(settings=settings, label=name, rationale="torch.compile with another package's backend")
