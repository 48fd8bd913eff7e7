"""The module tree of the report: graphs, breaks, and what runs where. In: View. Out: a Section, or None.

The tree is the examination's, where the run had time for one; what runs where is read from the plan's regions and from
the repeated blocks of the diagnosis. No model is needed. Not covered: how graphs are captured (the doctor).
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from compilot.diagnose.report_records import DoctorReport, Graph
from compilot.modules.selectors import BLOCK
from compilot.records import Candidate, Diagnosis, Settings
from compilot.report.figures import share_text
from compilot.report.moduletree import Branch, module_tree
from compilot.report.page_records import Section, Table, View

PARTS = 12  # rows of the parts that take most time
NAMED = 4  # paths of a region that are named; more are counted


class Tree(NamedTuple):
    """What the template draws."""

    root: Branch | None
    runs: dict[str, str]  # path -> engine of its region
    places: dict[int, str]  # number of a break -> file:line
    graphs: tuple[Graph, ...]


def modules(view: View) -> Section | None:
    """The tree, what runs where, and which parts take the time."""
    diagnosis = view.data.diagnosis or Diagnosis()
    candidate = view.plan.entries[0].candidate if view.plan is not None and view.plan.entries else None
    runs = regions(candidate, diagnosis, view.examined) if candidate is not None else {}
    root = module_tree(view.examined.modules) if view.examined is not None else None
    tables = [*([where_table(candidate, runs)] if candidate is not None else []), *_parts(diagnosis)]
    if root is None and not tables:
        return None
    places = dict(enumerate(_places(view.examined)))
    graphs = view.examined.graphs if view.examined is not None else ()
    body = Tree(root, {path: found.engine for path, found in runs.items()}, places, graphs)
    return Section("modules", "Module tree", _about(view, root), tables=tuple(tables), body=body)


def _about(view: View, root: Branch | None) -> str:
    if root is None or view.examined is None:
        return "The run had no time to look at graphs: 'compilot doctor' does."
    graphs, breaks = len(view.examined.graphs), len(view.examined.breaks)
    return f"What torch.compile makes of the model by itself: {_many(graphs, 'graph')}, {_many(breaks, 'graph break')}."


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _places(examined: DoctorReport | None) -> list[str]:
    return [f"{one.where.file}:{one.where.line}" for one in examined.breaks] if examined is not None else []


# ------------------------------------------------------------------------------------------------------------- regions


def regions(candidate: Candidate, diagnosis: Diagnosis, examined: DoctorReport | None) -> dict[str, Settings]:
    """The submodules that have settings of their own, by path."""
    known = [node.path for node in examined.modules] if examined is not None else []
    return {
        path: region.settings
        for region in candidate.regions
        for part in region.selector.split(",")
        for path in _selected(part.strip(), diagnosis, known)
    }


def _selected(selector: str, diagnosis: Diagnosis, known: Sequence[str]) -> tuple[str, ...]:
    """Paths that a selector names, as far as the run has written them down; else the selector itself."""
    if selector.startswith(BLOCK):
        digest = selector.removeprefix(BLOCK)
        found = [block.paths for block in diagnosis.repeated if block.structure_sha256.startswith(digest)]
        return found[0] if found else (selector,)
    return tuple(path for path in known if _fits(path.split("."), selector.split("."))) or (selector,)


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def where_table(candidate: Candidate, runs: dict[str, Settings]) -> Table:
    """Which part of the model runs in which engine."""
    rows = []
    for settings in dict.fromkeys(_key(one) for one in runs.values()):
        paths = [path for path, one in runs.items() if _key(one) == settings]
        rows.append((_paths(paths), *settings))
    rest = "everything else" if rows else "the whole model"
    rows.append((rest, *_key(candidate.settings)))
    return Table("What runs where", ("part", "engine", "settings"), tuple(rows))


def _key(settings: Settings) -> tuple[str, str]:
    options = [settings.mode or "", *(f"{name} = {value}" for name, value in settings.options.items())]
    options += [settings.precision.value] if settings.precision.value != "as-is" else []
    options += [settings.memory_format.value] if settings.memory_format.value != "preserve" else []
    return settings.engine, ", ".join(option for option in options if option)


def _paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more


def _parts(diagnosis: Diagnosis) -> list[Table]:
    rows = tuple(
        (part.path, part.class_name, share_text(part.share), str(part.calls)) for part in diagnosis.parts[:PARTS]
    )
    columns = ("part", "class", "share of an eager call", "calls")
    return [Table("Where an eager call spends its time", columns, rows, frozenset({2, 3}), folded=True)] if rows else []
