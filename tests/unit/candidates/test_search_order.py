"""The search asks for what it asked for when tests/data/search_order.json was written, in the same order.

Written anew since: one search that is resumed there (a resumed search no longer varies what was a variation itself),
and those on a GPU (max-autotune is offered there, too). Ids never change.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.candidates.search import OrderedSearch
from compilot.candidates.spaces import why_nobody
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.protocol import Availability
from compilot.records import Candidate, Diagnosis, Precision, State, Trial
from compilot.tuning.budget import Budget

RECORD = json.loads((Path(__file__).parents[2] / "data" / "search_order.json").read_text())
DIAGNOSES = msgspec.convert(RECORD["diagnoses"], dict[str, Diagnosis])
ENGINES = (*registry.BUILT_IN, "dynamo:other")


@pytest.fixture(autouse=True)
def _everything_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in registry.BUILT_IN:
        monkeypatch.setattr(registry.build_half(name), "available", lambda: Availability(ok=True, version="1"))


def begun(scenario: dict[str, Any], earlier: Sequence[Trial]) -> OrderedSearch:
    precisions = tuple(map(Precision, scenario["allowed"]))
    search = OrderedSearch(engines=scenario["engines"] or ENGINES, precisions=precisions)
    search.begin(DIAGNOSES[scenario["diagnosis"]])
    for trial in earlier:
        search.tell(trial)
    return search


def simulated(candidate: Candidate, scenario: dict[str, Any]) -> Trial:
    """How a trial of it ends: always the same for the same candidate and chance."""
    draw = random.Random(f"{scenario['chance']} {candidate.id}")
    state = draw.choice([State.OK] * 6 + [State.WRONG, State.CRASHED])
    ratio, wall_s = draw.uniform(0.5, scenario["fastest"]), draw.choice([3.0, 8.0, 30.0])
    screening = ((ratio, 1.0),) * 4 if state is State.OK else ()
    return Trial(candidate=candidate, state=state, reason="", screening=screening, wall_s=wall_s)


def asked(scenario: dict[str, Any]) -> list[Candidate]:
    """Everything that is asked for until the search ends; it may be interrupted once and resumed by a new search."""
    told = [Trial(candidate=EAGER, state=State.OK, reason="")]
    search, found, resumes_after = begun(scenario, told), list[Candidate](), scenario["resumes_after"]
    while jobs := search.ask(scenario["slots"], Budget(300.0)):
        if resumes_after is not None and len(found) >= resumes_after:
            search, resumes_after = begun(scenario, told), None
            continue
        found += jobs
        for job in jobs:
            told.append(simulated(job, scenario))
            search.tell(told[-1])
    return found


@pytest.mark.parametrize("name", DIAGNOSES)
def test_the_same_candidates_are_asked_for_in_the_same_order(name: str):
    scenarios = [scenario for scenario in RECORD["scenarios"] if scenario["diagnosis"] == name]
    assert len(scenarios) >= 5
    for scenario in scenarios:
        wanted = [RECORD["candidates"][i] for i in scenario["asked"]]
        assert [[c.id, c.label, c.rationale] for c in asked(scenario)] == wanted


def test_the_reasons_against_a_precision_are_the_same():
    for name, engine, precision, why in RECORD["refusals"]:
        assert why_nobody((engine,), DIAGNOSES[name], Precision(precision)) == why
