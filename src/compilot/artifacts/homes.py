"""Where a plan's artifacts lie. In: a plan object of this process. Out: the folder it came from, if that is known.
`Plan.path` asks here.

A plan as a file has its folder around it; as an object it has none, and the record must not hold a path of one machine.
A plan that was read from a file which others can change may be looked at; why it must not be applied is noted here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from compilot.records import Plan, encode, find_plans_with


class Home(NamedTuple):
    """Where a plan came from."""

    folder: Path
    name: str  # of the plan's file in it
    why_not: str = ""  # why it must not be applied; "": nobody else could have changed it


_homes: dict[bytes, Home] = {}


def remember(plan: Plan, folder: Path, why_not: str = "", *, name: str = "plan.json") -> Plan:
    """Note the folder of a plan that was made or read in this process; equal plans are the same plan."""
    _homes[encode(plan)] = Home(folder.absolute(), name, why_not)
    return plan


def home_of(plan: Plan) -> Path | None:
    """The folder that was noted; None: this plan came without one."""
    home = _homes.get(encode(plan))
    return None if home is None else home.folder


def path_of(plan: Plan) -> Path | None:
    """Where its file lies; None: this plan came without one."""
    home = _homes.get(encode(plan))
    return None if home is None else home.folder / home.name


def doubt_about(plan: Plan) -> str:
    """Why a plan of this process must not be applied, because of the file it was read from; "": it may be."""
    home = _homes.get(encode(plan))
    return "" if home is None else home.why_not


find_plans_with(path_of)
