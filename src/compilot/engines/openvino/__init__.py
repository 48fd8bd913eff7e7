"""OpenVINO: the model converted to Intel's intermediate form, run by its CPU plugin."""

from compilot.engines.traits import BuildCost, EngineTraits, InstructionSets

TRAITS = EngineTraits(
    title="OpenVINO",
    build_cost=BuildCost.SECONDS,
    whole_graph=True,
    standalone=True,
    instruction_sets=InstructionSets.AT_RUN_TIME,
    package="openvino",
)
