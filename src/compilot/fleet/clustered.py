"""A Ray cluster as a crew. In: its address. Out: a `Crew` whose calls run in a process of their own on the node.

The cluster (cluster/) brings the manifest's folder to each node and calls functions there; a job runs in a child of
the node's worker, so that models leave nothing behind in it. Needs the extra `ray`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from compilot.fleet.crew import Crew, CrewNode, called_in_child
from compilot.records import Record, encode


class Call(Record, frozen=True, kw_only=True):
    """A function to call in a child."""

    function: str
    payload: bytes


class ClusteredCrew:
    """The nodes of a cluster."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def nodes(self) -> tuple[CrewNode, ...]:
        """Those that are alive."""
        found: tuple[CrewNode, ...] = self._cluster.nodes()
        return found

    def call(self, node_id: str, function: str, payload: bytes) -> Future[bytes]:
        """In a child of the node's worker."""
        asked = encode(Call(function=function, payload=payload))
        future: Future[bytes] = self._cluster.call(node_id, "compilot.fleet.clustered:in_child", asked)
        return future

    def close(self) -> None:
        """Let go of the nodes."""
        self._cluster.close()


def in_child(payload: bytes) -> bytes:
    """On the node: the call in a fresh process, from the worker's own folder."""
    asked = msgspec.json.decode(payload, type=Call)
    return called_in_child(asked.function, asked.payload, Path.cwd())


@contextmanager
def clustered(address: str, folder: Path, left_out: Sequence[Path] = ()) -> Iterator[Crew]:
    """The crew of a cluster; left_out: what of the folder stays here."""
    from compilot.cluster.nodes import Cluster

    with Cluster(address, working_dir=folder, left_out=left_out) as cluster:
        yield ClusteredCrew(cluster)
