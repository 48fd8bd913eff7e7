"""The driver's side of a node's worker, over Ray. In: a placed actor. Out: futures of what it does.

Whatever Ray says of an actor that is gone becomes NodeLost; what went wrong on the node is raised here as the error
that it was. Not covered: where the actor runs (nodes.py), what it does (node_work.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from compilot import errors
from compilot.cluster.facts import ClusterNode
from compilot.cluster.worker import BUG, FAILED, LOST_ARM, Answer
from compilot.errors import CompilotError, NodeLost, WorkerError, first_cause
from compilot.records import State
from compilot.trials.runner import ArmLost

CLOSE_LIMIT_S = 10.0  # for ending workers and removing files; after that the process is ended anyway


class RayLink:
    """A `Link` over an actor."""

    def __init__(self, actor: Any, node: ClusterNode) -> None:
        self._actor = actor
        self._node = node

    @property
    def node(self) -> ClusterNode:
        """Whose it is."""
        return self._node

    def do(self, method: str, *args: Any) -> Future[Any]:
        """After what it does now."""
        return self._future(lambda: self._actor.do.remote(method, args))

    def now(self, method: str, *args: Any) -> Future[Any]:
        """Beside what it does now."""
        if method == "since":
            return self._future(lambda: self._actor.since.remote(*args))
        return self._future(lambda: self._actor.now.remote(method, args))

    def _future(self, ask: Callable[[], Any]) -> Future[Any]:
        try:
            return told(ask().future(), self._node.name)
        except Exception as problem:  # of an actor that is known to be dead
            failed: Future[Any] = Future()
            failed.set_exception(lost(self._node.name, problem))
            return failed

    def end(self) -> None:
        """Let it end in order, then by force."""
        with contextlib.suppress(Exception):
            self.now("close").result(CLOSE_LIMIT_S)
        self.kill()

    def kill(self) -> None:
        """By force; its processes end with it."""
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self._actor)


def told(source: Future[Any], name: str) -> Future[Any]:
    """The same answer with errors as we know them."""
    result: Future[Any] = Future()

    def settle(done: Future[Any]) -> None:
        problem = done.exception()
        if problem is not None:
            result.set_exception(lost(name, problem))
            return
        try:
            result.set_result(unwrapped(done.result(), name))
        except BaseException as error:
            result.set_exception(error)

    source.add_done_callback(settle)
    return result


def unwrapped(answer: Any, name: str) -> Any:
    """The value of an answer, or the error that it tells of."""
    if not isinstance(answer, Answer) or not answer.kind:
        return answer.value if isinstance(answer, Answer) else answer
    if answer.kind == LOST_ARM:
        owner, state, reason = answer.words
        raise ArmLost(owner, State(state), reason)
    if answer.kind == FAILED:
        kind = getattr(errors, answer.words[0], None)
        raise (kind if isinstance(kind, type) and issubclass(kind, CompilotError) else WorkerError)(answer.words[1])
    assert answer.kind == BUG
    raise WorkerError(f"the worker on {name} failed: {answer.words[0]}\n{answer.words[1]}")


def lost(name: str, problem: BaseException) -> BaseException:
    """What Ray's error means: the node is gone, unless it is an error of our own."""
    if isinstance(problem, CompilotError):
        return problem
    why = type(problem).__name__ if type(problem).__module__.startswith("ray.") else first_cause(problem)
    return NodeLost(f"node {name} was lost ({why}).")
