"""The hot path as source code, written for one guard.

In: a guard, what of the model is watched, and further conditions. Out: a `__call__` that checks exactly the recorded
call and calls the engine. Everything it needs lies in its own globals, so that the dispatcher can exchange the check,
the engine's callable or the watched weights without the hot path paying for it. What does not fit goes to `_slow` with
the user's own arguments. Not covered: keywords that are no plain identifiers and values that are no literals: such
calls always take the slow path.
"""

from __future__ import annotations

import ast
import enum
import itertools
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compilot._torch import hooks, tensor_guards
from compilot.inputs.paths import parse
from compilot.records import ContainerGuard, Guard, TensorGuard, ValueGuard
from compilot.runtime.guards import type_name
from compilot.runtime.indexing import checker
from compilot.runtime.notices import HOT_PATH
from compilot.runtime.variants import is_dynamic
from compilot.runtime.weight_watch import INSPECT_EVERY, TOGETHER

COUNT = "for _count in _ticks: break"  # one step of a counter, as code: a third of the price of calling its `__next__`
MISSING = object()  # an argument that was not given
_CONTAINERS: dict[str, type] = {"list": list, "tuple": tuple, "dict": dict}
Names = Mapping[int | str, str]


def never(*values: Any) -> bool:
    """The check of a hot path that is closed."""
    return False


def hot_globals() -> dict[str, Any]:
    """What generated code starts from: closed, uncounted."""
    return {
        "_missing": MISSING,
        "_check": never,
        "_checks": {},
        "_grad": torch.is_grad_enabled,
        "_default": torch.get_default_dtype,
        "_ticks": itertools.count(),
        "_type": type,
        "_len": len,
        "_Exception": Exception,
        "_registered": hooks.NONE,
        **hooks.NAMES,
        **tensor_guards.NAMES,
    }


