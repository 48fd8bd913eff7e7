"""The options that the search can turn: unknown values are refused, what they need, and where they arrive."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from compilot.candidates.spaces import candidates_of, space_of
from compilot.engines import compiler_knobs, registry
from compilot.engines.aoti import build as aoti
from compilot.engines.compiler_options import torchs_own
from compilot.engines.inductor import build as inductor
from compilot.engines.inductor import load as inductor_load
from compilot.engines.protocol import Infeasible
from compilot.engines.space import Knob, fitting, turns
from compilot.records import Candidate, Diagnosis, OptionValue, RepeatedBlock, Settings

PLAIN = Diagnosis(cores=1, threads=1)
RICH = Diagnosis(has_4d_input=True, has_conv=True, cores=8, threads=8, cpu_isa=("avx2", "avx512f"), graph_breaks=0)


def turned(engine: str, diagnosis: Diagnosis, start: Candidate | None = None) -> dict[tuple[str, Any], Candidate]:
    """The engine's first candidate, or another, with each knob turned that fits."""
    base = start or candidates_of(engine, diagnosis)[0]
    knobs = fitting(space_of(engine, diagnosis).knobs, diagnosis)
    return {(turn.knob, turn.value): turn.candidate for turn in turns(base, knobs)}


def settings(engine: str, **options: OptionValue) -> Settings:
    return Settings(engine=engine, options={name.replace("__", "."): value for name, value in options.items()})


# ---- what is offered -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "engine", "knob"),
    [
        ({"cpu_isa": ("avx2",)}, "inductor", "cpp.simdlen"),
        ({"cpu_isa": ("avx2",)}, "aoti", "cpp.simdlen"),
        ({"threads": 1}, "inductor", "cpp.min_chunk_size"),
        ({"threads": 1}, "inductor", "cpp.threads"),
        ({"threads": 1}, "onnxruntime", "dynamic_block_base"),
        ({"threads": 1}, "openvino", "streams"),
        ({"threads": 1}, "openvino", "partitioner"),
        ({"has_conv": False}, "inductor", "layout_optimization"),
        ({"has_4d_input": False}, "aoti", "layout_optimization"),
        ({"graph_breaks": 2}, "inductor", "light_guards"),
        ({"training": True}, "inductor", "light_guards"),
    ],
)
def test_a_knob_is_turned_only_where_it_can_matter(without: dict[str, Any], engine: str, knob: str) -> None:
    pytest.importorskip(engine) if engine in ("onnxruntime", "openvino") else None
    poor = msgspec.structs.replace(RICH, **without)
    assert knob in {name for name, _ in turned(engine, RICH)}
    start = candidates_of(engine, RICH)[0]
    assert knob not in {name for name, _ in turned(engine, poor, start)}


def test_templates_are_turned_with_frozen_weights_only_and_their_epilogues_with_templates() -> None:
    plain = candidates_of("inductor", RICH)[0]
    found = turned("inductor", RICH, plain)
    assert ("freezing", True) in found
    assert ("max_autotune", True) not in found
    frozen = found["freezing", True]
    assert ("epilogue_fusion", False) not in turned("inductor", RICH, frozen)
    templates = turned("inductor", RICH, frozen)["max_autotune", True]
    assert ("epilogue_fusion", False) in turned("inductor", RICH, templates)


def test_what_helps_can_be_combined_from_where_the_best_is() -> None:
    best = candidates_of("inductor", RICH)[0]
    wanted = [("freezing", True), ("memory_format", "channels_last"), ("max_autotune", True), ("cpp_wrapper", True)]
    for turn in wanted:
        best = turned("inductor", RICH, best)[turn]
    assert best.settings.options == {"freezing": True, "max_autotune": True, "cpp_wrapper": True}
    assert best.settings.memory_format == "channels_last"
    assert inductor.validate(best.settings) is None


@pytest.mark.parametrize(("threads", "counts"), [(1, []), (2, [2]), (8, [2, 4, 8])])
def test_streams_are_as_many_as_there_are_threads_for(threads: int, counts: list[int]) -> None:
    pytest.importorskip("openvino")
    found = turned("openvino", msgspec.structs.replace(RICH, threads=threads))
    assert [value for name, value in found if name == "streams"] == counts


