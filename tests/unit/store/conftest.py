"""Real servers over loopback, and bundles small enough to push by the dozen."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_fakes import HERE, MakeBundle, Web, WebState

from compilot.artifacts.planfile import save_plan
from compilot.packing.writing import publish, seal
from compilot.records import BUNDLE_SCHEMA, Fingerprint, Manifest, Weights

S3_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""

SFTP_SERVER = """
import asyncio, functools, sys
import asyncssh

class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return True
    def password_auth_supported(self):
        return True
    def validate_password(self, username, password):
        return (username, password) == ("user", "secret")

async def serve(folder):
    key = asyncssh.generate_private_key("ssh-ed25519")
    files = functools.partial(asyncssh.SFTPServer, chroot=folder)
    server = await asyncssh.listen("127.0.0.1", 0, server_factory=Server, server_host_keys=[key], sftp_factory=files)
    print(server.get_port(), key.export_public_key().decode().strip(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(serve(sys.argv[1].encode()))
"""


@pytest.fixture
def make_bundle(tmp_path: Path, small_run: Any) -> MakeBundle:
    """Makes a bundle for a machine: make_bundle("a", cpu_isa=("avx2", "avx512f"), size=100_000)."""

    def make(
        name: str,
        *,
        label: str = "Net",
        created: str = "2026-01-01T00:00:00+00:00",
        size: int = 1000,
        key: Path | None = None,
        weights: str | None = None,
        structure: str = "b" * 64,
        **machine: Any,
    ) -> Path:
        staged = tmp_path / f"staged-{name}"
        (staged / "artifacts").mkdir(parents=True)
        (staged / "artifacts" / "model.bin").write_bytes(random.Random(name).randbytes(size))
        save_plan(small_run.plan, staged / "plan.json")
        model = msgspec.structs.replace(
            small_run.plan.fingerprint.model, class_name=label, weights_sha256=weights, structure_sha256=structure
        )
        manifest = Manifest(
            schema=BUNDLE_SCHEMA,
            compilot="0.1",
            created=created,
            label=label,
            engine="openvino",
            fingerprint=Fingerprint(machine=msgspec.structs.replace(HERE, **machine), model=model),
            weights=Weights.BAKED,
        )
        seal(staged, manifest, key)
        publish(staged, tmp_path / f"{name}.cpbundle", as_folder=False)
        return tmp_path / f"{name}.cpbundle"

    return make


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebState]:
    """A web server that shows tmp_path/served."""
    (tmp_path / "served").mkdir()
    state = WebState()
    handler = partial(Web, directory=str(tmp_path / "served"), state=state)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server in its own process."""
    command = [sys.executable, "-c", S3_SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    server.communicate("")


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A store of its own on that server."""
    import fsspec

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    bucket = re.sub("[^a-z0-9]", "-", request.node.name.lower())[:40]
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(bucket)
    return f"s3://{bucket}/bundles"


@pytest.fixture
def sftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An SFTP server that shows tmp_path/served, and a home where its key is known."""
    (tmp_path / "served").mkdir()
    command = [sys.executable, "-c", SFTP_SERVER, str(tmp_path / "served")]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port, key = server.stdout.readline().strip().split(" ", 1)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    yield f"sftp://user:secret@127.0.0.1:{port}/bundles"
    server.communicate("")
