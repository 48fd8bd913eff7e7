"""The program that torch.compile made, entered behind torch's guards, past its wrapper. Checked on torch 2.13.0.

In: a callable that torch.compile returned, and calls to learn from. Out: a callable with the same arguments. Around
each call torch's wrapper saves and restores a dozen settings of the thread, sets the hook of frame evaluation, and has
the guards looked up from there: about 60 microseconds, of which the guards themselves are 5. Here they are asked
directly, all of them, and the program is called as the function that it is. What no known program takes goes through
the wrapper, as everything does while something else traces or a stance is set: recompiles, resets and errors are
torch's own. Covered: frames of one graph; of a module without hooks that of its forward, since torch runs hooks around
it. Not covered: graph breaks, whose rest torch has to compile while it runs; backends that run a graph as it is, which
may leave settings of the thread behind when they raise; CUDA, whose recorded graphs count calls of the wrapper;
processes of torch.distributed, which may agree on every look at the guards: as long as there is a process group, every
call goes through the wrapper. At most `MOST` programs are asked for a call, first those that have taken a call of the
same module.
"""

from __future__ import annotations

import dis
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from compilot._torch.hooks import is_hooked

MOST = 8  # programs that are asked for a call; those beyond go through the wrapper
_PROGRAM, _REST = "__compiled_fn_", "__resume_at_"  # how dynamo names the calls that it writes into a frame's code
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_is_jit_tracing = torch._C._is_tracing
_ranks: Any = getattr(torch.distributed, "distributed_c10d", None)  # none: torch was built without
_ranks = _ranks or types.SimpleNamespace(_world=types.SimpleNamespace(default_pg=None))


