"""The module tree as nested nodes, with graphs and breaks marked. Pure.

In: the report's flat list of submodules. Out: `Branch` objects for the page; a branch with a break somewhere in it is
open, runs of like siblings (the same graphs, the same breaks) are folded into one line ("11 more like it"), so that
large models stay readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compilot.diagnose.report_records import ModuleNode

ALIKE = 3  # from this many like siblings in a row, the rest is folded
MOST = 2000  # submodules drawn; the rest is counted


class Branch(NamedTuple):
    """One submodule on the page."""

    name: str
    class_name: str
    graphs: tuple[int, ...]
    breaks: tuple[int, ...]  # of its own, as indexes into the report's
    children: tuple[Branch, ...]
    folded: int = 0  # stands for this many like siblings
    open: bool = False
    path: str = ""  # from the model on


def module_tree(nodes: Sequence[ModuleNode]) -> Branch | None:
    """The root with everything below it; None without modules."""
    children: dict[str, list[ModuleNode]] = {}
    root = next((node for node in nodes if not node.path), None)
    for node in nodes[:MOST]:
        if node.path:
            children.setdefault(node.path.rpartition(".")[0], []).append(node)
    return _counted(_branch(root, children), nodes[MOST:]) if root is not None else None


def _counted(tree: Branch, rest: Sequence[ModuleNode]) -> Branch:
    """The tree, with one line for what is not drawn; its breaks are marked there."""
    if not rest:
        return tree
    breaks = tuple(sorted({index for node in rest for index in node.breaks}))
    line = Branch(name="…", class_name=f"{len(rest)} more submodules", graphs=(), breaks=breaks, children=())
    return tree._replace(children=(*tree.children, line))


def _branch(node: ModuleNode, children: dict[str, list[ModuleNode]]) -> Branch:
    below = tuple(_folded([_branch(child, children) for child in children.get(node.path, ())]))
    inside = bool(node.breaks) or any(branch.open or branch.breaks for branch in below)
    return Branch(
        name=node.path.rpartition(".")[2] or "model",
        class_name=node.class_name,
        graphs=node.graphs,
        breaks=node.breaks,
        children=below,
        open=inside or not node.path,
        path=node.path,
    )


def _folded(branches: list[Branch]) -> Iterator[Branch]:
    place = 0
    while place < len(branches):
        run = _run(branches[place:])
        yield branches[place]
        if run >= ALIKE:
            yield branches[place]._replace(name="…", folded=run - 1, children=())
            place += run
        else:
            place += 1


def _run(branches: list[Branch]) -> int:
    """How many of the first ones are alike."""
    first = _shape(branches[0])
    count = 0
    for branch in branches:
        if _shape(branch) != first:
            break
        count += 1
    return count


def _shape(branch: Branch) -> tuple[object, ...]:
    return branch.class_name, branch.graphs, branch.breaks, tuple(_shape(child) for child in branch.children)
