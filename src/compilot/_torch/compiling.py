"""torch.compile as the run plane needs it: least overhead per call, nothing left behind in torch's configuration.

In: a module and settings. Out: a callable with the module's own signature.
Covered: backend, options and modes together, isolated recompiles, marks for dynamic dimensions, true freezing, what
other packages' backends do to dynamo's configuration.
Not covered: guards of our own (runtime/), what the settings mean (engines/inductor/).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

GuardFilter = Callable[[Sequence[Any]], list[bool]]
Around = Callable[[Callable[..., Any]], Callable[..., Any]]
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_turn = threading.RLock()  # the environment is the process's: two that change it would undo each other


def compile_module(
    model: nn.Module,
    *,
    backend: str | Callable[..., Any],
    options: Mapping[str, Any],
    dynamic: bool | None,
    recompile_limit: int,
    guard_filter: GuardFilter | None = None,
    around: Around = lambda compiled: compiled,
) -> Callable[..., Any]:
    """The module behind torch.compile, hooks included. Checked on torch 2.13.0.

    around: what stands in for the callable that torch.compile gives.

    `torch.compile(model)` writes an attribute into the model and costs about 10 microseconds more per call than
    compiling `model._call_impl`, as `nn.Module.compile` does. Compiling `model.forward` would save 2 more and lose
    the hooks.
    """
    from torch._dynamo import trace_rules

    filtered = {} if guard_filter is None else {"guard_filter_fn": guard_filter}

    def compiled(entry: Callable[..., Any]) -> Any:
        made = torch.compile(  # type: ignore[call-overload]
            entry,
            backend=backend,
            options={**options, **filtered} or None,  # torch.compile takes keys out of the dict it is given
            dynamic=dynamic,
            recompile_limit=recompile_limit,
            isolate_recompiles=True,
        )
        return around(made)

    if trace_rules.check(model.forward):
        return _with_hooks(model, compiled)
    return compiled(model._call_impl)  # type: ignore[no-any-return]


def compile_for_all(
    *,
    backend: str | Callable[..., Any],
    options: Mapping[str, Any],
    dynamic: bool | None,
    recompile_limit: int,
    around: Around = lambda compiled: compiled,
) -> Callable[..., Any]:
    """A callable of a module and its arguments: modules that are alike share one program. Checked on torch 2.13.0.

    The module is an argument of the compiled function, so its weights are inputs of the program, read at each call.
    torch's guards go through it: a module with other attributes gets a program of its own.
    """

    def run(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    made = torch.compile(  # type: ignore[call-overload]
        run,
        backend=backend,
        options={**options} or None,
        dynamic=dynamic,
        recompile_limit=recompile_limit,
        isolate_recompiles=True,
    )
    return around(made)


@contextlib.contextmanager
def varying_integers(names: Sequence[str]) -> Iterator[None]:
    """Integer attributes of these names are inputs of what is compiled meanwhile, not constants of it.

    Checked on torch 2.13.0: `dynamic_sources` holds patterns of the places that dynamo reads from.
    """
    if not names:
        yield
        return
    from torch.compiler import config

    users = [config.dynamic_sources] if config.dynamic_sources else []
    patterns = ",".join([*users, *(rf".*\.{name}$" for name in names)])
    with config.patch(dynamic_sources=patterns):  # type: ignore[attr-defined]
        yield


def _with_hooks(model: nn.Module, compiled: Callable[[Callable[..., Any]], Any]) -> Callable[..., Any]:
    """For models of torch.nn's own classes (nn.Sequential), whose frames dynamo skips unless called from others.

    Their forward is compiled, and an alias of the model (the same attributes) runs the hooks around it.
    """

    def whole(*args: Any, **kwargs: Any) -> Any:
        return model.forward(*args, **kwargs)

    forward = compiled(whole)
    kind = type(model)
    shell: Any = object.__new__(
        type(kind.__name__, (kind,), {"forward": lambda self, *args, **kw: forward(*args, **kw)})
    )
    object.__setattr__(shell, "__dict__", model.__dict__)
    return shell  # type: ignore[no-any-return]


def import_dynamo() -> None:
    """Up to two seconds, which are nobody's compile time. Checked on torch 2.13.0."""
    import torch._dynamo  # noqa: F401


