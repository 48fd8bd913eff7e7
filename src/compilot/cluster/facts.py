"""What the driver and the workers of a cluster's nodes say to each other.

In: nothing. Out: records and plain tuples that Ray carries; all of them small, bytes of files go by piece (moving.py).
Both sides must have the same version of compilot: `Hello` says which a node has, before anything else is said.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from compilot.records import MachineFingerprint, Record, Shipment, Trial
from compilot.trials.runner import Capacity
from compilot.tuning.options import TuneOptions

NODE_PROTOCOL = 1


class ClusterNode(Record, frozen=True, kw_only=True):
    """One machine of a cluster, with a worker of ours on it."""

    id: str  # Ray's
    name: str  # for people: its host name, with the beginning of the id where several have the same
    host: str  # digest of its boot: nodes with the same one share a machine, and its lease
    labels: dict[str, str] = {}  # as given when the node was started
    fingerprint: MachineFingerprint  # as a process that we start there sees it
    cores: int


class Hello(NamedTuple):
    """What a worker says first."""

    protocol: int
    compilot: str
    host: str
    machine: bytes  # MachineFingerprint as JSON
    problem: str = ""  # why it cannot work; "": it can
    notes: tuple[str, ...] = ()


class FileFact(Record, frozen=True, kw_only=True):
    """One file of a folder that goes to another machine, or comes from there."""

    name: str  # relative to the folder
    sha256: str
    size_bytes: int
    executable: bool = False


class CodeFolder(Record, frozen=True, kw_only=True):
    """Files of the user's that a node must have to import the model."""

    root: str  # where they are on the machine that started the run
    files: tuple[FileFact, ...]
    key: str  # digest of all of them: the name of their folder on a node


class Order(NamedTuple):
    """What a node is to open."""

    shipment: Shipment  # with the driver's paths
    options: TuneOptions
    folders: tuple[CodeFolder, ...] = ()
    live: bool = False  # payload and weights were brought
    doctor: bool = False  # have the model examined while eager starts


class Tried(NamedTuple):
    """One trial on a node, and what it left there."""

    trial: Trial
    files: tuple[FileFact, ...]
    log: bytes
    capacity: Capacity


class Link(Protocol):
    """The driver's side of one node's worker."""

    @property
    def node(self) -> ClusterNode: ...

    def do(self, method: str, *args: Any) -> Future[Any]:
        """Have it do something, after what it does now; the future raises NodeLost, or what went wrong there."""

    def now(self, method: str, *args: Any) -> Future[Any]:
        """The same beside what it does now: files, events, whether it is there."""

    def end(self) -> None:
        """End it and everything that it started."""


class Crew(Protocol):
    """Who can work: the nodes of a cluster, or fakes."""

    def links(self) -> list[Link]:
        """Every node that can be used now; EnvironmentProblem that names what is missing where there is none."""

    def joined(self) -> list[Link]:
        """The same without waiting; perhaps none."""

    def forget(self, node_id: str) -> None:
        """The worker on that node is gone."""

    def close(self) -> None:
        """End every worker."""
