"""ONNX Runtime: the model exported to ONNX, run by Microsoft's engine."""

from compilot.engines.traits import BuildCost, EngineTraits, InstructionSets

TRAITS = EngineTraits(
    title="ONNX Runtime",
    build_cost=BuildCost.SECONDS,
    whole_graph=True,
    standalone=True,
    instruction_sets=InstructionSets.EXACT,  # its saved graphs hold weights in blocks of the vector width
    package="onnxruntime",
)
