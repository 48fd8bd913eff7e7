"""Candidates that are not worth a process: how the model uses its indices rules them out.

In: a candidate and what is known of the model's indices. Out: why it must not be used, None where it may. Eager itself
checks its indices, whatever its settings; every other engine answers with some number or ends the process.
"""

from __future__ import annotations

from compilot.engines.of_candidate import is_eager_only, settings_of
from compilot.records import Candidate, IndexFacts, Shapes

UNDECLARED = (
    "which indices are in range depends on sizes that nobody declared; declare what varies, such as input_ids:1=1..512"
)


def refusal(candidate: Candidate, facts: IndexFacts, *, dynamic: bool) -> str | None:
    """Why not; dynamic: the user declared which dimensions vary."""
    if is_eager_only(candidate):
        return None
    if facts.unproven:
        return facts.unproven
    if not candidate.sizes and all(one.shapes is not Shapes.DYNAMIC for one in settings_of(candidate)):
        return None
    return facts.unproven_sizes or (UNDECLARED if facts.sized and not dynamic else None)
