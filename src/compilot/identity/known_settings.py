"""Which settings of which library's models are read only in calls with a certain input, and why that is known.

In: a setting's path. Out: the rule about it. No torch: differences are told without it. Not covered: where a model
holds the setting, and whether the rule may be used for it (input_settings.py).
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """A setting of a library's models, and the input without which none of their code reads it."""

    package: str
    owner: str  # the model's attribute that holds the setting
    name: str
    input: str

    @property
    def path(self) -> str:
        return f"{self.owner}.{self.name}"


RULES = (
    # A call with labels notes here which loss it chose, and the next one reads it. In transformers' models every use
    # is below a check for labels, or in the loss that is called there.
    Rule("transformers", "config", "problem_type", "labels"),
)


def input_of(path: str) -> str:
    """The input without which the setting is not read; "": nobody knows such a setting."""
    return next((rule.input for rule in RULES if rule.path == path), "")
