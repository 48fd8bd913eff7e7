"""What a run is asked for, checked before any work. In: options as the user gives them, a preset, an earlier run.

Out: TuneOptions, or InputError in one sentence. What the user gives counts most, then the preset that is given with it,
then what an earlier part of the run was asked for, then the defaults. What no longer fits (the horizon of a preset
beside another objective) is left out; what the user gives and does not fit is refused. No torch here, and nothing is
started. Not covered: whether an engine can be used here (candidates/spaces.py), the model itself (given.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from compilot._bytes import parse_size
from compilot._choices import names_in, unknown
from compilot._durations import parse_duration
from compilot.api.presets import PRESETS, Preset, known_preset
from compilot.errors import InputError
from compilot.records import Objective, Precision, RunHeader

if TYPE_CHECKING:
    from compilot.tuning.options import TuneOptions


class Given(NamedTuple):
    """Options as `tune` takes them; None: not given."""

    budget: str | float | None = None
    objective: Objective | str | None = None
    horizon: int | None = None
    concurrency: int | None = None
    engines: str | Sequence[str] | None = None
    allow_precision: str | Sequence[Precision | str] | None = None
    tolerance: float | None = None
    max_memory: str | int | None = None
    max_compile: str | float | None = None
    max_error: float | None = None
    prior: bool | None = None


def options_for(given: Given, preset: Preset | str | None = None, earlier: RunHeader | None = None) -> TuneOptions:
    """What a run is asked for; earlier: the header of the run that is resumed."""
    return with_given(with_preset(options_before(earlier), preset), given)


def options_before(earlier: RunHeader | None) -> TuneOptions:
    """What holds where nothing is given."""
    from compilot.tuning.options import TuneOptions, options_of

    return TuneOptions() if earlier is None else options_of(earlier)


def with_preset(base: TuneOptions, preset: Preset | str | None) -> TuneOptions:
    """The same with the options of a preset."""
    if preset is None:
        return base
    name = known_preset(preset)
    values: dict[str, Any] = {option: chosen.value for option, chosen in PRESETS[name].items()}
    return with_given(base, Given(**values))._replace(preset=name.value)


def with_given(base: TuneOptions, given: Given) -> TuneOptions:
    """The same with what is given."""
    from compilot.engines.registry import refuse_unknown
    from compilot.tuning.goals import make_goal

    if given.engines is not None:
        base = base._replace(engines=tuple(dict.fromkeys(names_in(given.engines))))
        for name in base.engines:
            refuse_unknown(name)
    found: dict[str, Any] = {
        "budget_s": _seconds(given.budget, "the budget"),
        "max_memory_bytes": parse_size(given.max_memory) if isinstance(given.max_memory, str) else given.max_memory,
        "max_compile_s": _seconds(given.max_compile, "the longest cold start (max_compile)"),
        "max_error": _relative(given.max_error),
        "prior": _switch(given.prior),
    }
    base = base._replace(**{name: value for name, value in found.items() if value is not None})
    goal = make_goal(given.objective, given.horizon, given.concurrency, before=base.goal)
    return _with_precisions(base._replace(goal=goal), given.allow_precision, given.tolerance)


def _with_precisions(
    base: TuneOptions, allow_precision: str | Sequence[Precision | str] | None, tolerance: float | None
) -> TuneOptions:
    """The same with lower precisions; a tolerance of before stays only while there are any."""
    allowed = base.allow_precision if allow_precision is None else names_in(allow_precision)
    if tolerance is None and allowed:
        tolerance = base.tolerance
    return base._replace(**_precision_options(allowed, tolerance))


def _precision_options(allowed: Sequence[Precision | str], tolerance: float | None) -> dict[str, Any]:
    """The options that open lower precisions, checked."""
    known = [p for p in Precision if p is not Precision.AS_IS]
    if odd := [name for name in allowed if name not in known]:
        raise unknown("precision", odd[0], known)
    if tolerance is not None and not allowed:
        raise InputError("a tolerance is for lower precisions only; say which of them may be used (allow_precision).")
    if tolerance is not None and not 0.0 < tolerance < 1.0:
        raise InputError("the tolerance is a relative error between 0 and 1, such as 0.02 for 2 %.")
    return {"allow_precision": tuple(dict.fromkeys(map(Precision, allowed))), "tolerance": tolerance}


def _seconds(given: str | float | None, what: str) -> float | None:
    """Seconds, or text such as "90s"; None: not given."""
    if given is None:
        return None
    seconds = parse_duration(given, what) if isinstance(given, str) else _number(given)
    if not 0.0 < seconds < math.inf:
        raise InputError(f"{what} must be more than zero; give seconds, or text such as '90s' or '5m'.")
    return seconds


def _relative(given: float | None) -> float | None:
    if given is not None and not 0.0 < _number(given) < 1.0:
        raise InputError(
            f"the largest error (max_error) is a relative error between 0 and 1, such as 1e-4; not {given!r}."
        )
    return given


def _switch(given: object) -> object:
    if given is not None and not isinstance(given, bool):
        raise InputError(f"whether earlier runs order the trials (prior) is True or False; not {given!r}.")
    return given


def seconds(given: str | float, what: str) -> float:
    """A duration that must be given: seconds, or text such as "90s"."""
    found = _seconds(given, what)
    assert found is not None  # only None becomes None
    return found


def _number(given: object) -> float:
    """Python callers may pass anything; what is no number compares as none."""
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
