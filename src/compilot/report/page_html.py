"""The report as one HTML page that needs nothing else: no network, no scripts, no fonts. In: Page. Out: text.

Everything from the run is escaped; the page forbids the browser to load anything, and its one link, to the doctor's
page of the same run, is relative. Covered: light and dark, narrow screens, keyboard, screen readers, print.
"""

from __future__ import annotations

from pathlib import Path

from compilot.report.doctor_html import template
from compilot.report.page_records import Page


def page_html(page: Page) -> str:
    """The page, well under 2 MB."""
    return template("report.html.j2").render(page=page, root=_root(page.head.target))


def _root(target: str) -> Path | None:
    """The folder of the user's own file: places below it are written without it."""
    file = target.rpartition(":")[0]
    return Path(file).parent if file.endswith(".py") else None
