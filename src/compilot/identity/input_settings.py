"""Settings that only calls with a certain input read: a plan without that input does not depend on them.

In: a model. Out: each such setting with where it lies, so that it is kept apart from the model's structure; and which
of them some calls depend on. Covered: models that are wholly a library's own, whose code is known to use the setting
so. Not covered: models with code of the user's in them, hooks or another forward: there every setting counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from torch import nn

from compilot._torch.hooks import hooks_on
from compilot._tree import Call, parameter_names
from compilot.identity import known_settings
from compilot.identity.known_settings import input_of
from compilot.identity.origin import library_of_class
from compilot.identity.reach import own_class
from compilot.identity.tokens import SCALARS
from compilot.records import Guard, ModelFingerprint


class InputSetting(NamedTuple):
    """Such a setting of one model."""

    path: str  # "config.problem_type"
    owner: Any  # the object that holds it
    name: str
    input: str

    @property
    def value(self) -> Any:
        return vars(self.owner)[self.name]


def input_settings(model: nn.Module) -> list[InputSetting]:
    """The settings of this model that only calls with a certain input read."""
    return [*_found(model)] if "forward" not in vars(model) else []


def _found(model: nn.Module) -> Iterator[InputSetting]:
    for rule in known_settings.RULES:
        owner = vars(model).get(rule.owner)
        is_there = library_of_class(type(owner)) == rule.package and type(vars(owner).get(rule.name, ...)) in SCALARS
        if is_there and _is_wholly_of(rule.package, model):
            yield InputSetting(rule.path, owner, rule.name, rule.input)


def _is_wholly_of(package: str, model: nn.Module) -> bool:
    """No other code than the library's and torch's could read the setting, or make up the input."""
    kinds = {own_class(type(module)) for module in model.modules()}
    is_own = library_of_class(own_class(type(model))) == package
    return is_own and all(library_of_class(kind) in (package, "torch") for kind in kinds) and not hooks_on(model)


def ignored_by(model: nn.Module, guard: Guard) -> list[InputSetting]:
    """The model's settings that no call which the guard takes can read."""
    found = input_settings(model)
    if not found:
        return []
    values = {value.path: None if value.value == "None" else ... for value in guard.values}
    args = tuple(values.get(f"args[{number}]", ...) for number in range(guard.positional))
    call = Call(args, {name: values.get(f"kwargs[{name!r}]", ...) for name in guard.keywords})
    return [one for one in found if not _is_given(one.input, model, call)]


def as_calls_read(fingerprint: ModelFingerprint, model: nn.Module, calls: Iterable[Call]) -> ModelFingerprint:
    """The model's fingerprint as far as these calls depend on it: without the settings that none of them reads."""
    if not fingerprint.input_settings:
        return fingerprint
    given = [*calls]
    paths = [path for path in fingerprint.input_settings if any(_is_given(input_of(path), model, one) for one in given)]
    return msgspec.structs.replace(
        fingerprint, input_settings={path: fingerprint.input_settings[path] for path in paths}
    )


def _is_given(name: str, model: nn.Module, call: Call) -> bool:
    """Whether a call has that input; an argument whose parameter nobody knows could be it. None is no input."""
    names = parameter_names(model.forward, call)
    values = {f"args[{number}]": value for number, value in enumerate(call.args)}
    values |= {f"kwargs[{key!r}]": value for key, value in call.kwargs.items()}
    return any(value is not None and (names[root] == name or "." in names[root]) for root, value in values.items())
