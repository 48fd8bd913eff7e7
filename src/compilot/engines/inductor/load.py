"""Inductor, run plane: torch.compile with the plan's settings; "dynamo:NAME" is the same with another backend.

In: a LoadRequest. Out: a callable that compiles in `prepare` and only there, as far as the inputs go. Covered: modes
and options together, true freezing, light guards (torch's checks of the model itself are left out, compilot
watches it: only for one graph), dynamic dimensions, other layouts and precisions, the cache directory beside the
plan; modules of a region that are alike share one program, like blocks of a whole model a part of one (nested.py).
torch's configuration and the environment are changed only while `load` and `prepare` run, in the calling thread, and
put back, also where another package's backend changes it. What such a backend does with weights and threads is not
known: it counts as one that bakes them in and serves one call at a time. Not covered: compiles that dynamo starts by
itself because the model's own attributes changed; they use torch's defaults.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from compilot._torch import compiling
from compilot._torch.direct import Direct
from compilot._torch.light_guards import LightGuards, NotOneGraph
from compilot._tree import Call, map_call
from compilot.engines import vector_probes
from compilot.engines.compiler_options import SIZES, torchs_own
from compilot.engines.conversions import Converted, converted
from compilot.engines.inductor.nested import with_nested_blocks
from compilot.engines.protocol import Baked, Follows, Infeasible, Loaded, LoadRequest
from compilot.engines.registry import DYNAMO
from compilot.engines.traits import COMPILE_CACHE
from compilot.modules.likeness import differing_integers
from compilot.records import ANY_SIZE, DimRange, Guard, Settings, Shapes

INDUCTOR = "inductor"
TRACED_AHEAD = (INDUCTOR, "aot_eager")  # their programs leave the thread's settings alone
KNOWN_BACKENDS = (INDUCTOR, "eager", "aot_eager")  # torch's own: they read the weights at each call, from any thread
_OURS = ("freezing", "light_guards", "nested_blocks", SIZES)  # no options of torch.compile
_ALL_OR_AUTOMATIC: dict[object, bool | None] = {"automatic": None, "all": True}  # what torch.compile calls dynamic
RECOMPILE_LIMIT = 16  # above what the dispatcher asks for: the rest is for changes in the model itself

logger = logging.getLogger("compilot")


def load(request: LoadRequest) -> Loaded:
    """The callable for these settings; nothing is compiled yet."""
    settings, guard = request.settings, request.guard
    freezing, backend = bool(settings.options.get("freezing")), _backend(settings)
    if freezing and guard.grad_enabled:
        raise Infeasible("freezing bakes the weights in, so it cannot serve calls with gradients enabled")
    if settings.options.get("light_guards") and (odd := next((v for v in guard.values if not v.value), None)):
        raise Infeasible(f"light_guards cannot follow {odd.path}, a {odd.type}: leave the option out")
    ours, nested = converted(request), bool(settings.options.get("nested_blocks"))
    if nested:
        ours = ours._replace(model=with_nested_blocks(ours.model))
    frozen = freezing or ours.copied or backend not in KNOWN_BACKENDS
    light = LightGuards(ours.model, weights_too=frozen) if settings.options.get("light_guards") else None
    with _cache_in(request.artifacts), _config_of(backend):  # importing Inductor already writes the variable
        compiled, direct = _compiled(request, ours, light, alone=freezing or backend not in KNOWN_BACKENDS)
    call = ours.around(_keep_results(compiled, settings, guard))
    prepare = _Preparation(compiled, direct, ours, request, light)
    return Loaded(
        call=call,
        prepare=prepare,
        frozen_weights=frozen,
        concurrent=backend in KNOWN_BACKENDS,
        builds=lambda: prepare.builds,
        baked=Baked.AT_LOAD if ours.copied or nested else Baked.AT_PREPARE,
        follows=Follows.GUARDED if light is None and not nested else Follows.NOTHING,
    )


def _compiled(
    request: LoadRequest, ours: Converted, light: LightGuards | None, *, alone: bool
) -> tuple[Callable[..., Any], Direct]:
    """The model behind torch.compile; one program for all that are alike, unless weights are constants of it."""
    settings, alike = request.settings, request.alike
    common: dict[str, Any] = {
        "backend": _backend(settings),
        "options": _options(settings),
        "dynamic": _dynamic(settings, request.guard),
    }
    if alike is None or alone or light is not None:  # light guards take one module for another
        direct = Direct()
        common |= {"recompile_limit": RECOMPILE_LIMIT, **_around(direct, settings)}
        return compiling.compile_module(ours.model, **common, guard_filter=light), direct
    direct = alike.once("direct", lambda: Direct(for_all=True))
    # where they are not quite alike, each gets a program of its own
    common |= {"recompile_limit": RECOMPILE_LIMIT * len(alike.modules), **_around(direct, settings)}
    shared = alike.once("compiled", lambda: compiling.compile_for_all(**common))
    return partial(shared, ours.model), direct


def _around(direct: Direct, settings: Settings) -> dict[str, Any]:
    return {"around": direct.around} if _backend(settings) in TRACED_AHEAD else {}


def _dynamic(settings: Settings, guard: Guard) -> bool | None:
    """What torch.compile is told of sizes; declared ones are marked on the tensors, unless the plan says otherwise."""
    undeclared = settings.shapes is Shapes.DYNAMIC and not _declared(guard)
    return _ALL_OR_AUTOMATIC.get(settings.options.get(SIZES), undeclared)


def _varying(request: LoadRequest) -> tuple[str, ...]:
    """Integers that tell modules apart which share a program."""
    alike = request.alike
    return () if alike is None else alike.once("varying", lambda: differing_integers(alike.modules))


class _Preparation:
    """Compiles one variant by answering one call, with everything set that the plan asks for."""

    def __init__(
        self,
        compiled: Callable[..., Any],
        direct: Direct,
        ours: Converted,
        request: LoadRequest,
        light: LightGuards | None,
    ) -> None:
        self._compiled = compiled
        self._direct = direct
        self._light = light
        self._ready = ours.ready or Call
        self._finish = ours.finish
        self._request = request
        self._said = False
        self.builds = 0

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer to the call; the variant is compiled on the way."""
        artifacts, settings = self._request.artifacts, self._request.settings
        if artifacts is None and not self._said:
            logger.warning("building at the first call: no files next to the plan")
            self._said = True
        call = self._ready(args, kwargs)
        if settings.options.get(SIZES) not in _ALL_OR_AUTOMATIC:
            call = _marked(call, self._request.guard)
        before = compiling.graphs_built()
        with (
            _cache_in(artifacts, _backend(settings)),
            _config_of(_backend(settings)),
            compiling.inductor_config(_config(settings)),
            compiling.varying_integers(_varying(self._request)),
            self._guards(),
            self._direct.learning(),
        ):
            answer = self._compiled(*call.args, **call.kwargs)
        self.builds += compiling.graphs_built() > before
        return self._finish(answer)

    @contextmanager
    def _guards(self) -> Iterator[None]:
        """Light ones where they were asked for."""
        try:
            with nullcontext() if self._light is None else self._light.compiling():
                yield
        except NotOneGraph as error:
            raise Infeasible(f"light_guards needs a model that torch.compile takes as one graph: {error}") from None


