"""The pages over a real server: every address, what is wrong with one, and what a run contains stays text."""

from __future__ import annotations

import http.client
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pages_of_runs
import pytest
from doctor_fakes import NASTY
from tests.unit.pages.conftest import listed

import compilot
from compilot.artifacts.rundir import RunDir
from compilot.pages import site
from compilot.pages.serving import Server
from compilot.records import TrialLine, VerdictLine
from compilot.report.page import page_of
from compilot.report.page_html import page_html


class Answer:
    """What the server says."""

    def __init__(self, server: Server, address: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._connection.request("GET", urlsplit(server.url).path + address)
        self.found = self._connection.getresponse()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def text_of(server: Server, address: str, status: int = 200) -> str:
    with Answer(server, address) as answer:
        text = answer.found.read().decode()
        assert answer.found.status == status, text
    return text


def ids(*runs: RunDir) -> list[str]:
    known = {run.run_dir: run.id for run in compilot.history(limit=0).runs}
    return [known[str(run.path)] for run in runs]


# --------------------------------------------------------------------------------------------------------------- pages


def test_the_list_has_every_run_with_its_result(server: Server, runs: list[RunDir]) -> None:
    text = text_of(server, "")
    for run_id in ids(*runs):
        assert f'value="{run_id}"' in text
        assert f'/run/{run_id}"' in text
    assert "3 of 3 runs" in text
    assert text.index("2026-01-04") < text.index("2026-01-02")
    assert f"{compilot.history().runs[0].speedup:.2f}x</b>" in text
    assert "inductor freezing" in text
    assert "1 of 3 runs" in text_of(server, "?torch=2.13.1")
    assert "No run fits" in text_of(server, "?text=nobody")


def test_without_runs_it_says_how_to_make_one(server: Server) -> None:
    assert "compilot tune TARGET" in text_of(server, "")
    assert "compilot tune TARGET" in text_of(server, "model")


def test_a_run_has_its_verdict_and_leads_on(server: Server, runs: list[RunDir], small_run: Any) -> None:
    first, second, _ = ids(*runs)
    text = text_of(server, f"run/{second}")
    assert small_run.plan.entries[0].sentence in text
    assert f"compare?run={first}&amp;run={second}" in text
    assert f"/run/{second}/report" in text
    assert "model?name=Net" in text
    assert "data-events" not in text  # it has ended
    assert "compare?run=" not in text_of(server, f"run/{first}")  # nothing came before it


def test_the_report_is_the_one_that_the_command_writes(server: Server, small_run: Any, tmp_path: Path) -> None:
    run = listed(RunDir(pages_of_runs.full(small_run, tmp_path / "full")))
    [run_id] = ids(run)
    with Answer(server, f"run/{run_id}/report") as answer:
        assert answer.found.headers["content-security-policy"] == site.REPORTS_MAY
        assert answer.found.read().decode() == page_html(page_of(run.path))
    assert 'href="doctor/report.html"' in text_of(server, f"run/{run_id}/report")
    assert "Module tree" in text_of(server, f"run/{run_id}/doctor/report.html")


def test_comparing_names_what_changed_from_the_older_to_the_newer(server: Server, runs: list[RunDir]) -> None:
    first, second, third = ids(*runs)
    for pair in ((first, third), (third, first)):
        text = text_of(server, f"compare?run={pair[0]}&run={pair[1]}")
        assert "torch: 2.13.0 -&gt; 2.13.1" in text
        assert f"git commit: {'a' * 12} -&gt; {'b' * 12}" in text
    assert "choose two runs" in text_of(server, f"compare?run={second}", 400).lower()
    assert "3 were chosen" in text_of(server, f"compare?run={first}&run={second}&run={third}", 400)


def test_a_model_has_its_trend_and_models_a_list(server: Server, runs: list[RunDir]) -> None:
    text = text_of(server, "model?name=Net")
    assert text.count("<svg") == 4
    assert "torch 2.13.0 -&gt; 2.13.1" in text
    assert "model?name=Net" in text_of(server, "model")
    assert "no run of a model &#39;Nobody&#39;" in text_of(server, "model?name=Nobody", 404)


@pytest.mark.parametrize(
    "address",
    ["run/000000000000", "run/000000000000/report", "run//report", "nothing", "run/x/y", "compare?run=a&run=b"],
)
def test_what_is_not_there_is_said(server: Server, runs: list[RunDir], address: str) -> None:
    assert "Traceback" not in text_of(server, address, 404)


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2ftmp"])
def test_an_address_names_no_other_places(server: Server, runs: list[RunDir], name: str, tmp_path: Path) -> None:
    assert "root:" not in text_of(server, f"run/{name}", 404)
    directory = str(runs[0].path).replace("/", "%2f")
    text_of(server, f"run/{directory}", 404)
    text_of(server, f"compare?run={directory}&run={directory}x", 404)


def test_runs_that_are_gone_or_damaged_stay_in_the_list_and_break_nothing(server: Server, runs: list[RunDir]) -> None:
    lost, damaged, _ = ids(*runs)
    os.rename(runs[0].path, runs[0].path.with_name("moved"))
    runs[1].journal.write_bytes(b"{}\n{}\n")
    text = text_of(server, "")
    assert "gone" in text
    assert "line 1" in text
    text_of(server, f"run/{lost}", 404)
    text_of(server, f"run/{damaged}", 404)
    text_of(server, "model?name=Net")


def test_what_a_run_contains_stays_text(server: Server, small_run: Any, tmp_path: Path) -> None:
    workload = msgspec.structs.replace(small_run.header.workload, label=NASTY, target=f"{NASTY}:x")
    small_run.header = msgspec.structs.replace(small_run.header, workload=workload)
    small_run.verdict = msgspec.structs.replace(small_run.verdict, because=NASTY)
    one = listed(RunDir(small_run.write(tmp_path / "one")), NASTY)
    small_run.header = msgspec.structs.replace(small_run.header, created="2026-02-02T00:00:00+00:00")
    two = listed(RunDir(small_run.write(tmp_path / "two")), NASTY)
    first, second = ids(one, two)
    from urllib.parse import quote

    for address in ("", f"run/{first}", f"compare?run={first}&run={second}", f"model?name={quote(NASTY)}", "model"):
        text = text_of(server, address)
        assert "<script>" not in text, address
        assert "<img" not in text, address


def test_pages_load_nothing_from_elsewhere(server: Server, runs: list[RunDir]) -> None:
    for address in ("", f"run/{ids(*runs)[0]}", "model?name=Net", "ui.css", "ui.js"):
        text = text_of(server, address)
        assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text) == [], address
        assert re.findall(r"@import|url\((?!data:)", text) == [], address


