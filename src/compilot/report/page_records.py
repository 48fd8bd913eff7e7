"""What the report's page is made of, before it is HTML or Markdown: plain text, tables and pictures.

In: nothing. Out: named tuples. A section without figures does not exist: whoever makes one returns None instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from compilot.diagnose.report_records import DoctorReport
from compilot.records import JournalLine, Plan
from compilot.report.chart_colours import KeyRow
from compilot.report.course import Course
from compilot.report.data import RunData
from compilot.report.sentences import Remark
from compilot.report.svg import Picture


class View(NamedTuple):
    """Everything that a section may draw from."""

    data: RunData
    lines: tuple[JournalLine, ...]  # of the journal
    plan: Plan | None  # None: the run has none yet, or compared without deciding
    course: Course
    examined: DoctorReport | None  # the run's own examination; None: there was no time for one
    doctor_page: str  # address of its page from the report on, "" where there is none


class Table(NamedTuple):
    """A table; every cell is text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: frozenset[int] = frozenset()  # numbers of the columns that hold figures
    marked: frozenset[int] = frozenset()  # numbers of the rows that matter most
    folded: bool = False  # it opens when asked


class Section(NamedTuple):
    """One part of the page."""

    id: str
    title: str
    about: str  # what it shows, in a sentence or two
    picture: Picture | None = None
    legend: tuple[tuple[str, str], ...] = ()  # (class of a colour, what has it)
    key: tuple[KeyRow, ...] = ()  # what the numbers on the picture stand for
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    body: Any = None  # for what is neither; the template knows it by the section's id


class Tile(NamedTuple):
    """One figure of the first screen."""

    name: str
    figure: str
    below: str = ""


class Head(NamedTuple):
    """The first screen."""

    label: str  # of the model
    target: str
    when: str
    kind: str  # "use", "keep" or "open"
    verdict: str  # in a few words
    sentence: str  # the honest one
    usage: tuple[str, ...]  # lines of Python, () without a plan
    usage_about: str
    tiles: tuple[Tile, ...]
    remarks: tuple[Remark, ...]
    missed: str  # what the budget did not reach, "" for nothing
    missed_command: str


class Page(NamedTuple):
    """The whole report."""

    run_dir: Path
    compilot: str  # version that began the run
    head: Head
    sections: tuple[Section, ...]
