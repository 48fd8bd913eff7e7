"""Runs on a real Ray cluster of three nodes, which come and go; told by tests/data/cluster/story.py, asked here.

The cluster lives in a network namespace that has only loopback. The model sleeps, so that the winner is known: it leads
eager six times and the next one twice.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from story_help import tell

from compilot.artifacts import journal as journals
from compilot.artifacts.planfile import load_plan
from compilot.records import HostLease, JournalLine, NodeLine, RaceLine, RunHeader, State, TrialLine

LIMIT_S = 500

pytestmark = pytest.mark.slow  # its engines sleep, so what is decided is the same beside any load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def story(folder: Path) -> dict[str, Any]:
    return tell(folder, "calm", "removed", "killed", limit_s=LIMIT_S)


def lines_of(run: Path) -> list[JournalLine]:
    return journals.read(run / "journal.jsonl")


def leases(lines: list[JournalLine]) -> list[HostLease]:
    found = {lease for line in lines if isinstance(line, TrialLine) for lease in line.trial.leases}
    return [*found, *(lease for line in lines if isinstance(line, RaceLine) for lease in line.race.leases)]


def first_builds(builds: list[str]) -> list[str]:
    """By engine, without those for a cold start that had the machine."""
    return [line.split()[0] for line in builds if not line.endswith(" alone")]


def test_a_cluster_decides_as_this_machine_does(folder: Path, story: dict[str, Any]) -> None:
    assert story["local"]["chosen"] == story["calm"]["chosen"] == "quick"
    plan = load_plan(folder / "calm" / "plan.json")
    assert plan.entries[0].evidence is not None
    assert plan.entries[0].artifacts
    for file in plan.entries[0].artifacts:  # they came from the node
        assert (folder / "calm" / plan.entries[0].artifacts_dir / file.name).stat().st_size == file.size_bytes


def test_the_nodes_share_the_candidates_and_build_each_once(folder: Path, story: dict[str, Any]) -> None:
    assert sorted(first_builds(story["calm"]["builds"])) == ["middling", "plodding", "quick"]
    lines = lines_of(folder / "calm")
    nodes = {line.node: line for line in lines if isinstance(line, NodeLine)}
    assert len(nodes) == 3
    for line in nodes.values():
        assert line.aa_low is None or line.aa_low <= line.aa_high  # type: ignore[operator]
        assert line.because
    assert all(line.trial.state is State.OK for line in lines if isinstance(line, TrialLine))
    header = lines[0]
    assert isinstance(header, RunHeader)
    assert header.on


def test_leases_of_a_host_never_overlap(folder: Path, story: dict[str, Any]) -> None:
    for run in ("calm", "removed", "killed"):
        found = sorted(leases(lines_of(folder / run)), key=lambda lease: lease.from_s)
        assert len(found) >= 4
        assert all(lease.held for lease in found)
        assert {lease.host for lease in found} == {found[0].host}  # three nodes, one machine
        for before, after in itertools.pairwise(found):
            assert before.to_s <= after.from_s, run


def test_nodes_removed_in_a_build_a_trial_and_a_race_change_nothing(folder: Path, story: dict[str, Any]) -> None:
    told = story["removed"]
    assert told.get("chosen") == "quick", told
    assert sorted(told["struck"]) == ["build", "race", "trial"]
    assert len(set(told["struck"].values())) == 3
    lines = lines_of(folder / "removed")
    trials = [line.trial for line in lines if isinstance(line, TrialLine)]
    assert {trial.state for trial in trials} == {State.OK}  # a node's failure is nobody else's
    finished = Counter(t.candidate.label for t in trials)
    assert max(finished.values()) <= 2  # its trial, and its cold start alone
    races = [line.race.purpose for line in lines if isinstance(line, RaceLine)]
    assert sorted(races) == ["confirm", "race"]
    lost = [note for note in told["notes"] if "was lost" in note]
    assert len(lost) == 3


def test_a_killed_driver_is_resumed_from_its_journal_and_repeats_nothing(folder: Path, story: dict[str, Any]) -> None:
    told = story["killed"]
    assert told["resumed"] == 0, told["log"]
    run = folder / "killed"
    assert (run / "journal.jsonl").read_text().startswith(told["before"])
    assert load_plan(run / "plan.json").entries[0].candidate.label == "quick"
    before = [json.loads(line) for line in told["before"].splitlines()]
    done = {line["trial"]["candidate"]["settings"]["engine"] for line in before if line["type"] == "trial"} - {"eager"}
    assert done  # at least one candidate was finished
    assert not done & set(first_builds(told["builds"][1]))
    header = lines_of(run)[0]
    assert isinstance(header, RunHeader)
    assert header.workload.target == f"{folder}/hidden/sleepy_model.py:model"  # which no node can see


def test_what_cannot_be_placed_is_named(story: dict[str, Any]) -> None:
    error = story["unplaceable"]["error"]
    assert error.endswith("has kind=gpu within 2 s: the labels there are kind=w.")


def test_workers_of_nodes_have_the_users_threads_and_folder_and_leave_nothing(story: dict[str, Any]) -> None:
    names = [name for name, _, _, _ in story["nodes"]["found"]]
    assert len(names) >= 3
    assert story["nodes"]["answers"] == [f"asked {name} none cluster" for name in names]
    assert {threads for _, _, _, threads in story["nodes"]["found"]} != {0}
    assert story["end"]["left"] == []
