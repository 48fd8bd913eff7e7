"""What earlier runs let a search expect: near models count most, few count little, and only the order changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from tests.unit.candidates.conftest import MadeUp, points

from compilot.candidates.guided import GuidedSearch
from compilot.candidates.past import PastRun, PastTrial
from compilot.candidates.prior import Prior, Recalled, nearness
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Acts, Knob, Seed, Space, Variation
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import (
    Candidate,
    Diagnosis,
    Features,
    Fingerprint,
    Measurement,
    ProcessSettings,
    Settings,
    State,
    Trial,
)
from compilot.testing.runner import fake_fingerprint
from compilot.tuning.budget import Left

LEFT = Left(3000.0)
HERE = fake_fingerprint()
CONV_NET = Features(
    conv_share=0.8,
    matmul_share=0.0,
    memory_share=0.15,
    overhead_share=0.05,
    call_s=0.03,
    operators=90,
    parameter_bytes=46_000_000,
    input_bytes=600_000,
    batch=1,
)
LIKE_IT = msgspec.structs.replace(CONV_NET, conv_share=0.7, memory_share=0.25, call_s=0.05)
TRANSFORMER = Features(
    conv_share=0.0,
    matmul_share=0.8,
    memory_share=0.1,
    overhead_share=0.1,
    call_s=0.08,
    operators=400,
    parameter_bytes=440_000_000,
    input_bytes=1024,
    batch=1,
)
KNOBS = Space(
    (
        Knob("p", Acts.OPTION, (False, True), "", variations=(Variation(True, "p", "test"),)),
        Knob("q", Acts.OPTION, (False, True), "", variations=(Variation(True, "q", "test"),)),
    ),
    (Seed("", "test"),),
)


def tried(engine: str, ratio: float | None, process: ProcessSettings | None = None, **options: Any) -> PastTrial:
    gain = None if ratio is None else math.log(ratio)
    settings = Settings(engine=engine, options=options)
    return PastTrial(settings=settings, process=process or ProcessSettings(), gain=gain)


def ran(*trials: PastTrial, features: Features = CONV_NET, model: str = "other", **changed: Any) -> PastRun:
    return PastRun(
        label=model,
        model=model,
        machine=changed.get("machine", HERE.machine),
        callers=changed.get("callers", 1),
        features=features,
        trials=trials,
    )


def begun(*runs: PastRun, features: Features | None = CONV_NET, fingerprint: Fingerprint = HERE) -> Prior:
    prior = Prior(lambda: Recalled(runs))
    prior.begin(fingerprint, Diagnosis(features=features))
    return prior


USUAL = 0.4


# ------------------------------------------------------------------------------------------------- whom it believes


def test_without_earlier_runs_everything_is_as_usual() -> None:
    for prior in (Prior(), begun(), begun(ran(tried("x", 3.0)), features=None)):
        assert prior.first_gain("x", USUAL) == USUAL
        assert prior.turn_gain(EAGER, msgspec.structs.replace(EAGER, process=KEPT), USUAL) == USUAL
    assert Prior().begin(HERE, Diagnosis(features=CONV_NET)) is None


KEPT = ProcessSettings(keep_memory=True)


def test_equal_features_are_as_near_as_can_be_and_another_kind_of_model_is_far() -> None:
    assert nearness(CONV_NET, CONV_NET) == 1.0
    assert nearness(CONV_NET, LIKE_IT) > 0.5
    assert nearness(CONV_NET, TRANSFORMER) < 0.05
    assert nearness(CONV_NET, LIKE_IT) == nearness(LIKE_IT, CONV_NET)


def test_the_nearest_counts_most() -> None:
    runs = ran(tried("x", 3.0), features=LIKE_IT, model="a"), ran(tried("x", 1.0), features=TRANSFORMER, model="b")
    assert begun(*runs).first_gain("x", USUAL) > 0.6
    assert begun(*runs, features=TRANSFORMER).first_gain("x", USUAL) < 0.25


def test_the_same_model_counts_more_than_another_with_equal_features() -> None:
    own = "-".join([HERE.model.code_sha256[:16], HERE.model.structure_sha256[:16], HERE.model.parameters_sha256[:16]])
    same, other = ran(tried("x", 3.0), model=own), ran(tried("x", 3.0), model="other")
    assert begun(same).first_gain("x", USUAL) > begun(other).first_gain("x", USUAL) > USUAL


def test_few_runs_move_it_little_and_more_models_more() -> None:
    gains = [begun(*(ran(tried("x", 3.0), model=f"m{n}") for n in range(many))).first_gain("x", USUAL) for many in
             (0, 1, 4, 30)]  # fmt: skip
    assert gains[0] == USUAL
    assert gains[0] < gains[1] < gains[2] < gains[3] < math.log(3.0)
    assert gains[1] == pytest.approx((USUAL + math.log(3.0)) / 2)  # one equal model: half and half


def test_a_model_that_was_tuned_often_counts_once() -> None:
    once, often = begun(ran(tried("x", 3.0))), begun(*[ran(tried("x", 3.0))] * 20)
    assert often.first_gain("x", USUAL) == pytest.approx(once.first_gain("x", USUAL))


def test_one_run_with_an_odd_figure_does_not_drown_the_others() -> None:
    odd = begun(ran(tried("x", 400.0), model="odd"), *(ran(tried("x", 1.05), model=f"m{n}") for n in range(5)))
    assert odd.first_gain("x", USUAL) < USUAL


def test_another_machine_other_versions_and_other_callers_do_not_count() -> None:
    machine = HERE.machine
    others = (
        msgspec.structs.replace(machine, cpu_model="another"),
        msgspec.structs.replace(machine, torch="1"),
        msgspec.structs.replace(machine, engines={"x": "2"}),
        msgspec.structs.replace(machine, threads=1),
    )
    assert begun(ran(tried("x", 3.0))).first_gain("x", USUAL) > USUAL
    for other in others:
        assert begun(ran(tried("x", 3.0), machine=other)).first_gain("x", USUAL) == USUAL
    assert begun(ran(tried("x", 3.0), callers=4)).first_gain("x", USUAL) == USUAL


def test_an_engine_that_did_not_work_or_was_far_behind_promises_less_but_never_nothing() -> None:
    failed = begun(*(ran(tried("x", None), tried("y", 3.0), model=f"m{n}") for n in range(9)))
    behind = begun(*(ran(tried("x", 1.5), tried("y", 3.0), model=f"m{n}") for n in range(9)))
    assert 0.0 < failed.first_gain("x", USUAL) < behind.first_gain("x", USUAL) < USUAL < behind.first_gain("y", USUAL)
    many = begun(*(ran(tried("x", None), tried("y", 3.0), model=f"m{n}") for n in range(200)))
    assert many.first_gain("x", USUAL) >= 0.1 * USUAL


def test_a_knob_that_helped_promises_more_and_one_that_harmed_less() -> None:
    run = ran(tried("x", 2.0), tried("x", 2.4, p=True), tried("x", 1.5, q=True), tried("x", 2.6, KEPT))
    prior, base = begun(run), candidate("x")
    gains = {
        name: prior.turn_gain(base, msgspec.structs.replace(base, settings=with_option), 0.03)
        for name, with_option in (("p", option("x", p=True)), ("q", option("x", q=True)), ("r", option("x", r=True)))
    }
    assert gains["p"] > gains["r"] > gains["q"] > 0.0
    assert gains["r"] == 0.03  # nobody has tried it
    kept = msgspec.structs.replace(base, process=KEPT)
    assert prior.turn_gain(base, kept, 0.03) > gains["p"]
    assert prior.turn_gain(candidate("y"), msgspec.structs.replace(candidate("y"), process=KEPT), 0.03) == 0.03


def test_eagers_own_variations_are_compared_with_eager_itself() -> None:
    prior = begun(ran(tried("eager", 1.5, KEPT)))
    assert prior.turn_gain(EAGER, msgspec.structs.replace(EAGER, process=KEPT), 0.03) == pytest.approx(
        (0.03 + math.log(1.5)) / 2
    )


def test_another_point_of_an_engine_promises_what_it_brought_over_the_first() -> None:
    prior = begun(ran(tried("x", 2.0, n="a"), tried("x", 3.0, n="b"), tried("x", 1.0, n="c")))
    gain = {n: prior.point_gain(msgspec.structs.replace(EAGER, settings=option("x", n=n)), 0.1) for n in "bcd"}
    assert gain["b"] == pytest.approx((0.1 + math.log(1.5)) / 2)
    assert gain["c"] < gain["d"] == 0.1


def option(engine: str, **options: Any) -> Settings:
    return Settings(engine=engine, options=options)


def candidate(engine: str) -> Candidate:
    return Candidate(settings=option(engine), label=engine, rationale="test")


# ---------------------------------------------------------------------------------------------- what it says it expects


def test_it_says_which_engine_it_expects_from_how_many_runs_and_whose() -> None:
    runs = [
        ran(tried("x", 1.2), tried("y", 2.0), model="Far", features=LIKE_IT),
        ran(tried("x", 1.2), tried("y", 2.0), tried("z", None), model="Near"),
        ran(tried("x", 9.0), model="Elsewhere", machine=msgspec.structs.replace(HERE.machine, torch="1")),
    ]
    expected = Prior(lambda: Recalled(runs, unreadable=4)).begin(HERE, Diagnosis(features=CONV_NET))
    assert expected is not None
    assert (expected.suggested, expected.runs, expected.nearest) == ("y", 2, ("Near", "Far"))
    assert (expected.left_out, expected.unreadable) == (1, 4)
    by_engine = {one.engine: one for one in expected.engines}
    assert by_engine["y"].speedup == pytest.approx(2.0)
    assert (by_engine["y"].runs, by_engine["z"].runs, by_engine["z"].speedup) == (2, 1, None)


def test_where_nothing_was_faster_it_suggests_eager() -> None:
    expected = Prior(lambda: Recalled([ran(tried("x", 0.9), tried("y", None))])).begin(
        HERE, Diagnosis(features=CONV_NET)
    )
    assert expected is not None
    assert expected.suggested == "eager"


# ----------------------------------------------------------------------------------------------------- it only orders


@pytest.fixture
def engines() -> Iterator[None]:
    """x and y build in seconds, z takes a compiler."""
    kinds = {"x": (BuildCost.SECONDS, KNOBS), "y": (BuildCost.SECONDS, points("abc"))}
    kinds["z"] = (BuildCost.COMPILER, points("ab"))
    for name, (cost, space) in kinds.items():
        half: Any = MadeUp(space)
        registry.register(name, half, half, EngineTraits(build_cost=cost))
    yield
    for name in kinds:
        registry.unregister(name)


def search(prior: Prior | None, **how: Any) -> GuidedSearch:
    found = GuidedSearch(engines=("x", "y", "z"), prior=prior, **how)
    found.begin(Diagnosis(cores=2, threads=2, eager_call_s=0.03, features=CONV_NET))
    found.tell(Trial(candidate=EAGER, state=State.OK, reason="", wall_s=3.0))
    return found


def ended(candidate: Candidate, ratio: float) -> Trial:
    measured = Measurement(cold_s=2.0, cold_cache=True)
    return Trial(
        candidate=candidate,
        state=State.OK,
        reason="",
        screening=((ratio, 1.0),) * 8,
        wall_s=5.0,
        measurement=measured,
    )


SPEEDS = {"x": 1.2, "y": 1.5, "z": 2.5}


def drained(found: GuidedSearch) -> list[Candidate]:
    asked: list[Candidate] = []
    while jobs := found.ask(1, LEFT):
        asked += jobs
        found.tell(ended(jobs[0], SPEEDS[jobs[0].settings.engine]))
    return asked


def strong(**ratios: float) -> Prior:
    return begun(*(ran(*(tried(e, r) for e, r in ratios.items()), model=f"m{n}") for n in range(30)))


def test_the_engine_that_others_suggest_is_asked_for_sooner(engines: None) -> None:
    first = [drained(search(prior))[0].settings.engine for prior in (None, strong(x=1.1, y=1.9), strong(x=1.9, y=1.1))]
    assert first == ["x", "y", "x"]  # of equals the usual order has the first


def test_only_the_order_differs_whatever_was_told(engines: None) -> None:
    trials = tried("x", 1.1), tried("y", 1.9, n="a"), tried("y", 0.5, n="b"), tried("y", 0.5, n="c"), tried("z", None)
    usual, learned = search(None), search(begun(*(ran(*trials, model=f"m{n}") for n in range(30))))
    for _ in range(6):
        assert {c.id: c.label for c in usual.promising()} == {c.id: c.label for c in learned.promising()}
        assert {c.id for c in usual.unasked()} == {c.id for c in learned.unasked()}
        job = usual.ask(1, LEFT)[0]
        for each in (usual, learned):
            each.tell(ended(job, SPEEDS[job.settings.engine]))


def test_in_the_end_every_point_of_every_engine_was_asked_for(engines: None) -> None:
    prior = strong(x=1.1, y=0.5, z=0.5)
    own = {c.id for c in search(None).promising()}
    usual, learned = ([c.id for c in drained(search(which))] for which in (None, prior))
    assert own <= set(usual)
    assert own <= set(learned)
    assert usual != learned


def test_what_a_horizon_leaves_out_is_left_out_whatever_others_suggest(engines: None) -> None:
    usual, learned = (search(prior, horizon_calls=500) for prior in (None, strong(x=1.01, y=1.01, z=9.0)))
    assert {c.id for c in usual.promising()} == {c.id for c in learned.promising()}
    assert not any(c.settings.engine == "z" for c in learned.promising())


def test_what_the_run_has_seen_itself_counts_for_more_than_other_runs(engines: None) -> None:
    def place(found: GuidedSearch, label: str) -> int:
        return [c.label for c in found.promising()].index(label)

    prior = begun(*(ran(tried("x", 2.0), tried("x", 3.0, q=True), model=f"m{n}") for n in range(30)))
    found = search(prior)
    by_label: Mapping[str, Candidate] = {c.label: c for c in found.promising()}
    found.tell(ended(by_label["x"], 2.0))
    assert place(found, "x, q") < place(found, "x, p")
    turned: Sequence[Candidate] = [c for c in found.promising() if c.label == "x, q"]
    found.tell(ended(turned[0], 2.0))  # it brings nothing here
    found.tell(ended(next(c for c in found.promising() if c.label == "x, p"), 2.2))
    assert place(found, "x, p, q") > place(found, "x, p, 1 thread")
