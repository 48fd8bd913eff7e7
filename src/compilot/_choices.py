"""A name that is none of the known ones. In: what was given, what is known. Out: an InputError that suggests one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from compilot.errors import InputError

LEAST_PREFIX = 3  # letters: "int8" means "int8-dynamic", "o" means nothing


def unknown(kind: str, given: str, known: Iterable[str], then: str = "") -> InputError:
    """The error: "unknown engine 'onxruntime' (did you mean 'onnxruntime'?); known are: ...".

    then: what else helps, where nothing known is similar.
    """
    names = list(known)
    near = nearest(given, names)
    meant = f" (did you mean '{near}'?)" if near else ""
    more = f" {then}" if then and not near else ""
    return InputError(f"unknown {kind} '{given}'{meant}; known are: {', '.join(names)}.{more}")


def nearest(given: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant; None: nothing is like it, or several begin like it."""
    wanted = given.lower()
    starting = [name for name in names if len(wanted) >= LEAST_PREFIX and name.lower().startswith(wanted)]
    if starting:
        return starting[0] if len(starting) == 1 else None
    by_small_letters = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted, by_small_letters, 1)
    return by_small_letters[near[0]] if near else None


def names_in(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names from "a, b" or from a sequence of them."""
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(name for part in parts if (name := part.strip()))
