"""Targets: "path/to/file.py:factory" or "package.module:factory" -> Workload.

In: the user's string. Out: the Workload that the factory makes, or a TargetError of one sentence that names the user's
line and the next step (the original exception is its __cause__).
A file is loaded the way `python file.py` would load it: its folder comes first on sys.path. Import and factory run with
the random generators at a fixed seed, so that random weights are the same in every process that loads the target; the
caller's random state is put back.
Not covered: remote files, factories with arguments.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import linecache
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from compilot.errors import CompilotError, TargetError
from compilot.modules.naming import made_up
from compilot.workload.place import Place, parse_target
from compilot.workload.workload import Workload

_SEED = 0  # any fixed value: parent and children must agree on random weights
_RETURNS = "return (model, args), (model, args, kwargs) compilot.Workload(...) or compilot.Training(...)"


def load_target(target: str) -> Workload:
    """The workload that a target's factory makes."""
    place = parse_target(target)
    with _fixed_seed():
        module = _import_file(place.file) if place.file else _import_module(place.module)
        factory = _find(module, place)
        result = _call(factory, place, target)
    workload = _as_workload(result, target)
    workload.target = target
    return workload


def _import_file(path: Path) -> ModuleType:
    _put_first_on_path(str(path.parent))
    name = made_up(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    linecache.checkcache(str(path))
    previous = sys.modules.get(name)
    sys.modules[name] = module  # before the code runs: pickle, dataclasses and inspect look it up there
    try:
        spec.loader.exec_module(module)
    except BaseException as problem:
        _restore_module(name, previous)
        _raise_import_error(problem, path.name, str(path))
    return module


def _restore_module(name: str, previous: ModuleType | None) -> None:
    if previous is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = previous


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        _put_first_on_path(str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(problem.name + ".")):
            raise TargetError(
                f"no module named '{problem.name}'; run from the project's root folder, or name the file: "
                "path/to/file.py:factory."
            ) from problem
        _raise_import_error(problem, name, None)
    except BaseException as problem:
        _raise_import_error(problem, name, None)


def _put_first_on_path(folder: str) -> None:
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)


def _raise_import_error(problem: BaseException, what: str, file: str | None) -> NoReturn:
    if isinstance(problem, SyntaxError):
        where = f"{Path(problem.filename).name if problem.filename else what}:{problem.lineno}"
        raise TargetError(f"{what} is not valid Python: {problem.msg} ({where}); fix that line.") from problem
    if isinstance(problem, SystemExit):
        raise TargetError(
            f"{what} ended the program on import ({_where(problem, file)}); move what it does under "
            "'if __name__ == \"__main__\":'."
        ) from problem
    if isinstance(problem, Exception):
        raise TargetError(
            f"importing {what} failed with {_short(problem)} ({_where(problem, file)}); fix that line."
        ) from problem
    raise problem


def _short(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _where(problem: BaseException, file: str | None) -> str:
    """The user's line: the innermost one in their file, else the innermost outside of installed packages."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if f.filename != __file__]
    frames = [f for f in frames if not f.filename.startswith("<frozen ")] or frames
    mine = [f for f in frames if f.filename == file] or [f for f in frames if "site-packages" not in f.filename]
    if not (mine or frames):
        return "no line known"
    frame = (mine or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _find(module: ModuleType, place: Place) -> Callable[[], Any]:
    found: Any = module
    for part in place.factory.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{place.module} has no '{place.factory}'{_candidates(module, place.factory)}.")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        raise TargetError(f"'{place.factory}' in {place.module} is a model, not a function; write one to {_RETURNS}.")
    if not callable(found):
        kind = type(found).__name__
        what = f"'{place.factory}' in {place.module} is of type {kind}"
        raise TargetError(f"{what}, not a function; write one to {_RETURNS}.")
    return found  # type: ignore[no-any-return]


def _candidates(module: ModuleType, wanted: str) -> str:
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
    public = sorted(name for name in own if not name.startswith("_"))
    close = difflib.get_close_matches(wanted, public, n=1)
    if close:
        return f"; did you mean '{close[0]}'"
    return f"; it defines {', '.join(public)}" if public else "; it defines no functions"


def _call(factory: Callable[[], Any], place: Place, target: str) -> Any:
    needed = _needed_arguments(factory)
    if needed:
        raise TargetError(
            f"factory '{place.factory}' needs arguments ({', '.join(needed)}); give them defaults, or write a function "
            "without arguments that calls it."
        )
    try:
        return factory()
    except (Exception, SystemExit) as problem:
        file = str(place.file) if place.file else None
        raise TargetError(
            f"factory '{place.factory}' failed with {_short(problem)} ({_where(problem, file)}); fix that line."
        ) from problem


def _needed_arguments(factory: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in optional]


def _as_workload(result: Any, target: str) -> Workload:
    if isinstance(result, Workload):
        return result
    if not isinstance(result, tuple | list) or len(result) not in (2, 3) or not isinstance(result[0], nn.Module):
        raise TargetError(f"'{target}' returned {_describe(result)}; it must {_RETURNS}.")
    try:
        return Workload(*result)
    except CompilotError as problem:
        raise TargetError(f"what '{target}' returned cannot be used: {problem}") from problem


def _describe(result: Any) -> str:
    if result is None:
        return "nothing"
    if isinstance(result, tuple | list):
        return f"a {type(result).__name__} of ({', '.join(type(part).__name__ for part in result)})"
    return f"a {type(result).__name__}"


@contextmanager
def _fixed_seed() -> Iterator[None]:
    python, arrays, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(_SEED)
    np.random.seed(_SEED)
    torch.manual_seed(_SEED)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.set_rng_state(tensors)
