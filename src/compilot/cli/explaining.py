"""`compilot tune --explain`: the options that a run would have. In: an Explanation. Out: one line per option."""

from __future__ import annotations

from compilot.api.explaining import Explanation, UsedOption
from compilot.cli import common

NOT_GIVEN = {  # what holds where nothing is asked for
    "horizon": "so many calls that a start does not count",
    "concurrency": "1, only for --objective throughput",
    "engines": "every one found",
    "allow_precision": "none",
    "tolerance": "each precision's own",
    "max_memory": "what the machine can spare",
    "max_compile": "as long as the budget lasts",
    "max_error": "the usual limits: as close to float64 as eager",
}


def show(found: Explanation, *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        return common.print_json(common.document(found))
    print(f"preset: {found.preset or 'none'}")
    for one in found.options:
        print(line(one))
    return None


def line(one: UsedOption) -> str:
    """ "--budget           preset   10m (experiments run for hours)"."""
    why = f" ({one.why})" if one.why else ""
    return f"  {one.option:<19}{one.source:<9}{_value(one)}{why}"


def _value(one: UsedOption) -> str:
    if one.value is None:
        return NOT_GIVEN[one.keyword]
    if isinstance(one.value, bool):
        return "on" if one.value else "off"
    return ",".join(one.value) if isinstance(one.value, tuple) else str(one.value)
