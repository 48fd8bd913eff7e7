"""A user's project of several files, imported as a program would, and forgotten again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import nn

NET = '''
"""A model and what it calls."""
import functools
from types import SimpleNamespace

import torch
from torch import nn

import helpers
import pkg.sub
from helpers import shift as moved

FACTOR = 2.0
TABLE = torch.tensor([1.0, 2.0, 3.0])
SETTINGS = {"scale": [1.0, {"deep": 4.0}]}
OPTIONS = SimpleNamespace(gain=1.5)


def double(x):
    return x * FACTOR


def decorated(fn):
    @functools.wraps(fn)
    def inner(*args):
        return fn(*args) + 0.25
    return inner


def make(offset):
    def added(x):
        return x + offset
    return added


add_one = make(1.0)
halved = functools.partial(torch.mul, other=0.5)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def with_default(x, by=3.0, *, more=0.5):
    return x * by + more


class Base(nn.Module):
    def finish(self, x):
        return x - 1.0


class Block(Base):
    RATE = 0.125

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(3, 3)

    @staticmethod
    def fixed(x):
        return x + 0.0625

    @classmethod
    def rated(cls, x):
        return x * cls.RATE

    @property
    def bias(self):
        return 7.0

    @decorated
    def forward(self, x):
        """Runs."""
        x = double(x) + helpers.scale(x) + pkg.sub.leaf(x) + moved(x)
        x = add_one(halved(with_default(x))) + TABLE + SETTINGS["scale"][1]["deep"] * OPTIONS.gain
        x = self.rated(self.fixed(x)) + self.bias
        alias = helpers
        x = [v + 1 for v in x] if not even(4) else alias.last(x)
        from helpers_late import late
        return self.finish(late(x))
'''
FILES = {
    "net.py": NET,
    "helpers.py": """
LIMIT = 5.0


def scale(x):
    return x * 1.5


def shift(x):
    return x + LIMIT


def last(x):
    return x * 0.75


def unused(x):
    return x * 1000
""",
    "helpers_late.py": "def late(x):\n    return x * 0.375\n",
    "pkg/__init__.py": "",
    "pkg/sub.py": "def leaf(x):\n    return x * 0.875\n",
}
NAMES = ("net", "helpers", "helpers_late", "pkg", "pkg.sub", "moved_net")


def changed(file: str, old: str, new: str) -> dict[str, str]:
    """The project's files with one piece of text replaced."""
    assert FILES[file].count(old) == 1, (file, old)
    return {**FILES, file: FILES[file].replace(old, new)}


@contextmanager
def imported(folder: Path, files: Mapping[str, str] = FILES, module: str = "net") -> Iterator[type[nn.Module]]:
    """The class of the model, while its project is on sys.path."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(module).Block
    finally:
        sys.path.remove(str(folder))
        for name in NAMES:
            sys.modules.pop(name, None)
