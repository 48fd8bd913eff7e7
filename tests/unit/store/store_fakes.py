"""What the tests of stores share: this machine as they see it, and a web server that can misbehave."""

from __future__ import annotations

import re
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from compilot.records import MachineFingerprint

HERE = MachineFingerprint(
    torch="2.13.0",
    python="3.11.2",
    platform="Linux-x86_64",
    glibc="glibc 2.36",
    cpu_model="Some CPU",
    cpu_isa=("avx2",),
    cores=2,
    threads=2,
    engines={"openvino": "2026.1"},
)
MakeBundle = Callable[..., Path]


class Web(SimpleHTTPRequestHandler):
    """The standard library's file server, with ranges as any real one has them, and a line that can break."""

    def __init__(self, *args: Any, state: WebState, **kwargs: Any) -> None:
        self.state = state
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return super().do_GET()
        if self.state.left_bytes is not None and self.state.left_bytes <= 0:
            return self.send_error(503)
        data = path.read_bytes()
        if wanted and self.state.ranges:
            start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
            self._send(206, data[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})
        else:
            self._send(200, data, {})
        return None

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.state.left_bytes is not None:
            data = data[: self.state.left_bytes]
            self.state.left_bytes -= len(data)
        if not data:
            self.close_connection = True
        self.wfile.write(data)
        self.state.sent_bytes += len(data)

    def log_message(self, *_: object) -> None:
        pass


class WebState:
    """What the server is to do, and what it did."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.ranges = True
        self.left_bytes: int | None = None  # after so many the line breaks
        self.sent_bytes = 0
