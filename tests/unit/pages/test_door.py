"""Who comes in: this machine's browsers, with the token, to read. What browsers are forbidden."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from compilot.pages.door import HEADERS, Door, new_token

TOKEN = "the-secret"


def answered(path: str, *, method: str = "GET", host: str = "127.0.0.1:8642", client: str = "127.0.0.1") -> Any:
    """(status, headers, text, path that the site saw)."""
    seen: list[str] = []
    sent: list[Any] = []

    async def site(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"own")]})
        await send({"type": "http.response.body", "body": b"page"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "path": path,
        "method": method,
        "client": (client, 5),
        "headers": [(b"host", host.encode())],
    }
    anyio.run(Door(site, TOKEN), scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"].decode(), seen


def test_with_the_token_the_site_answers_and_never_sees_it() -> None:
    assert answered(f"/{TOKEN}/run/1")[::2] == (200, "page")
    assert answered(f"/{TOKEN}/run/1")[3] == ["/run/1"]
    assert answered(f"/{TOKEN}/")[3] == answered(f"/{TOKEN}")[3] == ["/"]


@pytest.mark.parametrize("path", ["/", "", "/other/", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", f"//{TOKEN}/", "/é/", "/run/1"])
def test_without_it_nothing_is_shown(path: str) -> None:
    status, headers, text, seen = answered(path)
    assert (status, seen) == (403, [])
    assert TOKEN not in text
    assert "compilot ui" in text
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "127.0.0.1:1", "[::1]:8642", "127.9.9.9"])
def test_names_of_this_machine_are_let_in(host: str) -> None:
    assert answered(f"/{TOKEN}/", host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8642", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "[::2]:1"]
)
def test_other_names_are_refused_even_with_the_token(host: str) -> None:
    assert answered(f"/{TOKEN}/", host=host)[::3] == (403, [])


def test_other_machines_and_other_methods_are_refused() -> None:
    assert answered(f"/{TOKEN}/", client="10.0.0.7")[::3] == (403, [])
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert answered(f"/{TOKEN}/", method=method)[::3] == (405, [])
    assert answered(f"/{TOKEN}/", method="HEAD")[0] == 200


def test_every_answer_keeps_the_address_private_and_loads_nothing() -> None:
    headers = answered(f"/{TOKEN}/")[1]
    assert headers == {**HEADERS, "cache-control": "own"}  # a page's own header counts
    assert headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_tokens_cannot_be_guessed() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert all(len(new_token()) >= 43 for _ in range(10))
