"""Matrix products by oneDNN in what torch.compile makes, in place of the math library's.

torch's CPU builds send fp32 matrix products to MKL, which uses AVX-512 on Intel's CPUs only; oneDNN, which torch has
for convolutions, uses it on others, too. Same precision, other library. In: a graph that Inductor is about to lower.
Out: the same graph with its fp32 products by oneDNN. The generated code calls torch's own operator: code that was kept
runs without this file. Covered: forward and backward, plain and transposed operands, biases, AOTInductor and the C++
wrapper. Not covered: batched products (torch has no such operator of oneDNN's for dense tensors), other dtypes (torch
sends those to oneDNN itself), products in eager.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch

VERSION = "compilot products 1"  # part of the key of Inductor's caches: any change of the pass is a new one
_SIZES = (256, 512, 768)  # of the products that are timed: a row block, inner and outer width of a small transformer
_TURNS = 7
_LIBRARY = "compilot"


def by_onednn(rows: torch.Tensor, columns: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """rows @ columns (+ bias), computed by oneDNN. Checked on torch 2.13.0."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, columns.t(), bias, "none", [], "")
    return product


def onednn_gain() -> float | None:
    """How much faster oneDNN's products are here: a ratio of quickest times. None: this torch cannot tell."""
    if not can_use_onednn():
        return None
    try:
        return _measured_gain()
    except RuntimeError:  # a look that fails must not end a run
        return None


def _measured_gain() -> float:
    many, inner, outer = _SIZES
    random = torch.Generator("cpu").manual_seed(0)  # whoever looks draws none of the user's numbers
    plain: dict[str, Any] = {"generator": random, "dtype": torch.float32, "device": "cpu"}  # whatever torch's usual is
    rows, columns = torch.rand(many, inner, **plain), torch.rand(inner, outer, **plain)
    quickest: dict[Callable[..., torch.Tensor], float] = dict.fromkeys((torch.mm, by_onednn), math.inf)
    with torch.no_grad():
        for _ in range(_TURNS):
            for product in quickest:
                begin = time.perf_counter()
                product(rows, columns)
                quickest[product] = min(quickest[product], time.perf_counter() - begin)
    return quickest[torch.mm] / quickest[by_onednn]


def can_use_onednn() -> bool:
    """Whether torch has oneDNN and may use it. Checked on torch 2.13.0."""
    onednn: Any = torch.backends.mkldnn
    return bool(onednn.is_available() and onednn.enabled)


@functools.cache
def graph_pass() -> Any:
    """The pass, for Inductor's option `post_grad_custom_post_pass`. Checked on torch 2.13.0."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class OneDNNProducts(CustomGraphPass):
        """Every fp32 product of the graph, forward or backward, by oneDNN."""

        def __call__(self, graph: torch.fx.Graph) -> None:
            replace_products(graph)

        def uuid(self) -> str:
            return VERSION

    return OneDNNProducts()


def replace_products(graph: torch.fx.Graph) -> int:
    """Products of the graph that oneDNN is to compute from now on; how many."""
    operator = _operator()
    found = [node for node in graph.nodes if _is_product(node)]
    for node in found:
        if node.target is torch.ops.aten.addmm.default:
            bias, rows, columns = node.args
            node.args = (rows, columns, bias)
        node.target = operator
    return len(found)


def _is_product(node: torch.fx.Node) -> bool:
    """A product that is not empty, of fp32 on a CPU; a bias is a row, neither scaled nor anything else."""
    aten = torch.ops.aten
    if node.op != "call_function" or node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return False
    values = [arg.meta.get("val") for arg in node.all_input_nodes]
    if not all(isinstance(v, torch.Tensor) and v.dtype is torch.float32 and v.device.type == "cpu" for v in values):
        return False
    known = all(isinstance(n, int) for value in values for n in (*value.shape, *value.stride()))  # type: ignore[union-attr]
    if not known or any(size == 0 for value in values for size in value.shape):  # type: ignore[union-attr]
        return False  # an empty product is zero, and nothing is known of sizes that vary
    if node.target is aten.mm.default:
        return True
    return tuple(node.args[0].meta["val"].shape) == (node.args[2].meta["val"].shape[1],)  # type: ignore[union-attr]


@functools.cache
def _operator() -> Any:
    """The operator that stands for such a product between the pass and the code. Checked on torch 2.13.0."""
    from torch._inductor import ir, lowering
    from torch._inductor.mkldnn_ir import LinearUnary

    library: Any = torch.library.Library(_LIBRARY, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("product(Tensor rows, Tensor columns, Tensor? bias=None) -> Tensor")
    library.impl("product", by_onednn, "CPU")
    library.impl("product", _shape_of, "Meta")
    operator = torch.ops.compilot.product.default

    def product(rows: Any, columns: Any, bias: Any = None) -> Any:
        """Inductor's node for the operator; operands as they lie in memory wherever oneDNN can read them so."""
        inputs = [_readable(rows), _readable(lowering.permute(columns, [1, 0]))]
        constants: list[Any] = ["none", [-1], ""]
        if bias is None:
            constants.insert(0, None)
        else:
            inputs.append(LinearUnary.require_contiguous(LinearUnary.realize_input(bias)))
        size = [rows.get_size()[0], columns.get_size()[1]]
        layout = ir.FixedLayout(device=rows.get_device(), dtype=rows.get_dtype(), size=size)
        return ir.TensorBox.create(LinearUnary(layout=layout, inputs=inputs, constant_args=constants))

    lowering.register_lowering(operator, type_promotion_kind=None)(product)
    lowering.add_needs_realized_inputs(operator)  # type: ignore[no-untyped-call]
    _kept.append(library)
    return operator


_kept: list[torch.library.Library] = []  # an operator is there as long as its library is


def _readable(operand: Any) -> Any:
    """A matrix whose rows or columns lie one after the other without overlap; anything else is copied."""
    from torch._inductor.mkldnn_ir import LinearUnary

    operand = LinearUnary.realize_input(operand)
    (outer, inner), (across, along) = operand.get_size(), operand.get_stride()
    plain = (along == 1 and across >= inner) or (across == 1 and along >= outer)
    return operand if plain else LinearUnary.copy_input(operand)


def _shape_of(rows: torch.Tensor, columns: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return rows.new_empty((rows.shape[0], columns.shape[1]))
