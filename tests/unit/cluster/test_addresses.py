"""Addresses of clusters that cannot be reached from here, and what is said of them."""

from __future__ import annotations

import importlib.util
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from compilot.cluster.connecting import Place, connect, place_of
from compilot.errors import EnvironmentProblem, InputError

ray = pytest.importorskip("ray")


def test_rays_client_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = importlib.util.find_spec

    def without_grpc(name: str, package: str | None = None) -> Any:
        return None if name == "grpc" else usual(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_grpc)
    with pytest.raises(EnvironmentProblem) as raised:
        connect("ray://head:10001", 1.0)
    assert str(raised.value) == (
        "ray://head:10001 needs Ray's client, which is not installed; pip install 'ray[client]'."
    )


def test_an_address_is_needed() -> None:
    with pytest.raises(InputError, match="name a cluster: ray, auto, HOST:PORT or ray://HOST:PORT"):
        connect("", 1.0)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process were connected to a cluster at 10.0.0.1:6379."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="10.0.0.1:6379"))


@pytest.mark.usefixtures("connected")
def test_a_connected_process_uses_the_same_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for same in ("auto", "ray", "10.0.0.1:6379"):
        assert not connect(same, 1.0)
    for other in ("10.0.0.2:6379", "10.0.0.1:6380"):
        with pytest.raises(EnvironmentProblem) as raised:
            connect(other, 1.0)
        assert str(raised.value) == (
            f"this process is connected to another Ray cluster at 10.0.0.1:6379, not to {other}; call ray.shutdown() "
            "first, or say 'auto' to use the connected one."
        )
    with pytest.raises(EnvironmentProblem, match=r"whether ray://10.0.0.1:10001 is the same is not known"):
        connect("ray://10.0.0.1:10001", 1.0)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    assert not connect("127.0.0.1:6379", 1.0)  # the head is this machine


def test_an_address_that_nothing_answers_at_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(**_: Any) -> None:
        raise AssertionError("Ray was asked")

    monkeypatch.setattr(ray, "init", never)
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{bound.getsockname()[1]}"
        for address in (where, f"ray://{where}"):
            with pytest.raises(
                EnvironmentProblem, match=rf"there is no Ray cluster at {address} \(Connection refused\)"
            ):
                connect(address, 1.0)
        monkeypatch.setenv("RAY_ADDRESS", where)
        with pytest.raises(EnvironmentProblem, match=rf"there is no Ray cluster at {where}"):
            connect("auto", 1.0)


def test_the_limit_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def silent(place: tuple[str, int], timeout: float) -> None:
        limits.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(EnvironmentProblem, match=r"nothing answers at 10.255.255.1:6379 within 7 s; start one"):
        connect("10.255.255.1:6379", 7.0)
    assert limits == [7.0]


def test_hosts_and_ports() -> None:
    assert place_of("ray://head:10001") == place_of("head:10001") == Place("head", 10001)
    assert place_of("[::1]:6379") == Place("::1", 6379)
    for odd in ("auto", "local", "head", "head:port", "other://head:1", ""):
        assert place_of(odd) is None
