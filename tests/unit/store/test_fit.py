"""Which bundle fits this machine: pure."""

from __future__ import annotations

from typing import Any

import msgspec
from store_fakes import HERE

from compilot.artifacts.store.fit import none_fits, rank
from compilot.artifacts.store.layout import STORE_SCHEMA, StoreEntry
from compilot.records import Fingerprint, ModelFingerprint

MODEL = ModelFingerprint(
    class_name="Net",
    source_sha256="a",
    structure_sha256="b",
    parameters_sha256="c",
    parameter_count=1,
    parameter_bytes=4,
)


def entry(name: str, created: str = "2026-01-01", needs_compiler: bool = False, **machine: Any) -> StoreEntry:
    return StoreEntry(
        schema=STORE_SCHEMA,
        sha256=name,
        size_bytes=1,
        label="Net",
        engine="openvino",
        needs_compiler=needs_compiler,
        created=created,
        compilot="0.1",
        fingerprint=Fingerprint(machine=msgspec.structs.replace(HERE, **machine), model=MODEL),
    )


def order(*entries: StoreEntry) -> list[str]:
    return [fit.entry.sha256 for fit in rank(entries, HERE) if fit.ok]


def test_the_nearest_machine_wins_then_the_newest() -> None:
    assert order(
        entry("other-threads", "2026-03-01", threads=8),
        entry("old"),
        entry("new", "2026-02-01"),
        entry("other-cpu-and-threads", threads=8, cpu_model="Other"),
    ) == ["new", "old", "other-threads", "other-cpu-and-threads"]


def test_fewer_instructions_than_here_are_fine_and_more_are_not() -> None:
    assert order(entry("older-cpu", cpu_isa=()), entry("newer-cpu", cpu_isa=("avx2", "avx512f"))) == ["older-cpu"]


def test_the_compiler_counts_only_where_one_is_needed() -> None:
    plain, needing = (entry(str(needs), compiler="g++ 12", needs_compiler=needs) for needs in (False, True))
    assert [len(fit.unproven) for fit in rank([plain, needing], HERE)] == [0, 1]


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
