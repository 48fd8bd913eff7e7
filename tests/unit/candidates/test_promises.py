"""Regions in the guided search: what they promise beside whole models, how a boundary widens, when starts count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.candidates.boundaries import gpt2, layers, part, stop, unet
from tests.unit.candidates.conftest import MadeUp

from compilot.candidates import boundary, promises
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.parts import covered, cut, paths_of, shares_by_path
from compilot.candidates.spaces import space_of
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Acts, Knob, Seed, Space, Variation
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import (
    BreakPlace,
    Candidate,
    Diagnosis,
    Measurement,
    ProcessSettings,
    Region,
    Settings,
    State,
    Trial,
)
from compilot.tuning.budget import Left

JIT = EngineTraits(build_cost=BuildCost.COMPILER, through_dynamo=True)
FILE = EngineTraits(build_cost=BuildCost.SECONDS, whole_graph=True)
PLAIN = Space((), (Seed("", "test"),))
FAST = Knob("fast", Acts.OPTION, (False, True), "", variations=(Variation(True, "fast", "test"),))
LONG = Left(1e9)
Made = Callable[..., GuidedSearch]


@pytest.fixture
def made() -> Iterator[Made]:
    """A search over `jit` (one program for like blocks) and, where asked for, `file` (whole graphs)."""

    def begun(
        diagnosis: Diagnosis,
        engines: Mapping[str, EngineTraits] | None = None,
        spaces: Mapping[str, Space] | None = None,
        **how: Any,
    ) -> GuidedSearch:
        chosen = engines or {"jit": JIT}
        for name, traits in chosen.items():
            half: Any = MadeUp((spaces or {}).get(name, PLAIN))
            registry.register(name, half, half, traits)
        search = GuidedSearch(engines=tuple(chosen), **how)
        search.begin(diagnosis)
        search.tell(Trial(candidate=EAGER, state=State.OK, reason="", wall_s=3.0))
        return search

    yield begun
    for name in ("jit", "file"):
        registry.unregister(name)


def ended(candidate: Candidate, ratio: float, state: State = State.OK, cold_s: float = 5.0) -> Trial:
    measured = Measurement(cold_s=cold_s, cold_cache=True) if state is State.OK else None
    screening = ((ratio, 1.0),) * 8 if state is State.OK else ()
    return Trial(candidate=candidate, state=state, reason="", screening=screening, wall_s=8.0, measurement=measured)


def labels(search: GuidedSearch) -> list[str]:
    return [candidate.label for candidate in search.promising()]


def named(search: GuidedSearch, label: str) -> Candidate:
    return next(c for c in search.promising() if c.label == label)


def score(search: GuidedSearch, label: str) -> float:
    return next(o.worth.score for o in search.pool() if o.candidate.label == label)


# ----------------------------------------------------------------------------------------------- whole model or parts


def test_the_whole_model_is_tried_before_its_parts(made: Made) -> None:
    found = labels(made(gpt2()))
    assert found[0] == "jit"
    assert "jit on 12 x Block" in found


def test_parts_are_tried_where_the_whole_does_not_fit_into_the_time(made: Made) -> None:
    search = made(gpt2())
    (first,) = search.ask(1, Left(20.0))  # the whole is expected to take 25 s
    assert first.label == "jit on 12 x Block"


def test_nothing_repeated_and_no_bottleneck_is_never_cut(made: Made) -> None:
    search = made(Diagnosis(cores=2, threads=2, eager_call_s=0.05, parts=(part("net", 0.97),)))
    assert not any(c.regions for c in search.promising())


def test_what_stops_an_export_makes_parts_promise_most(made: Made) -> None:
    engines = {"file": FILE}
    assert labels(made(gpt2(), engines))[0] == "file"
    stopped = made(gpt2(breaks=(stop("model.h.5"),)), engines)
    assert labels(stopped)[0].startswith("file on 11 of 12 x Block")


@pytest.mark.parametrize("state", [State.INFEASIBLE, State.CRASHED, State.WRONG])
def test_an_engine_that_cannot_have_the_whole_is_asked_for_parts(made: Made, state: State) -> None:
    search = made(gpt2(), {"jit": JIT, "file": FILE})
    before = score(search, "file on 12 x Block")
    search.tell(ended(named(search, "file"), 0.0, state))
    assert score(search, "file on 12 x Block") > 3 * before
    assert labels(search)[0] == "file on 12 x Block + head"


def stopped_in(path: str, *engines: str) -> Trial:
    """A region of all blocks that could not be built because of one of them."""
    regions = tuple(Region(selector=f"model.h.{n}", settings=Settings(engine=e)) for n, e in enumerate(engines))
    candidate = Candidate(settings=Settings(), label="", rationale="", regions=regions)
    return Trial(candidate=candidate, state=State.INFEASIBLE, reason=f"in {path}: it depends on values", wall_s=1.0)


def modules_after(place: BreakPlace, *trials: Trial) -> tuple[str, ...]:
    return promises.with_named_stops(gpt2(breaks=(place,)), trials).breaks[0].modules


def test_a_named_stop_clears_the_like_blocks_that_share_its_code(made: Made) -> None:
    made(gpt2(), {"file": FILE, "jit": JIT})
    every = layers("model.h", 12)
    assert modules_after(stop(*every), stopped_in("model.h.0", "file")) == ("model.h.0",)
    assert modules_after(stop(*every), stopped_in("model.h.0.mlp", "file")) == ("model.h.0",)  # where inside of it
    inside = layers("model.h", 12, ".mlp")
    assert modules_after(stop(*inside), stopped_in("model.h.0", "file")) == ("model.h.0.mlp",)
    both = (*layers("model.h", 12, ".attn"), *inside)  # a helper's line that two kinds of block share
    assert modules_after(stop(*both), stopped_in("model.h.3.mlp", *["file"] * 4)) == (
        *layers("model.h", 12, ".attn"),
        "model.h.3.mlp",
    )


def test_what_says_nothing_of_the_stop_clears_nothing(made: Made) -> None:
    made(gpt2(), {"file": FILE, "jit": JIT})
    every = tuple(layers("model.h", 12))
    assert modules_after(stop(*every), stopped_in("head", "file")) == every  # another part of the model
    assert modules_after(stop(*every), stopped_in("model.h.1", "file", "jit")) == every  # by an engine with no export
    assert modules_after(stop(*every, exports=False), stopped_in("model.h.0", "file")) == every
    assert modules_after(stop(*every)) == every


def test_parts_promise_little_speed_where_the_whole_works(made: Made) -> None:
    worked, failed = made(gpt2()), made(gpt2())
    worked.tell(ended(named(worked, "jit"), 1.5))
    failed.tell(ended(named(failed, "jit"), 0.0, State.CRASHED))
    gains = [max(o.worth.gain for o in search.pool() if o.candidate.regions) for search in (worked, failed)]
    assert 0.0 < gains[0] < 0.5 * gains[1]


# ---------------------------------------------------------------------------------------------------------------- cost


def test_one_program_for_like_blocks_costs_what_one_of_them_costs(made: Made) -> None:
    search = made(gpt2(24), {"jit": JIT, "file": FILE})
    search.tell(ended(named(search, "jit"), 1.5, cold_s=60.0))
    search.tell(ended(named(search, "file"), 1.5, cold_s=60.0))
    seconds = {o.candidate.label: o.worth.seconds for o in search.pool()}
    assert seconds["jit on 24 x Block"] < 8.0  # 1/30 of a minute, and what every trial takes
    assert seconds["file on 24 x Block"] > 60.0  # each block is a file of its own


def test_further_blocks_of_the_same_code_cost_a_part_of_the_first(made: Made) -> None:
    diagnosis = gpt2(24)
    costs = []
    for again in (1.0, 0.25):
        search = made(diagnosis, {"file": msgspec.structs.replace(FILE, again_share=again)})
        search.tell(ended(named(search, "file"), 1.5, cold_s=60.0))
        costs.append(next(o.worth.seconds for o in search.pool() if o.candidate.label == "file on 24 x Block"))
    blocks = sum(diagnosis.repeated[0].shares)
    assert costs[0] - costs[1] == pytest.approx(60.0 * 0.75 * blocks * 23 / 24)


def test_backends_of_other_packages_are_given_each_block_anew(made: Made) -> None:
    backend = EngineTraits(build_cost=BuildCost.BACKEND, through_dynamo=True)
    search = made(gpt2(24), {"jit": backend})
    search.tell(ended(named(search, "jit"), 1.5, cold_s=60.0))
    assert next(o.worth.seconds for o in search.pool() if o.candidate.label == "jit on 24 x Block") > 60.0


def test_options_with_which_nothing_is_shared_cost_a_program_for_each_block(made: Made) -> None:
    diagnosis = gpt2(24)
    search = made(diagnosis, {"jit": msgspec.structs.replace(JIT, unshared_options=("fast",))})
    whole = ended(named(search, "jit"), 1.5, cold_s=60.0)

    def build_s(**options: bool) -> float:
        settings = Settings(engine="jit", options=dict(options))
        return promises.build_s(boundary.regional(cut(diagnosis)[:1], settings, "", diagnosis), diagnosis, [whole])

    assert build_s() == build_s(fast=False) == build_s(other=True) < 4.0
    assert build_s(fast=True) > 48.0  # four fifths of a minute, and what each program takes


def test_inductors_options_that_share_nothing_are_options_of_inductor() -> None:
    knobs = {knob.name for knob in space_of("inductor", gpt2()).knobs}
    assert {"freezing", "light_guards"} == set(registry.traits("inductor").unshared_options) <= knobs


def test_what_regions_really_took_corrects_the_guess(made: Made) -> None:
    search = made(gpt2())
    search.tell(ended(named(search, "jit"), 1.5, cold_s=30.0))
    before = next(o.worth.seconds for o in search.pool() if o.candidate.label == "jit on 12 x Mlp")
    search.tell(ended(named(search, "jit on 12 x Block"), 1.4, cold_s=10.0))
    after = next(o.worth.seconds for o in search.pool() if o.candidate.label == "jit on 12 x Mlp")
    assert after > 1.5 * before


# -------------------------------------------------------------------------------------------------------------- horizon


def test_with_few_calls_parts_come_before_the_whole_and_what_cannot_pay_back_is_left_out(made: Made) -> None:
    diagnosis = gpt2(24)
    assert labels(made(diagnosis, horizon_calls=1_000_000))[0] == "jit"
    some = labels(made(diagnosis, horizon_calls=2_000))  # 100 s of eager calls
    assert some.index("jit on 24 x Block") < some.index("jit")
    few = labels(made(diagnosis, horizon_calls=200))  # 10 s of eager calls: half a minute is never paid back
    assert "jit" not in few
    assert "jit on 24 x Block" in few
    assert made(diagnosis, horizon_calls=3).promising() == []


def test_where_a_quick_start_is_wanted_parts_come_first(made: Made) -> None:
    assert labels(made(gpt2(24), quick_start=True))[0] == "jit on 24 x Block"


# ------------------------------------------------------------------------------------------------------------- widening


def speed_of(candidate: Candidate, diagnosis: Diagnosis, useless: tuple[str, ...] = ()) -> float:
    """Whatever is in a region takes half the time, but for what is useless there."""
    shares = {one.path: one.share for one in diagnosis.parts}
    gained = sum(shares[path] for path in covered(candidate, diagnosis) if path not in useless)
    lost = sum(shares[path] for path in covered(candidate, diagnosis) if path in useless)
    return 1.0 / (1.0 - 0.5 * gained + 0.5 * lost)


def test_a_boundary_widens_by_the_largest_part_that_is_left_and_keeps_what_helped(made: Made) -> None:
    diagnosis = unet()
    search = made(diagnosis)
    search.tell(ended(named(search, "jit"), 0.0, State.CRASHED))
    first = next(c for c in search.promising() if len(c.regions) == 5)
    search.tell(ended(first, speed_of(first, diagnosis)))
    steps = [c for c in search.promising() if len(c.regions) == 6]
    assert set(covered(steps[0], diagnosis)) - set(covered(first, diagnosis)) == {"down1"}
    search.tell(ended(steps[0], speed_of(steps[0], diagnosis)))
    wider = [c for c in search.promising() if len(c.regions) == 7]
    assert set(covered(wider[0], diagnosis)) >= {*covered(first, diagnosis), "down1"}


def test_widening_ends_where_a_step_does_not_pay(made: Made) -> None:
    diagnosis = unet()
    search = made(diagnosis)
    first = next(c for c in search.promising() if len(c.regions) == 5)
    search.tell(ended(first, speed_of(first, diagnosis)))

    def promised() -> float:
        return max(o.worth.gain for o in search.pool() if len(o.candidate.regions) == 6)

    before = promised()
    step = next(c for c in search.promising() if len(c.regions) == 6)
    search.tell(ended(step, speed_of(step, diagnosis, useless=("down1",))))
    assert promised() < 0.2 * before


def test_a_region_that_failed_is_not_tried_again_with_more_around_it(made: Made) -> None:
    diagnosis = unet()
    search = made(diagnosis)
    first = next(c for c in search.promising() if len(c.regions) == 5)
    search.tell(ended(first, 1.4))
    step = next(c for c in search.promising() if len(c.regions) == 6)
    added = set(covered(step, diagnosis)) - set(covered(first, diagnosis))
    search.tell(ended(step, 0.0, State.WRONG))
    assert not any(set(covered(c, diagnosis)) >= set(covered(step, diagnosis)) for c in search.promising())
    assert any(len(c.regions) == 6 and not added & set(covered(c, diagnosis)) for c in search.promising())


def test_the_next_region_may_have_another_engine_that_has_worked(made: Made) -> None:
    search = made(gpt2(), {"jit": JIT, "file": FILE})
    search.tell(ended(named(search, "file"), 1.2))
    search.tell(ended(named(search, "jit on 12 x Block"), 1.5))
    assert "jit on 12 x Block, file on head" in labels(search)
    gains = {o.candidate.label: o.worth.gain for o in search.pool()}
    assert gains["jit on 12 x Block + head"] > gains["jit on 12 x Block, file on head"]


def test_an_engine_that_has_never_worked_is_in_no_hybrid(made: Made) -> None:
    search = made(gpt2(), {"jit": JIT, "file": FILE})
    search.tell(ended(named(search, "jit on 12 x Block"), 1.5))
    assert not any("file on head" in label for label in labels(search))


# ------------------------------------------------------------------------------------------------- knobs of a boundary


def test_the_best_boundary_is_varied_in_its_regions_and_in_its_process(made: Made) -> None:
    search = made(gpt2(), spaces={"jit": Space((FAST,), (Seed("", "test"),))})
    search.tell(ended(named(search, "jit on 12 x Block"), 1.5))
    found = labels(search)
    assert "jit fast on 12 x Block" in found
    assert "jit on 12 x Block, 1 thread" in found
    rest = [c.settings for c in search.promising() if c.regions]
    assert set(map(repr, rest)) == {repr(Settings())}  # only eager runs the rest


def test_a_knob_that_pays_only_in_the_bottleneck_is_turned_there_alone(made: Made) -> None:
    """`fast` makes the blocks faster and the head much slower: the best plan has it in one region of two."""
    diagnosis = gpt2()
    shares = shares_by_path(diagnosis)

    def speed(candidate: Candidate) -> float:
        left = 1.0 if candidate.regions else 1.2
        for region in candidate.regions:
            slow = 1.5 if region.selector == "head" else 0.4
            takes = slow if region.settings.options.get("fast") else 0.5
            left -= (1.0 - takes) * sum(shares[path] for path in paths_of(region.selector, diagnosis))
        return 1.0 / left

    search = made(diagnosis, spaces={"jit": Space((FAST,), (Seed("", "test"),))})
    told: list[Trial] = []
    while (jobs := search.ask(1, LONG)) and len(told) < 100:
        told.append(ended(jobs[0], speed(jobs[0])))
        search.tell(told[-1])
    best = max(told, key=lambda trial: trial.screening[0][0]).candidate
    assert {title: region.settings.options for region in best.regions for title in [region.selector[:4]]} == {
        "bloc": {"fast": True},
        "head": {},
    }


def test_what_a_knob_brought_the_whole_model_it_promises_in_a_region(made: Made) -> None:
    def promised(ratio: float) -> float:
        search = made(gpt2(), spaces={"jit": Space((FAST,), (Seed("", "test"), Seed("fast", "t", {"fast": True})))})
        search.tell(ended(named(search, "jit"), 1.3))
        search.tell(ended(named(search, "jit fast"), ratio))
        search.tell(ended(named(search, "jit on 12 x Block"), 2.0))
        return next(o.worth.gain for o in search.pool() if o.candidate.label == "jit fast on 12 x Block")

    assert promised(1.6) > 3 * promised(1.3)


def test_regions_begin_with_settings_that_gave_right_answers(made: Made) -> None:
    search = made(gpt2(), spaces={"jit": Space((FAST,), (Seed("", "test"), Seed("fast", "t", {"fast": True})))})
    plain, fast = named(search, "jit"), named(search, "jit fast")
    search.tell(ended(plain, 0.0, State.WRONG))
    search.tell(ended(fast, 1.3))
    assert "jit fast on 12 x Block" in labels(search)
    assert "jit on 12 x Block" not in labels(search)


# ----------------------------------------------------------------------------------------------------------- the search


def test_a_search_with_regions_ends_and_asks_for_nothing_twice(made: Made) -> None:
    search = made(gpt2(), {"jit": JIT, "file": FILE})
    found = []
    while jobs := search.ask(1, LONG):
        found.append(jobs[0].id)
        search.tell(ended(jobs[0], 1.0 + 0.01 * (len(found) % 7)))
        assert len(found) < 300
    assert len(found) == len(set(found))


def test_boundaries_that_nobody_tried_are_a_reason_for_a_longer_budget(made: Made) -> None:
    search = made(gpt2())
    search.tell(ended(named(search, "jit"), 1.5))
    assert "jit on 12 x Block" in [c.label for c in search.unasked()]


def test_trials_of_regions_say_nothing_about_eager_in_another_form(made: Made) -> None:
    """The rest of such a candidate runs in eager, but its time is that of the regions' engine."""
    search = made(gpt2())
    search.tell(ended(named(search, "jit on 12 x Block"), 1.5))
    assert search._trials_of("eager") == []


