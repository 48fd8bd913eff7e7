"""The search over ways to train: what is asked for, in which order, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compilot.candidates.by_kind import SearchByKind
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.search import plain_compile
from compilot.candidates.step_parts import parts_of, step_candidate
from compilot.candidates.training import TrainingSearch
from compilot.engines.eager.build import EAGER
from compilot.records import (
    Candidate,
    CompiledWay,
    Diagnosis,
    MemoryFormat,
    OptimizerWay,
    Precision,
    State,
    StepFacts,
    StepParts,
    Trial,
)
from compilot.tuning.budget import Left

FACTS = StepFacts(
    optimizer="AdamW",
    ways=(OptimizerWay.FOREACH, OptimizerWay.FUSED),
    compilable=True,
    tensors=20,
    shapes=4,
    blocks=("block:0123456789abcdef",),
    forward_s=0.003,
    backward_s=0.004,
    update_s=0.003,
)
PLENTY = Left(1e9)


def looked(**more: Any) -> Diagnosis:
    facts = msgspec.structs.replace(FACTS, **more.pop("facts", {}))
    return Diagnosis(step=facts, training=True, eager_call_s=0.01, cores=2, threads=2, **more)


def drive(search: TrainingSearch, diagnosis: Diagnosis, speed: Any, most: int = 60) -> list[Candidate]:
    """Ask until nothing is left; speed: of a candidate over eager, or a state."""
    search.begin(diagnosis)
    search.tell(Trial(candidate=EAGER, state=State.OK, reason=""))
    asked: list[Candidate] = []
    while (found := search.ask(1, PLENTY)) and len(asked) < most:
        asked += found
        told = speed(found[0])
        if isinstance(told, State):
            search.tell(Trial(candidate=found[0], state=told, reason="no"))
        else:
            search.tell(Trial(candidate=found[0], state=State.OK, reason="", screening=((told, 1.0),) * 8, wall_s=5.0))
    return asked


def of_parts(candidate: Candidate) -> float:
    """A world in which fused, a compiled model and both together help."""
    step = candidate.step
    return (1.1 if step.optimizer is OptimizerWay.FUSED else 1.0) * (
        1.2 if step.compiled is not CompiledWay.NOTHING else 1.0
    )


def test_cheap_ways_first_then_the_yardstick_then_both() -> None:
    asked = drive(TrainingSearch(), looked(), of_parts)
    labels = [candidate.label for candidate in asked]
    assert labels[0] == "fused optimizer"
    assert labels.index("compiled model") < labels.index("compiled model + fused optimizer")
    assert {"foreach optimizer", "compiled model and loss + fused optimizer"} <= set(labels)
    assert len({candidate.id for candidate in asked}) == len(asked)
    assert plain_compile(asked) == next(c.id for c in asked if c.label == "compiled model")


@pytest.mark.parametrize("helps", [True, False])
def test_kept_memory_that_helps_eager_is_carried_over_to_what_is_compiled(helps: bool) -> None:
    def speed(candidate: Candidate) -> float:
        return 1.1 * ((1.1 if helps else 0.9) if candidate.process.keep_memory else 1.0)

    asked = drive(TrainingSearch(), looked(), speed)
    built = [one for one in asked if one.step.compiled is not CompiledWay.NOTHING]
    assert built[0].step == StepParts(compiled=CompiledWay.MODEL)  # the yardstick stays plain
    assert built[0].process.keep_memory is None
    assert bool(built[1].process.keep_memory) is helps


@pytest.mark.parametrize("gain", [None, 1.0, 2.2])
def test_products_by_onednn_in_all_that_is_compiled_where_they_are_faster(gain: float | None) -> None:
    asked = drive(TrainingSearch(), looked(onednn_gain=gain), of_parts)
    plain, *built = [one for one in asked if one.step.compiled is not CompiledWay.NOTHING]
    assert plain.settings.options == {}  # the yardstick stays plain
    with_products = {one.label for one in built if one.settings.options.get("onednn_products")}
    if gain != 2.2:
        assert with_products == set()
        return
    both = "compiled model + fused optimizer"
    assert built[0].label == f"{both} + oneDNN products"
    assert both in {one.label for one in built}  # what they bring is measured apart
    ways = {one.step.compiled for one in built if one.label in with_products}
    assert ways == set(CompiledWay) - {CompiledWay.NOTHING}


def test_products_by_onednn_that_fail_are_left_out_of_what_comes_next() -> None:
    def speed(candidate: Candidate) -> Any:
        return State.WRONG if candidate.settings.options.get("onednn_products") else of_parts(candidate)

    asked = drive(TrainingSearch(), looked(onednn_gain=2.2), speed)
    assert len([one for one in asked if one.settings.options.get("onednn_products")]) == 1
    assert "compiled model and loss + fused optimizer" in {one.label for one in asked}


def test_everything_that_a_step_can_have_is_asked_for_once() -> None:
    ways = {candidate.step.compiled for candidate in drive(TrainingSearch(), looked(), of_parts)}
    assert ways == set(CompiledWay)
    optimizers = {candidate.step.optimizer for candidate in drive(TrainingSearch(), looked(), of_parts)}
    assert {OptimizerWay.COMPILED, OptimizerWay.KERNEL} <= optimizers


def test_no_one_graph_under_gradient_hooks() -> None:
    asked = drive(TrainingSearch(), looked(facts={"hooks": "parameter out.weight"}), of_parts)
    assert not [c for c in asked if c.step.compiled is CompiledWay.ONE_GRAPH]
    assert [c for c in asked if c.step.compiled_autograd]


def test_a_way_that_was_wrong_is_not_asked_for_again() -> None:
    def speed(candidate: Candidate) -> float | State:
        return State.WRONG if candidate.step.compiled is CompiledWay.ONE_GRAPH else of_parts(candidate)

    asked = drive(TrainingSearch(), looked(), speed)
    assert len([c for c in asked if c.step.compiled is CompiledWay.ONE_GRAPH]) == 1


def test_images_are_tried_with_channels_last_and_others_not() -> None:
    images = drive(TrainingSearch(), looked(has_conv=True, has_4d_input=True), of_parts)
    assert [c for c in images if c.settings.memory_format is MemoryFormat.CHANNELS_LAST]
    others = drive(TrainingSearch(), looked(has_conv=True), of_parts)
    assert not [c for c in others if c.settings.memory_format is MemoryFormat.CHANNELS_LAST]


@pytest.mark.parametrize("for_memory", [False, True])
def test_parts_that_save_memory_only_where_memory_was_asked_for(for_memory: bool) -> None:
    asked = drive(TrainingSearch(for_memory=for_memory), looked(), of_parts)
    saving = [c for c in asked if c.step.memory_budget is not None or c.step.checkpoint]
    assert bool(saving) is for_memory


def test_no_checkpointing_where_a_batch_norm_would_move_twice() -> None:
    asked = drive(TrainingSearch(for_memory=True), looked(facts={"batch_norm": True}), of_parts)
    assert not [c for c in asked if c.step.checkpoint]


def test_bf16_only_where_it_is_allowed_and_the_cpu_has_it() -> None:
    able = looked(cpu_isa=("avx512_bf16",))
    assert not [c for c in drive(TrainingSearch(), able, of_parts) if c.step.autocast is not Precision.AS_IS]
    allowed = drive(TrainingSearch(precisions=[Precision.BF16]), able, of_parts)
    assert [c for c in allowed if c.step.autocast is Precision.BF16]
    unable = drive(TrainingSearch(precisions=[Precision.BF16]), looked(cpu_isa=("avx2",)), of_parts)
    assert not [c for c in unable if c.step.autocast is not Precision.AS_IS]


def test_without_a_compiler_only_eagers_own_ways() -> None:
    asked = drive(TrainingSearch(), looked(compiler_problem="no g++"), of_parts)
    assert asked
    assert {c.step.compiled for c in asked} == {CompiledWay.NOTHING}


def test_a_compiled_optimizer_of_a_thousand_tensors_is_not_asked_for() -> None:
    asked = drive(TrainingSearch(), looked(facts={"tensors": 1000}), of_parts)
    assert not [c for c in asked if c.step.optimizer is OptimizerWay.COMPILED]


def test_a_compiled_optimizer_over_an_eager_model_is_asked_for() -> None:
    """Where compiling the model does not pay, the optimizer may."""

    def speed(candidate: Candidate) -> float:
        helps = candidate.step.optimizer is OptimizerWay.FUSED
        return (1.1 if helps else 1.0) * (1.0 if candidate.step.compiled is CompiledWay.NOTHING else 0.8)

    asked = drive(TrainingSearch(), looked(), speed)
    alone = {c.step.optimizer for c in asked if c.step.compiled is CompiledWay.NOTHING}
    assert {OptimizerWay.COMPILED, OptimizerWay.KERNEL} <= alone


def test_a_short_horizon_builds_nothing() -> None:
    asked = drive(TrainingSearch(horizon_calls=10), looked(), of_parts)
    assert {c.step.compiled for c in asked} == {CompiledWay.NOTHING}


def test_the_parts_of_a_candidate_and_what_it_is_without_them() -> None:
    asked = drive(TrainingSearch(), looked(), of_parts)
    both = next(c for c in asked if c.label == "compiled model + fused optimizer")
    parts = {part.name: part.without for part in parts_of(both)}
    assert parts["compiled model"].id == next(c.id for c in asked if c.label == "fused optimizer")
    assert parts["fused optimizer"].id == next(c.id for c in asked if c.label == "compiled model")
    fused = parts_of(parts["compiled model"])
    assert [part.without.is_eager for part in fused] == [True]


@pytest.mark.parametrize(
    ("step", "name", "together"),
    [
        (
            StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED),
            "compiled model",
            "compiled model + cpp_wrapper + oneDNN products",
        ),
        (StepParts(optimizer=OptimizerWay.COMPILED), "compiled optimizer", None),
        (StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.COMPILED), "compiled model", "compiled model"),
    ],
)
def test_options_that_go_with_a_part_are_named_with_it(step: StepParts, name: str, together: str | None) -> None:
    """Without anything compiled there is no wrapper of it, and no products by oneDNN."""
    options = {"cpp_wrapper": True, "onednn_products": True}
    parts = {part.name: part for part in parts_of(step_candidate("", step, engine="inductor", options=options))}
    assert parts[name].together == (together or f"{name} + cpp_wrapper + oneDNN products")
    kept = parts[name].together == name
    assert parts[name].without.settings.options == (options if kept else {})
    assert parts["oneDNN products"].together == "oneDNN products"
    assert parts["oneDNN products"].without.settings.options == {"cpp_wrapper": True}


def test_the_right_search_is_chosen_by_the_diagnosis() -> None:
    search = SearchByKind(GuidedSearch(["eager"]), TrainingSearch())
    search.begin(looked())
    assert search.ask(1, PLENTY)[0].step != StepParts()
    other = SearchByKind(GuidedSearch(["eager"]), TrainingSearch())
    other.begin(Diagnosis(cores=2, threads=2))
    assert all(candidate.step == StepParts() for candidate in other.ask(5, PLENTY))
