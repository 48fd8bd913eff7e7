"""The machines of a Ray cluster, each with one worker of ours. In: an address. Out: nodes, and links to their workers.

Nothing is asked of how nodes were started: a worker goes to each by node affinity and takes none of Ray's CPUs, which
are only numbers (who may time when is the host's lease). A worker that dies is not restarted by Ray: it would know
nothing of its run. Covered: labels that select nodes, nodes that join later, other versions, a minute at the most until
there is a worker, and an error that names what is missing. Not covered: the connection (connecting.py). Ray is imported
in these two and in link.py only.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from compilot._version import __version__
from compilot.cluster import code, moving, node_env
from compilot.cluster.connecting import connect
from compilot.cluster.facts import NODE_PROTOCOL, ClusterNode, CodeFolder, Hello, Link
from compilot.cluster.link import RayLink
from compilot.cluster.worker import NodeWorker
from compilot.errors import CompilotError, EnvironmentProblem, NodeLost, WorkerError, first_cause
from compilot.records import MachineFingerprint

PLACE_S = 60.0  # until there is a worker on a node; a process that imports Ray and torch starts in ten
LOOK_S = 0.2
OTHERS_S = 10.0  # after the first worker has answered: those that take longer join later
CALLS_AT_ONCE = 8  # one that works, files, events, signs of life


class Found(NamedTuple):
    """A node as Ray lists it."""

    id: str
    name: str
    labels: Mapping[str, str]


class Starting(NamedTuple):
    """A worker that has not answered yet."""

    found: Found
    actor: Any
    hello: Future[Hello]
    until_s: float


class Cluster:
    """A connection to a cluster, and our workers on it."""

    def __init__(
        self,
        address: str,
        working_dir: Path | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        left_out: Sequence[Path] = (),
        wait_s: float = PLACE_S,
    ) -> None:
        """working_dir: its files go along with every `call`, but not those that are left out (see `code.tree`).

        labels: only nodes that have all of these.
        """
        self.address = address
        self._labels = dict(labels or {})
        self._wait_s = wait_s
        root = None if working_dir is None else working_dir.absolute()
        self._folder = None if root is None else code.folder_of(root, code.tree(root, left_out))
        self._links: dict[str, RayLink] = {}
        self._starting: dict[str, Starting] = {}
        self._refused: dict[str, str] = {}  # node id -> why it cannot be used
        self.notes: list[str] = []
        self._ours = connect(address, wait_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------ nodes

    def nodes(self) -> tuple[ClusterNode, ...]:
        """All living ones that can be used, by name; EnvironmentProblem where there is none within the wait."""
        return tuple(link.node for link in self.links(self._wait_s))

    def links(self, others_s: float = OTHERS_S) -> list[Link]:
        """Links to their workers, a little after the first has answered: the others usually follow at once."""
        begin, first = time.monotonic(), math.inf
        while True:
            usable = self.joined()
            now = time.monotonic()
            first = min(first, now if usable else math.inf)
            over = now - begin >= self._wait_s
            if usable and (over or not self._starting or now - first > others_s):
                return usable
            if over:
                raise EnvironmentProblem(self._missing(self._listed()))
            time.sleep(LOOK_S)

    def joined(self) -> list[Link]:
        """Those that can be used now, by name; workers are begun on nodes that have none. Does not wait."""
        found = {one.id: one for one in self._listed()}
        known = {*self._links, *self._refused, *self._starting}
        for key in found.keys() - known:
            self._starting[key] = Starting(found[key], *_started(found[key]), time.monotonic() + self._wait_s)
        for key, one in list(self._starting.items()):
            if one.hello.done() or time.monotonic() > one.until_s:
                del self._starting[key]
                self._answered(one)
        usable: list[Link] = [link for key, link in self._links.items() if key in found]
        return sorted(usable, key=lambda link: (link.node.name, link.node.id))

    def forget(self, node_id: str) -> None:
        """Its worker is lost to us; a new one is placed there the next time, where the node itself lives."""
        if (link := self._links.pop(node_id, None)) is not None:
            link.kill()

    def _listed(self) -> list[Found]:
        alive = _alive()
        names = Counter(one["NodeManagerHostname"] for one in alive)
        found = [
            Found(
                one["NodeID"],
                one["NodeManagerHostname"]
                if names[one["NodeManagerHostname"]] == 1
                else f"{one['NodeManagerHostname']}-{one['NodeID'][:6]}",
                {key: text for key, text in one.get("Labels", {}).items() if key != "ray.io/node-id"},
            )
            for one in alive
        ]
        return [one for one in found if all(one.labels.get(key) == text for key, text in self._labels.items())]

    def _answered(self, one: Starting) -> None:
        """A worker has said who it is, or cannot."""
        try:
            self._welcome(one.found, one.actor, one.hello.result(0.0))
        except TimeoutError:
            self._refused[one.found.id] = f"no worker process started within {self._wait_s:.0f} s"
            _kill(one.actor)
        except Exception as problem:
            self._refused[one.found.id] = _why(problem)

    def _welcome(self, one: Found, actor: Any, said: Hello) -> None:
        if why := refusal(said):
            self._refused[one.id] = why
            _kill(actor)
            return
        machine = msgspec.json.decode(said.machine, type=MachineFingerprint)
        node = ClusterNode(
            id=one.id,
            name=one.name,
            host=said.host,
            labels=dict(one.labels),
            fingerprint=machine,
            cores=machine.cores,
        )
        self._links[one.id] = RayLink(actor, node)
        self.notes += [f"{one.name}: {note}" for note in said.notes]

    def _missing(self, found: Sequence[Found]) -> str:
        """Why no node could be used, in one sentence with the next step."""
        waited = f"within {self._wait_s:.0f} s"
        if found:
            told = "; ".join(f"{one.name}: {self._refused.get(one.id, 'not answered')}" for one in found)
            return f"no node of the cluster at {self.address} can be used {waited}: {told}."
        if not self._labels:
            return f"the cluster at {self.address} has no living node {waited}; start one with 'ray start'."
        wanted = ", ".join(f"{key}={text}" for key, text in self._labels.items())
        there = sorted({f"{key}={text}" for one in _alive() for key, text in _own_labels(one)})
        has = f"the labels there are {', '.join(there)}" if there else "its nodes have no labels"
        return f"no node of the cluster at {self.address} has {wanted} {waited}: {has}."

    # ------------------------------------------------------------------------------------------------------ calls

    def call(self, node_id: str, function: str, payload: bytes) -> Future[bytes]:
        """Run "module:function" of compilot with these bytes on a node; the future raises whatever goes wrong.

        NodeLost: it went away meanwhile.
        """
        link = self._links.get(node_id)
        if link is None:
            return _failed(NodeLost(f"node {node_id[:6]} is no part of the cluster any more."))
        try:
            brought = None if self._folder is None else self._bring(link, self._folder)
        except CompilotError as problem:
            return _failed(problem)
        except OSError as problem:  # of a file here
            return _failed(WorkerError(f"the files for {link.node.name} cannot be read: {first_cause(problem)}."))
        return link.do("call", function, payload, brought)

    def _bring(self, link: Link, folder: CodeFolder) -> tuple[str, str]:
        bring_code(link, [folder])
        return folder.root, folder.key

    def close(self) -> None:
        """End our workers, and the connection where we made it."""
        import ray

        for one in self._starting.values():
            _kill(one.actor)
        for link in self._links.values():
            link.end()
        self._starting.clear()
        self._links.clear()
        if self._ours:
            self._ours = False
            with contextlib.suppress(Exception):
                ray.shutdown()


def bring_code(link: Link, folders: Sequence[CodeFolder], exchange: str | None = None) -> None:
    """Have the user's files on a node that does not have them."""
    for one in link.now("missing_code", tuple(folders)).result():
        moving.bring(link, f"code/{one.key}", Path(one.root), one.files, exchange)


