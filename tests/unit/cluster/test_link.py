"""A link to an actor that Ray knows to be dead: every way of asking it gives NodeLost, none raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from compilot.cluster.facts import ClusterNode
from compilot.cluster.link import RayLink
from compilot.errors import NodeLost
from compilot.testing.runner import fake_fingerprint


def test_asking_a_dead_actor_is_a_lost_node() -> None:
    def dead(*_: Any) -> None:
        raise RuntimeError("the actor is dead")

    method = SimpleNamespace(remote=dead)
    node = ClusterNode(id="a", name="a", host="h", fingerprint=fake_fingerprint().machine, cores=2)
    link = RayLink(SimpleNamespace(do=method, now=method, since=method), node)
    for future in (link.do("open"), link.now("ping"), link.now("since", 0)):
        with pytest.raises(NodeLost, match="node a was lost"):
            future.result(0)
