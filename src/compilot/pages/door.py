"""Who may come in. In: a request. Out: the same for the site behind the door, or a refusal in plain words.

The token is the first part of every address, so other users of the machine, who can connect to the port but do not
know it, see nothing. It is no cookie: browsers send those to every port of a host, other users' servers too. A page of
another site that makes this browser ask here (DNS rebinding) is refused by the name of the host.
Covered: loopback only, names of hosts, methods that change something, headers that keep addresses and pages private.
Not covered: root, and other programs of the same user, who can read the runs anyway.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_BYTES = 32
PAGES_MAY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": PAGES_MAY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",  # the address is the secret
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def new_token() -> str:
    """A secret for one life of the server."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Door:
    """Stands before the site."""

    def __init__(self, site: App, token: str) -> None:
        self._site, self._token = site, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, without its token, or refuse it."""
        if scope["type"] == "lifespan":
            await self._site(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        if refusal := self._refusal(scope):
            await _refuse(send, *refusal)
            return
        prefix = f"/{self._token}"
        inner = {**scope, "path": scope["path"].removeprefix(prefix) or "/", "raw_path": b"", "root_path": ""}
        await self._site(inner, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        client = (scope.get("client") or ("",))[0]
        if not _is_loopback(client) or not _names_loopback(_host(scope)):
            return 403, "only browsers on this machine may look at these pages."
        given = scope["path"].partition("/")[2].partition("/")[0]
        if not secrets.compare_digest(given.encode(errors="replace"), self._token.encode()):
            return 403, "open the whole address that 'compilot ui' has printed: its first part is a secret."
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "these pages can only be read."
        return None


def _host(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")


def _names_loopback(host: str) -> bool:
    """Whether a Host header has a name of this machine alone; the port may be that of a tunnel."""
    name = host.rpartition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or _is_loopback(name)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _with_headers(send: Send) -> Send:
    """The same with every header that a page does not set itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message.get("headers", [])}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in own]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return sending


async def _refuse(send: Send, status: int, words: str) -> None:
    body = f"compilot: {words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    sending = _with_headers(send)
    await sending({"type": "http.response.start", "status": status, "headers": headers})
    await sending({"type": "http.response.body", "body": body})
