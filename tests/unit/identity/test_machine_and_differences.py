import os
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from compilot._cores import usable_cores
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.registry import Halves
from compilot.engines.traits import EngineTraits
from compilot.identity import machine
from compilot.identity.differences import Severity, differences, explain_difference
from compilot.identity.machine import _compiler, machine_fingerprint, parse_compiler, parse_cpuinfo
from compilot.records import Fingerprint, MachineFingerprint, ModelFingerprint

MACHINE = MachineFingerprint(
    torch="2.13.0", python="3.11.7", platform="Linux-x86_64", glibc="glibc 2.36", cpu_model="Xeon",
    cpu_isa=("avx2", "avx512f"), cores=8, threads=4, compiler="g++ 12.2.0", engines={"onnxruntime": "1.20"},
)  # fmt: skip
MODEL = ModelFingerprint(
    class_name="Net", code_sha256="a" * 64, structure_sha256="b" * 64, parameters_sha256="c" * 64, parameter_count=10,
    parameter_bytes=40, code={"scale": "1", "Net.forward~2": "1", "gone": "1"}, libraries={"timm": "1.0"},
    attributes={"block.0.alpha": "1.0", "table": "Tensor 11", "config": "Config 1", "config.kind": "None"},
)  # fmt: skip
BOTH = {"block.0.alpha": "2.0", "table": "Tensor 22"}
SET = {"config.kind": "'regression'"}
OLD = Fingerprint(machine=MACHINE, model=MODEL)


def other(part: str, **changes: Any) -> Fingerprint:
    return msgspec.structs.replace(OLD, **{part: msgspec.structs.replace(getattr(OLD, part), **changes)})


def test_this_machine() -> None:
    found = machine_fingerprint()
    assert found.torch == str(torch.__version__)
    assert type(found.torch) is str
    assert found.cores == usable_cores() >= 1
    assert found.threads == torch.get_num_threads()
    assert found.cpu_isa == tuple(sorted(found.cpu_isa))
    assert msgspec.json.decode(msgspec.json.encode(found), type=MachineFingerprint) == found


def test_threads_are_read_each_time() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert machine_fingerprint().threads == before + 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this platform")
def test_only_usable_cores_count() -> None:
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mine)})
        assert machine_fingerprint().cores == 1
    finally:
        os.sched_setaffinity(0, mine)


def test_cpuinfo_of_x86_and_arm() -> None:
    x86 = "model name\t: Xeon Gold\nflags\t\t: fpu avx2 gfni avx512f avx512_vbmi2 bmi2 amx_tile\n\nmodel name : B\n"
    assert parse_cpuinfo(x86.splitlines()) == (
        "Xeon Gold",
        ("amx_tile", "avx2", "avx512_vbmi2", "avx512f", "bmi2", "gfni"),
    )
    arm = "processor\t: 0\nFeatures\t: fp asimd sve bf16 atomics\nCPU part\t: 0xd40\n"
    assert parse_cpuinfo(arm.splitlines()) == ("ARM part 0xd40", ("asimd", "atomics", "bf16", "fp", "sve"))


def test_what_the_kernel_decides_does_not_make_another_cpu() -> None:
    flags = "flags : avx2 bmi1"
    assert parse_cpuinfo([f"{flags} pti sme pku user_shstk rtm ibrs"]) == parse_cpuinfo([flags])


def test_the_length_of_scalable_vectors_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(prctl=lambda *_: 32 | 1 << 17)  # 32 bytes, and a flag that is not part of the length
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda *_, **__: library)
    assert machine._vector_length() == ["sve_256bit"]
    short, long = (other("machine", cpu_isa=("asimd", "sve", f"sve_{n}bit")) for n in (256, 512))
    [found] = differences(short, long, ["aoti"])
    assert "made with sve_256bit, which this machine does not have" in found.sentence
    assert differences(short, long, ["eager"]) == []


