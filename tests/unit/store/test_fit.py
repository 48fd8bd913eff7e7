"""Which bundle fits this machine: pure."""

from __future__ import annotations

from typing import Any

import msgspec
from store_fakes import HERE

from compilot.artifacts.store.fit import about_weights, none_fits, rank, weights_by_age
from compilot.artifacts.store.layout import STORE_SCHEMA, StoreEntry
from compilot.records import BUNDLE_SCHEMA, Fingerprint, ModelFingerprint

MODEL = ModelFingerprint(
    class_name="Net",
    code_sha256="a",
    structure_sha256="b",
    parameters_sha256="c",
    parameter_count=1,
    parameter_bytes=4,
)


def entry(
    name: str,
    created: str = "2026-01-01",
    needs_compiler: bool = False,
    weights: str | None = None,
    carried: bool = False,
    bundle_schema: int = BUNDLE_SCHEMA,
    **machine: Any,
) -> StoreEntry:
    return StoreEntry(
        schema=STORE_SCHEMA,
        sha256=name,
        size_bytes=1,
        label="Net",
        engine="openvino",
        needs_compiler=needs_compiler,
        carries_weights=carried,
        bundle_schema=bundle_schema,
        created=created,
        compilot="0.1",
        fingerprint=Fingerprint(
            machine=msgspec.structs.replace(HERE, **machine),
            model=msgspec.structs.replace(MODEL, weights_sha256=weights),
        ),
    )


def order(*entries: StoreEntry) -> list[str]:
    return [fit.entry.sha256 for fit in rank(entries, HERE) if fit.ok]


def said_of_weights(*entries: StoreEntry) -> str:
    fits = rank(entries, HERE)
    return about_weights(weights_by_age(fit.entry for fit in fits), fits[0])


def test_the_nearest_machine_wins_then_the_newest() -> None:
    assert order(
        entry("other-threads", "2026-03-01", threads=8),
        entry("old"),
        entry("new", "2026-02-01"),
        entry("other-cpu-and-threads", threads=8, cpu_model="Other"),
    ) == ["new", "old", "other-threads", "other-cpu-and-threads"]


def test_newer_weights_come_before_a_nearer_machine() -> None:
    tuned = [
        entry("first", "2026-01-01", weights="a" * 64),
        entry("second", "2026-02-01", weights="b" * 64, threads=8),
        entry("first again", "2026-03-01", weights="a" * 64),  # packing old weights again does not make them new
        entry("any", "2025-01-01", threads=8, cores=8),
    ]
    assert order(*tuned) == ["second", "any", "first again", "first"]
    assert said_of_weights(*tuned) == (
        "bundles of this model have different weights; this one has bbbbbbbbbbbb, the newest. "
        "Others: aaaaaaaaaaaa; to have one of them, name it as the model"
    )
    unfit = [entry("unfit", "2026-02-01", weights="b" * 64, torch="2.12.1"), *tuned[::2]]
    assert "no bundle with the newer bbbbbbbbbbbb can be used here" in said_of_weights(*unfit)
    assert said_of_weights(*tuned[::2]) == ""


def test_carried_weights_go_into_the_model_whatever_it_has() -> None:
    own = msgspec.structs.replace(MODEL, weights_sha256="c" * 64)
    baked, carried = (entry(str(carried), weights="a" * 64, carried=carried) for carried in (False, True))
    assert [(fit.entry.sha256, fit.ok) for fit in rank([baked, carried], HERE, own)] == [
        ("True", True),
        ("False", False),
    ]


def test_a_cpu_generation_is_told_in_few_words() -> None:
    newer = ("avx2", *(f"avx512{name}" for name in ("_bitalg", "_vbmi2", "_vnni", "bw", "cd", "dq", "f", "vl")), "gfni")
    unfit = msgspec.structs.replace(entry("a", cpu_isa=newer), engine="aoti")
    here = msgspec.structs.replace(HERE, cpu_isa=("avx", "avx2", "bmi1", "bmi2", "fma", "sse4_2"))
    assert none_fits(rank([unfit], here)) == (
        "none fits: needs avx512_vnni, avx512f, avx512_bitalg, avx512_vbmi2 and 5 more, this has avx2"
    )


def test_fewer_instructions_than_here_are_fine_and_more_are_not() -> None:
    assert order(entry("older-cpu", cpu_isa=()), entry("newer-cpu", cpu_isa=("avx2", "avx512f"))) == ["older-cpu"]


def test_the_compiler_counts_only_where_one_is_needed() -> None:
    plain, needing = (entry(str(needs), compiler="g++ 12", needs_compiler=needs) for needs in (False, True))
    assert [len(fit.unsafe) for fit in rank([plain, needing], HERE)] == [0, 1]


def test_a_bundle_of_another_schema_does_not_fit_however_new_it_is() -> None:
    old, future = entry("old", "2027-01-01", bundle_schema=1), entry("future", "2027-01-02", bundle_schema=99)
    assert order(old, entry("fits"), future) == ["fits"]
    assert rank([old], HERE)[0].unsafe[0].sentence == f"it has bundle schema 1, this compilot reads {BUNDLE_SCHEMA}."
    assert none_fits(rank([old, entry("other", torch="2.12.1")], HERE)) == (
        f"none fits: has bundle schema 1, this compilot reads {BUNDLE_SCHEMA}; "
        "another needs torch 2.12.1, this has torch 2.13.0"
    )


def test_every_kind_of_reason_is_named_once() -> None:
    unfit = [
        entry("a", cpu_isa=("avx2", "avx512_vnni", "avx512f")),
        entry("b", torch="2.12.1"),
        entry("c", torch="2.12.1", threads=4),
        entry("d", platform="Linux-aarch64", cpu_isa=("asimd",), engines={"openvino": "2025.4"}),
    ]
    assert none_fits(rank(unfit, HERE)) == (
        "none fits: needs torch 2.12.1, this has torch 2.13.0; "
        "another needs avx512_vnni, avx512f, this has avx2; "
        "another needs platform Linux-aarch64 and asimd and openvino 2025.4, "
        "this has platform Linux-x86_64 and avx2 and openvino 2026.1"
    )


def test_an_engine_that_is_not_installed_is_named() -> None:
    bare = msgspec.structs.replace(HERE, engines={})
    assert none_fits(rank([entry("a")], bare)) == "none fits: needs openvino 2026.1, this has no openvino"
