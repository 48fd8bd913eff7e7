"""CUDA graphs: the eager model's GPU work recorded once and replayed. Unproven: written without a GPU at hand."""

from compilot.engines.traits import TORCH, BuildCost, EngineTraits

TRAITS = EngineTraits(build_cost=BuildCost.RECORDING, package=TORCH)
