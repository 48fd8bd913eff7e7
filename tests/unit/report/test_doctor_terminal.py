"""The doctor's report as text: short, ranked, with a tree that folds what is alike."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
from rich.console import Console, RenderableType

from compilot.diagnose.fixcheck import FixCheck
from compilot.diagnose.report_records import (
    Category,
    CodeFrame,
    DoctorReport,
    Graph,
    GraphBreak,
    ModuleNode,
    Recompile,
)
from compilot.records import Finding
from compilot.report import doctor_terminal

WHERE = CodeFrame(file="/home/me/net.py", line=17, function="forward", source="if h.max() > 1e4:")
BREAK = GraphBreak(
    where=WHERE,
    category=Category.DATA_DEPENDENT_BRANCH,
    cause="why",
    fix="how",
    modules=("layers.0", "layers.1"),
    per_call=2,
)
FINDING = Finding(
    kind="graph-break",
    where="/home/me/net.py:17",
    explanation="torch.compile never traces it",
    advice="choose with torch.where",
    cost_s=59.1e-6,
    snippet="if h.max() > 1e4:",
    gb_id="GB0170",
    count=2,
)
AGAIN = Recompile(
    where=WHERE,
    function=WHERE,
    category=Category.SHAPE,
    what="",
    old="",
    new="",
    cause="",
    fix="",
    count=3,
    limit_hit=True,
)


def node(path: str, name: str, graphs: tuple[int, ...] = (), breaks: tuple[int, ...] = ()) -> ModuleNode:
    return ModuleNode(path=path, class_name=name, graphs=graphs, breaks=breaks)


REPORT = DoctorReport(
    schema=1,
    compilot="0",
    created="",
    label="Net",
    calls=("example 1", "example 2"),
    findings=(FINDING,),
    graphs=tuple(Graph(index=index, where=WHERE, ops=1) for index in range(3)),
    breaks=(BREAK,),
    recompiles=(AGAIN,),
    modules=(
        node("", "Net"),
        node("embed", "Embedding", (0,)),
        node("layers", "ModuleList"),
        node("layers.0", "Block", (0, 1), (0,)),
        node("layers.0.up", "Linear", (0,)),
        node("layers.1", "Block", (0, 1), (0,)),
        node("layers.1.up", "Linear", (0,)),
        node("unused", "Linear"),
        node("head", "Head", (2,)),
        node("head.out", "Linear", (2,)),
    ),
)


def shown(what: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, color_system=None, file=io.StringIO())
    console.print(what)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_the_headline_counts_and_says_who_gave_up() -> None:
    text = shown(doctor_terminal.headline(REPORT))
    assert text == "Net: 3 graphs, 1 graph break, 3 recompiles in 2 calls, 1 function gave up"


def test_a_finding_has_place_cost_source_cause_and_fix() -> None:
    lines = shown(doctor_terminal.entry(1, FINDING, 2, Path("/home/me"))).splitlines()
    assert lines[0].split() == ["1.", "graph", "break", "net.py:17", "~59.1", "µs", "per", "call", "(2", "times)"]
    assert lines[1:] == [
        "   if h.max() > 1e4:",
        "   torch.compile never traces it. (GB0170)",
        "   Fix: Choose with torch.where.",
    ]


def test_the_tree_folds_equal_blocks_and_leaves_out_what_never_ran() -> None:
    assert shown(doctor_terminal.module_tree(REPORT)).splitlines() == [
        "Net",
        "├── embed Embedding  graph 1",
        "├── layers ModuleList",
        "│   └── 0 to 1 Block  graphs 1-2  ✂ net.py:17",
        "│       └── up Linear  graph 1",
        "└── head Head  graph 3",
    ]


def test_a_narrow_terminal_cuts_neither_places_nor_costs() -> None:
    text = shown(doctor_terminal.summary(REPORT, root=Path("/home/me")), width=60)
    assert "net.py:17" in text
    assert "~59.1 µs per call (2 times)" in text


def test_a_long_place_has_a_line_of_its_own() -> None:
    long = msgspec.structs.replace(FINDING, where="/home/me/some/long/folder/for/a/model/modeling.py:1083")
    lines = shown(doctor_terminal.entry(1, long, 2, Path("/home/me"))).splitlines()
    assert lines[0].split() == ["1.", "graph", "break", "~59.1", "µs", "per", "call", "(2", "times)"]
    assert lines[1] == "   some/long/folder/for/a/model/modeling.py:1083"


def test_what_became_of_the_findings() -> None:
    text = shown(doctor_terminal.checked(FixCheck(gone=(FINDING,)), root=Path("/home/me")))
    assert text.splitlines() == ["gone: 1", "   graph break  net.py:17  if h.max() > 1e4:", "stayed: 0", "new: 0"]


def test_findings_that_were_not_checked_and_those_that_changed_are_told_apart() -> None:
    again = msgspec.structs.replace(FINDING, kind="recompile", what="the size of x", snippet="def forward(self, x):")
    check = FixCheck(not_checked=(FINDING,), stayed=(again,), better=(again,))
    assert shown(doctor_terminal.checked(check, root=Path("/home/me")), width=120).splitlines() == [
        "gone: 0",
        "not checked: 1",
        "   graph break  net.py:17  if h.max() > 1e4:",
        "stayed: 1",
        "   recompile  net.py:17  def forward(self, x):  (the size of x)  better than before",
        "new: 0",
    ]


def test_what_was_not_looked_at_stands_above_the_findings() -> None:
    report = msgspec.structs.replace(REPORT, findings=(), breaks=(), graphs=(), unseen=("example 2 failed: it broke",))
    text = shown(doctor_terminal.summary(report, root=Path("/")), width=120)
    assert "; not everything was looked at\nNot looked at: Example 2 failed: it broke." in text
    assert "nothing to fix" not in text


def test_recompiles_that_are_told_with_a_break_are_counted() -> None:
    folded = msgspec.structs.replace(BREAK, recompiles=2)
    report = msgspec.structs.replace(REPORT, breaks=(folded,), recompiles=())
    assert "1 graph break, 2 recompiles in 2 calls" in shown(doctor_terminal.headline(report))


def test_notes_are_printed() -> None:
    report = msgspec.structs.replace(REPORT, notes=("compile time: could not be measured: it died",))
    assert "Note: Compile time: could not be measured: it died." in shown(
        doctor_terminal.summary(report, root=Path("/"))
    ).replace("\n", " ")


def test_functions_that_gave_up_are_counted_once() -> None:
    limits = [msgspec.structs.replace(AGAIN, gave_up=places) for places in (("n.py:1", "n.py:5"), ("n.py:5",))]
    report = msgspec.structs.replace(REPORT, recompiles=tuple(limits))
    assert "2 functions gave up" in shown(doctor_terminal.headline(report), width=120)