def test_a_step_is_measured_against_the_boundary_without_it() -> None:
    diagnosis = unet()
    one = Settings(engine="jit")
    first, second = (boundary.regional(pieces, one, "", diagnosis) for pieces in _prefixes(diagnosis))
    steps = promises.steps_from(ended(first, 1.2), [ended(first, 1.2), ended(second, 1.5)])
    assert [round(gain, 3) for gain in steps] == [0.223]


def test_a_step_that_did_not_pay_in_another_process_is_remembered() -> None:
    diagnosis = unet()
    first, second = (boundary.regional(p, Settings(engine="jit"), "", diagnosis) for p in _prefixes(diagnosis))
    kept = msgspec.structs.replace(first, process=ProcessSettings(keep_memory=True))
    told = [ended(first, 1.5), ended(second, 1.4), ended(kept, 1.52)]
    [step] = promises.steps_from(told[-1], told)
    assert step < 0.0


def _prefixes(diagnosis: Diagnosis) -> Iterator[list[Any]]:
    pieces = cut(diagnosis)
    yield pieces[:2]
    yield pieces[:3]


def test_no_regions_where_no_answer_can_be_judged(made: Made) -> None:
    assert made(msgspec.structs.replace(gpt2(), unjudgeable="two calls differ")).promising() == []
