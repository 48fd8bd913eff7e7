"""The web service around a Swap: predictions, probes, metrics, and a page to look at.

POST /predict   one call, as JSON or safetensors; the answer in the same form, or as Accept says
GET  /          a page with state, latency and events, which keeps itself up to date
GET  /status    the same as JSON           GET /metrics, /healthz, /readyz   see probes.py
Calls run in threads, as many at a time as there are cores: more would wait for each other. Needs starlette (the extra
`serve`). Not covered: batching of requests, authentication (put a proxy before it).
"""

from __future__ import annotations

import functools
import time
from importlib.resources import files
from typing import Any

import anyio
import jinja2
import msgspec
import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from compilot._cores import usable_cores
from compilot._version import __version__
from compilot.errors import InputError, first_cause
from compilot.serve import wire
from compilot.serve.durations import Durations
from compilot.serve.metrics import Metrics
from compilot.serve.probes import answer as probe
from compilot.serve.swap import Swap

LARGEST_BODY = 64 << 20
SHOWN_EVENTS = 50
PAGE_MAY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'"


class Service:
    """One model on the web."""

    def __init__(self, swap: Swap, form: wire.Wire, *, label: str, grad: bool = False, at_once: int = 0) -> None:
        """form: of its calls. at_once: calls at the same time; 0: one per core."""
        self._swap = swap
        self._wire = form
        self._label = label
        self._grad = grad
        self._requests = Durations()
        self._metrics = Metrics(swap)
        self._at_once = anyio.CapacityLimiter(at_once or usable_cores())

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self.page),
            Route("/page.js", self.script),
            Route("/status", self.status),
            Route("/predict", self.predict, methods=["POST"]),
            *(Route(path, self.probe) for path in ("/metrics", "/healthz", "/readyz")),
        ]
        return Starlette(routes=routes)

    # ---- predictions ---------------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """The model's answer to one call."""
        begin = time.perf_counter()
        try:
            kind, accepted = self._kinds(request)
            body = await _body(request)
            answer = await anyio.to_thread.run_sync(self._answered, body, kind, accepted, limiter=self._at_once)
        except InputError as problem:
            return JSONResponse({"error": str(problem)}, status_code=400)
        except Exception as error:  # eager raised as well: it is the call that does not fit
            return JSONResponse({"error": f"the model raised {first_cause(error)}"}, status_code=422)
        self._requests.add("request", time.perf_counter() - begin)
        return Response(answer, media_type=accepted)

    def _kinds(self, request: Request) -> tuple[str, str]:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given not in wire.KINDS:
            raise InputError(f"send {' or '.join(wire.KINDS)} (content-type), not '{given}'.")
        kind = wire.KINDS[given]
        wanted = request.headers.get("accept", "")
        return kind, next((name for name in (wire.JSON, wire.SAFETENSORS) if name in wanted), kind)

    def _answered(self, body: bytes, kind: str, accepted: str) -> bytes:
        call = self._wire.call(body, kind)
        with torch.set_grad_enabled(self._grad):
            return wire.answer(self._swap(*call.args, **call.kwargs), accepted)

    # ---- to look at ----------------------------------------------------------------------------------------------

    async def probe(self, request: Request) -> Response:
        """/metrics, /healthz, /readyz."""
        status, body, kind = await anyio.to_thread.run_sync(
            probe, self._swap, self._metrics, request.url.path, request.method
        )
        return Response(body, status_code=status, headers={"content-type": kind})

    async def status(self, request: Request) -> Response:
        """Everything that the page shows."""
        return JSONResponse(await anyio.to_thread.run_sync(self._status))

    def _status(self) -> dict[str, Any]:
        swap = self._swap
        rows = {"requests": (self._requests, "request"), "eager": (swap.durations, "eager")}
        rows |= {"plan": (swap.durations, "fast")}
        latency = {
            name: {f"p{share}_s": found.quantile(path, share / 100) for share in (50, 95, 99)}
            for name, (found, path) in rows.items()
        }
        stats = swap.stats()
        return {
            "model": self._label,
            "inputs": self._wire.inputs(),
            "stats": {**msgspec.to_builtins(stats), "speedup": stats.pairs.speedup},
            "latency": latency,
            "events": [{"reason": "", **msgspec.to_builtins(event)} for event in reversed(swap.events[-SHOWN_EVENTS:])],
        }

    async def page(self, request: Request) -> Response:
        """State, latency and events."""
        status = await anyio.to_thread.run_sync(self._status)
        text = _template().render(status=status, compilot=__version__)
        return HTMLResponse(text, headers={"content-security-policy": PAGE_MAY, "cache-control": "no-store"})

    async def script(self, request: Request) -> Response:
        """What keeps the page up to date."""
        return Response(_file("page.js"), media_type="text/javascript")


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise InputError(f"the body is larger than {LARGEST_BODY >> 20} MiB.")
        parts.append(part)
    return b"".join(parts)


@functools.cache
def _file(name: str) -> str:
    return (files("compilot.serve") / "templates" / name).read_text()


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["ms"] = lambda seconds: "" if seconds is None else f"{seconds * 1e3:.2f} ms"
    return environment.from_string(_file("page.html.j2"))
