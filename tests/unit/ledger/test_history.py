"""Every run is found again, whatever happened to the index, which journals and the list of runs make superfluous."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import compilot as public
from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.ledger import history, index
from compilot.ledger.entries import RunEntry, RunState, chosen_comparison, last_trials, last_verdict
from compilot.ledger.words import result_words
from compilot.records import Decision, ShapePolicy, SizesVerdict, SourceCommit, TrialLine

WRITER = """
import os, shutil, sys
from pathlib import Path
from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.ledger import history
model, folder, first, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for one in range(first, first + number):
    place = folder / f"run-{one}"
    shutil.copytree(model, place)
    journal = place / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"budget_s":90.0', b'"budget_s":%d.5' % one, 1))
    assert not state.begun(RunDir(place), "Net")
    assert not state.ended(RunDir(place), state.Ending.PLAN)
    history.note(RunDir(place))
    print(one, flush=True)
"""


def started(template: Path, folder: Path, first: int, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(template), str(folder), str(first), str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rows_kept() -> dict[str, index.Row]:
    with index.opened() as opened:
        return opened.rows()


# --------------------------------------------------------------------------------------------------- what is listed


def test_a_run_is_listed_with_its_result_its_machine_and_its_commit(make_run: Any, small_run: Any) -> None:
    source = SourceCommit(commit="ab" * 20, dirty=True)
    run = make_run("one", source=source)
    [entry] = public.history().runs
    assert (entry.run_dir, entry.state, entry.model) == (str(run.path), RunState.DECIDED, "Net")
    assert (entry.decision, entry.chosen, entry.objective) == ("use", "inductor freezing", "latency")
    shown = small_run.verdict.comparisons[0]
    assert (entry.speedup, entry.speedup_low, entry.speedup_high) == (shown.ratio, shown.low, shown.high)
    assert entry.trials == {"ok": 3, "pruned": 1, "wrong": 1}
    assert (entry.torch, entry.python, entry.cpu) == ("2.13.0", "3.11.2", "Some CPU")
    assert (entry.commit, entry.dirty) == ("ab" * 20, True)
    assert len(entry.id) == 12
    assert entry.machine


def test_the_newest_is_first_and_only_the_wanted_ones_are_listed(make_run: Any) -> None:
    for number, label in enumerate(("Old", "Mid", "New")):
        make_run(label, label=label, created=f"2026-01-0{number + 1}T00:00:00+00:00")
    assert {run.model for run in public.history().runs} == {"Old", "Mid", "New"}
    assert [run.model for run in public.history(model="mi").runs] == ["Mid"]
    assert len(public.history(limit=2).runs) == 2
    assert public.history(limit=2).known == 3
    assert len(public.history(limit=0).runs) == 3
    assert public.history(model="nobody").runs == ()
    with pytest.raises(public.InputError, match="0 for all"):
        public.history(limit=-1)


def test_what_is_gone_damaged_interrupted_or_under_way_is_said(make_run: Any) -> None:
    gone, damaged, stopped, live = (make_run(name, finished=name == "gone") for name in ("gone", "bad", "stop", "live"))
    os.rename(gone.path, gone.path.with_name("moved"))
    damaged.journal.write_bytes(b"{}\n{}\n")
    with live.open_journal():
        found = {Path(run.run_dir).name: run for run in public.history().runs}
    assert {name: run.state for name, run in found.items()} == {
        "gone": RunState.GONE,
        "bad": RunState.UNREADABLE,
        "stop": RunState.UNFINISHED,
        "live": RunState.RUNNING,
    }
    assert (found["gone"].model, found["gone"].id) == ("Net", "")
    assert "line 1" in found["bad"].problem
    after = {Path(run.run_dir).name: run.state for run in public.history().runs}
    assert after["live"] is RunState.UNFINISHED  # nobody writes to it any more
    with pytest.raises(public.InputError, match="is gone"):
        public.show(gone.path.name)
    with pytest.raises(public.RunDirError, match="line 1"):
        public.show(damaged.path)
    assert stopped.path.is_dir()


def test_a_run_that_is_starting_is_not_gone_and_one_that_goes_on_is_under_way(make_run: Any, tmp_path: Path) -> None:
    starting = RunDir.make(tmp_path / "starting")
    state.begun(starting, "Net")
    decided = make_run("decided")
    assert {run.state for run in public.history().runs} == {RunState.UNFINISHED, RunState.DECIDED}
    state.begun(decided, "Net")  # as `tune --resume` does
    with decided.open_journal():
        found = {Path(run.run_dir).name: run.state for run in public.history().runs}
    assert found == {"starting": RunState.UNFINISHED, "decided": RunState.RUNNING}


def test_the_result_over_a_trace_is_that_of_its_replay(make_run: Any) -> None:
    lines = list(make_run("traced").lines())
    trials, verdict = last_trials(lines), last_verdict(lines)
    assert verdict is not None
    plain = chosen_comparison(verdict, trials)
    assert plain is not None
    replayed = msgspec.structs.replace(plain, candidate_id="mixed of quick", ratio=3.5)
    sizes = SizesVerdict(policy=ShapePolicy.MIXED, arm_id="mixed of quick", because="", comparisons=(plain, replayed))
    over_trace = msgspec.structs.replace(verdict, comparisons=(), sizes=sizes)
    assert chosen_comparison(over_trace, trials) == replayed
    entry = RunEntry(run_dir="x", state=RunState.DECIDED, decision=Decision.USE, chosen="quick")
    assert result_words(entry) == "quick"  # never "keep eager"


def test_a_look_at_a_journal_does_not_keep_its_writer_out(make_run: Any) -> None:
    run_dir = make_run("looked-at")
    with run_dir.journal.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with run_dir.open_journal():
            pass


def test_a_journal_is_read_once_and_again_when_it_went_on(
    make_run: Any, small_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("one")
    first = public.history().runs
    reads: list[RunDir] = []
    real = RunDir.lines
    monkeypatch.setattr(RunDir, "lines", lambda self: reads.append(self) or real(self))
    assert public.history().runs == public.history(limit=0).runs == first
    assert reads == []
    with run.open_journal() as journal:
        journal.append(TrialLine(trial=small_run.trials[-1], at_s=60.0))
    assert public.history().runs[0].trials == first[0].trials
    assert len(reads) == 1


def test_a_resumed_part_counts_for_what_was_asked_and_not_for_the_id(make_run: Any, small_run: Any) -> None:
    import msgspec

    run = make_run("one")
    before = public.history().runs[0]
    with run.open_journal() as journal:
        journal.append(msgspec.structs.replace(small_run.header, budget_s=7.0, created="2026-03-03T00:00:00+00:00"))
    after = public.history().runs[0]
    assert (after.id, after.created, after.budget_s) == (before.id, before.created, 7.0)


def test_scan_adds_runs_of_other_places_for_good(make_run: Any, tmp_path: Path) -> None:
    make_run("there/deep/a", listed=False)
    make_run("there/b", listed=False, finished=False)
    (tmp_path / "there/work/x").mkdir(parents=True)
    (tmp_path / "there/bad").mkdir()
    (tmp_path / "there/bad/journal.jsonl").write_text("{}\n")
    assert public.history().runs == ()
    found = public.history(scan=tmp_path / "there")
    assert {Path(run.run_dir).name: run.state for run in found.runs} == {
        "a": RunState.DECIDED,
        "b": RunState.UNFINISHED,
    }
    [problem] = found.problems
    assert "bad" in problem
    assert public.history(scan=str(tmp_path / "there")).runs == public.history().runs == found.runs
    assert len(state.runs()) == 2  # not once more for each scan
    with pytest.raises(public.InputError, match="no folder"):
        public.history(scan=tmp_path / "nowhere")


# -------------------------------------------------------------------------------------------------- one run by name


def test_a_run_is_found_by_directory_id_name_of_its_folder_and_model(
    make_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = make_run("old", created="2026-01-01T00:00:00+00:00", label="Net")
    new = make_run("new", created="2026-01-02T00:00:00+00:00", label="Other")
    ids = {Path(run.run_dir).name: run.id for run in public.history().runs}
    for name in (str(old.path), old.path, "old", "Net", ids["old"], ids["old"][:6]):
        assert public.show(name).run.run_dir == str(old.path), name
    monkeypatch.chdir(tmp_path)
    assert public.show("new").run.run_dir == str(new.path)
    assert public.show("net").run.id in ids.values()  # the factory of both
    with pytest.raises(public.InputError, match="there is no run 'nobody'"):
        public.show("nobody")


def test_an_id_that_two_runs_may_have_is_not_guessed(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [RunEntry(run_dir=f"/{i}", state=RunState.DECIDED, id=f"abcd{i}", model="Net") for i in range(2)]
    monkeypatch.setattr(history, "entries", lambda: (known, 2))
    assert history.find("abcd1") == known[1]
    with pytest.raises(public.InputError, match="write more of the id"):
        history.find("abcd")


def test_show_has_the_rows_and_the_sentence(make_run: Any, small_run: Any) -> None:
    run = make_run("one")
    found = public.show(run.path)
    assert [row["candidate"] for row in found.rows][:2] == ["eager", "inductor"]
    assert found.sentence == small_run.plan.entries[0].sentence
    assert found.header == small_run.header
    assert found.findings == (small_run.finding,)


# ---------------------------------------------------------------------------------------------------- the index file


def test_the_index_is_this_users_alone(make_run: Any, state_folder: Path) -> None:
    make_run("one")
    public.history()
    with index.opened():
        modes = {path.name: path.stat().st_mode & 0o777 for path in state_folder.glob("runs.sqlite*")}
    assert modes["runs.sqlite"] == 0o600
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("damage", ["deleted", "zeros", "text", "cut", "row", "table", "other version", "a folder"])
def test_a_damaged_index_is_made_again_to_the_same_answers(make_run: Any, state_folder: Path, damage: str) -> None:
    for number in range(6):
        make_run(f"run-{number}", budget_s=float(number + 1))
    expected = public.history(limit=0)
    path = state_folder / "runs.sqlite"
    assert len(rows_kept()) == 6
    if damage in ("row", "table", "other version"):
        with sqlite3.connect(path) as connection:
            commands = {
                "row": "UPDATE runs SET entry = replace(entry, 'inductor', 'inductoR')",
                "table": "ALTER TABLE runs RENAME COLUMN entry TO other",
                "other version": "PRAGMA user_version = 99",
            }
            connection.execute(commands[damage])
        connection.close()
    else:
        for beside in state_folder.glob("runs.sqlite-*"):
            beside.unlink()
        data = path.read_bytes()
        path.unlink()
        broken = {"zeros": data[:4096] + b"\0" * (len(data) - 4096), "text": b"no database\n" * 500}
        if damage == "a folder":
            path.mkdir()
        elif damage != "deleted":
            path.write_bytes(broken.get(damage, data[: len(data) // 2]))
            path.chmod(0o600)
    assert public.history(limit=0) == expected
    assert public.history(limit=0) == expected
    assert damage == "a folder" or len(rows_kept()) == 6  # kept again, where a file can be


@pytest.mark.parametrize("obstacle", ["network", "no WAL", "read-only", "locked"])
def test_without_a_file_that_processes_can_share_the_answers_are_the_same(
    make_run: Any, state_folder: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    make_run("one")
    make_run("two", budget_s=5.0)
    expected = [history._read(run) for run in state.runs()]
    if obstacle == "network":
        monkeypatch.setattr(index, "is_on_network", lambda path: True)
    elif obstacle == "no WAL":
        monkeypatch.setattr(index, "_connected", lambda path: None)
    elif obstacle == "read-only":

        def refused(name: str) -> Path:
            raise OSError("read-only file system")

        monkeypatch.setattr(state, "private_file", refused)
    else:
        public.history()
        monkeypatch.setattr(index, "WAIT_S", 0.01)
        writer = sqlite3.connect(state_folder / "runs.sqlite", isolation_level=None)
        writer.execute("BEGIN EXCLUSIVE")
        make_run("three", budget_s=6.0)
        expected = [history._read(run) for run in state.runs()]
    found = public.history().runs
    assert sorted(found, key=lambda run: run.run_dir) == sorted(expected, key=lambda run: run.run_dir)
    if obstacle == "locked":
        writer.close()
    elif obstacle != "read-only":
        assert not (state_folder / "runs.sqlite").exists() or not (state_folder / "runs.sqlite").stat().st_size


def test_a_network_file_system_is_recognised(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n/dev/sdb {tmp_path}/local ext4 rw 0 0\n"
    )
    assert index.is_on_network(tmp_path / "runs.sqlite", mounts)
    assert not index.is_on_network(tmp_path / "local" / "runs.sqlite", mounts)
    assert not index.is_on_network(Path("/elsewhere"), mounts)
    assert not index.is_on_network(tmp_path, tmp_path / "none")


# ------------------------------------------------------------------------------------------------ many processes


def test_eight_processes_that_write_at_once_lose_nothing(make_run: Any, tmp_path: Path) -> None:
    template = make_run("template", listed=False).path
    writers = [started(template, tmp_path / "many", 100 * number, 5) for number in range(8)]
    assert [writer.wait() for writer in writers] == [0] * 8
    names = {f"run-{100 * number + one}" for number in range(8) for one in range(5)}
    assert {os.path.basename(directory) for directory in rows_kept()} == names  # in the index before anybody asked
    found = public.history(limit=0).runs
    assert {os.path.basename(run.run_dir) for run in found} == names
    assert len({run.id for run in found}) == 40
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()


def test_a_writer_that_is_killed_leaves_it_readable(make_run: Any, tmp_path: Path) -> None:
    template = make_run("template", listed=False).path
    writer = started(template, tmp_path / "many", 0, 10_000)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    done = {int(line) for line in writer.stdout.read().split()} | {0, 1, 2, 3, 4}
    writer.stdout.close()
    found = public.history(limit=0).runs
    assert {f"run-{one}" for one in done} <= {os.path.basename(run.run_dir) for run in found}
    assert public.history(limit=0).runs == found
    make_run("after")
    assert len(public.history(limit=0).runs) == len(found) + 1


def test_a_tuning_run_is_in_the_index_when_it_ends(make_run: Any, tmp_path: Path) -> None:
    from compilot.progress import Observer
    from compilot.tuning.pipeline import remembered

    run = make_run("one", listed=False)
    with remembered(run, "Net", Observer()):
        pass
    assert [os.path.basename(name) for name in rows_kept()] == ["one"]
