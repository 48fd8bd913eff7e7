"""`compilot.ui`: your runs in the browser. In: a port. Out: a web page on this machine, until Ctrl-C.

Needs starlette and uvicorn, which the extra `ui` brings. Not covered: the pages themselves (pages/).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from compilot.errors import EnvironmentProblem, InputError

INSTALL = "the web page needs starlette and uvicorn; install them with: pip install 'compilot[ui]'"
_EXTRA = ("anyio", "starlette", "uvicorn")


def ui(
    *,
    port: int | None = None,
    open_browser: bool = False,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Show your runs in the browser: list, filters, comparison, trend, reports, a tune under way; as `compilot ui`.

    It serves this machine alone, until Ctrl-C. port is 8642 unless that one is taken; 0 takes any that is free.
    open_browser starts the browser. ready is called with the address, which is a secret; by default it goes to stderr.
    """
    if port is not None and not 0 <= port <= 65535:
        raise InputError("the port is a number from 0 to 65535; 0 takes any that is free.")
    try:
        from compilot.pages import serving
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise EnvironmentProblem(f"{INSTALL}.") from missing
    server = serving.Server(port)
    (ready or _said)(server.url)
    if open_browser and not serving.open_browser(server.url):
        sys.stderr.write("no browser could be started here; open the address yourself.\n")
    try:
        server.run()
    finally:
        if open_browser:
            serving.forget_address()


def _said(url: str) -> None:
    sys.stderr.write(f"your runs: {url}\n")
    sys.stderr.flush()
