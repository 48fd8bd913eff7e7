"""`compilot.serve.run`: a target as a web service. In: a target, where its plan is. Out: a server until Ctrl-C.

Needs starlette, uvicorn and prometheus-client (the extra `serve`). Several workers: run this app under a server of your
own (docs/serving.md); one process of this has as many threads as cores.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compilot.errors import EnvironmentProblem, InputError
from compilot.records import Plan

if TYPE_CHECKING:
    from compilot.serve.events import OnEvent
    from compilot.workload import Workload

INSTALL = "a server needs starlette, uvicorn and prometheus-client; install them with: pip install 'compilot[serve]'"
_EXTRA = ("anyio", "starlette", "uvicorn", "prometheus_client")
LOOPBACK = "127.0.0.1"
END_S = 5  # for requests under way, at the end


def run(
    target: str | Workload,
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    host: str = LOOPBACK,
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
    at_once: int = 0,
    shadow: float = 0.01,
    require_fast: bool = False,
    on_event: OnEvent | None = None,
    log: str | os.PathLike[str] | None = None,
    trusted_keys: Sequence[str | os.PathLike[str]] = (),
    require_signature: bool = False,
) -> None:
    """Serve a target over HTTP until Ctrl-C; what `compilot serve` does.

    Eager answers at once. plan is a plan, a bundle or a store's URL; without one a child process builds what it can
    prove. port 0 takes any that is free. ready is called with the address once the port is open; by default it goes to
    stderr. at_once is how many calls run at the same time; 0: one per core. The other options are those of Swap.
    """
    if not 0 <= port <= 65535:
        raise InputError("the port is a number from 0 to 65535; 0 takes any that is free.")
    uvicorn = _uvicorn()
    workload = _opened(target)
    bound = _bound(host, port)
    from compilot.serve.service import Service
    from compilot.serve.swap import Swap
    from compilot.serve.wire import Wire

    swap = Swap(
        workload.model,
        plan,
        shadow=shadow,
        require_fast=require_fast,
        on_event=on_event,
        log=log,
        trusted_keys=trusted_keys,
        require_signature=require_signature,
    )
    with contextlib.closing(bound), swap:
        _warm(swap, workload)
        form = Wire(workload.model.forward, workload.call)
        app = Service(swap, form, label=workload.label, grad=workload.grad, at_once=at_once).app()
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=END_S
        )
        (ready or _said)(f"http://{host}:{bound.getsockname()[1]}/")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[bound])


def _uvicorn() -> Any:
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise EnvironmentProblem(f"{INSTALL}.") from missing
    return uvicorn


def _opened(target: str | Workload) -> Workload:
    if not isinstance(target, str):
        return target
    from compilot.workload.target import load_target

    return load_target(target)


def _warm(swap: Any, workload: Workload) -> None:
    """The target's own examples are what is built for and proven with."""
    import torch

    with torch.set_grad_enabled(workload.grad):
        swap.warm(workload.examples)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)  # who connects before the server runs waits for it
    except OSError as problem:
        found.close()
        why = problem.strerror or str(problem)
        raise EnvironmentProblem(f"{host}:{port} cannot be used: {why}; choose another with port=.") from problem
    return found


def _said(url: str) -> None:
    sys.stderr.write(f"serving: {url}\n")
    sys.stderr.flush()