def test_aoti_has_the_compilers_knobs_and_none_of_torch_compile() -> None:
    assert {knob.name for knob in aoti.KNOBS} == {*(k.name for k in compiler_knobs.SHARED), "memory_format"}
    own = {knob.name for knob in inductor.KNOBS} - {knob.name for knob in aoti.KNOBS}
    assert own == {"cpp_wrapper", "asserts", "light_guards", "nested_blocks", "shapes", "sizes", "fallback_random"}


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (settings("inductor", asserts="off"), "inductor option 'asserts' is 'off'; it must be of type bool"),
        (settings("inductor", light_guards=1), "inductor option 'light_guards' is 1; it must be of type bool"),
        (settings("inductor", max_fusion_size=7), "inductor option 'max_fusion_size' is 7; choose from 64, 16, 128"),
        (settings("inductor", cpp__simdlen=128), "inductor option 'cpp.simdlen' is 128; choose from 512, 256"),
        (settings("aoti", cpp__min_chunk_size=1), "aoti option 'cpp.min_chunk_size' is 1; choose from 512, 4096"),
        (settings("inductor", cpp__threads=2), "inductor option 'cpp.threads' is 2; choose from -1, 1"),
        (settings("aoti", pattern_matcher=0), "aoti option 'pattern_matcher' is 0; it must be of type bool"),
        (settings("onnxruntime", arena="no"), "onnxruntime option 'arena' is 'no'; it must be of type bool"),
        (settings("onnxruntime", dynamic_block_base=3), "option 'dynamic_block_base' is 3; choose from 0, 4"),
        (settings("openvino", streams=-1), "openvino option 'streams' is -1; choose 1 or more, or 0"),
        (settings("openvino", partitioner="x"), "openvino option 'partitioner' is 'x'; choose from static, auto"),
    ],
)
def test_an_unknown_value_is_refused_with_a_sentence(wrong: Settings, why: str) -> None:
    problem = registry.build_half(wrong.engine).validate(wrong)
    assert problem is not None
    assert why in problem


def test_options_of_torch_that_are_no_knob_are_left_to_torch() -> None:
    assert inductor.validate(settings("inductor", shape_padding=False)) is None


# ---- where they arrive -----------------------------------------------------------------------------------------------


def test_one_option_of_ours_may_be_several_of_torchs() -> None:
    assert torchs_own({"asserts": False}) == {"size_asserts": False, "alignment_asserts": False}
    assert torchs_own({"asserts": True}) == {}
    assert torchs_own({"aggressive_fusion": True})["score_fusion_memory_threshold"] == 0
    assert torchs_own({"aggressive_fusion": False, "x": 1}) == {"aggressive_fusion": False, "x": 1}


def test_torch_compile_gets_the_compilers_options_and_nothing_of_ours() -> None:
    chosen = settings("inductor", freezing=True, light_guards=True, asserts=False, cpp__simdlen=256)
    assert inductor_load._options(chosen) == {"size_asserts": False, "alignment_asserts": False, "cpp.simdlen": 256}


@pytest.mark.parametrize("knob", inductor.KNOBS, ids=lambda knob: knob.name)
def test_torch_knows_every_option(knob: Knob) -> None:
    """torch.compile checks names and types of options when it is called, without compiling."""
    for value in knob.values if knob.acts == "options" else ():
        assert callable(
            torch.compile(lambda x: x, options=dict(inductor_load._options(settings("inductor", **{knob.name: value}))))
        )


def test_aoti_gets_the_compilers_options() -> None:
    found = aoti._configs(settings("aoti", freezing=True, aggressive_fusion=True, layout_optimization=False))
    wanted = {"freezing": True, "aggressive_fusion": True, "layout_optimization": False}
    assert found.items() >= {**wanted, "score_fusion_memory_threshold": 0}.items()


@pytest.mark.parametrize("name", ["cpp_wrapper", "asserts", "light_guards", "cpp.simdlen"])
def test_what_acts_below_the_code_keeps_programs_apart(name: str) -> None:
    plain = candidates_of("inductor", RICH)[0]
    (other,) = [c for (knob, _), c in turned("inductor", RICH, plain).items() if knob == name]
    assert inductor.below_the_code(plain) != inductor.below_the_code(other)


@pytest.mark.parametrize(
    "name",
    [
        "aggressive_fusion",
        "max_fusion_size",
        "layout_optimization",
        "pattern_matcher",
        "cpp.min_chunk_size",
        "cpp.threads",
    ],
)
@pytest.mark.parametrize("engine", [inductor, aoti], ids=["inductor", "aoti"])
def test_what_shows_in_the_code_lets_equal_programs_be_recognised(engine: Any, name: str) -> None:
    own = engine.__name__.split(".")[-2]
    plain = candidates_of(own, RICH)[0]
    others = [c for (knob, _), c in turned(own, RICH, plain).items() if knob == name]
    assert others
    for other in others:
        assert engine.below_the_code(plain) == engine.below_the_code(other)