# ---------------------------------------------------------------------------------------------------------------- news


def events(answer: Answer, number: int) -> list[dict[str, Any]]:
    """So many events of a stream."""
    found: list[dict[str, Any]] = []
    while len(found) < number:
        line = answer.found.readline().decode()
        assert line, "the stream ended"
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
    return found


def test_a_run_under_way_is_streamed_until_it_ends(
    server: Server, small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "LOOK_S", 0.02)
    run = RunDir.make(tmp_path / "live")
    journal = run.create_journal(small_run.header)
    listed(run, ended=False)
    [run_id] = ids(run)
    assert f"/run/{run_id}/events" in text_of(server, f"run/{run_id}")
    assert "Under way" in text_of(server, "")
    with Answer(server, f"run/{run_id}/events") as answer:
        assert answer.found.headers["content-type"].startswith("text/event-stream")
        assert events(answer, 1)[0]["trials"] == []
        for trial in small_run.trials[:2]:
            journal.append(TrialLine(trial=trial, at_s=1.0))
            news = events(answer, 1)[0]
            assert news["trials"][-1]["label"] == trial.candidate.label
        journal.append(VerdictLine(verdict=small_run.verdict, at_s=2.0))
        journal.close()
        last = events(answer, 1)[0]
        while last["live"]:
            last = events(answer, 1)[0]
        assert last["verdict"].startswith("use: ")
        assert answer.found.read() in (b"\n", b"")  # and it ends
    text_of(server, "run/000000000000/events", 404)


def test_there_is_an_end_to_windows(
    server: Server, small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MOST_STREAMS", 1)
    run = RunDir.make(tmp_path / "live")
    with run.create_journal(small_run.header):
        listed(run, ended=False)
        [run_id] = ids(run)
        with Answer(server, f"run/{run_id}/events") as first:
            events(first, 1)
            assert "close some" in text_of(server, f"run/{run_id}/events", 503)
