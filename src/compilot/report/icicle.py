"""The compile-time icicle: an SVG picture of torch's own timeline, written by hand so that it works offline.

In: the spans of a compile, parents first. Out: SVG text: time runs to the right, what a phase calls hangs below it.
Colours are CSS classes (one per stage), so that the page's light and dark themes apply. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from compilot.diagnose.report_records import Span
from compilot.report.figures import time_text

WIDTH, ROW, GAP = 960.0, 24.0, 1.0
LETTER = 6.3  # width of a letter at 11 px, roughly
SMALLEST = 1.2  # narrower phases are left out: nobody could see or point at them
DEEPEST = 12


def stage_class(stage: str) -> str:
    """ "C++ compile" -> "stage-c-compile"."""
    words = "".join(letter if letter.isalnum() else " " for letter in stage.lower()).split()
    return "stage-" + "-".join(words)


def icicle(spans: Sequence[Span], total_s: float) -> str:
    """The picture, "" when there is nothing to draw."""
    if not spans or total_s <= 0:
        return ""
    scale = WIDTH / total_s
    shown = [span for span in spans if span.wall_s * scale >= SMALLEST and span.depth < DEEPEST]
    height = (max((span.depth for span in shown), default=0) + 2) * ROW
    body = [_box("the whole first call", "whole", 0.0, WIDTH, 0, total_s)]
    body += [_span(span, scale) for span in shown]
    label = f"compile time, {time_text(total_s)} from left to right"
    head = f'<svg class="icicle" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return head + "".join(body) + "</svg>"


def _span(span: Span, scale: float) -> str:
    start = min(span.start_s * scale, WIDTH)
    width = min(span.wall_s * scale, WIDTH - start)
    return _box(readable(span.name), stage_class(span.stage), start, width, span.depth + 1, span.wall_s)


def readable(name: str) -> str:
    """torch's name of a phase without its plumbing."""
    return (
        name.replace(".__init__", " set-up")
        .replace("_recursive_", "")
        .replace("<locals>.", "")
        .replace("_", " ")
        .replace("pass.", "")
    )


def _box(name: str, kind: str, x: float, width: float, row: int, wall_s: float) -> str:
    y = row * ROW
    title = f"<title>{escape(name)}: {time_text(wall_s)}</title>"
    box = f'<rect class="{kind}" x="{x:.1f}" y="{y:.0f}" width="{max(width - GAP, 0.5):.1f}" height="{ROW - GAP:.0f}"/>'
    return f"<g>{title}{box}{_label(name, x, y, width, wall_s)}</g>"


def _label(name: str, x: float, y: float, width: float, wall_s: float) -> str:
    room = int((width - 8) / LETTER)
    full = f"{name} {time_text(wall_s)}"
    text = full if len(full) <= room else name if len(name) <= room else name[: room - 1] + "…"
    return f'<text x="{x + 4:.1f}" y="{y + ROW / 2 + 3:.0f}">{escape(text)}</text>' if room >= 4 else ""
