"""What a finding costs, in the same words in the terminal and on the page. Pure.

In: a finding and the number of calls of the drive. Out: "~59.1 µs per call (2 times)", "1.2 s to trace again".
"""

from __future__ import annotations

from compilot.records import Finding
from compilot.report.figures import time_text

_ONE_OFF = ("recompile", "recompile-limit")  # paid when it happens, not in every call; a finding's cost is per call


def cost_text(finding: Finding, calls: int) -> str:
    """The cost for people; "" where it is unknown."""
    if finding.cost_s is None:
        return ""
    if finding.kind in _ONE_OFF:
        times = f"{finding.count} times, " if finding.count > 1 else ""
        return f"{times}{time_text(finding.cost_s * max(calls, 1))} to trace again"
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    return f"~{time_text(finding.cost_s)} per call{times}"
