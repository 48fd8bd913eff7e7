"""Weights of an ONNX graph as 8-bit integers, activations too at each call ("dynamic quantisation").

In: a saved graph. Out: the graph quantised, in its place. Matrix products only: integer convolutions took 2 to 7 times
as long as float ones (AVX2), and 8-bit embeddings save no time. Each column of a weight has its own scale. Without
8-bit dot products in the CPU the sums of two products saturate 16 bits: on AVX2 an MLP was off by 13 %, by 1.7 % with
weights of 7 bits, and by 1.4 % with unsigned ones, which took 8 % longer. Not covered: static quantisation, which needs
calibration data.
"""

from __future__ import annotations

from pathlib import Path

from compilot.engines.protocol import Infeasible
from compilot.engines.quiet import quiet
from compilot.errors import first_cause

KINDS = {"8-bit": ("QInt8", False), "7-bit": ("QInt8", True), "unsigned": ("QUInt8", False)}  # type, reduce_range
OPERATORS = ("MatMul", "Gemm", "Attention", "LSTM")


def quantise(path: Path, data: Path, kind: str) -> None:
    """Replace the graph, and its file of weights where there is one, by the quantised ones; kind: one of KINDS."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path)
    if not any(node.op_type in OPERATORS for node in graph.graph.node):
        raise Infeasible("the graph has no matrix products that could be quantised")
    del graph.graph.value_info[:]  # the quantiser transposes weights and then trips over their old shapes
    large, (weights, reduce_range) = data.exists(), KINDS[kind]
    for file in (path, data):
        file.unlink(missing_ok=True)
    try:
        with quiet():
            quantize_dynamic(
                graph,
                path,
                op_types_to_quantize=list(OPERATORS),
                per_channel=True,
                reduce_range=reduce_range,
                weight_type=QuantType[weights],
                use_external_data_format=large,
            )
    except Exception as error:
        raise Infeasible(f"ONNX Runtime cannot quantise this graph: {first_cause(error)}") from error
