"""What the long benches share: steps, journals, and the story of a tune run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

import stepping
import tune_runs
from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, MemoryFormat, ProcessSettings, Record, Settings, encode
from compilot.testing.runner import fake_fingerprint
from stepping import MoreToDo, Steps


class Noted(Record, frozen=True, kw_only=True, tag="noted"):
    n: int


def test_steps_end_before_the_one_too_many() -> None:
    two = Steps(2)
    two.take()
    two.take()
    with pytest.raises(MoreToDo):
        two.take()
    assert two.taken == 2
    endless = Steps()
    for _ in range(100):
        endless.take()


def test_a_line_that_was_cut_off_is_passed_over_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    stepping.append_line(path, Noted(n=1))
    with path.open("ab") as file:
        file.write(b'{"type":"noted","n')
    stepping.append_line(path, Noted(n=2))
    assert stepping.read_lines(path, Noted) == [Noted(n=1), Noted(n=2)]
    assert stepping.read_lines(tmp_path / "none.jsonl", Noted) == []


def test_a_whole_line_of_another_form_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    stepping.append_line(path, Noted(n=1))
    path.write_bytes(path.read_bytes() + b'{"type":"noted","n":1,"new":2}\n')
    with pytest.raises(SystemExit, match=r"line 2 was written by another version .* name another folder with --out"):
        stepping.read_lines(path, Noted)


def test_the_machine_key_follows_the_cpu_its_instructions_the_cores_and_torch() -> None:
    machine = fake_fingerprint().machine
    key = stepping.machine_key(machine)
    assert key == stepping.machine_key(msgspec.structs.replace(machine, threads=7, python="3.14", compiler="g++ 1"))
    others: list[dict[str, Any]] = [{"cpu_model": "another"}, {"cpu_isa": ("sse2",)}, {"cores": 64}, {"torch": "2.14"}]
    keys = {stepping.machine_key(msgspec.structs.replace(machine, **change)) for change in others}
    assert len({key, *keys}) == 5


def test_unknown_models_are_refused_and_the_usual_order_is_kept() -> None:
    assert stepping.chosen_models(None, ("a", "b")) == ["a", "b"]
    assert stepping.chosen_models("b", ("a", "b")) == ["b"]
    with pytest.raises(SystemExit, match="unknown models: c; there are a, b"):
        stepping.chosen_models("b,c", ("a", "b"))


# ---------------------------------------------------------------------------------------------------------- tune runs


def candidate(engine: str, **options: Any) -> Candidate:
    return Candidate(settings=Settings(engine=engine, options=options), label=f"{engine} {options}", rationale="")


def line(one: Candidate, at_s: float, state: str = "ok", wall_s: float = 10.0, **more: Any) -> dict[str, Any]:
    trial = {"candidate": msgspec.json.decode(encode(one)), "state": state, "wall_s": wall_s, **more}
    return {"type": "trial", "at_s": at_s, "trial": trial}


FIRST, SECOND, THIRD = candidate("one"), candidate("one", fast=True), candidate("two")


def verdict(chosen: Candidate) -> dict[str, Any]:
    said = {"decision": "use", "chosen_id": chosen.id, "because": "it is faster"}
    return {"type": "verdict", "verdict": said, "at_s": 200.0}


def test_trial_seconds_until_the_winner_was_first_tried() -> None:
    lines = [
        {"type": "run", "whatever": 1},
        line(EAGER, 10.0, wall_s=4.0),
        line(FIRST, 20.0),
        line(SECOND, 31.0, wall_s=11.0),
        line(THIRD, 60.0),
        line(SECOND, 70.0, wall_s=99.0),  # built once more: no second trial
        line(THIRD, 80.0, state="crashed"),  # lost in a race
        verdict(SECOND),
    ]
    found = tune_runs.story(lines)
    assert (found.chosen, found.label, found.decision) == (SECOND.id, SECOND.label, "use")
    assert found.spent_s == 4.0 + 10.0 + 11.0
    assert found.found_s == 31.0
    assert found.decided_s == 200.0
    assert found.states == {"crashed": 1, "ok": 2}
    assert [one.eager for one in found.tried] == [True, False, False, False]


def test_a_run_that_keeps_eager_had_it_from_the_start() -> None:
    found = tune_runs.story([line(EAGER, 10.0, wall_s=4.0), line(FIRST, 20.0), verdict(EAGER)])
    assert found.spent_s == 4.0


def test_a_run_without_a_verdict_has_no_winner() -> None:
    found = tune_runs.story([line(EAGER, 10.0), line(FIRST, 20.0)])
    assert (found.chosen, found.spent_s, found.found_s) == ("", None, None)


def test_distinct_programs_count_once_and_sessions_by_their_settings() -> None:
    lines = [
        line(EAGER, 1.0),
        line(FIRST, 2.0, code_sha256="x"),
        line(SECOND, 3.0, code_sha256="x"),  # another name for the same program
        line(candidate("one", n=2), 4.0, state="pruned", same_as=FIRST.id),
        line(candidate("one", n=3), 5.0, state="ok", same_as=FIRST.id),
        line(THIRD, 6.0),
        line(candidate("two", n=1), 7.0),
        line(candidate("two", n=2), 8.0, state="wrong"),
    ]
    assert tune_runs.story(lines).distinct_ok == 3


def test_what_only_the_process_does_with_memory_is_no_program_of_its_own() -> None:
    kept = ProcessSettings(keep_memory=True)
    lines = [
        line(EAGER, 1.0),
        line(structs.replace(EAGER, process=kept), 2.0),
        line(structs.replace(EAGER, process=ProcessSettings(threads=1)), 3.0),  # eager has no program
        line(FIRST, 4.0),
        line(structs.replace(FIRST, process=kept), 5.0),
        line(SECOND, 6.0, code_sha256="x"),
        line(structs.replace(SECOND, process=kept), 7.0, code_sha256="y"),  # the digest tells processes apart
        line(structs.replace(FIRST, process=ProcessSettings(threads=1)), 8.0),  # threads are in the code
    ]
    assert tune_runs.story(lines).distinct_ok == 3


def test_channels_last_eager_is_no_program_either() -> None:
    other = structs.replace(EAGER, settings=Settings(memory_format=MemoryFormat.CHANNELS_LAST))
    assert tune_runs.story([line(EAGER, 1.0), line(other, 2.0), line(FIRST, 3.0)]).distinct_ok == 1


def test_a_form_of_candidate_that_this_version_does_not_know_is_still_told_apart() -> None:
    plain = msgspec.json.decode(encode(SECOND))
    assert tune_runs.candidate_id(plain) == SECOND.id
    strange = {**plain, "process": {"huge_pages": True}}
    assert tune_runs.candidate_id(strange) not in (SECOND.id, FIRST.id)
    assert tune_runs.candidate_id({**plain, "new_field": 1}) == SECOND.id  # as the version that wrote it named it
    assert not tune_runs.is_eager(strange)
    assert tune_runs.is_eager(msgspec.json.decode(encode(EAGER)))
    assert not tune_runs.is_eager({"settings": {"memory_format": "channels_last"}})


def test_a_journal_whose_last_line_was_cut_off_is_read_without_it(tmp_path: Path) -> None:
    whole = msgspec.json.encode(line(FIRST, 1.0))
    (tmp_path / "journal.jsonl").write_bytes(whole + b"\n" + whole[:-30])
    assert len(tune_runs.read_story(tmp_path).tried) == 1


def tuned_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: str, sources: Path) -> dict[str, Any]:
    """What the process was started with."""
    seen: dict[str, Any] = {}

    def run(command: list[str], **given: Any) -> Any:
        seen.update(command=command, **given)
        return type("Done", (), {"returncode": seen.get("code", 0)})()

    monkeypatch.setattr(tune_runs.subprocess, "run", run)
    monkeypatch.setattr(tune_runs, "options_known", lambda sources: known)
    seen["ended"] = tune_runs.tune("mlp", tmp_path / "runs" / "mlp", "5m", sources=sources)
    return seen


def test_a_tune_is_told_to_forget_other_runs_where_it_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "--no-prior" in tuned_with(monkeypatch, tmp_path, "... --no-prior ...", tmp_path)["command"]
    seen = tuned_with(monkeypatch, tmp_path, "... --budget ...", tmp_path)
    assert "--no-prior" not in seen["command"]
    assert seen["env"]["PYTHONPATH"].split(":")[0] == str(tmp_path)
    assert seen["ended"].problem == ""


def test_the_other_checkouts_code_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{stepping.SOURCES}:/elsewhere")
    assert tune_runs.environment(tmp_path)["PYTHONPATH"] == f"{tmp_path}:/elsewhere"
