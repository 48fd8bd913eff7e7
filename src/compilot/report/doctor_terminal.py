"""The doctor's report for the terminal. In: a `DoctorReport`. Out: rich renderables: a headline, the findings ranked by
cost, the module tree with graphs and breaks marked.

Covered: terminals from 60 columns up; sentences wrap, places and costs are never cut. Parts of a model that lie in one
graph are one line of the tree; equal neighbours are folded. Not covered: printing, and the page (doctor_html.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from compilot.diagnose.fixcheck import FixCheck
from compilot.diagnose.frames import spot
from compilot.diagnose.report_records import DoctorReport, ModuleNode
from compilot.records import Finding
from compilot.report.doctor_words import cost_text, kind_text, place_text, recompiles
from compilot.report.figures import sentence

SHOWN = 10  # findings; the rest is in report.json
_APART = 2  # columns between kind, place and cost
_STYLES = {
    "graph-break": "yellow",
    "recompile": "magenta",
    "recompile-limit": "bold red",
    "compile-failure": "bold red",
}


def summary(report: DoctorReport, *, root: Path) -> Group:
    """Everything the terminal shows; places are written relative to root."""
    parts: list[RenderableType] = [headline(report)]
    parts += [Text(f"Not looked at: {sentence(one)}", style="bold red") for one in report.unseen]
    parts.append(Text())
    for number, finding in enumerate(report.findings[:SHOWN], 1):
        parts += [entry(number, finding, report.spread, root), Text()]
    if len(report.findings) > SHOWN:
        parts += [Text(f"{len(report.findings) - SHOWN} more in report.json", style="dim"), Text()]
    if report.breaks or len(report.graphs) > 1:
        parts.append(module_tree(report))
    if report.notes:
        parts += [Text(), *(Text(f"Note: {sentence(note)}", style="yellow") for note in report.notes)]
    return Group(*parts)


def headline(report: DoctorReport) -> Text:
    """The model and what was found, in one line."""
    limits = len(
        {place for one in report.recompiles if one.limit_hit for place in one.gave_up or (spot(one.function),)}
    )
    counts = [
        _many(len(report.graphs), "graph"),
        _many(len(report.breaks), "graph break"),
        _many(recompiles(report), "recompile") + f" in {_many(len(report.calls), 'call')}",
    ]
    text = Text.assemble((report.label, "bold"), ": ", ", ".join(counts))
    if limits:
        text.append(f", {_many(limits, 'function')} gave up", style="bold red")
    if report.unseen:
        text.append("; not everything was looked at", style="bold red")
    elif not report.findings:
        text.append("; nothing to fix", style="green")
    return text


def entry(number: int, finding: Finding, calls: int, root: Path) -> RenderableType:
    """One finding: its kind, place and cost on a line; the source, the cause and the fix below."""
    kind = Text(f"{number}. {kind_text(finding.kind)}", style=_STYLES.get(finding.kind, "cyan"))
    top = _Head(kind, Text(place_text(finding.where, root), style="bold"), Text(cost_text(finding, calls), style="dim"))
    below: list[RenderableType] = []
    if finding.snippet:
        below.append(Text(finding.snippet, style="dim italic"))
    below.append(Text(sentence(finding.explanation) + (f" ({finding.gb_id})" if finding.gb_id else "")))
    below.append(Text.assemble(("Fix: ", "green"), sentence(finding.advice)))
    return Group(top, Padding(Group(*below), (0, 0, 0, 3)))


class _Head:
    """Kind, place and cost on one line; a place that has no room there gets its own, so that it is never torn apart."""

    def __init__(self, kind: Text, place: Text, cost: Text) -> None:
        self.parts = (kind, place, cost)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        kind, place, cost = self.parts
        fits = sum(part.cell_len for part in self.parts) + 2 * _APART <= options.max_width
        top = Table.grid(padding=(0, _APART, 0, 0), expand=True)
        top.add_column(no_wrap=True)
        top.add_column(ratio=1, no_wrap=True)
        top.add_column(justify="right", no_wrap=True)
        top.add_row(kind, place if fits else "", cost)
        yield top
        if not fits:
            yield Padding(Text(place.plain, style=place.style, overflow="fold"), (0, 0, 0, 3))


def checked(check: FixCheck, *, root: Path) -> Group:
    """What became of the findings since the last report."""
    groups = [("gone", "green", check.gone), ("stayed", "yellow", check.stayed), ("new", "red", check.new)]
    if check.not_checked:
        groups.insert(1, ("not checked", "red", check.not_checked))
    parts = []
    for name, style, findings in groups:
        parts.append(Text(f"{name}: {len(findings)}", style=f"bold {style}"))
        parts += [Text(f"   {_checked_line(one, check, root)}") for one in findings]
    return Group(*parts)


def _checked_line(one: Finding, check: FixCheck, root: Path) -> str:
    what = f"  ({one.what})" if one.what else ""
    now = "  better than before" if one in check.better else "  worse than before" if one in check.worse else ""
    return f"{kind_text(one.kind)}  {place_text(one.where, root)}  {one.snippet}{what}{now}"


# ------------------------------------------------------------------------------------------------------ the module tree


def module_tree(report: DoctorReport) -> Tree:
    """The model with its graphs and breaks: what lies in one graph is one line."""
    nodes = {node.path: node for node in report.modules}
    root = nodes[""]
    tree = Tree(_label(root, root.class_name, report), guide_style="dim")
    _grow(tree, root, report)
    return tree


def _grow(tree: Tree, node: ModuleNode, report: DoctorReport) -> None:
    for first, last in _folded(_children(node, report.modules), report):
        if not _below(first, report.modules):  # never called, or work of the parent's graphs only
            continue
        name = first.path.rpartition(".")[2]
        until = "" if first is last else f" to {last.path.rpartition('.')[2]}"
        branch = tree.add(_label(first, f"{name}{until} {first.class_name}", report, whole=True))
        if not _uniform(first, report.modules):
            _grow(branch, first, report)


def _children(node: ModuleNode, nodes: Sequence[ModuleNode]) -> list[ModuleNode]:
    prefix = f"{node.path}." if node.path else ""
    return [one for one in nodes if one.path and one.path.startswith(prefix) and "." not in one.path[len(prefix) :]]


def _subtree(node: ModuleNode, nodes: Sequence[ModuleNode]) -> list[ModuleNode]:
    return [node, *(one for one in nodes if one.path.startswith(f"{node.path}."))]


def _below(node: ModuleNode, nodes: Sequence[ModuleNode]) -> bool:
    return any(one.graphs or one.breaks for one in _subtree(node, nodes))


def _uniform(node: ModuleNode, nodes: Sequence[ModuleNode]) -> bool:
    """Everything below lies in the same graphs, without a break."""
    parts = _subtree(node, nodes)
    return len({one.graphs for one in parts if one.graphs}) <= 1 and not any(one.breaks for one in parts)


def _folded(nodes: Sequence[ModuleNode], report: DoctorReport) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Neighbours of one class with the same marks, as (first, last)."""
    run: list[ModuleNode] = []
    for node in nodes:
        if run and _marks(run[0], report) != _marks(node, report):
            yield run[0], run[-1]
            run = []
        run.append(node)
    if run:
        yield run[0], run[-1]


def _marks(node: ModuleNode, report: DoctorReport) -> tuple[object, ...]:
    parts = _subtree(node, report.modules)
    return node.class_name, tuple((one.path.removeprefix(node.path), one.graphs, one.breaks) for one in parts)


def _label(node: ModuleNode, name: str, report: DoctorReport, *, whole: bool = False) -> Text:
    parts = _subtree(node, report.modules) if whole and _uniform(node, report.modules) else [node]
    graphs = sorted({graph for one in parts for graph in one.graphs})
    text = Text(name)
    if graphs:
        word = "graph" if len(graphs) == 1 else "graphs"
        text.append(f"  {word} {_ranges([graph + 1 for graph in graphs])}", style="cyan")
    for index in node.breaks:
        found = report.breaks[index]
        each = found.per_call // max(len(found.modules), 1)
        times = f" x{each}" if each > 1 else ""
        frame = found.inside or found.where
        text.append(f"  ✂ {Path(frame.file).name}:{frame.line}{times}", style="yellow")
    return text


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 -> "1-3, 7"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans)


# --------------------------------------------------------------------------------------------------------------- words


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")
