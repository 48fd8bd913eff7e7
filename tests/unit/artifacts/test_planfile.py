import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.planfile import MAX_BYTES, load_plan, save_plan
from compilot.errors import PlanError, RunDirError
from compilot.records import (
    PLAN_SCHEMA,
    ArtifactFile,
    Candidate,
    DimRange,
    Evidence,
    Fingerprint,
    Guard,
    MachineFingerprint,
    ModelFingerprint,
    Plan,
    PlanEntry,
    Settings,
    TensorGuard,
    WorkloadRef,
)


def make_plan(**entry: Any) -> Plan:
    x = TensorGuard(path="args[0]", dtype="torch.float32", device="cpu", shape=(DimRange(min=1, max=8), 3), stride=None)
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0.1",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Net"),
        fingerprint=Fingerprint(
            machine=MachineFingerprint(
                torch="2.13.0", python="3.11.7", platform="Linux-x86_64", glibc="glibc 2.36", cpu_model="A",
                cpu_isa=("avx2",), cores=2, threads=2,
            ),
            model=ModelFingerprint(
                class_name="Net", code_sha256="a", structure_sha256="b", parameters_sha256="c", parameter_count=1,
                parameter_bytes=4,
            ),
        ),
        because="1.9x faster",
        entries=(
            PlanEntry(
                guard=Guard(positional=1, keywords=(), tensors=(x,)),
                candidate=Candidate(settings=Settings(engine="inductor"), label="compile", rationale="usual"),
                evidence=Evidence(p50_s=0.5),
                sentence="1.9x faster than eager",
                **entry,
            ),
        ),
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    save_plan(make_plan(), path)
    return path


def test_a_plan_comes_back_as_it_was(path: Path) -> None:
    assert load_plan(path) == make_plan()


def test_the_kept_names_are_at_the_top_of_every_plan(path: Path) -> None:
    save_plan(msgspec.structs.replace(make_plan(), entries=()), path)
    document = msgspec.json.decode(path.read_bytes())
    assert (document["because"], document["process"], document["entries"]) == (make_plan().because, {}, [])


def test_a_plan_reads_well_in_a_review(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f'{{\n  "schema": {PLAN_SCHEMA},\n')
    assert text.endswith("}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (f'"schema": {PLAN_SCHEMA}', '"schema": 9', f"plan schema 9, this compilot reads {PLAN_SCHEMA}"),
        (
            f'"schema": {PLAN_SCHEMA}',
            '"schema": 2, "old": 1',
            r"plan schema 2, .*; make a new plan with 'compilot tune'",
        ),
        (f'"schema": {PLAN_SCHEMA}', '"schema": "1"', r"at `\$\.schema`"),
        (f'"schema": {PLAN_SCHEMA},', "", "missing required field `schema`"),
        ('"positional": 1', '"positional": "one"', r"at `\$\.entries\[0\]\.guard\.positional`"),
        ('"positional": 1', '"positional": 1.5', r"at `\$\.entries\[0\]\.guard\.positional`"),
        (
            '"positional": 1',
            '"positional": 1, "surprise": 2',
            r"unknown field `surprise`, at `\$\.entries\[0\]\.guard`",
        ),
        (
            '"positional": 1',
            '"positional": 1, "positional": 1',
            r"duplicate key, at `\$\.entries\[0\]\.guard\.positional`",
        ),
        ('"p50_s": 0.5', '"p50_s": NaN', r"at `\$\.entries\[0\]\.evidence\.p50_s`"),
        ('"p50_s": 0.5', '"p50_s": -Infinity', r"at `\$\.entries\[0\]\.evidence\.p50_s`"),
        ('"p50_s": 0.5', '"p50_s": 1e999', r"at `\$\.entries\[0\]\.evidence\.p50_s`"),
        ('"min": 1', '"min": null', r"shape\[0\]\.min`"),
        ('"because"', "because", "malformed JSON"),
    ],
)
def test_a_wrong_field_is_named(path: Path, old: str, new: str, says: str) -> None:
    change(path, old, new)
    with pytest.raises(PlanError, match=says) as caught:
        load_plan(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"1",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": ' + b"9" * 5000 + b"}",
        b'{"schema": true}',
    ],
)
def test_what_is_no_plan_at_all(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(PlanError):
        load_plan(path)


def test_a_plan_cut_off_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for cut in range(0, len(whole) - 2, 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(PlanError):
            load_plan(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate(3 * MAX_BYTES)
    size = 3 * MAX_BYTES // 2**20
    with pytest.raises(PlanError, match=f"it has {size} MB, more than the {size // 3} MB any plan needs"):
        load_plan(path)
    os.truncate(path, MAX_BYTES)
    with pytest.raises(PlanError, match="malformed JSON"):  # it is read, and holds nothing
        load_plan(path)


def test_a_missing_plan_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="Is a directory"):
        load_plan(tmp_path)


@pytest.mark.parametrize("name", ["/etc", "../other", "a/../../b"])
def test_artifacts_stay_in_the_plans_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.json"
    save_plan(make_plan(artifacts_dir=name), path)
    with pytest.raises(PlanError, match=r"\$\.entries\[0\]\.artifacts_dir"):
        load_plan(path)
    save_plan(make_plan(artifacts=(ArtifactFile(name=name, sha256="0", size_bytes=1),)), path)
    with pytest.raises(PlanError, match=r"\$\.entries\[0\]\.artifacts\[0\]\.name"):
        load_plan(path)


def test_a_failed_save_leaves_the_old_plan(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(RunDirError, match="No space left"):
        save_plan(msgspec.structs.replace(make_plan(), because="new"), path)
    assert load_plan(path) == make_plan()
    assert [p.name for p in path.parent.iterdir()] == ["plan.json"]


def test_a_folder_that_cannot_hold_a_plan(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="choose another folder"):
        save_plan(make_plan(), tmp_path / "file" / "plan.json")


def test_a_value_that_json_has_not_is_our_bug_in_a_plan(tmp_path: Path) -> None:
    plan = make_plan()
    wrong = msgspec.structs.replace(plan.entries[0], evidence=Evidence(p50_s=float("inf")))
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        save_plan(msgspec.structs.replace(plan, entries=(wrong,)), tmp_path / "plan.json")
