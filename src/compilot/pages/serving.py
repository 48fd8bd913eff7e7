"""The server of the pages. In: a port. Out: pages on loopback until Ctrl-C, SIGTERM or `stop`.

The address is given to whoever waits for it once the port is open. The browser is opened by way of a private file that
leads to it: what stands on a command line, every user of the machine can read. Covered: ports that are taken, Ctrl-C
with pages open. Needs starlette and uvicorn.
"""

from __future__ import annotations

import contextlib
import socket
import webbrowser
from collections.abc import Callable
from html import escape

import uvicorn

from compilot.artifacts import state
from compilot.errors import EnvironmentProblem
from compilot.files import atomic
from compilot.pages.door import Door, new_token
from compilot.pages.site import Site

HOST = "127.0.0.1"
USUAL_PORT = 8642  # easy to type into a tunnel; where it is taken, any that is free
WAIT_FOR_PAGES_S = 1  # at the end, before streams are cut
LEADS_THERE = "ui.html"


class Server:
    """One server; `run` blocks, `stop` may be called from another thread."""

    def __init__(self, port: int | None = None) -> None:
        """port: None for the usual one, or any that is free; 0: any."""
        self._socket = _bound(port)
        token = new_token()
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{token}/"
        config = uvicorn.Config(
            Door(Site(f"/{token}").app(), token),
            access_log=False,  # it would have the token
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=WAIT_FOR_PAGES_S,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until it is stopped; Ctrl-C is a way to stop it."""
        with contextlib.suppress(KeyboardInterrupt), contextlib.closing(self._socket):
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`."""
        self._server.should_exit = True

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return bool(self._server.started)


def open_browser(url: str, start: Callable[[str], bool] = webbrowser.open) -> bool:
    """Show the address in a browser; False: none could be started, or there is no private place to name it."""
    try:
        path = state.private_file(LEADS_THERE)
        text = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(url)}">'
        atomic.write_bytes(path, text.encode(), atomic.PRIVATE)
    except (OSError, EnvironmentProblem):
        return False
    return start(path.as_uri())


def forget_address() -> None:
    """Remove what led the browser there."""
    with contextlib.suppress(OSError, EnvironmentProblem):
        state.private_file(LEADS_THERE).unlink(missing_ok=True)


def _bound(port: int | None) -> socket.socket:
    for wanted in (USUAL_PORT, 0) if port is None else (port,):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, wanted))
            found.listen()  # from here on the port is ours alone, and the browser may come
        except (OSError, OverflowError) as problem:
            found.close()
            why = getattr(problem, "strerror", None) or str(problem)
        else:
            return found
    raise EnvironmentProblem(f"port {port} cannot be used: {why}; choose another one, or none.")
