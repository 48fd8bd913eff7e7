"""AOTInductor: the model compiled ahead of time by Inductor into one library of native code."""

from compilot.engines.traits import TORCH, BuildCost, EngineTraits

TRAITS = EngineTraits(
    build_cost=BuildCost.EXPORT_AND_COMPILER,
    whole_graph=True,
    compiler_at_build=True,
    standalone=True,
    keeps_checks=True,
    again_share=0.1,  # the C++ compiler takes the rest: 4 s for a block, 0.3 s for the next
    package=TORCH,
)