class Direct:
    """The programs of one callable of torch.compile that are known."""

    def __init__(self, *, for_all: bool = False) -> None:
        """for_all: the first argument of a call is one of the modules that share the programs."""
        self._known: list[_Program] = []  # the latest first
        self._taken: dict[int, tuple[_Program, ...]] = {}  # by module: those that took its calls, the last one first
        self._for_all = for_all
        self._learners: set[int] = set()  # threads whose calls are learnt from

    @property
    def programs(self) -> int:
        """How many are known."""
        return len(self._known)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """What this thread calls meanwhile is known from then on."""
        thread = threading.get_ident()
        self._learners.add(thread)
        try:
            yield
        finally:
            self._learners.discard(thread)

    def around(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The callable that knows its programs; to be asked for once."""
        from torch._dynamo import eval_frame

        known, learners, for_all = self._known, self._learners, self._for_all
        tracing, ranks = torch.compiler.is_compiling, _ranks
        usual = eval_frame.DynamoStance()
        stance = eval_frame._stance if eval_frame._stance == usual else usual  # mostly the very object
        entry: Any = getattr(compiled, "_torchdynamo_orig_callable", None)
        lead = (entry.__self__,) if isinstance(entry, types.MethodType) else ()

        def call(*args: Any, **kwargs: Any) -> Any:
            plainly = eval_frame._stance is stance or eval_frame._stance == usual
            whose = id(args[0]) if for_all and args else 0
            alone = plainly and ranks._world.default_pg is None
            if known and alone and not (tracing() or _is_jit_tracing() or is_fx_symbolic_tracing()):
                program = self._taking(whose, (*lead, *args), kwargs)
                if program is not None:
                    return program.run(*lead, *args, **kwargs)
            answer = compiled(*args, **kwargs)
            if known and not all(program.is_there() for program in known):
                self._forget()
            if plainly and learners and threading.get_ident() in learners:
                self._learn(compiled, whose, (*lead, *args), kwargs)
            return answer

        if (config := getattr(compiled, "get_compiler_config", None)) is not None:
            call.get_compiler_config = config  # type: ignore[attr-defined]  # as torch's own callable has it
        return call

    def _taking(self, whose: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Program | None:
        """The known program for this call; the one that took the module's last call is asked first."""
        own = self._taken.get(whose, ())
        if own and own[0].takes(args, kwargs):
            return own[0]
        others = (program for program in self._known if program not in own)
        for program in chain(own[1:], islice(others, MOST - len(own))):
            if program.takes(args, kwargs):
                self._prefer(whose, program)
                return program
        return None

    def _prefer(self, whose: int, program: _Program) -> None:
        """Ask it first from now on."""
        rest = (one for one in self._taken.get(whose, ()) if one is not program)
        self._taken[whose] = (program, *rest)[:MOST]  # other threads may be reading the former ones

    def _learn(self, compiled: Any, whose: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember the program that takes this call, if it is one graph."""
        from torch._C._dynamo.eval_frame import _get_cache_entries_for_region

        self._forget()
        function, still = _compiled_function(compiled)
        full = len(self._taken.get(whose, ())) >= MOST
        if function is None or full or not still() or _needs_the_wrapper():
            return
        for entry in _get_cache_entries_for_region(function.__code__, compiled._isolate_recompiles_id):
            if entry.code is None or not _is_one_graph(entry.code):  # none: torch has dropped it
                continue
            program = self._known_as(entry) or _Program.of(function, still, entry)
            if program.takes(args, kwargs):
                if program not in self._known:
                    self._known.insert(0, program)
                self._prefer(whose, program)
                return

    def _known_as(self, entry: Any) -> _Program | None:
        """The program of torch's entry, if it is known from a call of another module."""
        own = (program for program in self._known if program.guards is entry.guard_manager)
        return next((program for program in own if program.still()), None)

    def _forget(self) -> None:
        """What torch has dropped, with the weights that it may hold."""
        self._known[:] = [program for program in self._known if program.is_there()]
        for whose, programs in list(self._taken.items()):
            self._taken[whose] = tuple(program for program in programs if program.is_there())


class _Program(NamedTuple):
    """One program of a function."""

    guards: Any  # torch's; without an entry in its cache the program is gone
    check: Callable[[dict[str, Any]], bool]
    still: Callable[[], bool]  # whether a call would come to this function
    locals_of: Callable[..., dict[str, Any]]
    run: Callable[..., Any]

    @staticmethod
    def of(function: types.FunctionType, still: Callable[[], bool], entry: Any) -> _Program:
        run = types.FunctionType(
            entry.code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        run.__kwdefaults__ = function.__kwdefaults__
        guards = entry.guard_manager
        return _Program(guards, guards.root.check, still, _binding(run), run)

    def is_there(self) -> bool:
        """Whether torch has kept it: it drops what is about objects that are gone, and everything at a reset."""
        return self.guards.cache_entry is not None

    def takes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether it is the program for this call."""
        try:
            return self.is_there() and self.still() and self.check(self.locals_of(*args, **kwargs))
        except TypeError:  # other arguments than the function has: its own error says so
            return False


def _compiled_function(compiled: Any) -> tuple[types.FunctionType | None, Callable[[], bool]]:
    """The function whose frame torch compiles, and whether a call still comes to it; None: not known here."""
    entry: Any = getattr(compiled, "_torchdynamo_orig_callable", None)
    function: Any = getattr(entry, "__func__", entry)
    if function is nn.Module._call_impl:  # torch leaves this frame alone and compiles what it calls
        return _forward_of(entry.__self__)
    if not isinstance(function, types.FunctionType):
        return None, lambda: False
    return function, lambda: True


def _forward_of(model: nn.Module) -> tuple[types.FunctionType | None, Callable[[], bool]]:
    function: Any = getattr(model.forward, "__func__", None)
    if not isinstance(function, types.FunctionType):
        return None, lambda: False
    code, defaults = function.__code__, function.__defaults__
    named: dict[str, Any] = function.__kwdefaults__ or {}
    values = dict(named)

    def still() -> bool:
        """No hook runs around it, and the model has no other forward or class since, nor another model's."""
        own: Any = model.forward
        bound = getattr(own, "__func__", None) is function and own.__self__ is model
        return bound and function.__code__ is code and function.__defaults__ is defaults and not is_hooked(model)

    def still_named() -> bool:
        """Neither are its keyword-only defaults other objects, which a dict of them may get in place."""
        same = function.__kwdefaults__ is named and named.keys() == values.keys()
        return same and all(named[name] is value for name, value in values.items()) and still()

    return function, still_named if values else still


def _needs_the_wrapper() -> bool:
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return distributed or torch.cuda.is_available()


def _binding(function: types.FunctionType) -> Callable[..., dict[str, Any]]:
    """From a call to what its guards look at: the frame's variables by name."""
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    namespace: dict[str, Any] = {f"_cell_{i}": cell for i, cell in enumerate(free.values())}
    shown, row = [], inspect.signature(function, follow_wrapped=False).parameters.values()
    for i, parameter in enumerate(row):
        if parameter.default is not parameter.empty:
            namespace[f"_default_{i}"] = parameter.default
            parameter = parameter.replace(default=_Named(f"_default_{i}"))
        shown.append(parameter.replace(annotation=parameter.empty))
    places = [f"{one.name!r}: {one.name}" for one in row]
    places += [f"{name!r}: _cell_{i}.cell_contents" for i, name in enumerate(free)]
    source = f"def bound{inspect.Signature(shown)}: return {{{', '.join(places)}}}"
    exec(source, namespace)
    return namespace["bound"]  # type: ignore[no-any-return]


class _Named(NamedTuple):
    """Written into source as this name."""

    name: str

    def __repr__(self) -> str:
        return self.name


def _is_one_graph(code: types.CodeType) -> bool:
    """Whether the frame calls one program and leaves nothing to be compiled later.

    What dynamo writes around a program has neither jumps nor handlers of errors. Where it cannot resume behind a graph
    break (in a `try` block), it jumps into the frame's own code, whose calls torch has to look at while they run.
    """
    called = [name for name in code.co_names if name.startswith((_PROGRAM, _REST))]
    plain = not code.co_exceptiontable and not any(step.opcode in _JUMPS for step in dis.get_instructions(code))
    return plain and len(called) == 1 and called[0].startswith(_PROGRAM)
