"""Candidates with the same program start from the files of the first one, and have its cold start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.progress import Observer
from compilot.records import (
    ArtifactFile,
    Candidate,
    Guard,
    Measurement,
    ProcessSettings,
    Settings,
    State,
    Trial,
)
from compilot.trials.attempt import Attempt, Judge
from compilot.trials.limits import Limits
from compilot.trials.protocol import Built
from compilot.trials.runner import BESIDE, Job
from compilot.trials.sharing import are_there, files_for
from compilot.trials.workers import Workers

BASE = Candidate(settings=Settings(engine="inductor"), label="base", rationale="")
FILES = (ArtifactFile(name="inductor/a", sha256="1", size_bytes=1),)
COLD = Measurement(cold_s=40.0, cold_cache=True, cold_cpu_s=70.0, compiler_runs=9, import_s=2.0, doubts=(BESIDE,))


def with_process(candidate: Candidate = BASE, **process: Any) -> Candidate:
    return msgspec.structs.replace(candidate, process=ProcessSettings(**process), label="varied")


def trial(candidate: Candidate = BASE, **known: Any) -> Trial:
    found: dict[str, Any] = {"state": State.OK, "reason": "", "artifacts": FILES, "measurement": COLD, **known}
    return Trial(candidate=candidate, **found)


KEPT = with_process(keep_memory=True)


@pytest.mark.parametrize("own", [KEPT, with_process(flush_denormals=True), with_process(threads=None)])
def test_what_the_process_does_with_memory_and_denormals_is_no_other_program(own: Candidate) -> None:
    assert files_for(own, [trial()]) == trial()
    assert files_for(BASE, [trial(own)]) == trial(own)


@pytest.mark.parametrize(
    ("own", "known"),
    [
        (with_process(threads=1, keep_memory=True), trial()),  # a compiler writes them into its code
        (msgspec.structs.replace(KEPT, settings=Settings(engine="aoti")), trial()),
        (msgspec.structs.replace(KEPT, sizes={"x:0": 8}), trial()),
        (KEPT, trial(state=State.WRONG)),
        (KEPT, trial(artifacts=())),
        (KEPT, trial(measurement=None)),
    ],
)
def test_others_have_programs_of_their_own(own: Candidate, known: Trial) -> None:
    assert files_for(own, [known]) is None


def test_files_that_are_gone_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "inductor").mkdir()
    assert not are_there(trial(), tmp_path)
    (tmp_path / "inductor" / "a").touch()
    assert are_there(trial(), tmp_path)


class FakeWorkers:
    """Builds at once; keeps whether files were to be used."""

    def __init__(self, folder: Path, *, room: bool = True) -> None:
        self.run_dir, self.observer, self.limits = RunDir(folder), Observer(), Limits(cold_s=60.0)
        self.room = room
        self.copies: list[tuple[str, str]] = []
        self.reused: list[bool] = []

    def live(self, candidate_id: str) -> None: ...

    def drop(self, candidate_id: str) -> None: ...

    def clear(self, candidate: Candidate) -> None: ...

    def spawn(self, candidate: Candidate, name: str) -> None: ...

    def copied(self, source: Candidate, candidate: Candidate) -> bool:
        self.copies.append((source.id, candidate.id))
        return self.room

    def open(self, candidate: Candidate, limits: Limits) -> Any:
        return object()

    def build(self, child: Any, limits: Limits, *, known: Any = None, reuse: bool = False) -> Built:
        self.reused.append(reuse)
        guard = Guard(positional=1, keywords=(), tensors=())
        return Built(cold_s=3.0, cold_cache=not reuse, cpu_s=2.0, compiler_runs=0, guard=guard)


def attempted(workers: FakeWorkers, files_of: Trial | None) -> Trial:
    attempt = Attempt(workers, Job(KEPT, 60.0), Judge(None, None), files_of)  # type: ignore[arg-type]
    attempt.build()
    return attempt.trial


def test_it_starts_from_the_others_files_and_has_its_cold_start(tmp_path: Path) -> None:
    workers, base = FakeWorkers(tmp_path), trial(code_sha256="code", weights_sha256="weights")
    found = attempted(workers, base)
    assert (workers.copies, workers.reused) == ([(BASE.id, KEPT.id)], [True])
    assert (found.state, found.files_of) == (State.OK, BASE.id)
    assert (found.artifacts, found.weights_sha256) == (FILES, "weights")
    assert found.code_sha256 is None  # what has the other one's code has not this one's speed
    assert found.guard is not None
    cold = found.measurement
    assert cold is not None
    assert (cold.cold_s, cold.cold_cache, cold.cold_cpu_s, cold.compiler_runs, cold.import_s) == (
        40.0,
        True,
        70.0,
        9,
        2.0,
    )
    assert cold.doubts == (BESIDE,)  # until the one that is chosen is built alone


def test_without_room_for_a_copy_it_builds_its_own(tmp_path: Path) -> None:
    workers = FakeWorkers(tmp_path, room=False)
    found = attempted(workers, trial())
    assert workers.reused == [False]
    assert found.files_of is None
    assert found.measurement is not None
    assert found.measurement.cold_s == 3.0


def test_a_copy_leaves_the_others_files_as_they_are(tmp_path: Path) -> None:
    workers = Workers(None, RunDir(tmp_path), limits=Limits(), observer=Observer())
    own = workers.workspace(BASE) / "inductor"
    own.mkdir()
    (own / "a").write_text("code")
    assert workers.copied(BASE, KEPT)
    (workers.workspace(KEPT) / "inductor" / "a").write_text("changed")
    assert (own / "a").read_text() == "code"


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(None, RunDir(tmp_path), limits=Limits(), observer=Observer())
    (workers.workspace(BASE) / "a").write_text("code")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copytree", full)
    assert not workers.copied(BASE, KEPT)
    assert not workers.run_dir.workspace(KEPT.id).exists()
