"""Every help page: what to give to an option or an argument is a plain word, and each word is explained once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from compilot.api.presets import Preset
from compilot.cli.main import app
from compilot.records import Objective

WORD = re.compile(r"[A-Z]{1,10}(\.\.\.)?")
FLAGS = re.compile(r"  (?P<flags>-\w, )?--[a-z-]+( / --[a-z-]+)?(?P<value> \S+)?(  .*)?")


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


PAGES = dict(commands(typer.main.get_command(app)))
LEAVES = {words: command for words, command in PAGES.items() if not hasattr(command, "commands")}


def page(words: tuple[str, ...]) -> str:
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0
    return shown.stdout


def section(text: str, title: str) -> list[str]:
    """The first lines of a section's rows."""
    found = re.search(rf"^{title}:\n((?:  .*\n)*)", text, re.MULTILINE)
    return [] if found is None else re.findall(r"^  \S.*$", found[1], re.MULTILINE)


def test_every_command_is_looked_at() -> None:
    assert {("tune",), ("pack",), ("store", "ls"), ("cache", "prune"), ("keys", "trust")} <= LEAVES.keys()
    assert len(LEAVES) >= 15


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_no_types_of_python_and_no_brackets_around_words(words: tuple[str, ...]) -> None:
    text = page(words)
    assert not re.findall(r"<\w[^>]*>|\{\w*\}|\b(?:list|tuple|dict)\[|int range", text)


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_what_options_take_is_a_plain_word(words: tuple[str, ...]) -> None:
    rows = section(page(words), "Options")
    assert rows
    for row in rows:
        matched = FLAGS.fullmatch(row)
        assert matched is not None, row
        assert matched["value"] is None or WORD.fullmatch(matched["value"].strip()), row


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_options_and_arguments_say_what_they_take(words: tuple[str, ...]) -> None:
    for one in LEAVES[words].params:
        assert getattr(one, "is_flag", False) or WORD.fullmatch(one.metavar or ""), one.name


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_usage_names_the_arguments_as_the_list_does(words: tuple[str, ...]) -> None:
    text = page(words)
    usage = re.search(r"^Usage: .*? \[OPTIONS\](.*)$", text, re.MULTILINE)
    assert usage is not None
    named = [word.strip("[]") for word in usage[1].split()]
    assert named == [row.split()[0] for row in section(text, "Arguments")]
    assert len(set(named)) == len(named)


def test_choices_are_in_the_text() -> None:
    text = " ".join(page(("tune",)).split())
    assert f"chosen for: {', '.join(Objective)}." in text
    assert f"go together: {', '.join(Preset)}." in text


def test_a_missing_argument_is_called_as_on_the_page() -> None:
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 2
    assert "Missing argument 'TARGET'" in shown.output
