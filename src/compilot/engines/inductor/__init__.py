"""Inductor: torch.compile with its default backend, in the modes and options that matter on this machine."""

import msgspec

from compilot.engines.traits import COMPILE_CACHE, TORCH, BuildCost, EngineTraits

TORCHS_BACKENDS = frozenset({"eager", "inductor", "aot_eager", "cudagraphs"})  # those that need no other package
TRAITS = EngineTraits(
    build_cost=BuildCost.COMPILER,
    compiler_at_build=True,
    compiler_at_start=True,  # even with a kept cache directory
    cache_folder=COMPILE_CACHE,
    through_dynamo=True,
    keeps_checks=True,
    package=TORCH,
    warm_share=0.3,  # torch.compile still traces and checks
    plain_compile=True,
    unshared_options=("freezing", "light_guards"),  # constants, or guards, of one module
    ahead_of_time="aoti",
)
_OF_BACKENDS = EngineTraits(
    build_cost=BuildCost.BACKEND, compiler_at_start=True, cache_folder=COMPILE_CACHE, through_dynamo=True
)


def backend_traits(backend: str) -> EngineTraits:
    """Traits of torch.compile with another backend."""
    return msgspec.structs.replace(_OF_BACKENDS, package=TORCH) if backend in TORCHS_BACKENDS else _OF_BACKENDS
