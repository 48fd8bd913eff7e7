"""Small SVG pictures, written by hand: no package, no script, milliseconds. In: places and words. Out: SVG text.

Colours are CSS classes of the page, so that its light and dark themes apply: `ink`, `quiet`, `grid`, and one class for
each colour of the palette. A picture is drawn twice, for wide and for narrow screens, and the page shows the one that
fits; both say in words what is on them. Covered: axes with round ticks, marks, rows with names. Not covered: what is
drawn (picture_*.py), colours (chart_colours.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from compilot.report.chart_colours import NEUTRAL, PALETTE
from compilot.report.chart_labels import Axis

WIDE, NARROW = 960.0, 334.0  # a card on a desk, and one on a telephone of 390 pixels
LETTER = 6.4  # pixels of a letter of 12 px, about
FEWEST_TICKS = 3  # of a logarithmic axis: a short one has none of its own
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between ticks, times a power of ten


class Picture(NamedTuple):
    """One picture for two widths of screen."""

    wide: str
    narrow: str


class Frame(NamedTuple):
    """The room of a picture around its axes, in pixels."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    @property
    def across(self) -> float:
        """Length of the axis to the right."""
        return self.width - self.left - self.right

    @property
    def up(self) -> float:
        """Length of the axis upwards."""
        return self.height - self.top - self.bottom

    @property
    def is_narrow(self) -> bool:
        """Whether it is for a narrow screen."""
        return self.width < (WIDE + NARROW) / 2

    def x(self, axis: Axis, value: float) -> float:
        """Where a value stands."""
        return self.left + axis.pixel(value)

    def y(self, axis: Axis, value: float) -> float:
        """Where a value stands; downwards, as pixels count."""
        return self.height - self.bottom - axis.pixel(value)


def both(draw: Callable[[float], str]) -> Picture:
    """A picture at both widths."""
    return Picture(draw(WIDE), draw(NARROW))


def picture(kind: str, frame: Frame, body: Iterable[str], words: str) -> str:
    """The whole picture; words: what it shows, for those who cannot see it."""
    size = f'viewBox="0 0 {frame.width:.0f} {frame.height:.0f}" width="{frame.width:.0f}" height="{frame.height:.0f}"'
    return f'<svg class="{kind}" {size} role="img" aria-label="{escape(words)}">{"".join(body)}</svg>'


def colour_class(colour: str) -> str:
    """The page's class for a colour of the palette."""
    return "cn" if colour == NEUTRAL else f"c{PALETTE.index(colour)}"


# --------------------------------------------------------------------------------------------------------------- marks


def text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def rect(kind: str, x: float, y: float, width: float, height: float, words: str = "") -> str:
    """A box; words: what the pointer shows."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0.5):.1f}"'
    return f'<rect class="{kind}" {place} rx="2">{_title(words)}</rect>'


def dot(kind: str, x: float, y: float, radius: float, words: str = "") -> str:
    """A round mark."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{_title(words)}</circle>'


def polyline(kind: str, places: Iterable[tuple[float, float]]) -> str:
    """A line through places."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'


def diamond(kind: str, x: float, y: float, size: float, words: str = "") -> str:
    """A square on its corner."""
    corners = ((x, y - size), (x + size, y), (x, y + size), (x - size, y))
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
    return f'<polygon class="{kind}" points="{points}">{_title(words)}</polygon>'


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


# ---------------------------------------------------------------------------------------------------------------- axes


def round_ticks(axis: Axis, number: int) -> list[float]:
    """About so many round values of a linear axis."""
    rough = (axis.high - axis.low) / max(number, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in STEPS if step * power >= rough * 0.999)
    first = math.ceil(axis.low / step - 1e-9)
    found = [round(n * step, 12) for n in range(first, first + 50)]
    return [tick for tick in found if tick <= axis.high + step * 1e-9]


def ticks_of(axis: Axis) -> list[float]:
    """Round values with room for their words."""
    room = max(2, int(axis.length / 70))
    found = axis.ticks() if axis.log else round_ticks(axis, room)
    if axis.log and len(found) < FEWEST_TICKS:
        found = round_ticks(axis, min(room, 4))
    while len(found) > room + 1:
        found = found[::2]
    return found


def along(frame: Frame, axis: Axis, words: str, say: Callable[[float], str] = "{:,g}".format) -> list[str]:
    """The axis at the bottom: lines upwards, their values, what they are."""
    foot = frame.height - frame.bottom
    found = []
    for tick in ticks_of(axis):
        x = frame.x(axis, tick)
        found += [line("grid", x, frame.top, x, foot), text("tick", x, foot + 16, say(tick), "middle")]
    return [*found, text("tick", frame.left + frame.across / 2, foot + 34, words, "middle")]


def upwards(frame: Frame, axis: Axis, words: str, say: Callable[[float], str] = "{:,g}".format) -> list[str]:
    """The axis on the left: lines to the right and their values; what they are stands above."""
    found = [text("tick", 0, frame.top - 8, words)]
    for tick in axis.ticks() if axis.log else round_ticks(axis, 6):
        y = frame.y(axis, tick)
        found += [line("grid", frame.left, y, frame.width - frame.right, y)]
        found += [text("tick", frame.left - 6, y + 4, say(tick), "end")]
    return found


def seconds_tick(value: float) -> str:
    """ "0.5 s", "20 ms", "0"."""
    if value == 0:
        return "0"
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


# ---------------------------------------------------------------------------------------------------------------- rows

NAMES = 250.0  # pixels for the names of rows on a wide screen; on a narrow one they stand above


class Rows(NamedTuple):
    """One line for each name, with an axis below."""

    frame: Frame
    names: tuple[str, ...]

    def y(self, number: int) -> float:
        """The middle of a row's own strip."""
        return self.frame.top + (number + 0.5) * self.height + (9 if self.frame.is_narrow else 0)

    @property
    def height(self) -> float:
        """Of one row."""
        return 42.0 if self.frame.is_narrow else 26.0

    def labels(self, strong: Sequence[bool]) -> list[str]:
        """The names, those that matter in bold."""
        found = []
        for number, (name, bold) in enumerate(zip(self.names, strong, strict=True)):
            kind = "name strong" if bold else "name"
            if self.frame.is_narrow:
                found.append(text(kind, 0, self.y(number) - 14, clipped(name, self.frame.width)))
            else:
                found.append(text(kind, 0, self.y(number) + 4, clipped(name, NAMES - 8)))
        return found


def rows_of(names: Sequence[str], width: float, right: float = 14.0) -> Rows:
    """Room for one line for each name."""
    narrow = width < (WIDE + NARROW) / 2
    height = len(names) * (42.0 if narrow else 26.0)
    return Rows(Frame(width, height + 58, 6.0 if narrow else NAMES, right, 10.0, 44.0), tuple(names))


def clipped(words: str, width: float) -> str:
    """Words that fit into so many pixels."""
    room = int(width / LETTER)
    return words if len(words) <= room else words[: max(room - 1, 1)] + "…"