@pytest.mark.parametrize(
    ("command", "output", "name"),
    [
        ("g++", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright", "g++ 12.2.0"),
        ("/usr/bin/clang++", "Ubuntu clang version 18.1.3 (1ubuntu1)\n", "clang++ 18.1.3"),
        ("c++", "", "c++ of unknown version"),
    ],
)
def test_compiler_versions(command: str, output: str, name: str) -> None:
    assert parse_compiler(command, output) == name


@pytest.mark.parametrize("command", ["no-such-compiler-anywhere", "false", ""])
def test_a_compiler_that_cannot_be_used_is_none(command: str) -> None:
    assert _compiler(command) is None


def test_equal_fingerprints_do_not_differ() -> None:
    assert differences(OLD, OLD) == []


@pytest.mark.parametrize(
    ("new", "severity", "field", "says"),
    [
        (other("machine", torch="2.14.0"), "unsafe", "machine.torch", "made with 2.13.0, this process has 2.14.0"),
        (other("machine", python="3.12.1"), "unsafe", "machine.python", "made with 3.11, this process has 3.12"),
        (other("machine", cpu_isa=("avx2",)), "unsafe", "machine.cpu_isa", "avx512f, which this machine does not have"),
        (other("machine", engines={}), "unsafe", "machine.engines.onnxruntime", "with 1.20, this process has none"),
        (other("machine", platform="Linux-aarch64"), "unsafe", "machine.platform", "Linux-aarch64"),
        (other("model", code_sha256="d" * 64), "unsafe", "model.code_sha256", "aaaaaaaaaa -> dddddddddd"),
        (other("model", structure_sha256="d"), "unsafe", "model.structure_sha256", "structure"),
        (
            other("model", code_sha256="d", code={"scale": "2", "Net.forward~2": "2", "new": "1"}),
            "unsafe", "model.code_sha256", "functions they call changed: Net.forward, scale, new is new, and 1 more.",
        ),
        (
            other("model", code_sha256="d", libraries={"timm": "2.0"}),
            "unsafe", "model.code_sha256", "changed: timm 1.0 -> 2.0",
        ),
        (
            other("model", structure_sha256="d", attributes={**MODEL.attributes, **BOTH}),
            "unsafe", "model.structure_sha256", "attribute 'block.0.alpha' from 1.0 to 2.0, attribute 'table'.",
        ),
        (
            other("model", structure_sha256="d", attributes={**MODEL.attributes, "config": "Config 2", **SET}),
            "unsafe", "model.structure_sha256", "changed: attribute 'config.kind' from None to 'regression'.",
        ),
        (
            other("model", parameters_sha256="d", parameter_count=12),
            "unsafe", "model.parameters_sha256", "from 10 to 12 values",
        ),
        (other("machine", threads=1), "unproven", "machine.threads", "made with 4, this process has 1"),
        (other("machine", cpu_model="EPYC"), "unproven", "machine.cpu_model", "Xeon"),
        (other("machine", cores=2), "unproven", "machine.cores", "cores"),
        (other("machine", compiler=None), "unproven", "machine.compiler", "has none"),
        (other("machine", glibc="glibc 2.31"), "unproven", "machine.glibc", "2.31"),
    ],
)  # fmt: skip
def test_each_difference_is_explained(new: Fingerprint, severity: str, field: str, says: str) -> None:
    [found] = differences(OLD, new)
    assert (found.severity, found.field) == (severity, field)
    assert says in found.sentence
    assert explain_difference(OLD, new) == [found.sentence]


@pytest.mark.parametrize(("compiles", "found"), [(True, ["unsafe"]), (False, []), (None, ["unproven"])])
def test_another_compiler_counts_as_much_as_what_it_left_is_used(compiles: bool | None, found: list[str]) -> None:
    now = other("machine", compiler="g++ 13.1.0")
    assert [one.severity for one in differences(OLD, now, compiles=compiles)] == found


def test_harmless_changes_are_none() -> None:
    more = other(
        "machine", cpu_isa=("amx_tile", "avx2", "avx512f"), python="3.11.9", engines={**MACHINE.engines, "x": "1"}
    )
    assert differences(OLD, more) == []


def test_engines_that_a_plan_does_not_use_do_not_count() -> None:
    new = other("machine", engines={"onnxruntime": "1.21"})
    assert len(differences(OLD, new, engines=["onnxruntime"])) == 1
    assert differences(OLD, new, engines=["inductor"]) == []


CASCADE_LAKE = ("avx2", "avx512_vnni", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "bmi1", "bmi2", "fma")
ICE_LAKE = (*CASCADE_LAKE, "avx512_bitalg", "avx512_vbmi2", "avx512_vpopcntdq", "avx512ifma", "avx512vbmi", "gfni")


def test_compiled_code_needs_every_instruction_of_the_cpu_it_was_built_on() -> None:
    old, new = other("machine", cpu_isa=ICE_LAKE), other("machine", cpu_isa=CASCADE_LAKE)
    for engines in (["aoti"], ["inductor"], ["dynamo:eager"], ["onnxruntime", "aoti"], None):
        [found] = differences(old, new, engines)
        assert "avx512_bitalg, avx512_vbmi2, avx512_vpopcntdq, avx512ifma and 2 more" in found.sentence
    assert differences(new, old, ["aoti"]) == []


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "eager"])
def test_engines_that_look_at_the_cpu_themselves_need_less(engine: str) -> None:
    versions = {"onnxruntime": "1.20", "openvino": "2026.1"}
    old, new = (other("machine", cpu_isa=isa, engines=versions) for isa in (ICE_LAKE, CASCADE_LAKE))
    assert differences(old, new, [engine]) == []
    assert differences(new, old, [engine]) == []
    [found] = differences(old, other("machine", cpu_isa=("avx2", "fma"), engines=versions), [engine])
    assert "made with avx512_vnni, avx512f, avx512bw, avx512dq and 1 more" in found.sentence


