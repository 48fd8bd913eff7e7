"""Which submodule each operator of a captured graph belongs to. Checked on torch 2.13.0.

In: the graph that dynamo hands to a backend, and the model. Out: the number of operators per submodule path. Dynamo
notes the modules around each operator in `nn_module_stack`, keyed by the module's id (with "@N" for its Nth call).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import fx, nn


def operators_by_module(graph: fx.GraphModule, model: nn.Module) -> Counter[str]:
    """Operators per submodule path; "" for the model's own forward."""
    paths = {str(id(module)): path for path, module in model.named_modules()}
    found: Counter[str] = Counter()
    for node in graph.graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            around = [key.partition("@")[0] for key in node.meta.get("nn_module_stack", {})]
            found[next((paths[key] for key in reversed(around) if key in paths), "")] += 1
    return found


def counting_backend(
    on_graph: Callable[[fx.GraphModule], None],
) -> Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]:
    """Inductor as a backend that shows every graph first. Checked on torch 2.13.0."""
    from torch._inductor.compile_fx import compile_fx

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        on_graph(graph)
        return compile_fx(graph, inputs)  # type: ignore[return-value]

    return backend
