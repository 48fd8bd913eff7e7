"""`compilot.explain`: which options a run would have, and where each comes from. In: what `tune` would be given.

Out: an Explanation. Nothing is started, no model is looked at, torch is not imported. What is refused by `tune` is
refused here, except engines that are known and cannot be used here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compilot._durations import spell_duration
from compilot.api.asking import Given, options_before, with_given, with_preset
from compilot.api.presets import PRESETS, Chosen, Preset, known_preset
from compilot.artifacts.rundir import RunDir
from compilot.records import Objective, OptionValue, Precision, Record

if TYPE_CHECKING:
    from compilot.tuning.options import TuneOptions

YOURS, PRESET, RUN, DEFAULT = "yours", "preset", "run", "default"


class UsedOption(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One option of a run."""

    option: str  # "--max-compile"
    keyword: str  # "max_compile"
    value: OptionValue | tuple[str, ...] | None  # as `tune` takes it; None: nothing is asked for
    source: str  # "yours", "preset", "run" (that is resumed) or "default"
    why: str = ""  # the preset's reason


class Explanation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a run would be asked for."""

    preset: str | None  # None: there is none
    options: tuple[UsedOption, ...]


def explain(
    *,
    preset: Preset | str | None = None,
    resume: str | os.PathLike[str] | None = None,
    budget: str | float | None = None,
    objective: Objective | str | None = None,
    horizon: int | None = None,
    concurrency: int | None = None,
    engines: str | Sequence[str] | None = None,
    allow_precision: str | Sequence[Precision | str] | None = None,
    tolerance: float | None = None,
    max_memory: str | int | None = None,
    max_compile: str | float | None = None,
    max_error: float | None = None,
    prior: bool | None = None,
) -> Explanation:
    """Which options `tune` would use if it were given these, and where each comes from; nothing is started.

    What you give counts most, then the preset, then the run that is resumed, then the defaults.
    """
    given = Given(
        *(budget, objective, horizon, concurrency, engines),
        *(allow_precision, tolerance, max_memory, max_compile, max_error),
        prior=prior,
    )
    before = options_before(None if resume is None else RunDir(Path(resume).absolute()).last_header())
    offered = with_preset(before, preset)
    used = with_given(offered, given)
    reasons = PRESETS[known_preset(preset)] if preset is not None else {}
    sources = _sources(given, reasons, before, offered, used)
    return Explanation(
        preset=used.preset,
        options=tuple(
            UsedOption(
                option=f"--{keyword.replace('_', '-')}",
                keyword=keyword,
                value=value,
                source=sources[keyword],
                why=reasons[keyword].why if sources[keyword] == PRESET else "",
            )
            for keyword, value in spelled(used).items()
        ),
    )


def spelled(options: TuneOptions) -> dict[str, OptionValue | tuple[str, ...] | None]:
    """Each option as `tune` takes it."""
    longest = options.max_compile_s
    return {
        "budget": spell_duration(options.budget_s),
        "objective": options.goal.objective.value,
        "horizon": options.goal.horizon_calls,
        "concurrency": options.goal.concurrency if options.goal.objective is Objective.THROUGHPUT else None,
        "engines": options.engines or None,
        "allow_precision": tuple(precision.value for precision in options.allow_precision) or None,
        "tolerance": options.tolerance,
        "max_memory": options.max_memory_bytes,
        "max_compile": None if longest is None else spell_duration(longest),
        "max_error": options.max_error,
        "prior": options.prior,
    }


def _sources(
    given: Given, preset: Mapping[str, Chosen], before: TuneOptions, offered: TuneOptions, used: TuneOptions
) -> dict[str, str]:
    """Of each option, who decided on the value that is used; what did not fit was decided by nobody."""
    ours, of_run, of_preset = given._asdict(), spelled(before), spelled(offered)
    default = spelled(options_before(None))
    found = {}
    for keyword, value in spelled(used).items():
        if ours[keyword] is not None:
            found[keyword] = YOURS
        elif keyword in preset and value == of_preset[keyword]:
            found[keyword] = PRESET
        else:
            found[keyword] = RUN if value == of_run[keyword] != default[keyword] else DEFAULT
    return found
