"""Paths of input leaves: read them, follow them, write them as code.

In: a path as `_tree` writes it ("args[0]['x'][1]", "kwargs['mask'].size"). Out: its root and steps.
A plan is a file, so a path is parsed and never evaluated. Not covered: keys that are not Python literals.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from compilot.errors import PlanError

_STEP = re.compile(
    r"""\[(?P<key>-?\d+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|True|False|None)\]|\.(?P<name>[A-Za-z_]\w*)"""
)


class Step(NamedTuple):
    """One step from a container to its part."""

    key: Any
    attribute: bool

    def code(self) -> str:
        """The step as Python source."""
        return f".{self.key}" if self.attribute else f"[{self.key!r}]"


class Path(NamedTuple):
    """Where a node lies: the argument it belongs to (position or keyword) and the way down from there."""

    root: int | str
    steps: tuple[Step, ...]

    def follow(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The node at this path of a call."""
        value = args[self.root] if isinstance(self.root, int) else kwargs[self.root]
        for step in self.steps:
            value = getattr(value, step.key) if step.attribute else value[step.key]
        return value

    def code(self, names: Mapping[int | str, str]) -> str:
        """The node as a Python expression, given the variable names of the arguments."""
        return names[self.root] + "".join(step.code() for step in self.steps)


def parse(text: str) -> Path:
    """Read a path; anything that is not one is a broken plan."""
    steps: list[Step] = []
    word = re.match(r"args|kwargs", text)
    at = word.end() if word else 0
    while word and at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            break
        key = found.group("key")
        steps.append(Step(found.group("name"), True) if key is None else Step(ast.literal_eval(key), False))
        at = found.end()
    root = steps[0].key if steps and not steps[0].attribute else None
    wanted = int if word and word.group() == "args" else str
    if word is None or at < len(text) or type(root) is not wanted:
        raise PlanError(f"the guard path {text!r} is not a path into a call; run 'compilot tune' again.")
    return Path(root, tuple(steps[1:]))
