"""Where a plan's artifacts lie. In: a plan object of this process. Out: the folder it came from, if that is known.

A plan as a file has its folder around it; as an object it has none, and the record must not hold a path of one machine.
"""

from __future__ import annotations

from pathlib import Path

from compilot.records import Plan, encode

_homes: dict[bytes, Path] = {}


def remember(plan: Plan, folder: Path) -> Plan:
    """Note the folder of a plan that was made or read in this process; equal plans are the same plan."""
    _homes[encode(plan)] = folder.absolute()
    return plan


def home_of(plan: Plan) -> Path | None:
    """The folder that was noted; None: this plan came without one."""
    return _homes.get(encode(plan))
