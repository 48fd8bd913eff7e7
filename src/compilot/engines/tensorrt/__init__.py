"""TensorRT by way of torch_tensorrt. Unproven: written without a GPU at hand."""

from compilot.engines.traits import BuildCost, EngineTraits

TRAITS = EngineTraits(build_cost=BuildCost.MINUTES, whole_graph=True, package="torch_tensorrt")
