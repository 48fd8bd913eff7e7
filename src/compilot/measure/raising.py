"""Cases on which eager raises: what a candidate does there.

In: what eager raised, and the candidate. Out: sentences about the cases that the candidate answers all the same. That
is no wrong number, since there is no right one; but a check of the model did not do its work, and the user is told.
A candidate that raises too, or leaves the call to eager, is as good as eager. Not covered: cases outside of the
candidate's guard, which eager answers by right; bad indices, on which compiled code may end the process: those are
not tried, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from compilot._tree import Call
from compilot.records import Raising
from compilot.workload.unit import Unit

INDEX = re.compile(r"\bindex|\bindices|out of (range|bounds)", re.IGNORECASE)  # torch's words for a bad index
ANSWERS = "this candidate answers instead: checks inside the model are not part of its compiled form"
NOT_TRIED = "this candidate was not tried there, since compiled code may end the process on a bad index"
MESSAGE_LIMIT = 100  # characters of eager's message that are quoted


def raised(case: str, error: Exception) -> Raising:
    """What eager raised on a case."""
    first = next(iter(str(error).strip().splitlines()), "")
    return Raising(case=case, error=type(error).__name__, message=first[:MESSAGE_LIMIT])


def answers_instead(
    unit: Unit,
    raising: Sequence[Raising],
    calls: Mapping[str, Call],
    *,
    eager_answers: Callable[[Call], bool],
    takes: Callable[[Call], bool],
) -> tuple[str, ...]:
    """What is to be said of the cases that the candidate takes.

    takes: whether a call is the candidate's at all; eager_answers: whether eager answered the one made last.
    """
    said: dict[tuple[str, str, str], list[str]] = {}
    for one in raising:
        call = calls[one.case]
        if not takes(call):
            continue
        if may_end_the_process(one):
            said.setdefault((one.error, one.message, NOT_TRIED), []).append(one.case)
        elif _answers(unit, call) and not eager_answers(call):
            said.setdefault((one.error, one.message, ANSWERS), []).append(one.case)
    return tuple(_sentence(*what, cases) for what, cases in said.items())


def may_end_the_process(one: Raising) -> bool:
    """Whether eager complained about an index: Inductor's code throws inside of a parallel region then."""
    return one.error == "IndexError" or INDEX.search(one.message) is not None


def _answers(unit: Unit, call: Call) -> bool:
    try:
        unit.run(call)
    except Exception:
        return False
    return True


def _sentence(error: str, message: str, what: str, cases: Iterable[str]) -> str:
    names = ", ".join(f"'{case}'" for case in cases)
    quoted = f" ({message})" if message else ""
    return f"eager raises {error} on case {names}{quoted}; {what}"
