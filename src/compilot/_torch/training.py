"""torch's private names that a training step needs: calls of a module compiled in place, settings, captured backwards.

In: modules and callables. Out: context managers that put back what they change, and compiled callables.
Covered: a module's own calls answered by another callable while a context is open (state_dict, class and identity stay
the module's), one program for modules that are alike, settings of dynamo and functorch that only hold meanwhile,
compiled autograd, who listens to gradients. Not covered: optimizers (optimizers.py), what a step is (training/).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

Calls = Mapping[nn.Module, Callable[..., Any]]


@contextlib.contextmanager
def answered_by(calls: Calls) -> Iterator[None]:
    """Calls of these modules go to these callables meanwhile. Checked on torch 2.13.0.

    `nn.Module.compile` sets the same attribute: it is in no state_dict, no pickle and no copy.
    """
    before = {module: module._compiled_call_impl for module in calls}
    try:
        for module, call in calls.items():
            module._compiled_call_impl = call
        yield
    finally:
        for module, call_of_before in before.items():
            if call_of_before is None:
                del module._compiled_call_impl
            else:
                module._compiled_call_impl = call_of_before


def plain_call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """The module's own call, hooks included, whoever answers its calls at the moment. Checked on torch 2.13.0."""
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]


def compiled_function(
    function: Callable[..., Any],
    *,
    backend: str,
    options: Mapping[str, Any],
    dynamic: bool | None,
    recompile_limit: int,
    fullgraph: bool = False,
) -> Callable[..., Any]:
    """The function behind torch.compile, with recompiles of its own. Checked on torch 2.13.0."""
    return torch.compile(  # type: ignore[call-overload, no-any-return]
        function,
        backend=backend,
        options={**options} or None,
        dynamic=dynamic,
        recompile_limit=recompile_limit,
        isolate_recompiles=True,
        fullgraph=fullgraph,
    )


@contextlib.contextmanager
def step_config(dynamo: Mapping[str, Any], functorch: Mapping[str, Any]) -> Iterator[None]:
    """Dynamo's and functorch's settings in this thread meanwhile. Checked on torch 2.13.0."""
    with contextlib.ExitStack() as stack:
        if dynamo:
            from torch._dynamo import config

            stack.enter_context(config.patch(dict(dynamo)))
        if functorch:
            from torch._functorch import config as functorch_config

            stack.enter_context(functorch_config.patch(dict(functorch)))
        yield


@contextlib.contextmanager
def forwarded_by(forwards: Calls) -> Iterator[None]:
    """These modules have these forwards meanwhile, for torch.compile too: it reads them from the module itself."""
    before = {module: vars(module).get("forward") for module in forwards}
    try:
        for module, forward in forwards.items():
            module.forward = forward
        yield
    finally:
        for module, own in before.items():
            if own is None:
                del module.forward
            else:
                module.forward = own


@contextlib.contextmanager
def captured_autograd(compiled: Callable[..., Callable[..., Any]]) -> Iterator[None]:
    """Backwards meanwhile are captured as they run, and compiled. Checked on torch 2.13.0.

    The same sizes are expected at every step, so that they are constants of the program.
    """
    from torch._dynamo import compiled_autograd

    with compiled_autograd._enable(compiled, dynamic=False):
        yield


def gradient_hook(model: nn.Module) -> str | None:
    """Where somebody listens to gradients: which parameter or module; None: nowhere. Checked on torch 2.13.0."""
    if torch_module._global_backward_hooks or torch_module._global_backward_pre_hooks:
        return "all modules"
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"parameter {name}"
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            return f"module {name or type(module).__name__}"
    return None


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP, in either of its forms, holds the model's weights. Checked on torch 2.13.0."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # whoever uses it has imported it
    if fsdp is None:
        return False
    return any(isinstance(module, fsdp.FSDPModule | fsdp.FullyShardedDataParallel) for module in model.modules())


def is_compiled(module: nn.Module) -> bool:
    """Whether the module's calls go through torch.compile already, in either form. Checked on torch 2.13.0."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    wrapped = eval_frame is not None and isinstance(module, eval_frame.OptimizedModule)
    return wrapped or module._compiled_call_impl is not None
