"""Addresses of clusters that cannot be reached from here, and what is said of them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from compilot.cluster.nodes import connect
from compilot.errors import EnvironmentProblem, InputError

pytest.importorskip("ray")


def test_rays_client_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = importlib.util.find_spec

    def without_grpc(name: str, package: str | None = None) -> Any:
        return None if name == "grpc" else usual(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_grpc)
    with pytest.raises(EnvironmentProblem) as raised:
        connect("ray://head:10001")
    assert str(raised.value) == (
        "ray://head:10001 needs Ray's client, which is not installed; pip install 'ray[client]'."
    )


def test_an_address_is_needed() -> None:
    with pytest.raises(InputError, match="name a cluster: ray, auto, HOST:PORT or ray://HOST:PORT"):
        connect("")
