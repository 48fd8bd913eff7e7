"""A fleet and a run with a real engine on a real Ray cluster, told by tests/data/cluster/fleet_story.py, asked here.

Four models for two kinds of machines: this one, and this one as a node with one core has it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bundle_help import reseal, with_machine
from story_help import tell

import compilot
from compilot._cores import usable_cores
from compilot.artifacts import journal as journals
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.signing import sign
from compilot.artifacts.store import listing
from compilot.artifacts.store.remote import Remote
from compilot.records import RunHeader, State, TrialLine, VerdictLine

LIMIT_S = 900
MODELS = ["ash", "birch", "cedar", "dogwood"]

pytestmark = [
    pytest.mark.slow,  # its engines sleep, so what is decided is the same beside any load
    pytest.mark.skipif(usable_cores() < 2, reason="two kinds of machines on one host need two cores"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet-cluster")


@pytest.fixture(scope="module")
def story(folder: Path) -> dict[str, Any]:
    return tell(folder, "fleet", "client", limit_s=LIMIT_S)


def states(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    assert report.get("rows"), report
    return {(row["model"], row["machine"]): row["state"] for row in report["rows"]}


def test_four_models_for_two_kinds_are_packed_signed_and_pushed_once(folder: Path, story: dict[str, Any]) -> None:
    told = story["fleet"]
    pairs = [(model, kind) for model in MODELS for kind in ("usual", "large")]
    assert states(told["first"]) == dict.fromkeys(pairs, "pushed"), told["first"]
    assert told["first"]["code"] == 0
    rows = told["first"]["rows"]
    key = sign(b"", folder / "fleet" / "release").key_id
    assert {row["signed_by"] for row in rows} == {key}
    assert len({row["bundle"] for row in rows}) == 8
    entries = {entry.sha256: entry for entry in listing(Remote(str(folder / "store"))).entries}
    cores = {row["machine"]: entries[row["bundle"]].fingerprint.machine.cores for row in rows}
    assert cores == {"usual": told["cores"], "large": 1}  # what a node is called says nothing about it
    assert not list((folder / "store" / "uploads").glob("*"))
    assert len([line for line in told["built"] if not line.endswith(" alone")]) == 8


def test_a_second_run_does_nothing_and_says_so(story: dict[str, Any]) -> None:
    """By the address of Ray's client, from a process that is no node."""
    told = story["fleet"]
    assert told["again"].get("sentence", told["again"]).startswith("nothing to do: the store has all 8")
    assert told["again"]["on"].startswith("ray://")
    assert told["built_again"] == []


def test_changed_weights_redo_their_own_line(folder: Path, story: dict[str, Any]) -> None:
    told = story["fleet"]
    redone = {pair for pair, state in states(told["changed"]).items() if state == "pushed"}
    assert redone == {("birch", "usual"), ("birch", "large")}
    assert set(states(told["changed"]).values()) == {"pushed", "in the store"}
    assert len([line for line in told["built_changed"] if not line.endswith(" alone")]) == 2
    assert len(listing(Remote(str(folder / "store"))).entries) == 10


def test_a_machine_gets_the_bundle_of_its_own_kind(story: dict[str, Any]) -> None:
    bundles = {row["machine"]: row["bundle"] for row in story["fleet"]["first"]["rows"] if row["model"] == "ash"}
    for kind, bundle in bundles.items():
        assert story["consumers"][kind] == {"same": True, "bundle": bundle}


def test_a_signed_bundle_with_a_false_fingerprint_is_not_loaded(
    folder: Path, story: dict[str, Any], tmp_path: Path
) -> None:
    place = folder / "fleet"
    bundle = next((place / "compilot-fleet" / "bundles").glob("ash-usual-*"))
    false = reseal(
        bundle, tmp_path / "false", lambda _, manifest: with_machine(manifest, "torch", "9.9"), place / "release"
    )
    trusted = {"trusted_keys": [place / "release.pub"], "require_signature": True}
    with pytest.raises(compilot.StaleBundle, match=r"torch: the plan was made with 9[.]9"):
        compilot.load(false, **trusted)  # type: ignore[arg-type]
    compilot.push(false, tmp_path / "store")
    with pytest.raises(compilot.NoneFits, match=r"needs torch 9[.]9"):
        compilot.load(tmp_path / "store", model="Ash", **trusted)  # type: ignore[arg-type]


def test_a_real_engine_is_tried_on_a_node_by_way_of_rays_client(folder: Path, story: dict[str, Any]) -> None:
    assert story["client"]["code"] == 0, story["client"]
    lines = journals.read(folder / "client" / "journal.jsonl")
    assert isinstance(lines[0], RunHeader)
    assert lines[0].on.startswith("ray://")
    tried = [line.trial for line in lines if isinstance(line, TrialLine)]
    engines = [trial for trial in tried if trial.candidate.settings.engine == "onnxruntime"]
    assert engines
    assert engines[0].state is State.OK, engines[0].reason
    assert engines[0].artifacts
    for file in engines[0].artifacts:  # they came from the node
        found = RunDir(folder / "client").workspace(engines[0].candidate.id) / file.name
        assert found.stat().st_size == file.size_bytes
    assert any(isinstance(line, VerdictLine) for line in lines)
