"""The report as Markdown, for a pull request or an issue. In: Page. Out: text.

The verdict, the honest sentence, the lines of Python and the table of candidates come first; what else fits into text
is folded. Pictures are on the HTML page. What comes from the run cannot break out of its cell or block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from compilot.report.figures import sentence
from compilot.report.page_records import Page, Section, Table
from compilot.report.page_tables import Again, Findings

OPEN = ("candidates",)  # sections whose tables are not folded
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def page_markdown(page: Page) -> str:
    """The whole text."""
    head = page.head
    parts = [f"## compilot: {plain(head.label)}", f"**{plain(head.verdict)}**", plain(sentence(head.sentence))]
    parts += [block("python", "\n".join(head.usage))] if head.usage else []
    parts += ["\n".join(f"- {plain(one.text)}" for one in head.remarks)] if head.remarks else []
    parts += [plain(head.missed), block("sh", head.missed_command)] if head.missed else []
    for section in page.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> list[str]:
    body = [*_body(section), *(_table(table) for table in section.tables)]
    if section.id in OPEN:
        return [*body, "\n".join(f"- {plain(note)}" for note in section.notes)]
    if not body:
        return []
    return [f"<details><summary>{plain(section.title)}</summary>", plain(section.about), *body, "</details>"]


def _body(section: Section) -> list[str]:
    """What is no table."""
    if isinstance(section.body, Findings) and section.body.findings:
        found = (f"{plain(sentence(one.explanation))} {plain(sentence(one.advice))}" for one in section.body.findings)
        return ["\n".join(f"{number}. {text}" for number, text in enumerate(found, 1))]
    if isinstance(section.body, Again) and section.body.command:
        return [block("sh", section.body.command)]
    return []


def _table(table: Table) -> str:
    lines = [
        _row(table.columns),
        _row("--:" if number in table.figures else "---" for number in range(len(table.columns))),
        *(_row(map(plain, row)) for row in table.rows),
    ]
    return f"**{plain(table.caption)}**\n\n" + "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Text that Markdown leaves as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def block(language: str, code: str) -> str:
    """A block of code, fenced by more ticks than there are in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}"
