"""Which entries of a large store are read, and that the choice is that of somebody who reads them all."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_fakes import HERE, MakeBundle

from compilot.artifacts import store
from compilot.artifacts.store import finding
from compilot.artifacts.store.fit import Fit, rank, weights_by_age
from compilot.artifacts.store.gc import find_garbage
from compilot.artifacts.store.layout import STORE_SCHEMA, StoreEntry, parse_name
from compilot.artifacts.store.remote import Remote
from compilot.artifacts.store.removing import remove
from compilot.errors import InputError, NoneFits, StoreError
from compilot.records import BUNDLE_SCHEMA, Fingerprint, ModelFingerprint, encode


class Counted(Remote):
    """A store that counts what is read of it."""

    read_names: int = 0
    listed_names: int = 0

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        self.read_names += len(names)
        return super().read(names)

    def sizes(self, prefix: str) -> dict[str, int | None]:
        found = super().sizes(prefix)
        self.listed_names += len(found)
        return found


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def entry(model: str, weights: str | None, day: int = 1, carried: bool = False, **machine: Any) -> StoreEntry:
    about = ModelFingerprint(
        class_name=model,
        code_sha256=digest(model),
        structure_sha256="b" * 64,
        parameters_sha256="c" * 64,
        parameter_count=1,
        parameter_bytes=4,
        weights_sha256=weights and digest(weights),
    )
    return StoreEntry(
        schema=STORE_SCHEMA,
        sha256=digest(model, weights, day, carried, sorted(machine.items())),
        size_bytes=1,
        label=model,
        engine="openvino",
        engines=("openvino",),
        carries_weights=carried,
        bundle_schema=BUNDLE_SCHEMA,
        created=f"2026-01-{day:02d}T00:00:00+00:00",
        compilot="0.1",
        fingerprint=Fingerprint(machine=msgspec.structs.replace(HERE, **machine), model=about),
        signed_by="",
    )


def put(url: str, entries: Sequence[StoreEntry], *, old: bool = False) -> None:
    for one in entries:
        for name in [one.old_index_name] if old else [one.index_name, *one.names]:
            path = Path(url) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(one))


def many(seed: int) -> list[StoreEntry]:
    """Bundles of one model: some weights, some machines, of which some do not fit."""
    draw = random.Random(seed)
    found = {
        one.sha256: one
        for one in (
            entry(
                "Net",
                draw.choice([None, "a", "b", "c"]),
                draw.randint(1, 28),
                draw.random() < 0.2,
                cpu_model=draw.choice(["Some CPU", "Other CPU"]),
                threads=draw.choice([1, 2]),
                torch=draw.choice(["2.13.0", "2.12.0"]),
            )
            for _ in range(30)
        )
    }
    return list(found.values())


def sort_key(one: Fit, ages: list[str]) -> tuple[int, int]:
    return (ages.index(one.entry.weights) if one.entry.weights else 0, len(one.unproven))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("own", [None, "b"])
def test_the_choice_is_that_of_whoever_reads_everything(tmp_path: Path, seed: int, old: bool, own: str | None) -> None:
    entries = many(seed)
    put(str(tmp_path), entries, old=old)
    model = msgspec.structs.replace(entries[0].fingerprint.model, weights_sha256=digest(own)) if own else None
    lazily = list(store.choices(Remote(str(tmp_path)), HERE, model))
    everything = [fit for fit in rank(entries, HERE, model) if fit.ok]
    assert {fit.entry.sha256 for fit in lazily} == {fit.entry.sha256 for fit in everything}
    ages = weights_by_age(entries)
    assert sort_key(lazily[0], ages) == sort_key(everything[0], ages)


def test_a_large_store_is_not_read(tmp_path: Path) -> None:
    others = [entry(f"Net{number}", "w") for number in range(60)]
    hot = [entry("Hot", f"w{day}", day, cores=cores) for day in range(1, 13) for cores in range(2, 14)]
    put(str(tmp_path), [*others, *hot])
    remote = Counted(str(tmp_path))
    chosen = next(store.choices(remote, HERE, "Hot"))
    assert (chosen.entry.fingerprint.machine.cores, chosen.entry.created[:10]) == (2, "2026-01-12")
    assert "the best fit of 144 bundles" in chosen.because
    assert chosen.because.startswith("made on a machine like this one")
    assert remote.read_names == 1  # of 204 entries
    assert remote.listed_names == 144 + 2 * 61  # the model's own, and the names of all
    remote = Counted(str(tmp_path))
    assert next(store.choices(remote, HERE, hot[-1].fingerprint.model)).entry.created[:10] == "2026-01-12"
    assert (remote.read_names, remote.listed_names) == (1, 144)
    strange = msgspec.structs.replace(HERE, cpu_model="Third CPU")
    remote = Counted(str(tmp_path))
    assert next(store.choices(remote, strange, "Hot")).entry.created[:10] == "2026-01-12"
    assert remote.read_names == 12  # those with the newest weights


def test_where_nothing_fits_one_entry_of_each_machine_is_read(tmp_path: Path) -> None:
    hot = [entry("Hot", f"w{day}", day, cores=cores) for day in range(1, 13) for cores in range(2, 14)]
    hot += [entry("Hot", "w12", day, cores=cores) for day in range(13, 16) for cores in range(2, 14)]
    put(str(tmp_path), hot)
    for changed in ({"torch": "9.9"}, {"cpu_isa": ()}):
        remote = Counted(str(tmp_path))
        with pytest.raises(NoneFits, match="none fits: needs"):
            next(store.choices(remote, msgspec.structs.replace(HERE, **changed), "Hot"))
        assert remote.read_names == 12  # of 180
    trained = msgspec.structs.replace(hot[0].fingerprint.model, weights_sha256=digest("own"))
    edited = msgspec.structs.replace(trained, code_sha256=digest("edited"))
    for model in (trained, edited):
        remote = Counted(str(tmp_path))
        with pytest.raises(NoneFits, match="is for another model"):
            next(store.choices(remote, HERE, model))
        assert remote.read_names == 12


def test_a_machine_with_another_engine_version_is_not_given_up(tmp_path: Path) -> None:
    """Its bundles may have engines that are the same here."""
    engines = {"openvino": "2025.0", "onnxruntime": "1.23"}
    newer, older = (entry("Net", "w", day, engines=engines) for day in (2, 1))
    older = msgspec.structs.replace(older, engine="onnxruntime", engines=("onnxruntime",))
    put(str(tmp_path), [newer, older])
    here = msgspec.structs.replace(HERE, engines={"openvino": "2026.1", "onnxruntime": "1.23"})
    assert [fit.entry for fit in store.choices(Remote(str(tmp_path)), here, "Net")] == [older]


def test_stores_of_before_names_told_anything_are_read(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    pushed = store.push(make_bundle("net"), url).entry
    (tmp_path / "store" / pushed.index_name).rename(tmp_path / "store" / pushed.old_index_name)
    for name in pushed.names:
        (tmp_path / "store" / name).unlink()
    for wanted in (None, "Net", pushed.model_id[:6], pushed.sha256[:6], pushed.fingerprint.model):
        assert store.pull(url, tmp_path / "out", HERE, wanted).fit.entry == pushed
    with pytest.raises(NoneFits, match="it has Net"):
        store.pull(url, tmp_path / "out", HERE, "Ten")
    assert store.push(tmp_path / "net.cpbundle", url).was_there
    assert (tmp_path / "store" / pushed.index_name).is_file()
    assert store.listing(Remote(url)).entries == (pushed,)  # once
    assert [(one.name, one.why) for one in find_garbage(Remote(url))] == [
        (pushed.old_index_name, "it has a newer name, too")
    ]
    remove(url, "Net")
    with pytest.raises(StoreError, match="holds no bundles"):
        store.pull(url, tmp_path / "out", HERE)
    assert find_garbage(Remote(url)) == []


def test_a_model_without_names_is_found_by_an_entry(make_bundle: MakeBundle, tmp_path: Path) -> None:
    """What a push that was cut off, or gc beside a push, leaves."""
    url = str(tmp_path / "store")
    one, two = (store.push(make_bundle(name, label=name), url).entry for name in ("One", "Two"))
    for name in two.names:
        (tmp_path / "store" / name).unlink()
    assert {model.label for model in finding.models_of(Remote(url))} == {"One", "Two"}
    assert store.pull(url, tmp_path / "out", HERE, "Two").fit.entry == two
    with pytest.raises(InputError, match=r"One .*Two"):
        store.pull(url, tmp_path / "out", HERE)
    assert one != two


def test_names_of_models_without_bundles_are_garbage(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    pushed = store.push(make_bundle("net"), url).entry
    assert find_garbage(Remote(url)) == []
    (tmp_path / "store" / pushed.object_name).unlink()
    found = {one.name: one.why for one in find_garbage(Remote(url))}
    assert found == dict.fromkeys(pushed.names, "its model has no bundle") | {
        pushed.index_name: "its object is not there"
    }


def test_damaged_entries_are_counted_where_nothing_else_is_there(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    pushed = store.push(make_bundle("net"), url).entry
    (tmp_path / "store" / pushed.index_name).write_bytes(b"{")
    with pytest.raises(StoreError, match=r"holds no bundles \(1 damaged index entries\)"):
        store.pull(url, tmp_path / "out", HERE)


def test_what_fits_nowhere_gets_a_line_for_the_manifest(tmp_path: Path) -> None:
    import tomllib

    put(str(tmp_path), [entry("Net", "a", torch="2.12.0")])
    machine = msgspec.structs.replace(HERE, cpu_model='AMD "EPYC" 7B13 CPU @ 2.45GHz', cores=8)
    with pytest.raises(NoneFits) as refused:
        list(store.choices(Remote(str(tmp_path)), machine, "Net"))
    line = str(refused.value).partition("of a fleet's manifest: ")[2]
    assert tomllib.loads(line) == {"amd-epyc-7b13-8": {"cpu": machine.cpu_model, "cores": 8}}


def test_names_of_any_class_are_safe(tmp_path: Path) -> None:
    odd = entry("../a/b c%", "w")
    put(str(tmp_path / "store"), [odd])
    assert [model.label for model in finding.models_of(Remote(str(tmp_path / "store")))] == ["../a/b c%"]
    assert not (tmp_path / "a").exists()
    assert parse_name(odd.index_name) is not None
    assert parse_name("index/other.json") is None
