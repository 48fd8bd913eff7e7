"""Help pages whose arguments are plain words: `Usage: compilot push [OPTIONS] BUNDLE URL`.

In: commands whose options and arguments name their metavars. Out: a Typer that shows those and no types of Python's.
Typer's own pages have "{TARGET}" in the usage and "TARGET <str>" below it, in each version otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

Body = TypeVar("Body", bound=Callable[..., Any])


class PlainTyper(typer.Typer):
    """A Typer all of whose commands have plain help pages."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Body], Body]:
        """As typer's."""
        return super().command(name, **{"cls": _PlainCommand, **settings})


class _PlainCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name."""
        return [self.options_metavar or "", *(_in_usage(one) for one in _arguments(self, ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The two lists of a page."""
        arguments = _arguments(self, ctx)
        options = [one for one in self.get_params(ctx) if one not in arguments]
        self._section("Arguments", [(_name(one), _help(one, ctx)[1]) for one in arguments], formatter)
        self._section("Options", [_help(one, ctx) for one in options], formatter)

    def _section(self, title: str, rows: list[tuple[str, str]], formatter: Any) -> None:
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _arguments(command: TyperCommand, ctx: Any) -> list[Any]:
    return [one for one in command.get_params(ctx) if one.param_type_name == "argument"]


def _help(parameter: Any, ctx: Any) -> tuple[str, str]:
    record: tuple[str, str] = parameter.get_help_record(ctx)
    return record


def _name(argument: Any) -> str:
    return f"{argument.metavar or argument.name.upper()}{'...' if argument.nargs != 1 else ''}"


def _in_usage(argument: Any) -> str:
    return _name(argument) if argument.required else f"[{_name(argument)}]"