def test_a_record_with_fewer_kinds_of_instructions_still_fits_its_machine() -> None:
    old = other("machine", cpu_isa=("avx2", "avx512_vnni", "avx512f", "fma"))
    for engine in ("aoti", "openvino", "onnxruntime"):
        full = other("machine", cpu_isa=(*old.machine.cpu_isa, "bmi1", "gfni", "sse2"), engines={engine: "1.20"})
        assert not [one for one in differences(old, full, [engine]) if one.field == "machine.cpu_isa"]


def test_an_engine_whose_version_nobody_wrote_down_is_unproven() -> None:
    now = other("machine", engines={"script": "1.1"})
    [found] = differences(OLD, now, ["script"])
    assert (found.severity, found.field) == ("unproven", "machine.engines.script")
    assert "its version was not recorded, so it may be another one now (1.1)" in found.sentence
    [found] = differences(now, OLD, ["script"])
    assert found.severity is Severity.UNSAFE
    for torchs_own in ("inductor", "aoti", "eager", "dynamo:eager"):
        assert differences(OLD, OLD, [torchs_own]) == []


class Distribution(NamedTuple):
    version: str


class FileLoad:
    def load(self, request: LoadRequest) -> Loaded:
        raise AssertionError("nothing is loaded to tell a version")


def test_engines_of_other_packages_tell_their_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_installed", lambda: {"theirs": SimpleNamespace(dist=Distribution("3.1"))})
    monkeypatch.setattr(registry, "_announced", lambda: {"other": SimpleNamespace(dist=Distribution("0.2"))})
    monkeypatch.setitem(registry._registered, "own", Halves(None, FileLoad(), EngineTraits(version="7")))
    monkeypatch.setitem(registry._registered, "silent", Halves(None, FileLoad()))
    asked = ["theirs", "own", "silent", "dynamo:other", "dynamo:unknown", "unknown", "inductor", "dynamo:eager"]
    assert machine_fingerprint(engines=asked).engines == {"theirs": "3.1", "own": "7", "dynamo:other": "0.2"}
    assert machine_fingerprint().engines.items() >= {"theirs": "3.1", "own": "7", "dynamo:other": "0.2"}.items()


def test_weights_count_only_where_both_sides_know_them() -> None:
    frozen = other("model", weights_sha256="e" * 64)
    assert differences(OLD, frozen) == []
    assert differences(frozen, OLD) == []
    [found] = differences(frozen, other("model", weights_sha256="f" * 64))
    assert found.severity is Severity.UNSAFE


def test_unsafe_ones_come_first() -> None:
    new = Fingerprint(machine=msgspec.structs.replace(MACHINE, threads=1, torch="2.14"), model=MODEL)
    assert [found.severity for found in differences(OLD, new)] == ["unsafe", "unproven"]
