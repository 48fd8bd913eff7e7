"""Probes of a Swap as a small ASGI app to mount: /metrics, /healthz, /readyz. No framework is needed for it.

In: a Swap. Out: an ASGI application, `app.mount("/compilot", compilot.serve.asgi(swap))`. /healthz: the process answers
(never "still eager": a server that is restarted for that starts from the beginning). /readyz: 200 where `ready()`, else
503. /metrics: Prometheus' text. Covered: a mount path, HEAD, unknown paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from compilot.records import encode
from compilot.serve.metrics import Metrics

if TYPE_CHECKING:
    from compilot.serve.swap import Swap

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, bytes, str]
PLAIN, JSON = "text/plain; charset=utf-8", "application/json"


def asgi(swap: Swap, metrics: Metrics | None = None) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """/metrics, /healthz and /readyz of this Swap. metrics: one that exists already; None: a new one."""
    kept = metrics or Metrics(swap)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            return None
        status, body, kind = await asyncio.to_thread(answer, swap, kept, path_of(scope), scope["method"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        return None

    return app


def path_of(scope: Scope) -> str:
    """The path below the place where the app is mounted."""
    root = scope.get("root_path", "")
    return str(scope["path"]).removeprefix(root) if root else str(scope["path"])


def answer(swap: Swap, metrics: Metrics, path: str, method: str) -> Answer:
    """Status, body and content type."""
    if method not in ("GET", "HEAD"):
        return 405, b"only GET and HEAD\n", PLAIN
    if path == "/healthz":
        return 200, b"ok\n", PLAIN
    if path == "/readyz":
        told = encode(_standing(swap))
        return (200 if swap.ready() else 503), told + b"\n", JSON
    if path == "/metrics":
        body, kind = metrics.text()
        return 200, body, kind
    return 404, b"/metrics, /healthz or /readyz\n", PLAIN


def _standing(swap: Swap) -> dict[str, Any]:
    return {"ready": swap.ready(), "live": swap.live(), "state": str(swap.state), "reason": swap.reason}


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
