"""Presets: a name for options that go together. In: a name. Out: exact public options, each with its reason.

This table is all that a preset is: giving its options by hand asks for the same. Options that the user gives count
more. Not covered: what the options mean (docs/tune.md), what is used in the end (explaining.py).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from compilot._choices import unknown
from compilot.records import OptionValue


class Preset(enum.StrEnum):
    """What a plan is made for."""

    DEV = "dev"
    RESEARCH = "research"
    PRODUCTION = "production"
    FLEET = "fleet"


class Chosen(NamedTuple):
    """An option of a preset."""

    value: OptionValue
    why: str


PRESETS: dict[Preset, dict[str, Chosen]] = {
    Preset.DEV: {
        "budget": Chosen("1m", "an answer while you wait, with a look for problems of the model"),
        "horizon": Chosen(2000, "the code changes soon, so a build must pay back within one session of work"),
    },
    Preset.RESEARCH: {
        "budget": Chosen("10m", "experiments run for hours"),
        "max_error": Chosen(1e-4, "results stay close to float64, whatever a faster way would save"),
    },
    Preset.PRODUCTION: {
        "budget": Chosen("20m", "tuned once for many calls; an honest p99 takes 660 calls of each finalist"),
        "objective": Chosen("p99", "a service is judged by its slow answers"),
    },
    Preset.FLEET: {
        "budget": Chosen("10m", "tuned once for many machines of one kind"),
        "objective": Chosen("startup", "processes start often, and the first answer counts"),
    },
}


def known_preset(name: Preset | str) -> Preset:
    """The preset of this name; InputError suggests one."""
    try:
        return Preset(name)
    except ValueError:
        raise unknown("preset", str(name), [preset.value for preset in Preset]) from None
