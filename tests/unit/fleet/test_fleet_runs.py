"""A fleet's run on a crew without machines: what is done, what is skipped, what is refused, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import compilot
from compilot import fleet
from compilot.artifacts import store as stores
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.signing import load_public_key
from compilot.artifacts.store.remote import UPLOADS, Remote
from compilot.cli.main import app
from compilot.errors import InputError, ManifestError, NodeLost, NoneFits, WorkerError
from compilot.fleet import running
from compilot.fleet.page import page_html
from compilot.fleet.rows import FleetReport, RowState
from compilot.records import MachineFingerprint

MODELS = ("one", "two", "three", "four")
MANIFEST = """
[defaults]
budget = "1m"

[machines]
small = { labels = { pool = "small" } }
large = { labels = { pool = "large" } }

[models]
""" + "\n".join(f'{name} = {{ target = "models.py:{name}" }}' for name in MODELS)

Fleet = Callable[..., FleetReport]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models.py").write_text("")
    (tmp_path / "fleet.toml").write_text(MANIFEST)
    compilot.keys.new(tmp_path / "release")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(place: Path, crew: Any, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """compilot.fleet.run on the fake crew; on="..." is a cluster."""

    def with_crew(on: str | None, folder: Path, left_out: Sequence[Path]) -> Any:
        crew.left_out = list(left_out)
        return nullcontext(crew)

    monkeypatch.setattr(running, "crew_for", with_crew)

    def go(**options: Any) -> FleetReport:
        given = {"sign": "release", "progress": False, "on": "auto"} | options
        return fleet.run("fleet.toml", place / "store", **given)

    return go


def states(report: FleetReport) -> dict[tuple[str, str], str]:
    return {(row.model, row.machine): row.state.value for row in report.rows}


def because(report: FleetReport, model: str) -> str:
    return next(row.because for row in report.rows if row.model == model)


def test_four_models_for_two_machines_are_pushed_once(
    run: Fleet, crew: Any, place: Path, machines: tuple[MachineFingerprint, MachineFingerprint]
) -> None:
    first = run()
    assert states(first) == {(model, kind): "pushed" for model in MODELS for kind in ("small", "large")}
    assert first.sentence == "8 pushed (of 8)."
    assert first.ok
    assert len(crew.jobs) == 8
    key = load_public_key(place / "release.pub")
    entries = stores.listing(Remote(str(place / "store"))).entries
    assert {entry.signed_by for entry in entries} == {key.key_id}
    assert len(entries) == 8
    trust = Trust(keys=(place / "release.pub",), require_signature=True)
    for machine, cores in zip(machines, (2, 8), strict=True):  # each machine gets its own, and the signature holds
        for model in MODELS:
            pulled = stores.pull(str(place / "store"), place / "out", machine, model.title(), trust)
            assert pulled.fit.entry.fingerprint.machine.cores == cores
            assert pulled.signed_by == key.key_id
    assert list(Remote(str(place / "store")).sizes(UPLOADS)) == []
    assert not list((place / "compilot-fleet" / "bundles").glob("*.unsigned"))

    second = run()
    assert set(states(second).values()) == {"in the store"}
    assert second.sentence.startswith("nothing to do: the store has all 8")
    assert len(crew.jobs) == 8
    assert [row.bundle for row in second.rows] == [row.bundle for row in first.rows]

    crew.weights["models.py:two"] = "trained"
    third = run()
    assert {pair for pair, state in states(third).items() if state == "pushed"} == {("two", "small"), ("two", "large")}
    assert len(crew.jobs) == 10
    assert len(stores.listing(Remote(str(place / "store"))).entries) == 10


def test_labels_only_select_nodes(
    run: Fleet, crew: Any, place: Path, machines: tuple[MachineFingerprint, MachineFingerprint]
) -> None:
    """A node that is called large and is not: its bundle says what it is, and is not pushed."""
    crew.lies = {"b": machines[0], "c": machines[0]}
    report = run()
    assert {pair for pair, state in states(report).items() if state == "failed"} == {(name, "large") for name in MODELS}
    assert not report.ok
    assert "was not made on a machine of the kind 'large'" in because(report, "one")
    assert "It is not pushed." in because(report, "one")
    assert len(stores.listing(Remote(str(place / "store"))).entries) == 4
    wide = msgspec.structs.replace(machines[1], torch="9.9")
    with pytest.raises(NoneFits, match=r"needs torch 2.13.0, this has torch 9.9"):
        stores.pull(str(place / "store"), place / "out", wide, "One")


def test_names_for_one_machine_are_one_machine(
    run: Fleet, crew: Any, machines: tuple[MachineFingerprint, MachineFingerprint]
) -> None:
    crew._nodes = [node._replace(fingerprint=machines[0]) for node in crew._nodes]
    report = run()
    assert len(crew.jobs) == 4
    assert set(states(report).values()) == {"pushed"}
    assert len({row.bundle for row in report.rows}) == 4
    assert any("the same machine by fingerprint" in row.because for row in report.rows)


def test_without_machines_every_kind_is_served(run: Fleet, place: Path, crew: Any) -> None:
    (place / "fleet.toml").write_text('[models]\none = { target = "models.py:one" }\n')
    report = run()
    assert states(report) == {("one", "some-2"): "pushed", ("one", "other-8"): "pushed"}
    assert report.machines["other-8"].startswith("Other CPU, 8 cores")
    assert report.machines["other-8"].endswith("2 nodes")


def test_what_is_asked_for_in_another_way_is_another_line(run: Fleet, place: Path, crew: Any) -> None:
    (place / "fleet.toml").write_text('[models]\none = { target = "models.py:one" }\n')
    run()
    (place / "fleet.toml").write_text('[models]\none = { target = "models.py:one", budget = "9m", priority = 3 }\n')
    assert set(states(run()).values()) == {"in the store"}  # how hard to look is no other question
    (place / "fleet.toml").write_text('[models]\none = { target = "models.py:one", dynamic = "x:0=1..8" }\n')
    assert set(states(run()).values()) == {"pushed"}
    assert crew.jobs[-1][1].dynamic[0].max == 8
    assert set(states(run(again=True)).values()) == {"pushed"}
    assert crew.jobs[-1][1].again


def test_a_bundle_that_went_is_made_again(run: Fleet, place: Path, crew: Any) -> None:
    first = run()
    gone = next(row for row in first.rows if (row.model, row.machine) == ("one", "small"))
    compilot.store.rm(place / "store", gone.bundle)
    assert {pair for pair, state in states(run()).items() if state == "pushed"} == {("one", "small")}


def test_another_key_signs_again(run: Fleet, place: Path, crew: Any) -> None:
    run(sign=None, unsigned=True)
    assert set(states(run(sign=None, unsigned=True)).values()) == {"in the store"}
    assert set(states(run()).values()) == {"pushed"}


def test_eager_is_an_answer_that_is_remembered(run: Fleet, crew: Any, place: Path) -> None:
    crew.eager = {"one"}
    assert states(run())["one", "small"] == "eager kept"
    done = len(crew.jobs)
    again = run()
    assert again.rows[0].state is RowState.THERE
    assert because(again, "one").startswith("eager is kept, ")
    assert len(crew.jobs) == done


def test_a_budget_that_was_too_short_is_no_answer(run: Fleet, crew: Any) -> None:
    crew.eager, crew.final = {"one"}, False
    first = run()
    assert states(first)["one", "small"] == "not proven"
    assert first.ok
    done = len(crew.jobs)
    crew.final = True
    assert states(run())["one", "small"] == "eager kept"  # asked again
    assert len(crew.jobs) == done + 2


def test_a_line_that_fails_is_a_row_and_the_others_go_on(run: Fleet, crew: Any) -> None:
    crew.unopened = {"models.py:two": "there is no factory 'two' in models.py."}
    crew.errors = {("three", node): [WorkerError("eager itself failed")] for node in "bc"}
    report = run()
    assert states(report)["one", "large"] == "pushed"
    assert states(report)["two", "small"] == "failed"
    assert because(report, "two") == "there is no factory 'two' in models.py."
    assert states(report)["three", "large"] == "failed"
    assert states(report)["three", "small"] == "pushed"
    crew.unopened = {}
    assert set(states(run()).values()) <= {"pushed", "in the store"}  # failures are not remembered


def test_a_lost_node_is_not_the_lines_fault(run: Fleet, crew: Any) -> None:
    crew.errors = {("one", "b"): [NodeLost("node b went away")]}
    report = run()
    assert set(states(report).values()) == {"pushed"}
    assert report.notes == ("one on large: node b went away",)
    assert {node for node, job in crew.jobs if job.name != "one"} == {"a", "c"}  # b is not asked again


def test_without_any_node_left_it_ends(run: Fleet, crew: Any) -> None:
    crew.errors = {("one", node): [NodeLost(f"node {node} went away")] for node in "bc"}
    report = run()
    assert [states(report)[name, "large"] for name in ("one", "four")] == ["failed"] * 2
    assert [states(report)[name, "small"] for name in MODELS] == ["pushed"] * 4
    assert "every node of its kind is gone" in because(report, "four")


def test_a_node_that_is_lost_while_models_are_opened_is_not_the_end(run: Fleet, crew: Any, place: Path) -> None:
    crew.lost = {"b"}
    report = run()
    assert set(states(report).values()) == {"pushed"}
    assert report.notes == ("opening models on large: node b went away",)
    assert {node for node, _ in crew.jobs} == {"a", "c"}  # b is not asked again
    crew.lost = {"b", "c"}
    without = run(again=True)
    assert [states(without)[name, "large"] for name in MODELS] == ["failed"] * 4
    assert [states(without)[name, "small"] for name in MODELS] == ["pushed"] * 4
    assert "every node of its kind is gone" in because(without, "four")
    told = json.loads((place / "compilot-fleet" / "report.json").read_text())
    assert "failed" in {row["state"] for row in told["rows"]}


@pytest.mark.parametrize("store", ["store", "file://store", "./store"])
def test_nodes_get_the_whole_path_of_a_store_and_nothing_of_the_drivers(
    run: Fleet, crew: Any, place: Path, store: str
) -> None:
    report = fleet.run("fleet.toml", store, sign="release", on="auto", progress=False)
    assert {job.upload for _, job in crew.jobs} == {str(place / "store")}
    assert len(stores.listing(Remote(str(place / "store"))).entries) == len(report.rows)
    assert {path.resolve() for path in crew.left_out} == {
        place / "release",
        place / "store",
        place / "compilot-fleet",
    }


def test_the_url_of_a_server_is_as_it_was_given(run: Fleet, crew: Any, place: Path) -> None:
    fleet.run("fleet.toml", "memory://whole-path", sign="release", on="auto", progress=False)
    assert {job.upload for _, job in crew.jobs} == {"memory://whole-path"}


def test_the_most_urgent_is_done_first(run: Fleet, crew: Any, place: Path) -> None:
    (place / "fleet.toml").write_text(
        """
