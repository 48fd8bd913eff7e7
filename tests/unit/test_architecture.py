"""ARCHITECTURE.md is one page and true: its rooms are there, and each hop is a call in the code."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
LONGEST = 10  # hops from a command to the clock
LINES_OF_A_PAGE = 90


def paths() -> dict[str, list[list[tuple[str, str]]]]:
    """By name: chains of (arrow before it, function)."""
    block = PAGE.split("## Hops", 1)[1].split("```")[1]
    found: dict[str, list[list[tuple[str, str]]]] = {}
    for name, text in re.findall(r"^(\w+): (.*?)(?=^\w+:|\Z)", block, re.S | re.M):
        chains = [re.findall(r"([→⇢]?)\s*([\w.]+\w)", part) for part in text.split("then")]
        found[name] = chains
    return found


def thing(name: str) -> Any:
    """The function or class of a dotted name below `compilot`."""
    words = name.split(".")
    for cut in range(len(words) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(["compilot", *words[:cut]]))
        except ModuleNotFoundError:
            continue
        for word in words[cut:]:
            found = getattr(found, word)
        return found
    raise LookupError(name)


def hops() -> list[tuple[str, str, str]]:
    return [
        (before, arrow, after)
        for chains in paths().values()
        for chain in chains
        for (_, before), (arrow, after) in itertools.pairwise(chain)
    ]


def test_there_are_four_paths() -> None:
    assert set(paths()) == {"tune", "compile", "load", "doctor"}
    assert len(hops()) > 15


@pytest.mark.parametrize(("before", "arrow", "after"), hops(), ids=lambda part: str(part))
def test_each_hop_is_a_call_in_the_code(before: str, arrow: str, after: str) -> None:
    caller, callee = inspect.getsource(thing(before)), thing(after)
    assert callable(callee)
    if arrow == "→":
        assert re.search(rf"\b{after.rpartition('.')[2]}\b", caller.split(":", 1)[1]), f"{before} does not call {after}"
    else:  # over the pipe: a request type of the worker's table
        from compilot.trials.steps import HANDLERS

        assert callee in HANDLERS.values()


def test_from_the_command_to_the_clock_it_is_ten_hops_at_the_most() -> None:
    [chain] = paths()["tune"]
    assert len(chain) - 1 <= LONGEST
    assert chain[0][1] == "cli.tune.tune"
    assert chain[-1][1] == "measure.sampling.time_batch"


def test_every_room_is_on_the_page_and_in_the_contract() -> None:
    rooms = {p.name for p in (ROOT / "src" / "compilot").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    told = set(re.findall(r"`(\w+)/`", PAGE.split("## Rooms")[1].split("## Hops")[0]))
    assert rooms <= told
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [layers] = [c for c in config["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    assert layers["exhaustive"]
    assert "ignore_imports" not in layers
    assert rooms <= {room.strip() for layer in layers["layers"] for room in layer.split("|")}


def test_it_is_one_page() -> None:
    assert len(PAGE.splitlines()) <= LINES_OF_A_PAGE