def mode_options(mode: str) -> dict[str, Any]:
    """The Inductor options that a mode stands for. Checked on torch 2.13.0."""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode))


def mark_dynamic(tensor: torch.Tensor, dim: int) -> None:
    """Declare a varying size on this tensor object; the mark stays on it. Checked on torch 2.13.0.

    Without a range: convolutions on a CPU bring bounds of their own (fewer than 16 images), and a program for a part of
    the declared range is fine. A size that the model fixes is still an error.
    """
    from torch._dynamo import mark_dynamic as mark

    mark(tensor, dim)


def dynamo_is_here() -> bool:
    """Whether this process has imported torch's compiler."""
    return "torch._dynamo" in sys.modules


def graphs_built() -> int:
    """Graphs that dynamo has handed to a backend in this process. Checked on torch 2.13.0."""
    return int(_counters()["stats"]["unique_graphs"])


@functools.cache  # an import is a microsecond, and training asks twice per call
def _counters() -> Mapping[str, Mapping[str, int]]:
    from torch._dynamo.utils import counters

    return counters


def is_compile_error(error: BaseException) -> bool:
    """Whether torch's compiler has failed, not the program that it compiled. Checked on torch 2.13.0."""
    from torch._dynamo import exc

    return isinstance(error, exc.TorchDynamoException | exc.FailOnRecompileLimitHit)


@contextlib.contextmanager
def inductor_config(changes: Mapping[str, Any]) -> Iterator[None]:
    """Inductor's configuration with these changes, in this thread only, then put back. Checked on torch 2.13.0."""
    from torch._inductor import config

    with config.patch(dict(changes)):
        yield


_wanted: dict[str, dict[str, Any]] = {}  # backend -> what it sets in dynamo's configuration when it is imported


@contextlib.contextmanager
def dynamo_config_of(backend: str) -> Iterator[None]:
    """Dynamo's configuration as this backend sets it, then put back. Checked on torch 2.13.0.

    A backend's import may change it for the whole process (openvino's does, for every later torch.compile); an import
    happens once, so what it wanted is remembered and set again for the backend's own compiles.
    """
    from torch._dynamo import config

    before = config.get_config_copy()
    _set(config, _wanted.get(backend, {}))
    try:
        yield
    finally:
        changed = {key: value for key, value in config.get_config_copy().items() if value != before[key]}
        _wanted[backend] = changed
        _set(config, {key: before[key] for key in changed})


def _set(config: Any, values: Mapping[str, Any]) -> None:
    """Without a word about deprecated settings: the backend chose them, or nobody did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config.load_config(dict(values))


@contextlib.contextmanager
def cache_directory(folder: Path | None) -> Iterator[None]:
    """Inductor's cache in this folder meanwhile; the environment is put back whatever happens. None: left as it is.

    Other threads wait, which costs little: dynamo compiles for one thread at a time itself.
    """
    with _turn:
        before = os.environ.get(CACHE_VARIABLE)
        if folder is not None:
            os.environ[CACHE_VARIABLE] = os.fspath(folder)
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(CACHE_VARIABLE, None)
            else:
                os.environ[CACHE_VARIABLE] = before


def _new_turn() -> None:
    """In a forked child: whoever had its turn is not there."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_new_turn)


def trusts_vector_isa() -> bool:
    """True when the user decided whether probe builds of vector extensions are skipped. Checked on torch 2.13.0."""
    from torch._inductor import config

    return config.cpp.vec_isa_ok is not None


def probes_key() -> str:
    """What the probes of vector extensions depend on: the compiler, torch, this CPU. Checked on torch 2.13.0."""
    from torch._inductor import cpu_vec_isa

    flags = " ".join(sorted(cpu_vec_isa.x86_isa_checker()))
    compiler = cpu_vec_isa._get_isa_dry_compile_fingerprint(flags)  # with torch's version
    return hashlib.sha256(compiler.encode()).hexdigest()[:16]


def probe_vector_extensions() -> bool:
    """Build and load torch's probes in the cache directory; False: this process has done so before, anywhere."""
    from torch._inductor import cpu_vec_isa

    if cpu_vec_isa.valid_vec_isa_list.cache_info().currsize:
        return False
    with inductor_config({"cpp.vec_isa_ok": True}):
        cpu_vec_isa.valid_vec_isa_list()
    return True
