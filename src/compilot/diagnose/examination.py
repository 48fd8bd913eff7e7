"""The examination, step by step. In: a workload in a process of its own. Out: a `DoctorReport`.

Every step is one method, so that the parent can report what is going on. The model is compiled with a backend
that runs the captured graphs as they are: it costs seconds, needs no C++ compiler, and meets the same graph breaks and
recompiles as any other backend. Nothing is put back afterwards: this process ends.
Covered: graphs, breaks and what they cost, recompiles over the drive, compile time and bounds where they are asked for.
Not covered: backward graphs.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import torch

from compilot._torch import dynamo_events
from compilot._torch.dynamo_events import BreakEvent, CompileEvent, Event, LimitEvent, RecompileEvent
from compilot._tree import Call, dotted_name, parameter_names, resolve_dynamic
from compilot._version import __version__
from compilot.diagnose import driving, frames, ranking, trusted
from compilot.diagnose.driving import fresh
from compilot.diagnose.frames import CodeSpot, FileLine
from compilot.diagnose.graphs import breaks, costs, watching
from compilot.diagnose.model import inspection
from compilot.diagnose.recompiles import changes
from compilot.diagnose.report_records import (
    REPORT_SCHEMA,
    CodeFrame,
    DoctorReport,
    Graph,
    GraphBreak,
    ModuleNode,
    Recompile,
)
from compilot.records import CallSizes, DimRange, Fingerprint
from compilot.workload import Workload
from compilot.workload.variations import traced_dims, traced_sizes

EAGER_CALLS = 5
WARM_CALLS = 2
TIMED_CALLS = 5
MOST_TRIES = 12  # calls made to get them; one that compiles something is no sample, and some models compile for long
AGAIN = "the first example again"
MOST_TEXT = 400_000  # letters of all graphs together: a report is a page to read
_Told = TypeVar("_Told", RecompileEvent, LimitEvent)


class Examination:
    """One model under examination; call the steps in order, then `report`.

    `trace`: the calls to drive it with. `ranges`: the sizes of the whole trace by name, where `trace` is a part of it.
    """

    def __init__(
        self, workload: Workload, trace: Sequence[CallSizes] = (), ranges: Mapping[str, DimRange] | None = None
    ) -> None:
        found = traced_dims(workload, trace, ranges)
        workload = workload.with_dynamic(found.dims) if found.dims else workload
        for call in trace:
            traced_sizes(workload, call)  # a wrong line is refused before anything takes time
        self.workload, self.trace = workload, trace
        self.watch = watching.Watch(workload.model)
        self.compiled = torch.compile(workload.model, backend=self.watch.backend)
        self.heard: list[tuple[str, Event]] = []  # (name of the call, what the tracer said in it)
        self.calls: list[str] = []
        self.driven = 0  # calls of the drive among them
        self.eager_call_s: float | None = None
        self.first_graphs = 0
        self.outside_s: dict[FileLine, float] = {}
        self.fusion_s: dict[FileLine, float] = {}
        self.unpriced: set[FileLine] = set()  # breaks whose time cannot be trusted
        self.passed: dict[FileLine, list[str]] = {}
        self.notes: list[str] = [*workload.notes, *found.notes]
        self.drive_starved = False  # other programs held the cores during the drive
        self.unseen: list[str] = []  # calls that failed, and with them what they would have shown

    def eager(self) -> None:
        """Time a few eager calls; what fails here fails without any compiler."""
        watch = trusted.Stopwatch()
        self._once(self.workload.model, fresh(self.workload.call))  # the first call is not like the others
        for _ in range(EAGER_CALLS):
            call = fresh(self.workload.call)
            watch.lap(lambda call=call: self._once(self.workload.model, call))  # type: ignore[misc]
        self.eager_call_s = watch.typical()
        if self.eager_call_s is None:
            self._left_out()

    def capture(self) -> None:
        """The first compiled call: graphs and breaks."""
        self.watch.mapping = True
        self._listen(lambda: self._named("example 1", self.workload.call))
        self.watch.mapping = False
        self.first_graphs = len(self.watch.graphs)

    def weigh(self) -> None:
        """Some more calls of the same example: what the breaks cost, and how often each line is passed."""
        if not self._breaks():
            return
        for _ in range(WARM_CALLS):
            self._listen(lambda: self._named(AGAIN, self.workload.call))
        samples, starved = self._samples()
        if not samples:
            self.notes.append(trusted.NEVER_WARM)
        self.outside_s = {} if starved else costs.typical(samples)
        self.unpriced = set(costs.places(samples) if samples else self._breaks()) - set(self.outside_s)
        if samples and self.unpriced:
            self._left_out()
        self._weigh_copies()
        self._count_lines()

    def drive(self) -> None:
        """All calls of the workload, one after the other: recompiles."""
        begun: list[tuple[str, int]] = []  # (name of a call, how much had been heard before it)

        def began(name: str) -> None:
            self.calls.append(name)
            self.driven += 1
            begun.append((name, len(self.heard)))

        cores = trusted.Cores()
        self._listen(lambda: self.unseen.extend(driving.drive(self.workload, self.compiled, began, self.trace)))
        self.drive_starved = cores.starved()
        if self.drive_starved:
            self._left_out()
        self._forget_failed(begun)

    def report(self, fingerprint: Fingerprint | None = None) -> DoctorReport:
        """Everything that was found, the most costly first."""
        found = self._graph_report()
        return msgspec.structs.replace(found, fingerprint=fingerprint, findings=ranking.rank(found.findings))

    def _graph_report(self) -> DoctorReport:
        weighed = [self._weighed(place, one) for place, one in self._breaks().items()]
        found, again = breaks.fold(weighed, self._recompiles())
        whole = inspection.model_findings(self.workload, self.eager_call_s)
        report = DoctorReport(
            schema=REPORT_SCHEMA,
            compilot=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            label=self.workload.label,
            target=self.workload.target or "",
            eager_call_s=self.eager_call_s,
            calls=tuple(self.calls),
            driven=self.driven,
            graphs=self._graphs(),
            breaks=tuple(found),
            recompiles=again,
            modules=self._module_nodes(found),
            notes=tuple(self.notes),
            unseen=tuple(self.unseen),
        )
        traced = [*map(ranking.of_break, found), *(ranking.of_recompile(one, report.spread) for one in again)]
        return msgspec.structs.replace(report, findings=(*traced, *whole))

    def _left_out(self) -> None:
        if trusted.LEFT_OUT not in self.notes:
            self.notes.append(trusted.LEFT_OUT)

    # ---------------------------------------------------------------------------------------------------- the calls

    def _once(self, model: Callable[..., Any], call: Call) -> None:
        with torch.set_grad_enabled(self.workload.grad):
            driving.call_model(model, call)

    def _named(self, name: str, call: Call) -> None:
        self.calls.append(name)
        self._once(self.compiled, fresh(call))

    def _listen(self, work: Callable[[], None]) -> None:
        """Run something compiled and keep what the tracer says, with the name of the call it said it in."""
        with self._listening():
            work()

    def _listening(self) -> AbstractContextManager[None]:
        return dynamo_events.listening(lambda event: self.heard.append((self.calls[-1], event)))

    def _forget_failed(self, begun: list[tuple[str, int]]) -> None:
        """Drop what the tracer said in a call that failed: eager answers for the compiler, so eager failed, too.

        The error would be reported as a compile error, and the input that it does not take as a recompile.
        """
        ends = [*(begin for _, begin in begun[1:]), len(self.heard)]
        for (name, begin), end in reversed(list(zip(begun, ends, strict=True))):
            if any(one.startswith(f"{name} failed: ") for one in self.unseen):
                del self.heard[begin:end]

    # --------------------------------------------------------------------------------------------------- the breaks

    def _said(self, kind: type[Any]) -> list[Any]:
        return [event for _, event in self.heard if isinstance(event, kind)]

    def _breaks(self) -> dict[FileLine, GraphBreak]:
        return breaks.reconcile(self._said(BreakEvent), driving.BOUNDARY)

    def _samples(self) -> tuple[list[dict[FileLine, float]], bool]:
        """Seconds outside of graphs in some calls, by break, and whether most of them had to wait for the cores.

        Calls in which anything is compiled do not count.
        """
        samples: list[dict[FileLine, float]] = []
        starved: list[bool] = []
        for _ in range(MOST_TRIES):
            said = len(self.heard)
            self.calls.append(AGAIN)
            call = fresh(self.workload.call)
            cores = trusted.Cores()
            with self._listening():
                begin, end, runs = self.watch.timed(lambda call=call: self._once(self.compiled, call))  # type: ignore[misc]
            if len(self.heard) == said:
                starved.append(cores.starved())
                samples.append(costs.outside(begin, end, runs, self._ending, self._graphless()))
            if len(samples) == TIMED_CALLS:
                break
        return samples, 2 * sum(starved) > len(starved)

    def _ending(self, graph: int) -> costs.Ending:
        """The break that ended a graph, if one did."""
        captured = self.watch.graphs[graph]
        ended = [event for event in self._said(BreakEvent) if event.compile_id == captured.compile_id and event.stack]
        return costs.Ending(captured.part, breaks.place(ended[-1]) if ended else None)

    def _graphless(self) -> list[costs.Ending]:
        """Breaks that came before their part of a function had any graph."""
        with_graph = {graph.compile_id for graph in self.watch.graphs}
        events = [event for event in self._said(BreakEvent) if event.stack]
        owned = {breaks.place(event) for event in events if event.compile_id in with_graph}
        first = {breaks.place(event): event.part for event in reversed(events) if breaks.place(event) not in owned}
        return [costs.Ending(part, place) for place, part in first.items()]

    def _weigh_copies(self) -> None:
        """Every run of a graph counts: equal blocks share one graph, and each hands its values over."""

        def crossed(graph: int, tensors: list[torch.Tensor]) -> None:
            place = self._ending(graph).place
            if place is not None:
                self.fusion_s[place] = self.fusion_s.get(place, 0.0) + costs.copying_s(tensors)

        call = fresh(self.workload.call)
        self._listen(lambda: self.watch.handing(lambda: self._once(self.compiled, call), crossed))

    def _count_lines(self) -> None:
        call = fresh(self.workload.call)
        lines = {place: breaks.counted_at(place, found) for place, found in self._breaks().items()}
        with watching.counting(lines.values(), self.workload.model) as passed:
            self._once(self.workload.model, call)
        self.passed = {place: passed[line] for place, line in lines.items()}

    def _weighed(self, place: FileLine, found: GraphBreak) -> GraphBreak:
        return breaks.with_cost(
            found,
            passed=self.passed.get(place, []),
            outside_s=self.outside_s.get(place),
            fusion_s=self.fusion_s.get(place) if place not in self.unpriced else None,  # a part is not the cost
        )

    # -------------------------------------------------------------------------------------------------- the drive

    def _recompiles(self) -> tuple[Recompile, ...]:
        called, written = _heads(self.workload.model)
        took = {event.compile_id: event.wall_s for event in self._said(CompileEvent) if not self.drive_starved}
        states = {event.compile_id: event.state for event in self._said(CompileEvent)}
        seen = [
            changes.Seen(_undecorated(event, called, written), call, took.get(event.compile_id), states)
            for call, event in self.heard
            if isinstance(event, RecompileEvent)
        ]
        limits = [_undecorated(event, called, written) for event in self._said(LimitEvent)]
        return changes.reconcile(
            seen, limits, split=bool(self._breaks()), root=written, declared=_declared(self.workload)
        )

    # --------------------------------------------------------------------------------------------------- the graphs

    def _graphs(self) -> tuple[Graph, ...]:
        compiled = {event.compile_id: event for event in self._said(CompileEvent)}
        captured = self.watch.graphs[: self.first_graphs]
        room = itertools.accumulate((len(graph.text) for graph in captured), initial=0)
        return tuple(
            Graph(
                index=index,
                where=_head(compiled.get(graph.compile_id)),
                ops=graph.ops,
                modules=tuple(graph.modules),
                text=graph.text if before < MOST_TEXT else "",
            )
            for index, (graph, before) in enumerate(zip(captured, room, strict=False))
        )

    def _module_nodes(self, found: list[GraphBreak]) -> tuple[ModuleNode, ...]:
        graphs = self.watch.graphs[: self.first_graphs]
        return tuple(
            ModuleNode(
                path=path,
                class_name=type(module).__name__,
                graphs=tuple(index for index, graph in enumerate(graphs) if path in graph.modules),
                breaks=tuple(index for index, one in enumerate(found) if path in one.modules),
            )
            for path, module in self.workload.model.named_modules()
        )


def _declared(workload: Workload) -> set[tuple[str, int]]:
    """The inputs and dimensions that are declared dynamic, by the user's names."""
    forward = workload.model.forward
    roots, ranges = parameter_names(forward, workload.call), resolve_dynamic(workload.dynamic, forward, workload.call)
    return {(dotted_name(path, roots), dim) for path, dims in ranges.items() for dim in dims}


def _head(event: CompileEvent | None) -> CodeFrame:
    return frames.code_frame(event) if event is not None else CodeFrame(file="", line=0, function="")


def _heads(model: torch.nn.Module) -> tuple[CodeSpot | None, CodeSpot | None]:
    """Where the model's forward begins: as it is called, decorators included, and as it was written."""
    forward = type(model).forward
    return _begin(forward), _begin(inspect.unwrap(forward))


def _undecorated(event: _Told, called: CodeSpot | None, written: CodeSpot | None) -> _Told:
    """What happens to a decorator around forward happens to forward itself."""
    if called is None or written is None or (event.file, event.line) != called[:2]:
        return event
    return event._replace(file=written.file, line=written.line, function=written.function)


def _begin(function: Any) -> CodeSpot | None:
    code = getattr(function, "__code__", None)
    return CodeSpot(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