def _backend(settings: Settings) -> str:
    return settings.engine.removeprefix(DYNAMO)


def _config_of(backend: str) -> AbstractContextManager[None]:
    """Dynamo's configuration kept from what another package's backend does to it."""
    return nullcontext() if backend in KNOWN_BACKENDS else compiling.dynamo_config_of(backend)


def _options(settings: Settings) -> dict[str, Any]:
    """Options for torch.compile, the mode's among them; not freezing, which torch would silently ignore there."""
    mode = settings.mode if settings.mode not in (None, "default") else None
    named = compiling.mode_options(mode) if mode else {}
    return {**named, **torchs_own({key: value for key, value in settings.options.items() if key not in _OURS})}


def _config(settings: Settings) -> dict[str, Any]:
    """What is read from the global configuration at trace time."""
    changes: dict[str, Any] = {}
    if settings.options.get("freezing"):
        changes["freezing"] = True
    if not compiling.trusts_vector_isa():
        changes["cpp.vec_isa_ok"] = True  # part of the cache key: the same in the worker and in the user's process
    return changes


def _declared(guard: Guard) -> dict[str, dict[int, DimRange]]:
    """Dimensions with a declared range, by path of their tensor."""
    found = {
        t.path: {dim: size for dim, size in enumerate(t.shape) if isinstance(size, DimRange) and size != ANY_SIZE}
        for t in guard.tensors
    }
    return {path: dims for path, dims in found.items() if dims}


def _marked(call: Call, guard: Guard) -> Call:
    """The call with varying sizes declared, on aliases: marks stay on a tensor object, and the user's are not ours."""
    ranges = _declared(guard)

    def mark(path: str, leaf: Any) -> Any:
        if path not in ranges:
            return leaf
        alias = leaf.view_as(leaf)
        for dim in ranges[path]:
            if alias.shape[dim] > 1:  # 0 and 1 are compiled on their own
                compiling.mark_dynamic(alias, dim)
        return alias

    return map_call(call, mark) if ranges else call


def _keep_results(compiled: Callable[..., Any], settings: Settings, guard: Guard) -> Callable[..., Any]:
    """CUDA graphs reuse their output memory: results that the user keeps are copied. Not run here: no GPU."""
    graphs = settings.mode in ("reduce-overhead", "max-autotune")
    if not graphs or not any(t.device.startswith("cuda") for t in guard.tensors):
        return compiled

    def call(*args: Any, **kwargs: Any) -> Any:
        answer = Call((compiled(*args, **kwargs),), {})
        return map_call(answer, lambda _, leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf).args[0]

    return call


def _cache_in(artifacts: Path | None, backend: str = "") -> AbstractContextManager[None]:
    """Inductor's cache directory beside the plan; backend: of what is compiled in it."""
    folder = None if artifacts is None else (artifacts / COMPILE_CACHE).absolute()
    if backend == INDUCTOR:
        return vector_probes.cache_directory(folder)
    return compiling.cache_directory(folder)
