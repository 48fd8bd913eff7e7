"""From a source to a Trial: opened, built or fetched where it must be, loaded, proven. In the manager's thread.

In: what the user gave: a plan, a bundle, a store's URL, or None. Out: a Trial that has answered its golden calls and
the kept calls as eager does. Stays: eager goes on for good, with the reason; Later: worth another attempt. Nothing is
traced here: a plan that would be compiled at the start is served by its ahead-of-time twin, which the child builds
(`allow_trace` before the first call is the exception). Not covered: when it is tried again (manager.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import nn

from compilot.artifacts.bundle import is_bundle
from compilot.artifacts.bundle_trust import Trust
from compilot.engines.of_candidate import traits_of
from compilot.engines.protocol import Infeasible
from compilot.errors import (
    ArtifactError,
    BundleError,
    CompilotError,
    RunDirError,
    StoreError,
    UntrustedBundle,
    first_cause,
)
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import Candidate, Plan, PlanEntry, Shipment
from compilot.runtime.bundles import opened_bundle
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.plans import PlanFolder, plan_source, read_plan
from compilot.runtime.sources import ApplyOptions, EntryParts, parts_of
from compilot.runtime.start import start
from compilot.serve.keeping import KeptCall, KeptCalls, NoExample, form_of
from compilot.serve.proving import Incomparable, NotProven, prove
from compilot.serve.records import Bounds, BuildJob, SwapState
from compilot.serve.shared import Refused, SharedBundle, built_once, discard, shared_folder
from compilot.serve.staying import SUPERSEDED, Closing, Disproved, Later, NeedsExample, Source, Stays
from compilot.serve.trial import Trial
from compilot.serve.watching import Child, Ran

FETCHED_LASTS_S = 600.0  # workers that start together fetch once; a later start looks for a newer bundle
TOO_LATE = "requests came before it was compiled, and nothing is compiled beside them"
SEALED = "not built before the server went live; eager answers instead of compiling in a request"


class Made(NamedTuple):
    """A bundle or plan that can be loaded, and which one it must be."""

    given: PlanFolder | Path
    digest: str = ""


class _Started(NamedTuple):
    fast: Fast
    plan: Plan
    digest: str = ""
    parts: tuple[EntryParts, ...] = ()


class Bringer:
    """Makes Trials for one model."""

    def __init__(
        self,
        model: nn.Module,
        kept: KeptCalls,
        *,
        options: ApplyOptions,
        bounds: Bounds,
        stop: threading.Event,
        tell_state: Callable[[SwapState, str], None],
        go_on: Callable[[], None],
        superseded: Callable[[], bool],
        tell_built: Callable[[SharedBundle], None],
        may_trace: Callable[[], bool],
    ) -> None:
        self._model = model
        self._kept = kept
        self._options = options
        self._bounds = bounds
        self._stop = stop
        self._tell_state = tell_state
        self._go_on = go_on  # raises Stays where nobody wants it any more
        self._superseded = superseded  # another plan waits: what cannot go on at once gives way
        self._tell_built = tell_built
        self._may_trace = may_trace
        self.child = Child(bounds, go_on)

    def bring(self, source: Source) -> Trial:
        """The proven Trial of a source."""
        return self._proven(lambda: self._loaded((self._opened(source),)))

    def bring_more(self, live: Trial, example: KeptCall) -> Trial:
        """The live plan with one more entry, for calls like this one."""
        candidates = (live.plan.entries[0].candidate,)

        def load() -> Trial:
            return self._loaded((*live.made, self._built(candidates, example, twins=False)))

        return self._proven(load, example)

    def _proven(self, load: Callable[[], Trial], *more: KeptCall) -> Trial:
        """The trial, once the kept calls and these are answered as eager does."""
        try:
            trial = load()
            self._tell_state(SwapState.PROVING, "")
            proven = prove(trial, self._model, (*self._kept.all(), *more))
        except NoExample as problem:
            raise NeedsExample(str(problem)) from problem
        except NotProven as problem:
            raise Disproved(str(problem)) from problem
        except (Incomparable, Refused) as problem:
            raise Stays(str(problem)) from problem
        except (StoreError, RunDirError) as problem:
            raise Later(str(problem)) from problem
        except OSError as problem:
            raise Later(problem.strerror or str(problem)) from problem
        except (CompilotError, Infeasible) as problem:
            raise Stays(str(problem)) from problem
        if proven:
            trial.threads.add(torch.get_num_threads())
        return trial

    # ---- what is given -------------------------------------------------------------------------------------------

    def _opened(self, source: Source) -> Made:
        if source is None:
            return self._built((), None, twins=False)
        if isinstance(source, str) and "://" in source:
            return self._without_compiler(self._fetched(source))
        path = None if isinstance(source, Plan) else Path(source)
        if path is not None and is_bundle(path):
            return self._without_compiler(Made(path))
        given = source if isinstance(source, Plan) else Path(source)
        return self._without_compiler(Made(read_plan(given, require_signature=self._trust.require_signature)))

    @property
    def _trust(self) -> Trust:
        return self._options.trust

    def _without_compiler(self, made: Made) -> Made:
        """The same, or the twin of what would be compiled at the start; Stays for a plan that keeps eager."""
        plan = made.given.plan if isinstance(made.given, PlanFolder) else opened_bundle(made.given, self._trust).plan
        if not plan.entries:
            raise Stays(f"the plan keeps the model eager: {plan.because}")
        tracing = [entry.candidate for entry in plan.entries if is_traced(entry)]
        if not tracing:
            return made
        self._example()  # of `warm`; a first request comes with one, too, and then it is too late to trace
        if self._may_trace():
            return made
        return self._built(tuple(tracing), None, twins=True)

    # ---- the child -----------------------------------------------------------------------------------------------

    def _built(self, candidates: tuple[Candidate, ...], example: KeptCall | None, *, twins: bool) -> Made:
        example = example or self._example()
        self._tell_state(SwapState.BUILDING, "")
        threads, machine = torch.get_num_threads(), machine_fingerprint(compiler=False)
        ids = [candidate.id for candidate in candidates]
        form = [[str(part) for part in leaf] for leaf in form_of(example.call)]
        key = (model_fingerprint(self._model, weights=True), machine, form, example.grad, threads, ids)
        folder = shared_folder(key)

        def build(work: Path, out: Path, result: Path) -> Ran:
            job = BuildJob(
                folder=str(work),
                out=str(out),
                result=str(result),
                machine=machine,
                threads=threads,
                shipment=_shipped(self._model, example, work),
                candidates=candidates,
                twins=twins,
            )
            return self.child.run(job, weight_bytes(self._model), self._stop)

        found = built_once(folder, build, wait_s=self._bounds.lock_wait_s, stop=self._stop)
        return Made(self._whole(found).path, found.result.digest)

    def _example(self) -> KeptCall:
        while not self._stop.is_set():
            self._go_on()
            if self._superseded():
                raise Stays(SUPERSEDED)
            if self._kept.arrived.wait(0.2) and (example := self._kept.example()) is not None:
                return example
        raise Closing

    def _fetched(self, url: str) -> Made:
        self._tell_state(SwapState.FETCHING, url)
        wanted = model_fingerprint(self._model, weights=True)
        machine = machine_fingerprint(compiler=False)

        def fetch(work: Path, out: Path, result: Path) -> Ran:
            job = BuildJob(
                folder=str(work),
                out=str(out),
                result=str(result),
                machine=machine,
                threads=torch.get_num_threads(),
                url=url,
                wanted=wanted,
                trusted_keys=tuple(os.fspath(key) for key in self._trust.keys),
                require_signature=self._trust.require_signature,
            )
            return self.child.run(job, 0, self._stop)

        found = built_once(
            shared_folder((url, wanted, machine)),
            fetch,
            wait_s=self._bounds.lock_wait_s,
            stop=self._stop,
            lasts_s=FETCHED_LASTS_S,
        )
        return Made(self._whole(found).path)

    def _whole(self, found: SharedBundle) -> SharedBundle:
        """The same; one that another process left, and that is damaged, is removed. Raises Later."""
        if found.spent is None:
            try:
                opened_bundle(found.path, self._trust)
            except UntrustedBundle:
                raise
            except (BundleError, ArtifactError) as problem:
                discard(found)
                raise Later(f"a bundle that was built before is damaged, and is built again: {problem}") from problem
        self._tell_built(found)
        return found

    # ---- loading -------------------------------------------------------------------------------------------------

    def _loaded(self, made: tuple[Made, ...]) -> Trial:
        """Its golden calls are right when this returns; several bundles become one plan with all of their entries."""
        self._tell_state(SwapState.LOADING, "")
        parts = [self._started(one) for one in made]
        first = parts[0]
        if len(parts) == 1:
            fast, plan = first.fast, first.plan
        else:
            entries = tuple(entry for part in parts for entry in part.plan.entries)
            plan = msgspec.structs.replace(first.plan, entries=entries)
            fast = attach_parts(self._model, tuple(p for part in parts for p in part.parts), self._options)
        traced = any(is_traced(entry) for entry in plan.entries)
        trial = Trial(fast, plan, label=plan.entries[0].candidate.label, digest=first.digest, traced=traced)
        if not traced:  # what is traced could only be added to by tracing it again
            trial.made = made
            return trial
        if not self._may_trace():
            raise Stays(TOO_LATE)
        self._prepare(fast)
        trial.seal(SEALED)
        return trial

    def _started(self, made: Made) -> _Started:
        """One plan or bundle, loaded; a bundle's golden calls are judged by the model that answers now.

        A bundle that carries weights must not write them into a model that serves: hence copy_of.
        """
        if isinstance(made.given, PlanFolder):
            fast = start(self._model, made.given, self._options)
            source = plan_source(made.given, self._model, self._options.allow_stale)
            return _Started(fast, source.plan, parts=source.parts)
        opened = opened_bundle(made.given, self._trust)
        fast = start(self._model, made.given, self._options, copy_of=made.digest or opened.digest)
        folders = [opened.folder / one.folder if one.folder else None for one in opened.manifest.entries]
        return _Started(fast, opened.plan, opened.digest, parts_of(opened.plan, folders))

    def _prepare(self, fast: Fast) -> None:
        """Trace now what the kept calls need: no request has come yet."""
        for one in self._kept.all():
            with torch.set_grad_enabled(one.grad):
                try:
                    fast.prepare(one.call)
                except (CompilotError, Infeasible) as problem:
                    raise Stays(f"it cannot be compiled for the calls of warm(): {first_cause(problem)}") from problem


def is_traced(entry: PlanEntry) -> bool:
    """Whether loading this entry traces or compiles the model."""
    traits = traits_of(entry.candidate)
    return traits.compiler_at_start or traits.through_dynamo


def weight_bytes(model: nn.Module) -> int:
    """Of parameters and buffers."""
    tensors = {id(one): one for one in (*model.parameters(), *model.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values())


def _shipped(model: nn.Module, example: KeptCall, folder: Path) -> Shipment:
    """The model on its way to the child."""
    from compilot.workload import Workload  # here: a server that only loads plans needs none of it
    from compilot.workload.shipping import ship

    call = example.call
    return ship(Workload(model, call.args, call.kwargs, grad=example.grad), folder)
