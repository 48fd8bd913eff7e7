"""The model's part of a training step: its calls compiled, the module still the user's own.

In: a model, and how a plan compiles it. Out: who answers the calls of which modules; used by a step while it runs
(training/), and put in place for programs that own the loop (`put_in_place`). There the first call in train mode with
gradients settles which sizes are compiled; calls of other sizes, eval mode and calls without gradients run in eager, so
that a validation pass or the last, smaller batch compiles nothing. The backward is compiled together with the forward,
so that what fails to compile fails here, before anything has changed: the module runs in eager from then on. Programs
that later calls build are counted; several of them are a warning. Class, attributes, state_dict and pickles of the
model are as they were. Not covered: the loss and the optimizer.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from compilot._torch import compiling, training
from compilot._torch.versions import Versions
from compilot._tree import Call, call_leaves
from compilot.engines import registry
from compilot.engines.compiler_options import torchs_own
from compilot.engines.protocol import Infeasible
from compilot.engines.registry import DYNAMO
from compilot.engines.traits import COMPILE_CACHE
from compilot.errors import InputError, PlanNotUsedWarning, first_cause
from compilot.modules.randomness import RandomState
from compilot.modules.regions import placed
from compilot.records import CompiledWay, Region, Settings, Shapes
from compilot.runtime.notices import Fallbacks, Recompiles, Stats, warn

RECOMPILE_LIMIT = 16  # a window's first and later micro-batches, other settings of the model: each is a program
AS_EAGER_CASTS = {"backward_pass_autocast": "off"}  # the backward runs outside of autocast, as eager's does
EARLY_BACKWARD = {"force_non_lazy_backward_lowering": True}  # with the forward, not at the loop's first .backward()
EVAL, NO_GRADIENTS, OTHER_SIZES = "eval mode", "gradients disabled", "sizes other than those of the first call"

logger = logging.getLogger("compilot")

Compiled = Callable[..., Callable[..., Any]]  # a function -> the same behind torch.compile


def compiled_with(settings: Settings) -> Compiled:
    """What torch.compile is told by these settings."""
    mode = settings.mode if settings.mode not in (None, "default") else None
    return partial(
        training.compiled_function,
        backend=registry.plain_compile() if settings.engine == "eager" else settings.engine.removeprefix(DYNAMO),
        options={**(compiling.mode_options(mode) if mode else {}), **torchs_own(settings.options)},
        dynamic=settings.shapes is Shapes.DYNAMIC,
        recompile_limit=RECOMPILE_LIMIT,
    )


def model_calls(
    model: nn.Module, way: CompiledWay, settings: Settings, regions: Sequence[Region]
) -> dict[nn.Module, Callable[..., Any]]:
    """Compiled answers to the calls of the model, or of the submodules that the regions name."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    if way is not CompiledWay.REGIONS:
        return {inner: partial(compiled_with(settings)(training.plain_call), inner)}
    if not regions:
        raise Infeasible("a step that is compiled by region needs regions")
    try:
        places = placed(inner, regions)
    except InputError as error:
        raise Infeasible(str(error).rstrip(".")) from error
    limit = RECOMPILE_LIMIT * len(places)  # where they are not quite alike, each gets a program of its own
    shared = [compiled_with(region.settings)(training.plain_call, recompile_limit=limit) for region in regions]
    return {place.module: partial(shared[place.region], place.module) for place in places}


def kept_code(artifacts: Path | None) -> AbstractContextManager[Any]:
    """What is compiled meanwhile is kept beside the plan: a restarted process finds it and compiles nothing."""
    stack = ExitStack()
    stack.enter_context(warnings.catch_warnings())  # torch.compile itself looks at gradients of a region's inputs
    warnings.filterwarnings(
        "ignore", message="The .grad attribute of a Tensor that is not a leaf", category=UserWarning
    )
    folder = None if artifacts is None else (artifacts / COMPILE_CACHE).absolute()
    stack.enter_context(compiling.cache_directory(folder))
    if not compiling.trusts_vector_isa():  # part of the cache key: the same in the worker and in the user's process
        stack.enter_context(compiling.inductor_config({"cpp.vec_isa_ok": True}))
    return stack