@pytest.mark.parametrize("name", ["freezing", "memory_format", "cpp.simdlen"])
def test_what_acts_below_the_code_keeps_libraries_apart(name: str) -> None:
    plain = next(c for c in candidates_of("aoti", RICH) if c.label == "aoti")
    (other,) = [c for (knob, _), c in turned("aoti", RICH, plain).items() if knob == name]
    assert aoti.below_the_code(plain) != aoti.below_the_code(other)


def test_a_mode_that_is_another_program_only_in_its_code_is_recognised() -> None:
    by_label = {c.label: c for c in candidates_of("inductor", RICH)}
    plain, overhead = by_label["inductor"], by_label["inductor reduce-overhead"]
    assert inductor.below_the_code(plain) == inductor.below_the_code(overhead)


# ---- ONNX Runtime and OpenVINO ---------------------------------------------------------------------------------------


def test_onnxruntimes_session_has_the_options() -> None:
    pytest.importorskip("onnxruntime")
    from compilot.engines.onnxruntime.load import session_options

    usual = session_options(settings("onnxruntime"))
    other = session_options(settings("onnxruntime", arena=False, dynamic_block_base=4, allow_spinning=False))
    assert (usual.enable_cpu_mem_arena, other.enable_cpu_mem_arena) == (True, False)
    for name, values in {"session.dynamic_block_base": "04", "session.intra_op.allow_spinning": "10"}.items():
        assert usual.get_session_config_entry(name) + other.get_session_config_entry(name) == values
    spins = [
        session_options(settings("onnxruntime", **own), alone=False).get_session_config_entry(
            "session.intra_op.allow_spinning"
        )
        for own in ({}, {"allow_spinning": True})
    ]
    assert spins == ["0", "1"]  # several sessions that spin take each other's cores


def test_onnxruntime_reads_the_number_of_blocks(tmp_path: Any) -> None:
    """Nothing tells what a session took, but one that cannot read the number refuses it."""
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.dynamic_block_base", "no number")
    with pytest.raises(Exception, match="stoi"):
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], disable_fallback=True)


def openvinos(**options: OptionValue) -> dict[str, str]:
    """What a model was compiled with, as the plugin tells it."""
    openvino = pytest.importorskip("openvino")
    from compilot.engines.openvino.load import properties

    ops = openvino.opset13
    x = ops.parameter([1, 8], openvino.Type.f32)
    model = openvino.Model([ops.relu(x)], [x])
    compiled = openvino.Core().compile_model(model, "CPU", properties(settings("openvino", **options)))
    names = ("NUM_STREAMS", "TBB_PARTITIONER", "ENABLE_CPU_PINNING")
    return {name: str(compiled.get_property(name)).rpartition(".")[2] for name in names}


def test_openvino_takes_the_options() -> None:
    usual = openvinos()
    assert usual["NUM_STREAMS"] == "1"
    assert openvinos(partitioner="auto") == {**usual, "TBB_PARTITIONER": "AUTO"} != usual
    assert openvinos(pin_cpus=False)["ENABLE_CPU_PINNING"] == "False"
    if torch.get_num_threads() > 1:
        assert openvinos(streams=2)["NUM_STREAMS"] == "2"
        assert openvinos(hint="throughput", streams=1)["NUM_STREAMS"] == "1"


def test_more_streams_than_threads_are_infeasible(tmp_path: Any) -> None:
    pytest.importorskip("openvino")
    from compilot.engines.openvino.load import _program

    with pytest.raises(Infeasible, match="3 streams need as many threads, there are 2"):
        _program(tmp_path / "model.xml", settings("openvino", streams=3, threads=2))


@pytest.mark.parametrize(
    ("copies", "other", "offered"),
    [(4, {}, True), (3, {}, False), (4, {"dynamic": True}, False), (4, {"graph_breaks": 1}, False)],
)
def test_nested_blocks_are_offered_where_a_block_is_there_often(
    copies: int, other: dict[str, Any], offered: bool
) -> None:
    paths = tuple(f"layers.{i}" for i in range(copies))
    block = RepeatedBlock(class_name="Block", paths=paths, parameters=10, structure_sha256="0" * 64)
    found = candidates_of("inductor", msgspec.structs.replace(RICH, repeated=(block,), **other))
    nested = [candidate for candidate in found if candidate.settings.options == {"nested_blocks": True}]
    assert [candidate.label for candidate in nested] == (["inductor nested blocks"] if offered else [])
