"""What a search is given, and what plain torch.compile is among it; the search itself is in test_guided.py."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from compilot.candidates.guided import GuidedSearch
from compilot.candidates.process import threads_knob
from compilot.candidates.search import plain_compile
from compilot.candidates.spaces import candidates_of
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.inductor import load as inductor_load
from compilot.engines.protocol import Availability
from compilot.engines.space import Seed, Space, varied
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import Candidate, Diagnosis, ProcessSettings, Settings, Shapes, State, Trial
from compilot.tuning.budget import Left
from compilot.verdict.finalists import screening_ratio

Over = Callable[..., GuidedSearch]
IMAGES = Diagnosis(has_4d_input=True, has_conv=True, cores=2, threads=2)
LEFT = Left(300.0)


def candidate(engine: str, label: str) -> Candidate:
    settings = Settings(engine=engine, options={"n": label})
    return Candidate(settings=settings, label=label, rationale="test")


def finished(candidate: Candidate, ratio: float, state: State = State.OK) -> Trial:
    pairs = ((ratio, 1.0),) * 8
    return Trial(candidate=candidate, state=state, reason="", screening=pairs)


def test_sizes_that_made_torch_compile_again_bring_one_program_for_all_sizes_forward():
    assert candidates_of("inductor", IMAGES)[-1].label == "inductor dynamic"
    varied = candidates_of("inductor", Diagnosis(size_recompiles=1))
    assert [c.label for c in varied[:2]] == ["inductor", "inductor dynamic"]
    assert len({c.id for c in varied}) == len(varied)


def test_a_wrong_candidate_is_not_varied_however_fast(over: Over):
    search = over({"inductor": ["a"]}, IMAGES)
    search.tell(Trial(candidate=EAGER, state=State.OK, reason=""))
    (job,) = [c for c in search.promising() if c.settings.engine == "inductor"]
    search.tell(finished(job, 5.0, State.WRONG))
    assert search.promising() == []


def test_what_an_earlier_run_finished_is_not_asked_for_again(over: Over):
    first, second = over({"inductor": ["a", "b"]}, IMAGES).ask(2, LEFT)
    resumed = over({"inductor": ["a", "b"]}, IMAGES)
    resumed.tell(finished(first, 0.9))
    assert resumed.ask(5, LEFT) == [second]


def test_a_variation_that_an_earlier_run_finished_is_not_asked_for_again(over: Over):
    search = over({"inductor": ["a"]}, IMAGES)
    (job,) = search.ask(1, LEFT)
    search.tell(finished(job, 2.0))
    found = search.promising()
    (one_thread,) = [c for c in found if c.process == ProcessSettings(threads=1)]
    resumed = over({"inductor": ["a"]}, IMAGES)
    for trial in (finished(job, 2.0), finished(one_thread, 1.5)):
        resumed.tell(trial)
    assert {c.id for c in resumed.promising()} == {c.id for c in found} - {one_thread.id}


def test_an_engine_that_cannot_be_used_is_no_matter_where_nothing_is_tried():
    GuidedSearch(engines=("no such engine",)).begin(Diagnosis(unjudgeable="two calls differ"))


def test_more_cores_give_more_thread_counts():
    many = Diagnosis(cores=8, threads=8)
    found = varied(candidate("inductor", "a"), [threads_knob(many)])
    assert [c.process.threads for c in found] == [1, 4]
    assert [c.label for c in found] == ["a, 1 thread", "a, 4 threads"]


def test_images_get_channels_last_and_texts_do_not():
    texts = Diagnosis(has_4d_input=False, has_conv=False)
    assert [c.label for c in candidates_of("eager", IMAGES)] == ["eager channels_last"]
    assert candidates_of("eager", texts) == []
    assert any("channels_last" in c.label for c in candidates_of("inductor", IMAGES))
    plain = [c.label for c in candidates_of("inductor", texts)]
    assert "inductor" in plain
    assert not any("channels_last" in label for label in plain)


def test_a_convolution_net_has_at_least_eight_ways_to_run():
    offers = [*candidates_of("eager", IMAGES), *candidates_of("inductor", IMAGES)]
    assert len({c.id for c in offers}) == len(offers) >= 8


def test_declared_dynamic_dimensions_reach_every_inductor_candidate():
    assert {c.settings.shapes for c in candidates_of("inductor", Diagnosis(dynamic=True))} == {Shapes.DYNAMIC}


def test_a_model_in_train_mode_is_never_frozen():
    found = [bool(c.settings.options.get("freezing")) for c in candidates_of("inductor", Diagnosis(training=True))]
    assert found
    assert not any(found)
    assert any(c.settings.options.get("freezing") for c in candidates_of("inductor", Diagnosis()))


def test_plain_compile_is_recognised_whatever_the_shapes_policy():
    for diagnosis in (Diagnosis(), Diagnosis(dynamic=True)):
        offers = candidates_of("inductor", diagnosis)
        assert plain_compile(list(offers)) == offers[0].id
    assert plain_compile([candidate("eager", "x")]) is None


def test_a_trial_without_pairs_has_no_ratio():
    assert screening_ratio(Trial(candidate=candidate("x", "y"), state=State.OK, reason="")) is None
    assert screening_ratio(finished(candidate("x", "y"), 2.0)) == pytest.approx(2.0)


def test_another_engine_can_be_the_yardstick():
    bare = Candidate(settings=Settings(engine="mine"), label="mine", rationale="test")
    assert plain_compile([bare]) is None
    registry.register("mine", None, inductor_load, EngineTraits(plain_compile=True))
    try:
        assert plain_compile([bare]) == bare.id
    finally:
        registry.unregister("mine")


def test_a_registered_engine_is_offered_beside_the_others_with_no_change_elsewhere():
    half = SimpleNamespace(
        available=lambda: Availability(ok=True), space=lambda diagnosis: Space(seeds=(Seed("", "a test"),))
    )
    registry.register("mine", half, inductor_load, EngineTraits(build_cost=BuildCost.RECORDING))
    try:
        search = GuidedSearch()
        search.begin(Diagnosis())
        asked = [one.settings.engine for one in search.ask(99, LEFT)]
    finally:
        registry.unregister("mine")
    assert asked[0] == "mine"  # nothing is quicker to build than what is only recorded
    assert "inductor" in asked


def test_what_it_would_still_ask_for_is_what_it_asks_for(over: Over):
    search = over({"inductor": ("a", "b", "c"), "openvino": ("x", "y")}, Diagnosis(cores=2, threads=2))
    search.tell(finished(search.ask(1, LEFT)[0], 0.9))
    foreseen = [c.label for c in search.promising()]
    assert foreseen == [c.label for c in search.promising()]  # asking changed nothing
    asked = []
    while batch := search.ask(1, LEFT):
        asked += [c.label for c in batch]
        search.tell(finished(batch[0], 0.9))
    assert sorted(asked) == sorted(foreseen)
    assert asked[0] == foreseen[0]  # what is told changes the order of the rest
    assert search.promising() == []


def test_it_foresees_the_variations_of_the_best_so_far():
    search = GuidedSearch(engines=["inductor"])
    search.begin(IMAGES)
    first = search.ask(1, LEFT)[0]
    search.tell(finished(first, 2.0))
    variations = varied(first, [threads_knob(IMAGES)])
    assert variations
    assert {c.id for c in variations} <= {c.id for c in search.promising()}


def test_nothing_is_left_of_a_model_that_nobody_can_judge():
    search = GuidedSearch(engines=["inductor"])
    search.begin(Diagnosis(unjudgeable="it answers differently each time"))
    assert search.promising() == []


# ---- several callers -----------------------------------------------------------------------------------------------

EIGHT = Diagnosis(cores=8, threads=8)


def shared(diagnosis: Diagnosis, callers: int, engines: tuple[str, ...] = ("eager",)) -> GuidedSearch:
    search = GuidedSearch(engines, callers=callers)
    search.begin(diagnosis)
    search.tell(Trial(candidate=EAGER, state=State.OK, reason=""))
    return search


@pytest.mark.parametrize(
    ("diagnosis", "callers", "counts"),
    [
        (EIGHT, 1, [1, 4]),
        (EIGHT, 4, [1, 2, 4]),
        (EIGHT, 16, [1, 4]),
        (Diagnosis(cores=2, threads=2), 4, [1]),
        (Diagnosis(cores=8, threads=1), 4, [2, 4, 8]),
    ],
)
def test_several_callers_bring_an_even_share_of_the_cores(diagnosis: Diagnosis, callers: int, counts: list[int]):
    assert [v.value for v in threads_knob(diagnosis, callers).variations or ()] == counts


def threads_of_eager(search: GuidedSearch) -> dict[int | None, str]:
    eager = [c for c in search.promising() if c.settings.engine == "eager"]
    return {c.process.threads: c.rationale for c in eager if c.process.threads}


def test_under_several_callers_eager_itself_is_tried_with_fewer_threads():
    found = threads_of_eager(shared(EIGHT, 4))
    assert found.keys() == {1, 2}
    assert found[2] == "2 of 8 cores per call: leaves cores to the other callers"


def test_a_single_caller_and_a_single_thread_have_nothing_to_share():
    assert threads_of_eager(shared(EIGHT, 1)) == {}
    assert threads_of_eager(shared(Diagnosis(cores=8, threads=1), 4)) == {}


def test_eager_shares_no_cores_where_it_was_not_asked_for():
    assert threads_of_eager(shared(EIGHT, 4, ("inductor",))) == {}
    assert threads_of_eager(shared(EIGHT, 4, ())).keys() == {1, 2}


@pytest.mark.parametrize(("callers", "threads"), [(1, set()), (4, {1, 2, 4})])
def test_under_several_callers_the_best_is_tried_with_fewer_threads_though_it_is_slower_than_eager(
    callers: int, threads: set[int]
):
    """Eight threads of each of four callers are in each other's way: what it could do is not seen yet."""
    search, asked = shared(EIGHT, callers, ("inductor",)), list[Candidate]()
    while jobs := [c for c in search.ask(1, LEFT) if len(asked) < 400]:
        asked += jobs
        search.tell(finished(jobs[0], 0.9 if jobs[0].label == "inductor freezing" else 0.7))
    assert len(asked) < 400  # it ends
    alone = [c for c in asked if c.label.startswith("inductor freezing, ") and c.process.threads]
    varied_threads = {c.process.threads for c in alone}
    assert varied_threads == threads
    if threads:
        why = {c.process.threads: c.rationale for c in alone if c.label.count(",") == 1}
        assert why[2] == "the best so far with 2 of 8 cores: leaves cores to the other 3 callers"
        assert why[4] == "the best so far with 4 of 8 cores: less waiting of threads for each other"


def test_a_trial_without_pairs_is_nothing_to_follow_up():
    search = shared(EIGHT, 4, ("inductor",))
    queue = search.ask(99, LEFT)
    for job in queue:
        search.tell(Trial(candidate=job, state=State.OK, reason=""))
    assert not any(c.settings.engine == "inductor" for c in search.promising())
