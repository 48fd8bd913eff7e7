"""Connecting this process to a Ray cluster. In: an address. Out: a connection to that cluster and to no other.

Covered: an address that nothing answers at, within our own limit; a process that is connected already: only the same
cluster is used then. Not covered: how long Ray itself takes with a port that answers and is none of Ray's (its limits).
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from compilot.errors import EnvironmentProblem, InputError, first_cause

AUTO = "ray"  # as an address: the cluster of this machine
CLIENT = "ray://"  # an address of Ray's client, which this machine needs the package grpcio for
ADVICE = "start one (see Ray's 'ray start'), or name another address"


class Place(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


def connect(address: str, wait_s: float) -> bool:
    """Connect this process to a cluster; False: it was connected to it already, and stays so in the end."""
    try:
        import ray
    except ImportError as problem:
        raise EnvironmentProblem(f"Ray is not installed ({problem}); pip install 'compilot[ray]'.") from problem
    if not address:
        raise InputError("name a cluster: ray, auto, HOST:PORT or ray://HOST:PORT.")
    where = "auto" if address == AUTO else address
    if ray.is_initialized():
        _must_be_the_same(where)
        return False
    if address.startswith(CLIENT) and importlib.util.find_spec("grpc") is None:
        raise EnvironmentProblem(f"{address} needs Ray's client, which is not installed; pip install 'ray[client]'.")
    _must_answer(where, wait_s)
    try:
        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except Exception as problem:
        raise EnvironmentProblem(
            f"there is no Ray cluster at {address} ({first_cause(problem)}); {ADVICE}."
        ) from problem
    return True


def place_of(address: str) -> Place | None:
    """Host and port of HOST:PORT or ray://HOST:PORT; None: the address has none."""
    text = address.removeprefix(CLIENT)
    if "://" in text:
        return None
    try:
        parts = urlsplit(f"//{text}")
        return Place(parts.hostname, parts.port) if parts.hostname and parts.port else None
    except ValueError:
        return None


def _must_answer(where: str, wait_s: float) -> None:
    """EnvironmentProblem where nothing listens within the limit; Ray's own limits are minutes."""
    named = os.environ.get("RAY_ADDRESS", "") if where == "auto" else where
    place = place_of(named)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=wait_s).close()
    except TimeoutError as problem:
        raise EnvironmentProblem(f"nothing answers at {named} within {wait_s:.0f} s; {ADVICE}.") from problem
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise EnvironmentProblem(f"there is no Ray cluster at {named} ({why}); {ADVICE}.") from problem


def _must_be_the_same(where: str) -> None:
    """EnvironmentProblem where this process is connected to another cluster, or perhaps to another one."""
    if where == "auto":
        return
    connected, wanted = _connected_to(), None if where.startswith(CLIENT) else place_of(where)
    there = f" at {connected}" if connected else ""
    how = "call ray.shutdown() first, or say 'auto' to use the connected one"
    if wanted is None or (known := place_of(connected)) is None:
        raise EnvironmentProblem(
            f"this process is connected to a Ray cluster{there}; whether {where} is the same is not known: {how}."
        )
    if wanted.port != known.port or not _hosts(wanted.host) & _hosts(known.host):
        raise EnvironmentProblem(f"this process is connected to another Ray cluster{there}, not to {where}; {how}.")


def _connected_to() -> str:
    """HOST:PORT of the connected cluster's head; "": Ray does not tell."""
    import ray

    context: Any = ray.get_runtime_context()
    try:
        return str(context.gcs_address or "")
    except Exception:
        return ""


def _hosts(host: str) -> set[str]:
    """The addresses of a host; this machine is known by that of its network, too."""
    import ray

    try:
        found = {str(facts[4][0]) for facts in socket.getaddrinfo(host, None)} | {host}
    except OSError:
        return {host}
    if any(_is_loopback(one) for one in found):
        tell: Any = ray.util.get_node_ip_address
        found.add(str(tell()))
    return found


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
