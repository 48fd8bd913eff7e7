"""Watching one call from inside. In: a model and its calls. Out: the captured graphs, when each of them ran, and how
often a line of source was passed by which submodules.

`Watch.backend` runs every graph as it is, and notes begin and end while `timing` is on: what lies between two graphs is
the price of the break between them. Lines are counted in eager with Python's own trace function.
Not covered: what a real compiler would make of the graphs.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from compilot._torch.dynamo_events import FunctionPart, compiled_part, compiled_self, current_compile_id
from compilot.diagnose import frames
from compilot.diagnose.graphs.listing import listing

_CALLS = ("call_function", "call_method", "call_module")


class Captured(NamedTuple):
    """One graph, as the tracer handed it over."""

    compile_id: str
    part: FunctionPart
    ops: int
    modules: dict[str, None]  # paths of the submodules whose work it does, in order; one graph may serve many blocks
    text: str = ""  # its operators


class GraphRun(NamedTuple):
    """One graph ran."""

    graph: int
    begin_s: float
    end_s: float


Handed = Callable[[int, list[torch.Tensor]], None]  # which graph, and what it hands over to Python


class Watch:
    """A backend for torch.compile that keeps the graphs and times them."""

    def __init__(self, model: nn.Module) -> None:
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._owners = {id(part): path for path, module in model.named_modules() for part in _parts(module)}
        self.graphs: list[Captured] = []
        self.runs: list[GraphRun] = []
        self.timing = False
        self.handed: Handed | None = None
        self.mapping = False  # note whose weights each graph is given

    def backend(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Keep the graph and run it unchanged."""
        index = len(self.graphs)
        base = self._paths.get(id(compiled_self()), "")
        inner = _modules(module)
        modules = dict.fromkeys(_joined(base, path) for path in inner)
        text = listing(module.graph, lambda node: _joined(base, _module(node)))
        self.graphs.append(Captured(current_compile_id(), compiled_part(), _ops(module), modules, text))

        def run(*args: Any) -> Any:
            if self.mapping:
                self._map(self.graphs[index], inner, args)
            begin = time.perf_counter()
            out = module.forward(*args)
            if self.timing:
                self.runs.append(GraphRun(index, begin, time.perf_counter()))
            if self.handed is not None:
                self.handed(index, [value for value in out if isinstance(value, torch.Tensor)])
            return out

        return run

    def _map(self, graph: Captured, inner: tuple[str, ...], args: tuple[Any, ...]) -> None:
        """Whose weights the graph is given this time: an equal block may share the graph of the first one."""
        for owner in (self._owners.get(id(arg)) for arg in args):
            if owner is not None and owner not in graph.modules:
                bases = [owner.removesuffix(path).strip(".") for path in inner if path and owner.endswith(path)]
                graph.modules.update(
                    dict.fromkeys(_joined(bases[0], path) for path in inner) if bases else {owner: None}
                )

    def timed(self, call: Callable[[], Any]) -> tuple[float, float, list[GraphRun]]:
        """(begin, end, the graphs that ran between) of one call."""
        self.runs, self.timing = [], True
        try:
            begin = time.perf_counter()
            call()
            return begin, time.perf_counter(), self.runs
        finally:
            self.timing = False

    def handing(self, call: Callable[[], Any], handed: Handed) -> None:
        """Make one call and show the listener what every run of a graph hands over; nothing of it is kept."""
        self.handed = handed
        try:
            call()
        finally:
            self.handed = None


def _ops(module: fx.GraphModule) -> int:
    return sum(node.op in _CALLS for node in module.graph.nodes)


def _parts(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _modules(module: fx.GraphModule) -> tuple[str, ...]:
    """Paths of the submodules whose own forward put work into the graph, below the one that was compiled."""
    return tuple(dict.fromkeys(_module(node) for node in module.graph.nodes if node.op in _CALLS))


def _module(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    return module_path(list(stack.values())[-1][0]) if stack else ""


def _joined(base: str, path: str) -> str:
    return f"{base}.{path}".strip(".")


def module_path(source: str) -> str:
    """Dotted path below the root: "L['self']._modules['layers']._modules['0']" -> "layers.0"."""
    rest = re.sub(r"^(?:L\['\w+'\]|G\['\w+'\]|self)", "", source)
    rest = re.sub(r"\._modules\['(.+?)'\]", r".\1", rest)
    rest = re.sub(r"\[(\d+)\]", r".\1", rest)
    return re.sub(r"\['?(.+?)'?\]", r".\1", rest).strip(".")


@contextmanager
def counting(places: Iterable[tuple[str, int]], model: nn.Module) -> Iterator[dict[tuple[str, int], list[str]]]:
    """Count how often these lines are passed meanwhile; each passing names the innermost submodule that is running.

    A statement of several lines is passed once, however often Python goes to and fro between its lines.
    """
    passed: dict[tuple[str, int], list[str]] = {place: [] for place in places}
    lines = {place: frames.statement(*place) for place in passed}
    files = {file for file, _ in passed}
    names = {id(module): name for name, module in model.named_modules()}

    def on_lines() -> Callable[[FrameType, str, Any], Any]:
        last = 0  # the line before, in this very frame

        def on_line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "line":
                for place in passed:
                    inside = frame.f_lineno in lines[place] and frame.f_code.co_filename == place[0]
                    if inside and (last not in lines[place] or len(lines[place]) == 1):
                        passed[place].append(_running(frame, names))
                last = frame.f_lineno
            return on_line

        return on_line

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        return on_lines() if frame.f_code.co_filename in files else None

    previous = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield passed
    finally:
        sys.settrace(previous)


def _running(frame: FrameType | None, names: dict[int, str]) -> str:
    while frame is not None:
        owner = frame.f_locals.get("self")
        if id(owner) in names:
            return names[id(owner)]
        frame = frame.f_back
    return ""
