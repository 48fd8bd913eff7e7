import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.journal import Journal, read
from compilot.errors import EnvironmentProblem, RunDirError
from compilot.records import (
    JOURNAL_SCHEMA,
    Diagnosis,
    DiagnosisLine,
    Fingerprint,
    MachineFingerprint,
    Measurement,
    ModelFingerprint,
    RunHeader,
    WarmStartLine,
    WorkloadRef,
    encode,
)

FINGERPRINT = Fingerprint(
    machine=MachineFingerprint(
        torch="2.13.0", python="3.11.7", platform="Linux-x86_64", glibc="glibc 2.36", cpu_model="A", cpu_isa=("avx2",),
        cores=2, threads=2,
    ),
    model=ModelFingerprint(
        class_name="Net", code_sha256="a", structure_sha256="b", parameters_sha256="c", parameter_count=1,
        parameter_bytes=4,
    ),
)  # fmt: skip
HEADER = RunHeader(
    schema=JOURNAL_SCHEMA,
    compilot="0.1",
    created="2026-01-01T00:00:00Z",
    workload=WorkloadRef(label="Net"),
    fingerprint=FINGERPRINT,
    budget_s=60.0,
)
LINES = [DiagnosisLine(diagnosis=Diagnosis(eager_call_s=0.1 * n)) for n in range(1, 4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "journal.jsonl"
    with Journal.create(path, HEADER) as journal:
        for line in LINES:
            journal.append(line)
    return path


def test_what_was_appended_is_read_back(path: Path) -> None:
    assert read(path) == [HEADER, *LINES]
    assert path.read_bytes().count(b"\n") == 4


def test_each_line_is_on_disk_at_once(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.jsonl", HEADER)
    journal.append(LINES[0])
    assert read(journal.path) == [HEADER, LINES[0]]
    journal.close()
    journal.close()


def test_a_torn_last_line_is_forgiven_wherever_it_was_torn(path: Path) -> None:
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        assert read(path) == [HEADER, *LINES[:-1]], cut


def test_resuming_cuts_the_torn_line_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])
    with Journal.open(path) as journal:
        journal.append(LINES[0])
    assert read(path) == [HEADER, *LINES[:-1], LINES[0]]


@pytest.mark.parametrize("damage", [b"garbage\n", b'{"type": "diag\n', b"\xff\xfe\n", b"\0\0\0\n"])
def test_damage_in_the_middle_is_an_error_with_its_line(path: Path, damage: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
    with pytest.raises(RunDirError, match="line 3 is damaged"):
        read(path)


def test_damage_at_the_end_is_forgiven(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0\0\0\n")
    assert read(path) == [HEADER, *LINES]


def test_an_unknown_field_is_an_error_even_at_the_end(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"type":"diagnosis","diagnosis":{},"surprise":1}\n')
    with pytest.raises(RunDirError, match=r"line 5 cannot be read: .*surprise"):
        read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (encode(LINES[0]) + b"\n", "line 1 is not a run header"),
        (encode(msgspec.structs.replace(HEADER, schema=9)) + b"\n", f"schema 9, this compilot reads {JOURNAL_SCHEMA}"),
        (
            b'{"type":"run","schema":2,"old":1}\n{"type":"old"}\n',
            "has journal schema 2, .*; tune again into another folder",
        ),
    ],
)
def test_what_is_no_journal(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    with pytest.raises(RunDirError, match=says):
        read(path)
    with pytest.raises(RunDirError, match=says):
        Journal.open(path)
    assert path.read_bytes() == content


def test_a_run_directory_is_not_used_twice(path: Path) -> None:
    with pytest.raises(RunDirError, match="--resume"):
        Journal.create(path, HEADER)
    assert read(path) == [HEADER, *LINES]


@pytest.mark.parametrize("step", ["write", "fsync", "link"])
def test_a_kill_before_the_first_line_is_whole_leaves_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A directory with an empty journal could neither be resumed nor used again."""
    path, real = tmp_path / "journal.jsonl", getattr(os, step)

    def killed(*arguments: Any) -> Any:
        if step == "write":
            real(arguments[0], arguments[1][:40])
        assert not path.exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, killed)
        with pytest.raises(KeyboardInterrupt):
            Journal.create(path, HEADER)
    assert list(tmp_path.iterdir()) == []
    Journal.create(path, HEADER).close()
    assert read(path) == [HEADER]


def test_a_new_journal_is_locked_and_has_its_name_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "journal.jsonl"
    with Journal.create(path, HEADER), pytest.raises(RunDirError, match="another compilot run"):
        Journal.open(path)
    assert [one.name for one in tmp_path.iterdir()] == ["journal.jsonl"]


def test_two_runs_do_not_write_one_journal(path: Path) -> None:
    with Journal.open(path), pytest.raises(RunDirError, match="another compilot run"):
        Journal.open(path)
    Journal.open(path).close()


def test_a_missing_journal(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="holds no run to resume"):
        Journal.open(tmp_path / "journal.jsonl")
    with pytest.raises(RunDirError, match="no journal"):
        read(tmp_path / "journal.jsonl")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="choose another folder"):
        Journal.create(tmp_path / "file" / "journal.jsonl", HEADER)


def test_a_full_disk_leaves_the_journal_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def half_then_full(fd: int, data: Any) -> int:
        if len(data) > 10:
            return real(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal.open(path) as journal:
        monkeypatch.setattr(os, "write", half_then_full)
        with pytest.raises(EnvironmentProblem, match="full"):
            journal.append(LINES[0])
        monkeypatch.setattr(os, "write", real)
        journal.append(LINES[1])
    assert read(path) == [HEADER, *LINES, LINES[1]]


def test_a_value_that_json_has_not_is_our_bug(path: Path) -> None:
    line = WarmStartLine(candidate_id="a", measurement=Measurement(cold_s=float("nan"), cold_cache=True))
    with Journal.open(path) as journal, pytest.raises(ValueError, match="WarmStartLine"):
        journal.append(line)
    assert read(path) == [HEADER, *LINES]
