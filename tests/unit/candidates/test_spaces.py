"""What the engines declare: lower precisions only where they are allowed and can pay, follow-ups of the best, GPUs."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import msgspec
import pytest
import torch

from compilot.candidates.guided import GuidedSearch
from compilot.candidates.process import DENORMALS, MEMORY, threads_knob
from compilot.candidates.spaces import candidates_of, space_of, unserved, usable_engines, why_nobody
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.inductor.build import below_the_code
from compilot.engines.protocol import Availability
from compilot.engines.space import LOWER, Acts, Knob, Need, Seed, Space, fitting, seeded, setting, turned, varied
from compilot.errors import InputError
from compilot.records import (
    Candidate,
    Diagnosis,
    MemoryFormat,
    Precision,
    ProcessSettings,
    Settings,
    Shapes,
    State,
    Trial,
)
from compilot.tuning.budget import Left

AVX2 = Diagnosis(cpu_isa=("avx", "avx2", "fma"), cores=2, threads=2)
AMX = Diagnosis(cpu_isa=("amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni"), cores=2, threads=2)
IMAGES = Diagnosis(cpu_isa=AMX.cpu_isa, has_4d_input=True, has_conv=True)
GPU = Diagnosis(cuda=True)
LEFT = Left(300.0)
Over = Callable[..., GuidedSearch]


def offered(diagnosis: Diagnosis, *allowed: Precision, engines: tuple[str, ...] = ()) -> dict[str, Candidate]:
    return {c.label: c for name in usable_engines(engines) for c in candidates_of(name, diagnosis, allowed)}


def test_nothing_but_the_models_own_precision_is_offered_unless_it_is_allowed():
    assert {c.settings.precision for c in offered(AMX).values()} == {Precision.AS_IS}


def test_half_precision_is_offered_where_the_cpu_computes_in_it():
    pytest.importorskip("openvino")
    found = offered(AMX, Precision.BF16)
    assert {c.settings.engine for c in found.values() if c.settings.precision is Precision.BF16} == {
        "eager",
        "inductor",
        "openvino",
    }
    assert {c.settings.precision for c in offered(AVX2, Precision.BF16).values()} == {Precision.AS_IS}


def test_images_in_half_precision_are_in_channels_last():
    assert "inductor bf16 + freezing + channels_last" in offered(IMAGES, Precision.BF16)


def test_a_gpu_computes_in_both_half_precisions():
    assert {"eager bf16", "eager fp16"} <= set(offered(GPU, Precision.BF16, Precision.FP16))


def test_small_integers_keep_seven_bits_where_the_cpu_would_saturate():
    pytest.importorskip("onnxruntime")
    avx2, amx = (offered(isa, Precision.INT8_DYNAMIC)["onnxruntime int8-dynamic"] for isa in (AVX2, AMX))
    assert avx2.settings.options == {"weights": "7-bit"}
    assert amx.settings.options == {}
    assert "onnxruntime int8-dynamic unsigned" in offered(AVX2, Precision.INT8_DYNAMIC)


def test_a_lower_precision_comes_directly_after_the_engines_first_candidate():
    pytest.importorskip("onnxruntime")
    labels = [c.label for c in candidates_of("onnxruntime", AVX2, (Precision.INT8_DYNAMIC,))]
    assert labels[:2] == ["onnxruntime", "onnxruntime int8-dynamic"]


@pytest.mark.parametrize("diagnosis", [AMX, IMAGES, GPU])
def test_every_offer_is_valid_and_follows_declared_dimensions(diagnosis):
    dynamic = msgspec.structs.replace(diagnosis, dynamic=True)
    found = offered(dynamic, *LOWER)
    assert {"eager", "inductor"} & {candidate.settings.engine for candidate in found.values()}
    for candidate in found.values():
        if candidate.settings.engine in ("cudagraphs", "tensorrt"):
            continue
        assert registry.build_half(candidate.settings.engine).validate(candidate.settings) is None
        assert candidate.settings.shapes is Shapes.DYNAMIC


def test_a_precision_that_nobody_serves_is_one_sentence_with_the_reasons():
    (finding,) = unserved(("eager", "inductor"), AVX2, (Precision.BF16,))
    assert finding.explanation == (
        "no engine here can run the model in bf16: this CPU has no bf16 arithmetic (AVX512_BF16, AMX or ARM BF16) "
        "and would only emulate it"
    )
    assert unserved(("eager",), AMX, (Precision.BF16,)) == []
    assert "eager has no int8-dynamic" in why_nobody(("eager",), AMX, Precision.INT8_DYNAMIC)


INFERENCE, CPU_ONLY = "lower precision is for inference, not for train mode", "{} runs inference on the CPU only"
NO_BF16 = "this CPU has no bf16 arithmetic (AVX512_BF16, AMX or ARM BF16) and would only emulate it"
TRAINING = Diagnosis(training=True, cpu_isa=AMX.cpu_isa)


@pytest.mark.parametrize(
    ("engine", "diagnosis", "precision", "why"),
    [
        ("eager", AVX2, Precision.BF16, NO_BF16),
        ("inductor", AVX2, Precision.BF16, NO_BF16),
        ("openvino", AVX2, Precision.BF16, NO_BF16),
        ("eager", AMX, Precision.BF16, ""),
        ("inductor", AMX, Precision.BF16, ""),
        ("openvino", AMX, Precision.BF16, ""),
        ("eager", TRAINING, Precision.BF16, INFERENCE),
        ("inductor", TRAINING, Precision.FP16, INFERENCE),
        ("openvino", TRAINING, Precision.FP16, CPU_ONLY.format("openvino")),
        ("openvino", GPU, Precision.INT8_DYNAMIC, CPU_ONLY.format("openvino")),
        ("openvino", AVX2, Precision.INT8_DYNAMIC, "openvino would need the package nncf to quantise weights"),
        ("onnxruntime", AVX2, Precision.FP16, "onnxruntime has no fp16 kernels for CPUs"),
        ("onnxruntime", AVX2, Precision.INT8_DYNAMIC, ""),
        ("onnxruntime", TRAINING, Precision.INT8_DYNAMIC, CPU_ONLY.format("onnxruntime")),
        ("inductor", AVX2, Precision.INT8_DYNAMIC, "inductor has no int8-dynamic of its own"),
        ("aoti", AVX2, Precision.BF16, "none of them offers it"),
        ("tensorrt", GPU, Precision.BF16, "none of them offers it"),
        ("dynamo:other", AVX2, Precision.BF16, "none of them offers it"),
    ],
)
def test_the_reason_against_a_precision(engine, diagnosis, precision, why, monkeypatch):
    for name in registry.BUILT_IN:
        monkeypatch.setattr(registry.build_half(name), "available", lambda: Availability(ok=True, version="1"))
    assert why_nobody((engine,), diagnosis, precision) == why


def test_engines_need_not_know_of_precisions_or_have_knobs(over: Over):
    for lacks in ({}, {Precision.BF16: "not today"}):
        search = over({"plain": Space(seeds=(Seed("", ""),), lacks=lacks)}, AMX, LOWER)
        (only,) = search.ask(9, LEFT)  # eager is varied once it was told
        assert (only.label, only.settings) == ("plain", Settings(engine="plain"))
        assert space_of("plain", AMX).knobs == ()
        assert why_nobody(("plain",), AMX, Precision.BF16) == lacks.get(Precision.BF16, "none of them offers it")


def test_a_removed_package_takes_its_engine_away_and_nothing_else(monkeypatch):
    real = metadata.version

    def version(package: str) -> str:
        if package == "openvino":
            raise metadata.PackageNotFoundError(package)
        return real(package)

    before = set(usable_engines(()))
    monkeypatch.setattr(metadata, "version", version)
    assert set(usable_engines(())) == before - {"openvino"}
    assert "openvino" not in {c.settings.engine for c in offered(IMAGES, *LOWER).values()}
    with pytest.raises(InputError, match=r"openvino not installed\. pip install openvino$"):
        GuidedSearch(engines=("openvino",)).begin(IMAGES)


# ---- following up on the best ----------------------------------------------------------------------------------------


def followed_up(best: Candidate, diagnosis: Diagnosis) -> list[Candidate]:
    """The candidate with each knob turned that fits, in the order of the knobs."""
    own = space_of(best.settings.engine, diagnosis).knobs
    return varied(best, fitting([threads_knob(diagnosis), *own, DENORMALS], diagnosis))


def test_session_options_are_varied_on_the_best_candidate_after_its_threads():
    best = offered(AVX2, Precision.INT8_DYNAMIC, engines=("onnxruntime",))["onnxruntime int8-dynamic"]
    labels = [c.label.removeprefix("onnxruntime int8-dynamic, ") for c in followed_up(best, AVX2)]
    assert labels == [
        "1 thread",
        "extended optimisations",
        "no spinning",
        "no memory pattern",
        "no arena",
        "dynamic blocks",
        "parallel",
    ]
    for candidate in followed_up(best, AVX2):
        assert candidate.settings.precision is Precision.INT8_DYNAMIC
        assert registry.build_half("onnxruntime").validate(candidate.settings) is None


def told(search: GuidedSearch, candidate: Candidate, ratio: float, wall_s: float) -> None:
    pairs = ((ratio, 1.0),) * 8
    search.tell(Trial(candidate=candidate, state=State.OK, reason="", screening=pairs, wall_s=wall_s))


def test_denormals_come_last_and_only_where_the_model_meets_them():
    best = offered(AVX2, engines=("eager", "inductor"))["inductor"]
    without = [c.label for c in followed_up(best, AVX2)]
    assert without
    *others, last = followed_up(best, msgspec.structs.replace(AVX2, denormals=True))
    assert [c.label for c in others] == without
    assert last.process == ProcessSettings(flush_denormals=True)
    assert last.label == "inductor, denormals as zero"


def test_memory_is_kept_only_where_the_c_library_can(monkeypatch: Any):
    for able in (True, False):
        monkeypatch.setattr("compilot.engines.space.can_keep_memory", lambda able=able: able)
        found = varied(EAGER, fitting([MEMORY], AVX2))
        assert [c.process for c in found] == ([ProcessSettings(keep_memory=True)] if able else [])


# ---- modes of torch.compile ----------------------------------------------------------------------------------------


def modes(diagnosis: Diagnosis) -> set[str | None]:
    return {c.settings.mode for c in candidates_of("inductor", diagnosis)}


@pytest.mark.parametrize("more", [{}, {"dynamic": True}, {"size_recompiles": 2}])
def test_max_autotune_is_offered_where_it_differs_from_its_form_without_cuda_graphs(more: dict[str, Any]):
    assert modes(Diagnosis(**more)) == {None, "max-autotune-no-cudagraphs", "reduce-overhead"}
    assert modes(Diagnosis(cuda=True, **more)) == modes(Diagnosis(**more)) | {"max-autotune"}
    labels = [c.label for c in candidates_of("inductor", Diagnosis(cuda=True, **more))]
    assert labels.index("inductor max-autotune") == labels.index("inductor max-autotune-no-cudagraphs") + 1


def test_what_max_autotune_has_beyond_that_form_are_cuda_graphs():
    options = importlib.import_module("torch._inductor").list_mode_options
    graphs, without = options("max-autotune"), options("max-autotune-no-cudagraphs")
    assert graphs == {**without, "triton.cudagraphs": True}


@pytest.mark.parametrize(("gpu", "alike"), [(False, True), (True, False)])
def test_cuda_graphs_make_another_program_of_the_same_code_where_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, alike: bool
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    plain, without, graphs = (
        below_the_code(Candidate(settings=Settings(engine="inductor", mode=mode), label="", rationale=""))
        for mode in (None, "max-autotune-no-cudagraphs", "max-autotune")
    )
    assert plain == without
    assert (graphs == without) is alike


# ---- engines for GPUs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cudagraphs", "tensorrt"])
def test_gpu_engines_say_what_they_need(name: str, monkeypatch: Any):
    half = registry.build_half(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert half.available().why == "needs a CUDA GPU"
    with pytest.raises(InputError, match=f"engine '{name}' is not usable here: needs a CUDA GPU"):
        GuidedSearch(engines=(name,)).begin(GPU)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = half.available()
    assert found.ok if name == "cudagraphs" else found.install == "pip install torch-tensorrt"


@pytest.mark.parametrize("name", ["cudagraphs", "tensorrt"])
def test_gpu_engines_are_offered_only_for_inference_on_a_gpu(name: str):
    half = registry.build_half(name)
    (candidate,) = candidates_of(name, GPU)
    assert half.validate(candidate.settings) is None
    assert half.space(AMX) == half.space(Diagnosis(cuda=True, training=True)) == Space()
    assert half.validate(Settings(engine=name, options={"wings": 2}))
    assert half.validate(Settings(engine=name, precision=Precision.BF16))


def test_a_recording_has_one_shape():
    half = registry.build_half("cudagraphs")
    assert half.space(Diagnosis(cuda=True, dynamic=True)) == Space()
    assert half.validate(Settings(engine="cudagraphs", shapes=Shapes.DYNAMIC))


# ---- spaces ----------------------------------------------------------------------------------------------------------


def diagnoses() -> Iterator[Diagnosis]:
    """Every mixture of what spaces depend on."""
    flags = ("training", "stochastic", "dynamic", "cuda", "denormals")
    for images, isa, *values in itertools.product(*[(False, True)] * 2, *[(False, True)] * len(flags)):
        facts = dict(zip(flags, values, strict=True), has_4d_input=images, has_conv=images)
        wide = (*AMX.cpu_isa, "avx512f")
        yield Diagnosis(cpu_isa=wide if isa else AVX2.cpu_isa, threads=8 if isa else 1, **facts)


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_seed_and_every_turn_of_one_knob_is_valid(name: str):
    half, seen = registry.build_half(name), 0
    for diagnosis in diagnoses():
        space = half.space(diagnosis)
        for seed in seeded(name, space, diagnosis):
            assert half.validate(seed.settings) is None
            for knob in fitting(space.knobs, diagnosis):
                for value in knob.values:
                    changed = turned(seed, knob, value)
                    assert half.validate(changed.settings) is None
                    assert setting(changed, knob) == value
                    seen += 1
    assert seen or name in ("cudagraphs", "tensorrt")


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_a_space_explains_its_knobs_and_what_it_lacks(name: str):
    for diagnosis in diagnoses():
        space = registry.build_half(name).space(diagnosis)
        assert len({knob.name for knob in space.knobs}) == len(space.knobs)
        for knob in space.knobs:
            assert knob.why
            assert len(set(knob.values)) == len(knob.values)
            assert {variation.value for variation in knob.variations or ()} < set(knob.values)
        assert not {c.settings.precision for c in seeded(name, space, diagnosis)} & set(space.lacks)


TWO_KNOBS = Space(
    (
        Knob("unroll", Acts.OPTION, (1, 4), "longer loops"),
        Knob("layout", Acts.MEMORY_FORMAT, ("preserve", "channels_last"), "images", needs=(Need.IMAGES,)),
    ),
    (Seed("first", "to see"),),
)


def of(search: GuidedSearch, engine: str) -> dict[str, Candidate]:
    return {c.label: c for c in search.promising() if c.settings.engine == engine}


def test_the_knobs_of_a_third_party_engine_are_varied_when_it_is_the_best(over: Over):
    search = over({"theirs": TWO_KNOBS, "other": ["a"]}, msgspec.structs.replace(IMAGES, cores=2, threads=2))
    jobs = search.ask(9, LEFT)
    assert {c.label for c in jobs} == {"other a", "theirs first"}
    for job in jobs:
        told(search, job, 2.0 if job.settings.engine == "theirs" else 1.2, 1.0)
    found = of(search, "theirs")
    assert found["theirs first, 1 thread"].process == ProcessSettings(threads=1)
    unroll, layout = found["theirs first, unroll = 4"], found["theirs first, layout = channels_last"]
    assert unroll.rationale == "the best so far with unroll = 4: longer loops"
    assert unroll.settings == Settings(engine="theirs", options={"unroll": 4})
    assert layout.settings == Settings(engine="theirs", memory_format=MemoryFormat.CHANNELS_LAST)
    assert layout.settings.memory_format is MemoryFormat.CHANNELS_LAST  # text became the enum's member


def test_the_knobs_of_an_engine_that_is_no_faster_than_eager_are_left_alone(over: Over):
    search = over({"theirs": TWO_KNOBS, "other": ["a"]}, msgspec.structs.replace(IMAGES, cores=2, threads=2))
    for job in search.ask(9, LEFT):
        told(search, job, 2.0 if job.settings.engine == "other" else 1.0, 1.0)
    assert of(search, "theirs") == {}
    assert "other a, 1 thread" in of(search, "other")


def test_a_knob_is_turned_only_where_its_needs_are_met(over: Over):
    texts = Diagnosis(compiler_problem="no g++")
    knobs = (*TWO_KNOBS.knobs, Knob("compiled", Acts.OPTION, (False, True), "", needs=(Need.COMPILER,)))
    space = Space(knobs, (Seed("", ""), Seed("images", "", {"layout": "channels_last"})))
    assert [knob.name for knob in fitting(knobs, texts)] == ["unroll"]
    assert [c.label for c in seeded("theirs", space, texts)] == ["theirs"]
    assert [knob.name for knob in fitting(knobs, IMAGES)] == ["unroll", "layout", "compiled"]
    assert [c.label for c in seeded("theirs", space, IMAGES)] == ["theirs", "theirs images"]


def test_a_knob_that_does_nothing_without_another_waits_for_it():
    fast = Knob("fast", Acts.OPTION, (False, True), "")
    faster = Knob("faster", Acts.OPTION, (False, True), "", only_with={"fast": True})
    plain = Candidate(settings=Settings(engine="x"), label="x", rationale="")
    assert [c.label for c in varied(plain, [fast, faster])] == ["x, fast = True"]
    assert [c.label for c in varied(turned(plain, fast, True), [fast, faster])] == [
        "x, fast = False",
        "x, faster = True",
    ]


def test_a_precision_is_varied_only_where_the_user_allows_it(over: Over):
    knob = Knob("precision", Acts.PRECISION, (Precision.AS_IS, Precision.BF16), "half the traffic")
    for allowed, labels in (((), set()), ((Precision.BF16,), {"theirs, precision = bf16"})):
        search = over({"theirs": Space((knob,), (Seed("", ""),))}, Diagnosis(), allowed)
        (job,) = search.ask(9, LEFT)
        told(search, job, 2.0, 1.0)
        assert {label for label in of(search, "theirs") if "precision" in label} == labels


@pytest.mark.parametrize("point", [{"wings": 2}, {"unroll": 3}])
def test_a_seed_outside_of_the_space_is_the_engines_mistake(point: dict[str, int]):
    with pytest.raises(
        InputError, match=r"engine 'theirs' has a seed 'odd' with (wings = 2|unroll = 3): no knob has it"
    ):
        seeded("theirs", TWO_KNOBS._replace(seeds=(Seed("odd", "", point),)), IMAGES)


def test_an_engine_named_by_the_user_gives_the_same_ids():
    typed = "".join(["ea", "ger"])
    assert candidates_of(typed, IMAGES)[0].id == candidates_of("eager", IMAGES)[0].id
