"""A team shares run directories through the stores that bundles use: pushed, listed, looked at, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import compilot
from compilot.artifacts.rundir import RunDir
from compilot.records import TrialLine


@pytest.fixture(autouse=True)
def _own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))


def test_history_over_s3(s3: str, run_dir: Path, small_run: Any) -> None:
    pushed = compilot.push(run_dir, s3)
    assert isinstance(pushed, compilot.PushedRun)
    assert (pushed.files, pushed.was_there) == (2, False)
    again = compilot.push(run_dir, s3)
    assert again.was_there
    [entry] = compilot.history(store=s3).runs
    assert entry == msgspec.structs.replace(pushed.run, run_dir=pushed.url)
    assert compilot.history(store=s3, model="nobody").runs == ()
    assert compilot.history().runs == ()  # the user's own list is another one
    shown = compilot.show(entry.id[:6], store=s3)
    assert (shown.run, shown.sentence) == (entry, small_run.plan.entries[0].sentence)
    small_run.header = msgspec.structs.replace(small_run.header, budget_s=5.0)
    own = small_run.write(run_dir.with_name("own"))
    assert [one.what for one in compilot.compare(own, "Net", store=s3).changes] == ["budget_s"]


def test_a_run_that_went_on_is_listed_once_with_its_longest_journal(
    tmp_path: Path, run_dir: Path, small_run: Any
) -> None:
    store = tmp_path / "store"
    first = compilot.push(run_dir, store)
    with RunDir(run_dir).open_journal() as journal:
        with pytest.raises(compilot.RunDirError, match="still under way"):
            compilot.push(run_dir, store)
        journal.append(TrialLine(trial=small_run.trials[-1], at_s=1.0))
    second = compilot.push(run_dir, store)
    assert (first.url, first.run.id) != (second.url, second.run.id)
    assert first.run.id == second.run.id
    assert [run.run_dir for run in compilot.history(store=store).runs] == [second.url]


def test_what_is_damaged_in_a_store_is_named(tmp_path: Path, run_dir: Path, small_run: Any) -> None:
    store = tmp_path / "store"
    pushed = compilot.push(run_dir, store)
    folder = Path(pushed.url)
    (folder / "plan.json").write_text("{}")
    with pytest.raises(compilot.StoreError, match=r"plan\.json .* is missing or damaged"):
        compilot.show("Net", store=store)
    assert not compilot.push(run_dir, store).was_there  # as the sentence says: it is whole again
    assert compilot.show("Net", store=store).sentence == small_run.plan.entries[0].sentence
    assert compilot.push(run_dir, store).was_there
    (folder / "plan.json").write_text("{}")
    entry = folder / "run.json"
    moved = folder.with_name("0" * 64)
    moved.mkdir()
    (moved / "run.json").write_bytes(entry.read_bytes())
    other = folder.with_name("1" * 64)
    other.mkdir()
    (other / "run.json").write_bytes(entry.read_bytes().replace(b'"schema":1', b'"schema":9', 1))
    entry.write_text("{")
    found = compilot.history(store=store)
    assert found.runs == ()
    assert len(found.problems) == 3
    assert any("is not about what its name says" in problem for problem in found.problems)
    assert any("schema 9" in problem for problem in found.problems)
    with pytest.raises(compilot.InputError, match="has no run 'Net'"):
        compilot.show("Net", store=store)


def test_a_file_name_that_leads_elsewhere_is_refused(tmp_path: Path, run_dir: Path) -> None:
    store = tmp_path / "store"
    pushed = compilot.push(run_dir, store)
    entry = Path(pushed.url) / "run.json"
    entry.write_bytes(entry.read_bytes().replace(b'"plan.json"', b'"../x.json"'))
    with pytest.raises(compilot.StoreError, match="is no file of a run"):
        compilot.show("Net", store=store)


def test_gc_leaves_runs_alone_and_a_damaged_run_is_not_pushed(tmp_path: Path, run_dir: Path) -> None:
    store = tmp_path / "store"
    compilot.push(run_dir, store)
    assert compilot.store.gc(store) == ()
    assert len(compilot.history(store=store).runs) == 1
    (run_dir / "journal.jsonl").write_text("{}\n")
    with pytest.raises(compilot.RunDirError, match="line 1"):
        compilot.push(run_dir, store)
