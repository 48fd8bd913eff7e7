"""Every form of a result: what others read is there, well-formed, and safe whatever a model's message holds."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.unit.gate.fake_races import FakeRaces

from compilot.gate.checking import CheckOptions, check_sides
from compilot.gate.outputs import benchmark_json, github, junit, markdown, sarif, terminal
from compilot.gate.races import Failure
from compilot.gate.report_records import CheckReport, GateVerdict, PlacedFinding, SideInfo
from compilot.gate.reporting import About, Found, report_of
from compilot.gate.sides import Side
from compilot.records import Finding, Shipment, SourceCommit

BOTH = ("eager", "torch.compile")
SHIPMENT = Shipment(target="/src/model.py:net", cwd="/src", sys_path=("/src",))
BREAK = Finding(
    kind="graph-break",
    where="/src/blocks.py:17",
    explanation="a tensor's value is read.",
    advice="use torch.where",
    snippet="if x.sum() > 0:",
)
NASTY = "it said <b>| @somebody \x1b[31m50 %\nand ::error::more]]>"


def report(races: FakeRaces, *findings: PlacedFinding) -> CheckReport:
    checked = check_sides(races, BOTH, CheckOptions(), clock=lambda: 0.0)
    base = Side("base", "main (1a2b3c4d5)", SHIPMENT, foreign="/src", commit=SourceCommit(commit="1a2b3c4d5"))
    head = Side("head", "the working tree", SHIPMENT, commit=SourceCommit(commit="6e7f", dirty=True))
    return report_of(checked, About("model.py:net", base, head, None, "", 180.0, 90.0), Found(findings))


@pytest.fixture(scope="module")
def red() -> CheckReport:
    """Slower, with one more graph break at a known line."""
    return report(
        FakeRaces(1.4, arms=BOTH, head_compiled={"graph_breaks": 1}),
        PlacedFinding(finding=BREAK, is_new=True),
        PlacedFinding(finding=msgspec.structs.replace(BREAK, where="/src/old.py:3", snippet="old"), is_new=False),
    )


@pytest.fixture(scope="module")
def green() -> CheckReport:
    return report(FakeRaces(arms=BOTH))


@pytest.fixture(scope="module")
def unclear() -> CheckReport:
    return report(FakeRaces(1.2, arms=BOTH, noise=0.6, process_noise=0.2, pairs=20))


@pytest.fixture(scope="module")
def nothing() -> CheckReport:
    return report(FakeRaces(arms=BOTH, failures={f"base {arm}": Failure(NASTY) for arm in BOTH}))


def test_the_report_has_the_verdict_the_sides_and_the_samples(red: CheckReport) -> None:
    assert red.verdict is GateVerdict.SLOWER
    assert red.exit_code == 1
    assert red.base == SideInfo(
        what="main (1a2b3c4d5)", commit=SourceCommit(commit="1a2b3c4d5"), torch="2.13.0", python="3.11"
    )
    assert len(red.races) == 4  # two races of two arms
    assert msgspec.json.decode(msgspec.json.encode(red), type=CheckReport) == red


def test_a_worse_count_names_the_new_line(red: CheckReport) -> None:
    breaks = next(one for one in red.metrics if one.metric == "graph-breaks")
    assert breaks.because == "0 before, 1 now: a tensor's value is read. (/src/blocks.py:17); use torch.where"


def test_junit_has_a_case_per_metric_and_skips_what_is_open(
    red: CheckReport, green: CheckReport, unclear: CheckReport, nothing: CheckReport
) -> None:
    suite = ET.fromstring(junit.junit(red)).find("testsuite")
    assert suite is not None
    assert len(suite.findall("testcase")) == len(red.metrics) == int(suite.get("tests", ""))
    assert {one.get("type") for one in suite.iter("failure")} == {"slower", "worse"}
    assert ET.fromstring(junit.junit(green)).find(".//failure") is None
    open_ = ET.fromstring(junit.junit(unclear))
    assert open_.find(".//failure") is None
    assert int(open_.get("skipped", "0")) == len(list(open_.iter("skipped"))) > 0
    assert ET.fromstring(junit.junit(nothing)).find(".//error") is not None


def test_markdown_keeps_its_table_whatever_is_said(red: CheckReport, nothing: CheckReport) -> None:
    text = markdown.markdown(red)
    assert text.startswith(markdown.MARK)
    assert "❌ **slower** | latency | eager" in text
    assert "/src/blocks.py:17" in text
    assert "/src/old.py:3" not in text
    nasty = markdown.markdown(nothing)
    assert "<b>" not in nasty
    assert "@somebody" not in nasty


def test_annotations_are_one_line_each_at_the_line_of_code(red: CheckReport, nothing: CheckReport) -> None:
    lines = github.workflow_lines(red, Path("/src"))
    assert any(line.startswith("::error title=compilot%3A latency of eager::") for line in lines)
    assert "::warning file=blocks.py,line=17,title=compilot doctor::a tensor's value is read. use torch.where" in lines
    assert not any("old.py" in line for line in lines)
    for line in github.workflow_lines(nothing):
        assert "\n" not in line
    assert github.workflow_lines(nothing)[0].startswith("::error title=compilot::")


def test_a_pass_has_no_annotation(green: CheckReport) -> None:
    assert github.workflow_lines(green) == []


def test_the_summary_is_appended(red: CheckReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "summary.md"
    place.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    assert github.write_summary(red)
    assert place.read_text().startswith("before\n<!-- compilot check -->")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert not github.write_summary(red)


def test_sarif_has_lines_rules_and_what_is_new(red: CheckReport) -> None:
    document = json.loads(sarif.sarif(red, Path("/src")))
    assert document["version"] == "2.1.0"
    run = document["runs"][0]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == rules
    new, old = run["results"][:2]
    place = new["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "blocks.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 17},
    }
    assert (new["baselineState"], new["level"]) == ("new", "warning")
    assert (old["baselineState"], old["level"]) == ("unchanged", "note")
    assert new["partialFingerprints"] != old["partialFingerprints"]


@pytest.mark.parametrize("where", ["", "/elsewhere/site-packages/lib.py:3", "/src/blocks.py:many"])
def test_what_has_no_line_in_the_repository_is_shown_at_the_target(where: str) -> None:
    finding = msgspec.structs.replace(BREAK, kind="train-mode", where=where)
    made = report(FakeRaces(1.4, arms=BOTH), PlacedFinding(finding=finding))
    [run] = json.loads(sarif.sarif(msgspec.structs.replace(made, target="/src/model.py:net"), Path("/src")))["runs"]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert len(places) > 1
    assert {place["artifactLocation"]["uri"] for place in places} == {"model.py"}
    assert where in run["results"][0]["message"]["text"]
    assert "file=" not in github.workflow_lines(made, Path("/src"))[-1]


def test_paths_are_those_of_the_repository_in_a_folder_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "models" / "small"
    (project / "package").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (project / "package" / "net.py").touch()
    monkeypatch.chdir(project)
    finding = msgspec.structs.replace(BREAK, where=f"{project}/blocks.py:17")
    made = report(FakeRaces(1.4, arms=BOTH), PlacedFinding(finding=finding))
    for target, file in (
        ("package/net.py:net", "package/net.py"),
        ("package.net:net", "package/net.py"),
        ("gone.net:net", "gone/net.py"),
    ):
        [run] = json.loads(sarif.sarif(msgspec.structs.replace(made, target=target)))["runs"]
        uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]]
        assert uris[0] == "models/small/blocks.py"
        assert set(uris[1:]) == {f"models/small/{file}"}
    assert "file=models/small/blocks.py,line=17" in github.workflow_lines(made)[-1]


def test_benchmarks_have_the_samples_of_both_sides(red: CheckReport) -> None:
    document = json.loads(benchmark_json.benchmark_json(red))
    names = [one["name"] for one in document["benchmarks"]]
    assert names == ["base eager", "head eager", "base torch.compile", "head torch.compile"]
    head = document["benchmarks"][1]
    assert head["stats"]["rounds"] == len(head["stats"]["data"]) == 2 * 3 * 60  # races, sets, rounds
    assert head["stats"]["min"] <= head["stats"]["q1"] <= head["stats"]["median"] <= head["stats"]["max"]
    assert head["extra_info"]["verdict"] == "slower"
    assert document["commit_info"] == {"id": "6e7f", "dirty": True}


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_has_every_row_whole(red: CheckReport, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal.shown(red, width))
    text = console.export_text()
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    first = text.splitlines()[0]
    assert first.startswith("SLOWER: Net: latency of eager, latency of torch.compile")
    for name in ("latency", "throughput", "startup", "memory", "graph-breaks", "kernels"):
        assert f" {name} " in text
    assert "would have been seen" not in first


def test_a_pass_says_what_it_could_have_seen(green: CheckReport) -> None:
    assert "would have been seen" in green.because
    for one in green.metrics:
        assert one.mde is not None