[machines]
small = { cores = 2 }
[models]
one = { target = "models.py:one" }
two = { target = "models.py:two", deadline = "2h", budget = "3h" }
three = { target = "models.py:three", deadline = "1h" }
four = { target = "models.py:four", priority = 1 }
"""
    )
    run()
    assert [job.name for _, job in crew.jobs] == ["four", "three", "two", "one"]
    assert 7000 < crew.jobs[2][1].budget_s <= 7200  # it ends with its deadline


def test_deadlines_are_moments_whatever_their_zone(run: Fleet, crew: Any, place: Path) -> None:
    (place / "fleet.toml").write_text(
        """
[machines]
small = { cores = 2 }
[models]
one = { target = "models.py:one", deadline = 2126-01-01T01:00:00Z }
two = { target = "models.py:two", deadline = 2126-01-01T02:00:00+09:00 }
"""
    )
    run()
    assert [job.name for _, job in crew.jobs] == ["two", "one"]


def test_engines_may_be_spelled_in_two_ways(run: Fleet, crew: Any, place: Path) -> None:
    text = '[models]\none = {{ target = "models.py:one", engines = {0}, precision = {1} }}\n'
    (place / "fleet.toml").write_text(text.format('"openvino, inductor"', '"bf16"'))
    run()
    (place / "fleet.toml").write_text(text.format('["openvino", "inductor"]', '["bf16"]'))
    assert set(states(run()).values()) == {"in the store"}


def test_the_other_names_of_a_line_that_is_not_done_say_why(
    run: Fleet, crew: Any, place: Path, machines: tuple[MachineFingerprint, MachineFingerprint]
) -> None:
    crew._nodes = [node._replace(fingerprint=machines[0]) for node in crew._nodes]
    crew.errors = {("one", node): [NodeLost(f"node {node} went away")] for node in "abc"}
    report = run()
    assert set(states(report).values()) == {"failed"}
    (place / "fleet.toml").write_text(
        MANIFEST.replace('models.py:one"', 'models.py:one", deadline = 2026-01-01T00:00:00Z')
        + '\nagain = { target = "models.py:one" }\n'
    )
    crew.errors = {}
    late = states(run())
    assert [late["one", kind] for kind in ("small", "large")] == ["too late"] * 2
    assert [late["again", kind] for kind in ("small", "large")] == ["pushed"] * 2  # the same, and in time
    assert "to do" not in late.values()


def test_what_is_too_late_is_not_begun(run: Fleet, crew: Any, place: Path) -> None:
    (place / "fleet.toml").write_text(
        '[models]\none = { target = "models.py:one", deadline = 2026-01-01T00:00:00Z }\n'
        'two = { target = "models.py:two" }\n'
    )
    report = run()
    assert {pair[0] for pair, state in states(report).items() if state == "too late"} == {"one"}
    assert {job.name for _, job in crew.jobs} == {"two"}
    assert not report.ok


def test_a_machine_that_is_not_there_is_said(run: Fleet, place: Path) -> None:
    text = (place / "fleet.toml").read_text().replace('pool = "large"', 'pool = "huge"')
    (place / "fleet.toml").write_text(text)
    report = run()
    assert states(report)["one", "large"] == "no machine"
    assert states(report)["one", "small"] == "pushed"
    assert not report.ok


def test_a_dry_run_touches_nothing(run: Fleet, crew: Any, place: Path) -> None:
    report = run(dry_run=True, sign=None)
    assert set(states(report).values()) == {"to do"}
    assert crew.jobs == []
    assert not (place / "store").exists()
    assert not (place / "compilot-fleet").exists()
    # four lines of a minute and of packing, one after the other on the only small node
    assert report.may_take_s == 4 * 120.0
    run()
    assert run(dry_run=True).may_take_s == 0.0


def test_a_key_or_a_word_that_none_is_wanted(run: Fleet, crew: Any) -> None:
    with pytest.raises(InputError, match=r"a fleet signs what it pushes: give a private key"):
        run(sign=None)
    with pytest.raises(InputError, match="do not go together"):
        run(unsigned=True)
    with pytest.raises(compilot.KeyProblem):
        run(sign="none")
    assert crew.jobs == []


def test_an_interrupted_run_leaves_its_report(run: Fleet, crew: Any, place: Path) -> None:
    def stop(node: str, payload: bytes) -> None:
        if len(crew.jobs) == 2:
            raise KeyboardInterrupt
        return made(node, payload)

    made, crew.make_bundle = crew.make_bundle, stop
    with pytest.raises(KeyboardInterrupt):
        run()
    told = json.loads((place / "compilot-fleet" / "report.json").read_text())
    assert "to do" in {row["state"] for row in told["rows"]}
    crew.make_bundle = made
    assert set(states(run()).values()) <= {"pushed", "in the store"}


def test_the_report_is_printed_and_written(run: Fleet, place: Path, crew: Any) -> None:
    crew.unopened = {"models.py:two": "<b>no & such</b> factory"}
    command = ["fleet", "fleet.toml", "--store", str(place / "store"), "--sign", "release", "--on", "auto", "-q"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 2
    assert "6 pushed, 2 failed (of 8)." in shown.stdout
    assert "two on large: <b>no & such</b> factory" in shown.stdout
    page = (place / "compilot-fleet" / "report.html").read_text()
    assert "&lt;b&gt;no &amp; such&lt;/b&gt; factory" in page
    assert "<script" not in page
    crew.unopened = {}
    again = CliRunner().invoke(app, [*command, "--json"])
    assert again.exit_code == 0
    told = json.loads(again.stdout)
    assert told["sentence"] == "2 pushed, 6 in the store (of 8)."
    assert told == json.loads((place / "compilot-fleet" / "report.json").read_text()) | {"sentence": told["sentence"]}
    dry = CliRunner().invoke(app, [*command, "--dry-run"])
    assert "dry run: nothing to do" in " ".join(dry.stdout.split())


def test_a_bad_manifest_is_one_sentence(place: Path) -> None:
    (place / "fleet.toml").write_text("[models]\none = { taget = 'models.py:one' }\n")
    shown = CliRunner().invoke(app, ["fleet", "fleet.toml", "--store", "store", "--unsigned"])
    assert shown.exit_code == 2
    assert shown.stderr == "error: fleet.toml line 2: models.one.taget: unknown field; did you mean 'target'?\n"
    assert issubclass(ManifestError, InputError)


def test_the_page_says_how_long_it_took(run: Fleet) -> None:
    report = msgspec.structs.replace(run(), seconds=3661.0)
    assert "; 3661s</p>" in page_html(report)
