"""Pages as text. In: the name of a template and what is on it. Out: HTML, one style sheet, one script.

Everything from a run is escaped. The colours, tables and pictures are those of the report. No build step: the files
are served as they are.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from compilot._version import __version__
from compilot.ledger.words import commit_words, result_words, tried_words, when_words
from compilot.report import figures
from compilot.report.templating import environment_of


def page(name: str, base: str, **what: Any) -> str:
    """One page; base: the address that everything here lies below."""
    return _environment().get_template(f"{name}.html.j2").render(base=base, compilot=__version__, **what)


@functools.cache
def style() -> str:
    """The style sheet: the report's, and what only these pages have."""
    names = (("report", "doctor.css"), ("report", "report.css"), ("pages", "ui.css"))
    return "\n".join((files(f"compilot.{room}") / "templates" / name).read_text() for room, name in names)


@functools.cache
def script() -> str:
    """Shows a run that is under way."""
    return (files("compilot.pages") / "templates" / "ui.js").read_text()


@functools.cache
def _environment() -> jinja2.Environment:
    environment = environment_of("compilot.pages")
    environment.filters |= {
        "seconds": figures.time_text,
        "sentence": figures.sentence,
        "result": result_words,
        "tried": tried_words,
        "commit": commit_words,
        "when": when_words,
        "drawn": Markup,  # pictures are ours
    }
    return environment
