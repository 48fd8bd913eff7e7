"""The same call, written as the plan's example was.

In: positional and keyword arguments as the user gave them. Out: the call with as many positional arguments and the
keywords of the guard, or None. Covered: keywords instead of positions and the other way round, defaults spelled out or
left out. The way from one written form to the other is worked out once per form. Not covered: the values (matching.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from compilot._tree import Call
from compilot.records import Guard

MAX_FORMS = 64  # forms remembered; a caller with more of them pays for working them out
_PLAIN = (bool, int, float, str, bytes, type(None))


class _Given(NamedTuple):
    """Stands for one argument of the call while its form is worked out."""

    key: int | str


class _Recipe(NamedTuple):
    args: tuple[Any, ...]  # _Given, or the value of a default
    kwargs: dict[str, Any]
    spelled_out: tuple[tuple[_Given, Any], ...]  # arguments that the example left out, with their defaults


class CallForm:
    """Brings calls of one model into the form of one guard."""

    def __init__(self, forward: Callable[..., Any], guard: Guard) -> None:
        self._guard = guard
        self._recipes: dict[tuple[int, tuple[str, ...]], _Recipe | None] = {}
        try:
            self._signature: inspect.Signature | None = inspect.signature(forward)
        except (TypeError, ValueError):
            self._signature = None

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """The call in the guard's form; None when it is another call."""
        form = (len(args), tuple(kwargs))
        if form == (self._guard.positional, self._guard.keywords):
            return Call(args, dict(kwargs))
        if form not in self._recipes:
            if len(self._recipes) >= MAX_FORMS:
                self._recipes.clear()
            self._recipes[form] = self._work_out(*form)
        recipe = self._recipes[form]
        return None if recipe is None else _cook(recipe, args, kwargs)

    def _work_out(self, positional: int, keywords: tuple[str, ...]) -> _Recipe | None:
        if self._signature is None:
            return None
        try:
            bound = self._signature.bind(*map(_Given, range(positional)), **{key: _Given(key) for key in keywords})
        except TypeError:
            return None
        bound.apply_defaults()
        return self._arrange(dict(bound.arguments), self._signature)

    def _arrange(self, values: dict[str, Any], signature: inspect.Signature) -> _Recipe | None:
        parameters = list(signature.parameters.values())
        star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        double = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        rest = list(values.pop(star, ())) if star else []
        values.update(values.pop(double, {}) if double else {})
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        names = names[: self._guard.positional]
        args = [values.pop(name) for name in names] + rest
        if len(args) != self._guard.positional or any(key not in values for key in self._guard.keywords):
            return None
        kwargs = {key: values.pop(key) for key in self._guard.keywords}
        given = [(value, name) for name, value in values.items() if isinstance(value, _Given)]
        if any(name not in signature.parameters or not _has_default(signature, name) for _, name in given):
            return None
        spelled = tuple((value, signature.parameters[name].default) for value, name in given)
        return _Recipe(tuple(args), kwargs, spelled)


def _has_default(signature: inspect.Signature, name: str) -> bool:
    return isinstance(signature.parameters[name].default, _PLAIN)


def _cook(recipe: _Recipe, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
    def value(part: Any) -> Any:
        if not isinstance(part, _Given):
            return part
        return args[part.key] if isinstance(part.key, int) else kwargs[part.key]

    for given, default in recipe.spelled_out:
        if type(value(given)) is not type(default) or value(given) != default:
            return None
    return Call(tuple(map(value, recipe.args)), {key: value(part) for key, part in recipe.kwargs.items()})