def compile_call(source: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The `__call__` that the source defines, living in the namespace."""
    exec(compile(source, HOT_PATH, "exec"), namespace)
    return namespace["__call__"]  # type: ignore[no-any-return]


def direct_source() -> str:
    """A `__call__` for plans that keep the model as it is: counts and calls."""
    return f"def __call__(_self, /, *args, **kwargs):\n    {COUNT}\n    return _call(*args, **kwargs)\n"


def generic_source() -> str:
    """A `__call__` for guards that cannot be written as code: always the slow path.

    What a caller left out is left out here as well: the code of row_source hands on `_missing` for it.
    """
    lines = [
        "def __call__(_self, /, *args, **kwargs):",
        "    _args = tuple([_v for _v in args if _v is not _missing])",
        "    _kwargs = {_k: _v for _k, _v in kwargs.items() if _v is not _missing}",
        "    return _slow(_args, _kwargs)",
    ]
    return "\n".join(lines) + "\n"


def row_source(guard: Guard, keyed: Sequence[str]) -> str | None:
    """A `__call__` that finds the entry by the shapes of these inputs in one look-up; None: it cannot be written.

    All entries' guards are for calls of this form. `_unknown` takes what is not in `_rows`, `_odd` any other form.
    """
    if not all(map(_usable, guard.keywords)):
        return None
    names: dict[int | str, str] = {i: f"_a{i}" for i in range(guard.positional)}
    names.update({key: key for key in guard.keywords})
    key = ", ".join(f"{parse(path).code(names)}.shape" for path in keyed)
    passed = ", ".join([names[i] for i in range(guard.positional)] + [f"{key}={key}" for key in guard.keywords])
    args = "".join(f"{names[i]}, " for i in range(guard.positional))
    lines = [
        f"def __call__({_parameters(guard)}):",
        "    if _rest or _extra:",
        f"        return _odd(({args}*_rest,), {{**{_dict(guard)}, **_extra}})",
        "    try:",
        f"        _entry = _rows[{key}]",
        "    except _Exception:",  # an unknown size, or an odd argument
        "        _entry = _unknown",
        f"    return _entry(_self, {passed})",
    ]
    return "\n".join(lines) + "\n"


class Watched(enum.Enum):
    """What of the model is looked at while calls go by."""

    NOTHING = enum.auto()
    CODE = enum.auto()  # code and attributes, now and then
    WEIGHTS = enum.auto()  # these, one weight in every call, and the others in turn


def hot_source(
    guard: Guard,
    namespace: dict[str, Any],
    *,
    watched: Watched = Watched.NOTHING,
    also: Sequence[str] = (),
    engine: str = "_call",
) -> str:
    """Source of the specialised `__call__`; constants it compares with are put into the namespace.

    also: conditions that must hold besides the guard's own. engine: the name of the engine's callable.
    """
    if not guard.tensors or not all(map(_usable, guard.keywords)):
        return generic_source()  # the tensor check is what sees autocast and inference mode
    names: dict[int | str, str] = {i: f"_a{i}" for i in range(guard.positional)}
    names.update({key: key for key in guard.keywords})
    try:
        conditions = [*_conditions(guard, names, namespace), *_weight(watched), *also]
        conditions += _indices(guard.tensors, names, namespace)  # the dearest last
    except _NotCode:
        return generic_source()
    args = ", ".join(names[i] for i in range(guard.positional))
    passed = ", ".join([*names.values()][: guard.positional] + [f"{key}={key}" for key in guard.keywords])
    lines = [
        f"def __call__({_parameters(guard)}):",
        "    try:",
        "        _fits = (" + "\n            and ".join(conditions) + ")",
        "    except _Exception:",  # whatever an odd argument does when it is looked at
        "        _fits = False",
        "    if _fits:",
        *_tick_lines(watched, args, guard),
        "        try:",
        f"            return {engine}({passed})",
        "        except _Exception as _error:",
        "            _failure = _error",
        f"        return _failed(_failure, ({args}{',' if args else ''}), {_dict(guard)})",
        f"    _args = tuple([_v for _v in ({args}{',' if args else ''}) if _v is not _missing]) + _rest",
        f"    _kwargs = {{_k: _v for _k, _v in {_dict(guard)}.items() if _v is not _missing}}",
        "    _kwargs.update(_extra)",
        "    return _slow(_args, _kwargs)",
    ]
    return "\n".join(lines) + "\n"


def _tick_lines(watched: Watched, args: str, guard: Guard) -> list[str]:
    count, given = f"        {COUNT}", f"({args}{',' if args else ''}), {_dict(guard)}"
    due = f"not _count & {INSPECT_EVERY - 1} and _elsewhere()"
    if watched is Watched.NOTHING:
        return [count]
    if watched is Watched.CODE:
        return [count, f"        if {due} and _changed():", f"            return _slow({given})"]
    row = ", ".join(f"_w{i}, _v{i}, _p{i}, _m{i}, _x{i}" for i in range(TOGETHER))
    other = [
        f"_w{i}._version != _v{i} or _w{i}.data_ptr() != _p{i} or _m{i}.tobytes() != _x{i}" for i in range(TOGETHER)
    ]
    return [
        count,
        "        if not _count & _skip_bits:",
        f"            {row} = _next_weights()",
        f"            if ({due} or {' or '.join(other)}) and _changed():",
        f"                return _slow({given})",
    ]


class _NotCode(Exception):
    """This guard cannot be written as code."""


def _usable(key: str) -> bool:
    return key.isidentifier() and not keyword.iskeyword(key) and not key.startswith("_")


def _parameters(guard: Guard) -> str:
    positional = ["_self", *(f"_a{i}=_missing" for i in range(guard.positional)), "/", "*_rest"]
    return ", ".join([*positional, *(f"{key}=_missing" for key in guard.keywords), "**_extra"])


def _dict(guard: Guard) -> str:
    return "{" + ", ".join(f"{key!r}: {key}" for key in guard.keywords) + "}"


def _conditions(guard: Guard, names: Names, namespace: dict[str, Any]) -> list[str]:
    """Containers before what is in them; modes before the tensors' ranges; cheap before expensive."""
    found = ["not _rest", "not _extra", ("" if guard.grad_enabled else "not ") + "_grad()"]
    found.append(("" if guard.training else "not ") + "_state['training']")
    found += [hooks.CONDITION, tensor_guards.NO_DUALS]
    if guard.default_dtype:
        namespace["_default_dtype"] = getattr(torch, guard.default_dtype.removeprefix("torch."), None)
        found.append("_default() is _default_dtype")
    for i, container in enumerate(sorted(guard.containers, key=lambda c: len(c.path))):
        found += _container(container, names, namespace, i)
    for i, value in enumerate(guard.values):
        found.append(_value(value, names, namespace, i))
    return found + _tensors(guard.tensors, names)


def _weight(watched: Watched) -> list[str]:
    one = "_home[_name] is _weight and _weight._version == _version and _address() == _pointer"
    return [one] if watched is Watched.WEIGHTS else []


def _container(want: ContainerGuard, names: Names, namespace: dict[str, Any], number: int) -> list[str]:
    where = parse(want.path).code(names)
    if want.type not in _CONTAINERS:
        raise _NotCode
    namespace[f"_kind{number}"] = _CONTAINERS[want.type]
    found = [f"_type({where}) is _kind{number}"]
    if want.keys is not None:
        namespace[f"_keys{number}"] = [_literal(key) for key in want.keys]
        found.append(f"[*{where}] == _keys{number}")
    if want.length is not None:
        found.append(f"_len({where}) == {want.length:d}")
    return found


def _value(want: ValueGuard, names: Names, namespace: dict[str, Any], number: int) -> str:
    where = parse(want.path).code(names)
    if not want.value:
        namespace["_class_name"] = type_name
        return f"_class_name({where}) == {want.type!r}"
    value = _literal(want.value)
    if value is None or isinstance(value, bool):
        return f"{where} is {value!r}"
    if type(value) not in (int, str, bytes) or type(value).__name__ != want.type:
        raise _NotCode  # equal floats may still be different (0.0 and -0.0): repr decides in the slow path
    namespace[f"_value{number}"], namespace[f"_type{number}"] = value, type(value)
    return f"_type({where}) is _type{number} and {where} == _value{number}"


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise _NotCode from error


def _indices(wanted: tuple[TensorGuard, ...], names: Names, namespace: dict[str, Any]) -> list[str]:
    """The values of each input that indices are made of; the dearest look, so it comes last."""
    found = []
    for number, want in enumerate(wanted):
        if want.index is None:
            continue
        check, sizes = checker(want)
        namespace[f"_in_range{number}"] = check
        given = [parse(want.path).code(names), *(f"{parse(s.path).code(names)}.shape[{s.dim:d}]" for s in sizes)]
        found.append(f"_in_range{number}({', '.join(given)})")
    return found


def _tensors(wanted: tuple[TensorGuard, ...], names: Names) -> list[str]:
    """One check of all tensors; of dynamic inputs the one for these very shapes, if they were prepared.

    A nested tensor must not reach it: the check would end the process (torch 2.13.0). Asked for its shape, it raises.
    """
    places = [parse(want.path).code(names) for want in wanted]
    dynamic = [where for where, want in zip(places, wanted, strict=True) if is_dynamic(want)]
    found = [f"not {where}.is_nested" for where in places if where not in dynamic]
    check = f"_checks[{', '.join(f'{where}.shape' for where in dynamic)}]" if dynamic else "_check"
    return [*found, f"{check}({', '.join(places)})"]
