"""What the engines offer: lower precisions only where they are allowed and can pay, follow-ups of the best, GPUs."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import msgspec
import pytest
import torch

from compilot.candidates.offers import collect_offers, refine, unserved, why_nobody
from compilot.candidates.search import OrderedSearch
from compilot.engines import registry
from compilot.engines.protocol import Availability, Lower
from compilot.errors import InputError
from compilot.records import Candidate, Diagnosis, Precision, ProcessSettings, Settings, Shapes, State, Trial

AVX2 = Diagnosis(cpu_isa=("avx", "avx2", "fma"), cores=2, threads=2)
AMX = Diagnosis(cpu_isa=("amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni"), cores=2, threads=2)
IMAGES = Diagnosis(cpu_isa=AMX.cpu_isa, has_4d_input=True, has_conv=True)
GPU = Diagnosis(cuda=True)
LOWER = (Precision.BF16, Precision.FP16, Precision.INT8_DYNAMIC)


def offered(diagnosis: Diagnosis, *allowed: Precision, engines: tuple[str, ...] = ()) -> dict[str, Candidate]:
    found = collect_offers(engines, diagnosis, allowed)
    return {c.label: c for candidates in found.values() for c in candidates}


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
    labels = [c.label for c in collect_offers(("onnxruntime",), AVX2, (Precision.INT8_DYNAMIC,))["onnxruntime"]]
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


def test_engines_need_not_know_of_precisions_or_refinements(monkeypatch):
    class Plain:
        def available(self) -> Availability:
            return Availability(ok=True, version="1")

        def offer(self, diagnosis: Diagnosis) -> list[Candidate]:
            return [Candidate(settings=Settings(engine="plain"), label="plain", rationale="")]

    class Knowing(Plain):
        def offer_precision(self, diagnosis: Diagnosis, precision: Precision) -> Lower:
            return Lower(why="not today")

    for half in (Plain(), Knowing()):
        registry.register("plain", half, half)  # type: ignore[arg-type]
        try:
            (only,) = collect_offers(("plain",), AMX, LOWER)["plain"]
            assert refine(only, AMX) == ()
        finally:
            registry.unregister("plain")


def test_a_removed_package_takes_its_engine_away_and_nothing_else(monkeypatch):
    real = metadata.version

    def version(package: str) -> str:
        if package == "openvino":
            raise metadata.PackageNotFoundError(package)
        return real(package)

    before = set(collect_offers((), IMAGES))
    monkeypatch.setattr(metadata, "version", version)
    assert set(collect_offers((), IMAGES, LOWER)) == before - {"openvino"}
    with pytest.raises(InputError, match=r"openvino not installed.*pip install 'compilot\[openvino\]'"):
        collect_offers(("openvino",), IMAGES)


# ---- following up on the best ----------------------------------------------------------------------------------------


def followed_up(best: Candidate, diagnosis: Diagnosis) -> list[Candidate]:
    search = OrderedSearch({best.settings.engine: [best]}, diagnosis, refine)
    (job,) = search.ask(1)
    search.tell(Trial(candidate=job, state=State.OK, reason="", screening=((2.0, 1.0),) * 8))
    return search.ask(99)


def test_session_options_are_searched_on_the_best_candidate_after_its_threads():
    best = offered(AVX2, Precision.INT8_DYNAMIC, engines=("onnxruntime",))["onnxruntime int8-dynamic"]
    labels = [c.label.removeprefix("onnxruntime int8-dynamic, ") for c in followed_up(best, AVX2)]
    assert labels == ["1 thread", "extended optimisations", "no memory pattern", "parallel"]
    for candidate in followed_up(best, AVX2):
        assert candidate.settings.precision is Precision.INT8_DYNAMIC
        assert registry.build_half("onnxruntime").validate(candidate.settings) is None


def told(search: OrderedSearch, candidate: Candidate, ratio: float, wall_s: float) -> None:
    pairs = ((ratio, 1.0),) * 8
    search.tell(Trial(candidate=candidate, state=State.OK, reason="", screening=pairs, wall_s=wall_s))


@pytest.mark.parametrize(("wall_s", "early"), [(4.0, True), (30.0, False)])
def test_variations_of_a_quick_candidate_come_next_and_of_a_slow_one_at_the_end(wall_s: float, early: bool):
    options = [Candidate(settings=Settings(engine="x", mode=str(i)), label=str(i), rationale="") for i in range(6)]
    search = OrderedSearch({"x": options}, AVX2)
    for i in range(4):
        told(search, search.ask(1)[0], 2.0 if i == 1 else 1.1, wall_s)
    labels = [c.label for c in search.ask(9)]
    assert labels == (["1, 1 thread", "4", "5"] if early else ["4", "5"])
    assert [c.label for c in search.ask(9)] == ([] if early else ["1, 1 thread"])


def test_the_best_of_all_is_varied_too_when_it_came_after_the_early_one():
    options = [Candidate(settings=Settings(engine="x", mode=str(i)), label=str(i), rationale="") for i in range(6)]
    search, tried = OrderedSearch({"x": options}, AVX2), []
    while jobs := search.ask(1):
        tried += [job.label for job in jobs]
        told(search, jobs[0], {"1": 2.0, "5": 3.0}.get(jobs[0].label, 1.1), 1.0)
    assert tried == ["0", "1", "2", "3", "1, 1 thread", "4", "5", "5, 1 thread"]


def test_where_nothing_is_faster_eager_itself_is_tried_with_denormals_as_zero():
    search = OrderedSearch({}, msgspec.structs.replace(AVX2, denormals=True))
    (only,) = search.ask(9)
    assert only.label == "eager, denormals as zero"
    assert not only.is_eager
    assert search.ask(9) == OrderedSearch({}, AVX2).ask(9) == []


def test_denormals_come_last_and_only_where_the_model_meets_them():
    best = offered(AVX2, engines=("eager", "inductor"))["inductor"]
    without = [c.label for c in followed_up(best, AVX2)]
    assert without
    *others, last = followed_up(best, msgspec.structs.replace(AVX2, denormals=True))
    assert [c.label for c in others] == without
    assert last.process == ProcessSettings(flush_denormals=True)
    assert last.label == "inductor, denormals as zero"


# ---- engines for GPUs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cudagraphs", "tensorrt"])
def test_gpu_engines_say_what_they_need(name: str, monkeypatch: Any):
    half = registry.build_half(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert half.available().why == "needs a CUDA GPU"
    with pytest.raises(InputError, match=f"engine '{name}' is not usable here: needs a CUDA GPU"):
        collect_offers((name,), GPU)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = half.available()
    assert found.ok if name == "cudagraphs" else found.install == "pip install torch-tensorrt"


@pytest.mark.parametrize("name", ["cudagraphs", "tensorrt"])
def test_gpu_engines_are_offered_only_for_inference_on_a_gpu(name: str):
    half = registry.build_half(name)
    (candidate,) = half.offer(GPU)
    assert half.validate(candidate.settings) is None
    assert half.offer(AMX) == half.offer(Diagnosis(cuda=True, training=True)) == ()
    assert half.validate(Settings(engine=name, options={"wings": 2}))
    assert half.validate(Settings(engine=name, precision=Precision.BF16))


def test_a_recording_has_one_shape():
    half = registry.build_half("cudagraphs")
    assert half.offer(Diagnosis(cuda=True, dynamic=True)) == ()
    assert half.validate(Settings(engine="cudagraphs", shapes=Shapes.DYNAMIC))