class InPlace:
    """Answers a module's calls: compiled where they are as the first one was, in train mode and with gradients."""

    def __init__(
        self, module: nn.Module, compiled: Callable[..., Any], artifacts: Path | None, recompiles: Recompiles
    ) -> None:
        """recompiles: counts those of the whole model."""
        self._recompiles = recompiles
        self._module = module
        self._compiled = compiled
        self._artifacts = artifacts
        self._form: Any = None  # of the first call that was compiled
        self._dead: str | None = None
        self._versions: Versions | None = None  # since the first call that was compiled
        self._fast = self._compiles = 0
        self._fallbacks = Fallbacks(type(module).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's answer."""
        if torch.compiler.is_compiling():  # part of a program that somebody else compiles
            return training.plain_call(self._module, *args, **kwargs)
        reason = self._against(args, kwargs)
        if reason is None:
            return self._first(args, kwargs) if self._fast == 0 else self._again(args, kwargs)
        self._fallbacks.count(reason, lambda: self._fast, said=reason in (EVAL, NO_GRADIENTS))
        return training.plain_call(self._module, *args, **kwargs)

    def stats(self) -> Stats:
        """How the calls so far went."""
        fallbacks = self._fallbacks.snapshot()
        return Stats(self._fast + sum(fallbacks.values()), self._fast, fallbacks, self._compiles)

    def _against(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if self._dead is not None:
            return self._dead
        if not self._module.training:
            return EVAL
        if not torch.is_grad_enabled():
            return NO_GRADIENTS
        form = form_of(args, kwargs)
        if self._form is None:
            self._form = form
        return None if form == self._form else OTHER_SIZES

    def _again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        versions = self._versions = self._versions or Versions(self._module)
        versions.mark()
        before = compiling.graphs_built()
        try:
            if _casts():  # it may be compiled again
                with training.step_config({}, AS_EAGER_CASTS):
                    answer = self._compiled(*args, **kwargs)
            else:
                answer = self._compiled(*args, **kwargs)
        except Exception as error:
            if not compiling.is_compile_error(error) or not versions.back_unless_changed():
                raise
            return self._failed(error, args, kwargs)
        if built := compiling.graphs_built() - before:
            self._compiles += built
            self._recompiles.add(built)
        self._fast += 1
        return answer

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compile; where that fails, eager answers from the same state."""
        state, buffers = RandomState.now(), [(own, own.clone()) for own in self._module.buffers()]
        before = compiling.graphs_built()
        try:
            casts = AS_EAGER_CASTS if _casts() else {}
            with kept_code(self._artifacts), training.step_config({}, {**EARLY_BACKWARD, **casts}):
                answer = self._compiled(*args, **kwargs)
        except Exception as error:
            state.put_back()
            for own, values in buffers:
                own.copy_(values)
            return self._failed(error, args, kwargs)
        self._compiles += compiling.graphs_built() - before
        self._fast += 1
        return answer

    def _failed(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Eager's answer, now and from now on."""
        self._dead = f"compiling failed: {first_cause(error)}"
        warn(f"{self._dead}; the model stays eager.", PlanNotUsedWarning)
        self._fallbacks.count(self._dead, lambda: self._fast, said=True)
        return training.plain_call(self._module, *args, **kwargs)


def _casts() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def form_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Sizes, layouts and dtypes of a call's tensors, and its other values; numbers are torch.compile's to guard."""
    return tuple(
        (path, tuple(leaf.shape), leaf.dtype, leaf.stride())
        if isinstance(leaf, torch.Tensor)
        else (path, leaf if isinstance(leaf, bool | str | None) else type(leaf))
        for path, leaf in call_leaves(Call(args, kwargs))
    )


def put_in_place(
    model: nn.Module,
    way: CompiledWay,
    settings: Settings,
    regions: Sequence[Region],
    artifacts: Path | None,
) -> Mapping[nn.Module, InPlace]:
    """Have the model's calls answered by compiled code from now on; `take_out` ends it."""
    calls, recompiles = model_calls(model, way, settings, regions), Recompiles()
    doors = {module: InPlace(module, call, artifacts, recompiles) for module, call in calls.items()}
    for module, door in doors.items():
        module._compiled_call_impl = door
    return doors


def in_place(model: nn.Module) -> dict[nn.Module, InPlace]:
    """What was put in place in this model."""
    found = {module: module._compiled_call_impl for module in model.modules()}
    return {module: door for module, door in found.items() if isinstance(door, InPlace)}


def take_out(model: nn.Module) -> None:
    """The model's calls are its own again."""
    for module in in_place(model):
        del module._compiled_call_impl
