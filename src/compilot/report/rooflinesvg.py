"""The roofline picture: what this machine could do, and where eager and the plan stand below it.

In: a `Roofline`. Out: SVG text, both axes logarithmic: operations per byte to the right, operations per second upwards.
Colours come from the page's CSS. Pure.
"""

from __future__ import annotations

import math
from html import escape

from compilot.diagnose.report_records import Roofline, RooflinePoint
from compilot.report.doctor_words import roof_text
from compilot.report.figures import rate_text, time_text

WIDTH, HEIGHT = 640.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 20.0, 20.0, 48.0
LETTER = 7.0  # width of a letter at 12 px in bold, roughly


class _Axes:
    """From values to places: decades that hold the roof's corner and every point."""

    def __init__(self, xs: list[float], ys: list[float]) -> None:
        self.x0, self.x1 = _decades(xs)
        self.y0, self.y1 = _decades(ys)

    def x(self, value: float) -> float:
        return LEFT + (math.log10(value) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)


def _decades(values: list[float]) -> tuple[int, int]:
    return math.floor(math.log10(min(values)) - 0.2), math.ceil(math.log10(max(values)) + 0.05)


def roofline_svg(roof: Roofline) -> str:
    """The picture, "" when the work is not known."""
    if not roof.points or not roof.flops or not roof.least_bytes:
        return ""
    corner = roof.peak_flops_per_s / roof.bandwidth_bytes_per_s
    intensity = roof.flops / roof.least_bytes
    axes = _Axes([corner / 10, corner * 10, intensity], [*(p.flops_per_s for p in roof.points), roof.peak_flops_per_s])
    body = [*_grid(axes), _roof(axes, roof, corner), *_points(axes, roof, intensity)]
    head = f'<svg class="roofline" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="roofline">'
    return head + "".join(body) + "</svg>"


def _grid(axes: _Axes) -> list[str]:
    found = []
    for decade in range(axes.x0, axes.x1 + 1):
        x = axes.x(10.0**decade)
        found.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        found.append(_text("tick", x, HEIGHT - BOTTOM + 16, "middle", f"{10.0**decade:g}"))
    for decade in range(axes.y0, axes.y1 + 1):
        y = axes.y(10.0**decade)
        found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = rate_text(10.0**decade, "FLOP/s").replace(".00", "").replace(".0 ", " ")
        found.append(_text("tick", LEFT - 8, y + 4, "end", label))
    return [*found, _text("tick", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "middle", "operations per byte")]


def _roof(axes: _Axes, roof: Roofline, corner: float) -> str:
    peak, bandwidth = roof.peak_flops_per_s, roof.bandwidth_bytes_per_s
    start = max(10.0**axes.x0, 10.0**axes.y0 / bandwidth)
    places = [(start, start * bandwidth), (corner, peak), (10.0**axes.x1, peak)]
    line = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in places)
    words = f"{rate_text(peak, 'FLOP/s')} peak ({roof.dtype})"
    middle = math.sqrt(start * corner)  # half way up the slope
    slope = (axes.x(middle) - 10, axes.y(middle * bandwidth) - 4)
    return (
        f'<polyline class="roof" points="{line}"/>'
        + _text("roof-label", WIDTH - RIGHT - 4, axes.y(peak) - 7, "end", words)
        + _text("roof-label", *slope, "end", f"{rate_text(bandwidth, 'B/s')} memory")
    )


def _points(axes: _Axes, roof: Roofline, intensity: float) -> list[str]:
    x = axes.x(intensity)
    limit = min(roof.peak_flops_per_s, intensity * roof.bandwidth_bytes_per_s)
    lowest = min(point.flops_per_s for point in roof.points)
    found = [f'<line class="reach" x1="{x:.1f}" x2="{x:.1f}" y1="{axes.y(limit):.1f}" y2="{axes.y(lowest):.1f}"/>']
    return found + [_point(axes, x, point, "plan" if number else "eager") for number, point in enumerate(roof.points)]


def _point(axes: _Axes, x: float, point: RooflinePoint, kind: str) -> str:
    y = axes.y(point.flops_per_s)
    room = (WIDTH - RIGHT - x - 12) > len(point.label) * LETTER
    anchor, shift = ("start", 12) if room else ("end", -12)
    words = f"{point.label}: {time_text(point.call_s)}, {roof_text(point)}"
    dot = f'<circle class="point {kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(words)}</title></circle>'
    return dot + _text("point-label", x + shift, y + 4, anchor, point.label)


def _text(kind: str, x: float, y: float, anchor: str, words: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
