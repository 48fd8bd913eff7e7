"""How users write what may be put into an input. In: "input_ids=0". Out: the name and the value. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

from compilot.errors import InputError

PadValue = bool | int | float
PadSpec = Mapping[str, PadValue]


def parse_pad(text: str) -> tuple[str, PadValue]:
    """The name and the value of "input_ids=0", as it is spelled on the command line."""
    name, sign, value = (part.strip() for part in text.partition("="))
    for read in (int, float):
        try:
            if name and sign:
                return name, read(value)
        except ValueError:
            continue
    raise InputError(f"cannot read the padding '{text}'; write NAME=VALUE, such as input_ids=0.")
