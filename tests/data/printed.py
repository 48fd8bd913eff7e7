"""Tables of results as people see them. In: the text of a table, or the picture of one. Out: the figures of each line.

Covered: a speed-up is computed again from the two times beside it, as exactly as the printed digits allow. Not covered:
lines without a speed-up (eager itself, failed candidates).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple
from xml.etree import ElementTree

ROUNDING = 0.011  # two times of three digits each, 0.5 % at the worst, and the ratio's own last digit
SPEED = r" +(~?)([\d.]+)x(?: \[([\d.]+)-([\d.]+)\])?"
FIGURES = re.compile(rf"([\d.]+) +([\d.]+){SPEED}")
WITH_RATE = re.compile(rf"([\d.]+) +([\d.]+) +[\d.]+{SPEED}")  # samples/s stand between the times and the speed-up
LABEL = re.compile(r"(.+?)(?: +ok +| {2,}| (?=\d+\.\d))[\d.]+ ")  # a label may hold a number: "onnxruntime, 1 thread"
HEADS = re.compile(r"\bcold s +warm s +p50 ms +eager +(?:samples/s +|p99 ms +)?speed-up\b")


class Printed(NamedTuple):
    """What a line of the table says."""

    own_ms: float
    eager_ms: float
    screened: bool
    ratio: float
    low: float
    high: float
    rounding: float  # the most that cut digits may change the ratio of the two times, relative

    def follows(self) -> bool:
        """Whether the two times give the ratio, within its interval and the digits that are printed."""
        again = self.eager_ms / self.own_ms
        return self.low * (1 - self.rounding) <= again <= self.high * (1 + self.rounding)


def cut(number: str) -> float:
    """The most that rounding changed the printed number by, relative."""
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    return half / float(number)


def figures(text: str) -> dict[str, Printed]:
    """The lines of the table that name a speed-up, by the engine's label."""
    found = {}
    wanted = WITH_RATE if "samples/s" in text else FIGURES
    for line in text.splitlines():
        if told := wanted.search(line):
            own, eager, tilde, ratio, low, high = told.groups()
            label = LABEL.match(line[2:])[1]  # type: ignore[index]
            least, most = float(low or ratio), float(high or ratio)
            rounding = cut(own) + cut(eager) + cut(low or ratio)
            found[label] = Printed(float(own), float(eager), bool(tilde), float(ratio), least, most, rounding)
    return found


def agrees(ratio: float, own: float, eager: float, low: float | None = None, high: float | None = None) -> bool:
    """Whether the two times give the ratio, within rounding and its interval."""
    least, most = min(ratio, low or ratio), max(ratio, high or ratio)
    return least * (1 - ROUNDING) <= eager / own <= most * (1 + ROUNDING)


def svg_text(svg: str) -> str:
    """The lines of a terminal's picture, each piece in the column where it is drawn."""
    lines: dict[float, str] = defaultdict(str)
    for piece in ElementTree.fromstring(svg).iterfind(".//{*}text[@clip-path]"):
        text = (piece.text or "").replace("\N{NO-BREAK SPACE}", " ").rstrip("\n")
        if text:
            column = round(float(piece.attrib["x"]) * len(text) / float(piece.attrib["textLength"]))
            line = lines[float(piece.attrib["y"])]
            lines[float(piece.attrib["y"])] = line.ljust(column) + text
    return "\n".join(lines[height].rstrip() for height in sorted(lines))
