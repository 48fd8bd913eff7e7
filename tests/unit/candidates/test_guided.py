"""The guided search: what promises most per second comes next, and every trial teaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from tests.unit.candidates.conftest import MadeUp, points

from compilot.candidates import process, worth
from compilot.candidates.guided import GuidedSearch
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Acts, Knob, Seed, Space, Variation
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import (
    ArtifactFile,
    Candidate,
    Diagnosis,
    Measurement,
    Precision,
    ProcessSettings,
    State,
    Trial,
)
from compilot.tuning.budget import Left

LEFT = Left(300.0)
TWO_CORES = Diagnosis(cores=2, threads=2, eager_call_s=0.03)
Made = Callable[..., GuidedSearch]


@pytest.fixture(autouse=True)
def _memory_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compilot.engines.space.can_keep_memory", lambda: True)


@pytest.fixture
def made() -> Iterator[Made]:
    """A search over engines of these names, spaces and costs."""
    registered: list[str] = []

    def begun(
        engines: Mapping[str, Space | Sequence[str]],
        diagnosis: Diagnosis = TWO_CORES,
        costs: Mapping[str, EngineTraits] | None = None,
        also: Sequence[str] = (),
        **options: Any,
    ) -> GuidedSearch:
        for name, space in engines.items():
            half: Any = MadeUp(space if isinstance(space, Space) else points(space))
            registry.register(name, half, half, (costs or {}).get(name, EngineTraits(build_cost=BuildCost.SECONDS)))
            registered.append(name)
        search = GuidedSearch(engines=(*engines, *also), **options)
        search.begin(diagnosis)
        search.tell(Trial(candidate=EAGER, state=State.OK, reason="", wall_s=3.0))
        return search

    yield begun
    for name in registered:
        registry.unregister(name)


def ended(candidate: Candidate, ratio: float, state: State = State.OK, wall_s: float = 5.0) -> Trial:
    measured = Measurement(cold_s=wall_s / 2, cold_cache=True)
    screening = ((ratio, 1.0),) * 8 if state is State.OK else ()
    return Trial(candidate=candidate, state=state, reason="", screening=screening, wall_s=wall_s, measurement=measured)


def one(search: GuidedSearch) -> Candidate:
    (found,) = search.ask(1, LEFT)
    return found


def labels(found: Sequence[Candidate]) -> list[str]:
    return [candidate.label for candidate in found]


def drained(search: GuidedSearch, ratios: Callable[[Candidate], float]) -> list[str]:
    """Everything that is asked for, each trial with the ratio that it has."""
    found = []
    while jobs := search.ask(1, LEFT):
        found.append(jobs[0].label)
        search.tell(ended(jobs[0], ratios(jobs[0])))
    return found


def test_engines_that_are_quick_to_build_come_first(made: Made) -> None:
    costs = {"slow": EngineTraits(build_cost=BuildCost.COMPILER), "quick": EngineTraits(build_cost=BuildCost.SECONDS)}
    search = made({"slow": ["a"], "quick": ["a"]}, costs=costs)
    assert labels(search.promising())[:2] == ["quick a", "slow a"]


def test_each_engine_has_a_turn_before_any_has_a_third(made: Made) -> None:
    search = made({"x": ["a", "b", "c"], "y": ["a", "b", "c"]})
    found = drained(search, lambda c: 1.5)
    assert set(found[:2]) == {"x a", "y a"}
    assert found.index("y b") < found.index("x c") or found.index("x b") < found.index("y c")


def test_the_best_is_varied_from_where_it_is(made: Made) -> None:
    search = made({"x": ["a"]})
    search.tell(ended(one(search), 2.0))
    varied = [c for c in search.promising() if c.settings.engine == "x"]
    assert {c.process for c in varied} == {ProcessSettings(threads=1), ProcessSettings(keep_memory=True)}


@pytest.mark.parametrize(("ratio", "varied"), [(0.98, True), (0.9, False)])
def test_where_nothing_gains_what_is_about_as_fast_as_eager_is_varied(made: Made, ratio: float, varied: bool) -> None:
    search = made({"x": ["a"]})
    search.tell(ended(one(search), ratio))
    assert bool(search.promising()) is varied


def test_where_something_gains_what_does_not_is_left_alone(made: Made) -> None:
    search = made({"x": ["a"], "y": ["a"]})
    for ratio in (0.98, 1.1):
        search.tell(ended(one(search), ratio))
    assert {c.settings.engine for c in search.promising()} == {"y"}


def test_eager_itself_is_varied_since_that_costs_no_build(made: Made) -> None:
    search = made({"x": ["a"]}, also=["eager"])
    eager = [c for c in search.promising() if c.settings.engine == "eager"]
    assert [c.process for c in eager] == [ProcessSettings(keep_memory=True)]


def test_eager_is_not_varied_where_only_other_engines_were_asked_for(made: Made) -> None:
    assert {c.settings.engine for c in made({"x": ["a"]}).promising()} == {"x"}


KNOBS = Space(
    (
        Knob("p", Acts.OPTION, (False, True), "", variations=(Variation(True, "p", "test"),)),
        Knob("q", Acts.OPTION, (False, True), "", variations=(Variation(True, "q", "test"),)),
        Knob("r", Acts.OPTION, (False, True), "", variations=(Variation(True, "r", "test"),)),
    ),
    (Seed("", "test"),),
)


def gains(candidate: Candidate) -> float:
    """p and q help and add up, r harms."""
    options = candidate.settings.options
    ratio = 2.0 if candidate.settings.engine == "x" else 1.0
    return (
        ratio
        * (1.1 if options.get("p") else 1.0)
        * (1.1 if options.get("q") else 1.0)
        * (0.9 if options.get("r") else 1.0)
    )


def test_what_helped_is_combined_and_what_harmed_is_not(made: Made) -> None:
    found = drained(made({"x": KNOBS}), gains)
    both = min(found.index(label) for label in ("x, p, q", "x, q, p") if label in found)
    assert all(found.index(label) > both for label in found if label in ("x, p, r", "x, q, r"))


def test_the_best_of_a_product_space_is_found(made: Made) -> None:
    search = made({"x": KNOBS})
    told: list[Trial] = []
    while jobs := search.ask(1, LEFT):
        told.append(ended(jobs[0], gains(jobs[0])))
        search.tell(told[-1])
    best = max(told, key=lambda trial: trial.screening[0][0])
    assert best.candidate.settings.options == {"p": True, "q": True}


def test_an_option_that_made_answers_wrong_is_not_tried_again(made: Made) -> None:
    space = Space(
        KNOBS.knobs, (Seed("", "test"), Seed("p", "test", {"p": True}), Seed("p q", "t", {"p": True, "q": True}))
    )
    search = made({"x": space})
    by_label = {c.label: c for c in search.promising()}
    search.tell(ended(by_label["x"], 1.5))
    search.tell(ended(by_label["x p"], 0.0, State.WRONG))
    assert not any(c.settings.options.get("p") for c in search.promising())
    assert any(c.settings.options.get("q") for c in search.promising())


def gain_of(search: GuidedSearch, label: str) -> float:
    return next((option.worth.gain for option in search.pool() if option.candidate.label == label), 0.0)


SEEDS = Space(KNOBS.knobs, (Seed("", "test"), Seed("p", "test", {"p": True}), Seed("q", "test", {"q": True})))


def test_an_engine_that_is_wrong_with_nothing_set_is_hardly_asked_for_its_options(made: Made) -> None:
    def left(state: State, diagnosis: Diagnosis = TWO_CORES) -> float:
        search = made({"x": SEEDS}, diagnosis)
        search.tell(ended(next(c for c in search.promising() if c.label == "x"), 0.0, state))
        return gain_of(search, "x p")

    usual = left(State.CRASHED)
    assert 0.0 < left(State.WRONG) == pytest.approx(worth.DID_NOT_HELP * usual)
    drawing = msgspec.structs.replace(TWO_CORES, stochastic=True)  # plain, it draws other numbers than eager
    assert left(State.WRONG, drawing) == pytest.approx(usual)


def test_what_makes_an_engine_right_is_asked_for_again_and_the_rest_hardly(made: Made) -> None:
    search = made({"x": SEEDS})
    by_label = {c.label: c for c in search.promising()}
    search.tell(ended(by_label["x"], 0.0, State.WRONG))
    search.tell(ended(by_label["x p"], 1.5))
    assert gain_of(search, "x p, q") == pytest.approx(worth.VARIATION)
    assert 0.0 < gain_of(search, "x q") <= worth.DID_NOT_HELP * worth.SECOND_POINT


def test_lower_precisions_are_judged_by_another_rule(made: Made) -> None:
    precision = Knob("precision", Acts.PRECISION, (Precision.AS_IS, Precision.BF16), "", variations=None)
    space = Space((precision,), (Seed("", "test"), Seed("bf16", "test", {"precision": Precision.BF16})))
    search = made({"x": space}, precisions=(Precision.BF16,))
    search.tell(ended(next(c for c in search.promising() if c.label == "x"), 0.0, State.WRONG))
    assert gain_of(search, "x bf16") == pytest.approx(worth.FAILED * worth.ALLOWED_PRECISION)


def test_an_engine_that_cannot_export_the_model_goes_to_the_end(made: Made) -> None:
    traits = EngineTraits(build_cost=BuildCost.SECONDS, whole_graph=True)
    search = made({"x": ["a", "b"], "y": ["a", "b"]}, costs={"x": traits, "y": traits})
    search.tell(ended(next(c for c in search.promising() if c.label == "x a"), 0.0, State.INFEASIBLE))
    found = labels(search.promising())
    assert found[0] == "y a"
    search.tell(ended(one(search), 1.5))
    assert labels(search.promising())[-1] == "x b"


def test_what_stops_an_export_sends_those_who_need_one_back(made: Made) -> None:
    costs = {
        "file": EngineTraits(build_cost=BuildCost.SECONDS, whole_graph=True),
        "parts": EngineTraits(build_cost=BuildCost.COMPILER),
    }
    broken = msgspec.structs.replace(TWO_CORES, export_stops=1)
    assert labels(made({"file": ["a"], "parts": ["a"]}, costs=costs).promising())[0] == "file a"
    assert labels(made({"file": ["a"], "parts": ["a"]}, broken, costs=costs).promising())[0] == "parts a"


def test_an_engine_far_behind_gives_way_to_variations_of_the_best(made: Made) -> None:
    search = made({"fast": ["a"], "slow": ["a", "b", "c"]})
    by_label = {c.label: c for c in search.promising()}
    search.tell(ended(by_label["fast a"], 4.0))
    search.tell(ended(by_label["slow a"], 1.1))
    found = labels(search.promising())
    assert found.index("fast a, 1 thread") < found.index("slow b")
    assert found.index("fast a, memory kept") < found.index("slow c")


def test_what_took_long_is_asked_for_later(made: Made) -> None:
    search = made({"x": ["a", "b"], "y": ["a", "b"]})
    by_label = {c.label: c for c in search.promising()}
    search.tell(ended(by_label["x a"], 2.0, wall_s=60.0))
    search.tell(ended(by_label["y a"], 2.0, wall_s=3.0))
    found = labels(search.promising())
    assert found.index("y b") < found.index("x b")


def test_what_cannot_pay_back_is_left_out(made: Made) -> None:
    costs = {"build": EngineTraits(build_cost=BuildCost.COMPILER), "light": EngineTraits(build_cost=BuildCost.SECONDS)}
    engines = {"build": ["a"], "light": ["a"]}
    assert set(labels(made(engines, costs=costs).promising())) >= {"build a", "light a"}
    short = labels(made(engines, costs=costs, horizon_calls=500).promising())
    assert "light a" in short  # about 4 s against 500 calls of 30 ms
    assert "build a" not in short


def test_nothing_is_asked_for_twice_and_the_search_ends(made: Made) -> None:
    search = made({"x": KNOBS, "y": ["a", "b"]})
    found = drained(search, gains)
    assert len(found) == len(set(found))
    assert search.ask(5, LEFT) == []


def test_a_resumed_search_goes_on_where_the_other_was(made: Made) -> None:
    first = made({"x": KNOBS})
    told = []
    for _ in range(4):
        job = one(first)
        told.append(ended(job, gains(job)))
        first.tell(told[-1])
    second = made({"x": KNOBS})
    for trial in told:
        second.tell(trial)
    assert labels(second.promising()) == labels(first.promising())


def test_lower_precisions_only_where_they_are_allowed(made: Made) -> None:
    precision = Knob("precision", Acts.PRECISION, (Precision.AS_IS, Precision.BF16), "", variations=None)
    space = Space((precision,), (Seed("", "test"), Seed("bf16", "test", {"precision": Precision.BF16})))
    search = made({"x": space}, precisions=(Precision.BF16,))
    assert "x bf16" in labels(search.promising())
    other = made({"x": space})
    other.tell(ended(one(other), 2.0))
    assert not any(c.settings.precision is Precision.BF16 for c in other.promising())


def test_nothing_is_asked_for_where_no_answer_can_be_judged(made: Made) -> None:
    search = made({"x": ["a"]}, msgspec.structs.replace(TWO_CORES, unjudgeable="two calls differ"))
    assert search.ask(5, LEFT) == []


def test_denormals_are_tried_where_there_are_any(made: Made) -> None:
    search = made({"x": ["a"]}, msgspec.structs.replace(TWO_CORES, denormals=True), also=["eager"])
    search.tell(ended(next(c for c in search.promising() if c.label == "x a"), 1.5))
    assert any(c.process.flush_denormals for c in search.promising() if c.settings.engine == "x")
    assert any(c.process.flush_denormals for c in search.promising() if c.settings.engine == "eager")
    assert process.DENORMALS.needs


def test_what_a_longer_budget_is_advised_for_are_points_of_the_engines_and_not_every_variation(made: Made) -> None:
    search = made({"x": ["a", "b"], "y": ["a"]})
    search.tell(ended(next(c for c in search.promising() if c.label == "x a"), 2.0))
    assert set(labels(search.unasked())) == {"x b", "y a"}
    assert len(search.promising()) > 2  # the best with other threads, with kept memory ...


def test_an_engine_that_cannot_export_is_no_reason_for_a_longer_budget(made: Made) -> None:
    traits = EngineTraits(build_cost=BuildCost.SECONDS, whole_graph=True)
    search = made({"x": ["a", "b"]}, costs={"x": traits})
    search.tell(ended(one(search), 0.0, State.INFEASIBLE))
    assert search.unasked() == []


def test_what_does_not_fit_into_the_time_is_passed_over_for_what_does(made: Made) -> None:
    costs = {"slow": EngineTraits(build_cost=BuildCost.COMPILER), "quick": EngineTraits(build_cost=BuildCost.SECONDS)}
    search = made({"slow": ["s1", "s2"], "quick": ["q1", "q2"]}, costs=costs)
    for engine, ratio, wall_s in (("quick", 1.2, 4.0), ("slow", 1.9, 30.0)):
        asked = next(c for c in search.promising() if c.settings.engine == engine)
        search.tell(ended(asked, ratio, wall_s=wall_s))
    (fits,) = search.ask(1, Left(10.0))
    assert fits.settings.engine == "quick"
    assert search.ask(1, Left(1.0)) == []


def test_what_was_made_for_all_is_not_expected_again(made: Made) -> None:
    """The first candidate of an engine exports the model; the next one starts from that export."""
    search = made({"exports": ["first", "second"]})
    candidate = one(search)
    trial = ended(candidate, 1.5, wall_s=12.0)
    assert trial.measurement is not None
    shared = msgspec.structs.replace(trial.measurement, for_others_s=8.0)
    search.tell(msgspec.structs.replace(trial, measurement=shared))
    assert {option.worth.seconds for option in search.pool() if option.candidate.settings.engine == "exports"} == {4.0}


def test_a_program_that_is_there_costs_its_start_and_not_its_build(made: Made) -> None:
    """Memory kept is the same program; one thread is another one."""
    search = made({"slow": ["only"]}, costs={"slow": EngineTraits(build_cost=BuildCost.COMPILER, warm_share=0.25)})
    [first] = search.ask(1, LEFT)
    files = (ArtifactFile(name="a", sha256="1", size_bytes=1),)
    told = msgspec.structs.replace(ended(first, 2.0, wall_s=44.0), artifacts=files, steps_s={"building": 40.0})
    search.tell(told)
    seconds = {option.candidate.label: option.worth.seconds for option in search.pool()}
    own = {label: seconds[label] for label in seconds if "memory kept" in label or "1 thread" in label}
    assert sorted(own.values()) == [14.0, 44.0]
    assert own[next(label for label in own if "memory kept" in label)] == 14.0


def test_what_was_not_built_says_nothing_about_builds(made: Made) -> None:
    search = made({"slow": ["first", "second"]})
    [first] = search.ask(1, LEFT)
    search.tell(ended(first, 2.0, wall_s=44.0))
    kept = msgspec.structs.replace(first, process=ProcessSettings(keep_memory=True))
    search.tell(msgspec.structs.replace(ended(kept, 2.0, wall_s=6.0), files_of=first.id))
    others = [option for option in search.pool() if option.candidate.settings.engine == "slow"]
    assert others
    assert {option.worth.seconds for option in others} == {44.0}
