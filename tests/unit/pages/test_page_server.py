"""The server: loopback alone, a port that is free, the browser by way of a private file, and an end."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import compilot
from compilot.artifacts.rundir import RunDir
from compilot.pages import serving
from compilot.pages.serving import Server, forget_address, open_browser


def test_it_listens_on_loopback_alone_and_wants_the_token(server: Server, runs: list[RunDir]) -> None:
    assert server._socket.getsockname()[0] == "127.0.0.1"
    with urllib.request.urlopen(server.url) as answer:
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert b"3 of 3 runs" in answer.read()
    with pytest.raises(HTTPError, match="403") as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
    assert b"compilot ui" in refused.value.read()
    refused.value.close()


def test_a_port_that_is_taken_is_said_and_the_usual_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(compilot.EnvironmentProblem, match=f"port {port} cannot be used"):
            Server(port)
        monkeypatch.setattr(serving, "USUAL_PORT", port)
        other = Server()
        assert other.port not in (0, port)
        other._socket.close()
    with pytest.raises(compilot.InputError, match="from 0 to 65535"):
        compilot.ui(port=70000)


def test_no_command_line_has_the_address(state_folder: Path) -> None:
    started: list[str] = []
    assert open_browser("http://127.0.0.1:1/secret/", lambda address: bool(started.append(address)) or True)
    assert "secret" not in started[0]
    path = Path(started[0].removeprefix("file://"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "http://127.0.0.1:1/secret/" in path.read_text()
    forget_address()
    assert not path.exists()


def test_without_a_private_place_no_browser_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_STATE", "/proc/none")
    assert not open_browser("http://127.0.0.1:1/secret/", lambda _: pytest.fail("it was opened"))
    forget_address()


def test_without_the_extra_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("compilot.pages", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(compilot.EnvironmentProblem, match=r"pip install 'compilot\[ui\]'"):
        compilot.ui()


def test_the_function_gives_the_address_and_opens_the_browser(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    heard: list[str] = []
    monkeypatch.setattr(Server, "run", lambda self: heard.append("ran") or self._socket.close())
    monkeypatch.setattr(serving, "open_browser", lambda url: bool(heard.append(url)))
    compilot.ui(port=0, open_browser=True)
    said = capsys.readouterr().err
    assert heard[0].startswith("http://127.0.0.1:")
    assert heard[0] in said
    assert "open the address yourself" in said
    assert heard[1] == "ran"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_end(runs: list[RunDir], how: signal.Signals) -> None:
    command = [sys.executable, "-m", "compilot", "ui", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        document = b"".join(iter(process.stdout.readline, b"}\n")) + b"}"
        url = json.loads(document)["url"]
        for _ in range(200):
            try:
                with urllib.request.urlopen(url) as answer:
                    assert b"3 of 3 runs" in answer.read()
                break
            except OSError:
                assert process.poll() is None
        process.send_signal(how)
        assert process.wait(60) == 0
        assert b"Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