def refusal(said: Hello) -> str:
    """Why a node that answered cannot be used; "": it can."""
    if said.protocol != NODE_PROTOCOL or said.compilot != __version__:
        return f"it has compilot {said.compilot} and this is {__version__}; install the same version on both"
    return said.problem


def _started(one: Found) -> tuple[Any, Future[Hello]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kind: Any = ray.remote(NodeWorker)
    actor = kind.options(
        num_cpus=0,
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=CALLS_AT_ONCE,
        scheduling_strategy=NodeAffinitySchedulingStrategy(one.id, soft=False),
    ).remote(one.name, node_env.of_driver())
    return actor, actor.hello.remote().future()


def _failed(problem: CompilotError) -> Future[bytes]:
    failed: Future[bytes] = Future()
    failed.set_exception(problem)
    return failed


def _kill(actor: Any) -> None:
    import ray

    with contextlib.suppress(Exception):
        ray.kill(actor)


def _why(problem: BaseException) -> str:
    text = str(problem)
    if "ModuleNotFoundError" in text or "No module named" in text:
        return "compilot is not installed there; pip install 'compilot[ray]' on every node"
    return first_cause(problem)


def _alive() -> list[dict[str, Any]]:
    import ray

    nodes: Any = ray.nodes
    return [one for one in nodes() if one["Alive"]]


def _own_labels(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, text) for key, text in node.get("Labels", {}).items() if not key.startswith("ray.io/")]
