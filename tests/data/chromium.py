"""Pages in a real browser, by Chromium's DevTools protocol: what it shows, says, asks for, and what axe-core finds.

In: an address. Out: `Tab`. The browser reaches no network but loopback. Used by tests, and by bench/screens.py.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

START_S = 60.0
OPTIONS = (
    "--headless",
    "--no-sandbox",  # root in a container has no user namespace for it
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)


def found() -> str | None:
    """Where Chromium is; None: not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium that lives as long as the block."""
    program = found()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder:
        command = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_address(Path(folder), process), max_size=None) as connection:
                yield Browser(connection)
        finally:
            process.terminate()
            process.wait()
            for _ in range(50):  # its helpers write a moment longer
                shutil.rmtree(folder, ignore_errors=True)
                if not os.path.exists(folder):
                    break
                time.sleep(0.1)
            os.makedirs(folder, exist_ok=True)


def _address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + START_S
    port = folder / "DevToolsActivePort"
    while not (port.exists() and len(lines := port.read_text().splitlines()) == 2):
        assert process.poll() is None, "Chromium did not start"
        assert time.monotonic() < end, "Chromium does not answer"
        time.sleep(0.05)
    return f"ws://127.0.0.1:{lines[0]}{lines[1]}"


class Browser:
    """Opens tabs."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self.tabs: dict[str, Tab] = {}

    def open(self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> Tab:
        """A new tab that shows this address, loaded."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self.tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            tab.ask(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.ask("Emulation.setEmulatedMedia", features=[scheme])
        tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        tab.go(address)
        return tab

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """One command and its answer; what else is said meanwhile goes to its tab."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._connection.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = self.hear(60.0)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = json.loads(self._connection.recv(timeout_s))
        tab = self.tabs.get(message.get("sessionId", ""))
        if tab is not None and "method" in message:
            tab.heard(message["method"], message["params"])
        return message


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.complaints: list[str] = []  # errors and warnings of the console, exceptions, failed requests
        self.asked_for: list[str] = []  # addresses
        self._loaded = False

    def heard(self, method: str, what: dict[str, Any]) -> None:
        """Something happened."""
        if method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(one.get("value", one)) for one in what["args"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(what["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(what["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def ask(self, method: str, **parameters: Any) -> Any:
        """A command for this tab."""
        return self._browser.ask(method, self._session, **parameters)

    def go(self, address: str) -> None:
        """Show another address; returns when it is loaded."""
        self._loaded = False
        self.ask("Page.navigate", url=address)
        while not self._loaded:
            self._browser.hear(60.0)

    def evaluate(self, code: str) -> Any:
        """What an expression of JavaScript gives."""
        answer = self.ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, code: str, timeout_s: float = 60.0) -> None:
        """Until an expression is true."""
        end = time.monotonic() + timeout_s
        tried = f"(() => {{ try {{ return !!({code}) }} catch {{ return false }} }})()"  # a page may be half there
        while not self.evaluate(tried):
            assert time.monotonic() < end, f"never: {code}"
            time.sleep(0.1)

    def press(self, key: str) -> None:
        """A key, as a person presses it."""
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        typed = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
        self.ask("Input.dispatchKeyEvent", type="keyDown", **named, **typed)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def findings(self, *impacts: str) -> list[str]:
        """What axe-core finds of these impacts, one line each."""
        source = (files("axe_core_python") / "axe.min.js").read_text()
        self.evaluate(f"{source}; true")
        found = self.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map("
            "(v) => [v.impact, v.id, v.help, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160))]))"
        )
        return [f"{one[0]}: {one[1]}: {one[2]}: {one[3]}" for one in found if one[0] in impacts]

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot as PNG; whole: beyond the window, too."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """Close it."""
        self._browser.tabs.pop(self._session, None)
        self._browser.ask("Target.closeTarget", targetId=self._target)
