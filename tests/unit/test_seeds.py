"""Random numbers in tests come from the seed and a name alone: no other test, and no order of tests, changes them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch


def drawn() -> tuple[float, ...]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


AT_IMPORT = drawn()


@pytest.fixture(scope="module")
def shared() -> tuple[float, ...]:
    return drawn()


def test_what_is_drawn_depends_on_who_draws(
    seed_for: Callable[[str], None], shared: tuple[float, ...], request: pytest.FixtureRequest
) -> None:
    here, module = request.node.nodeid, request.node.parent.nodeid
    for name, first in ((here, drawn()), (module, AT_IMPORT), (f"{module} shared 0", shared)):
        drawn()
        seed_for(name)
        assert drawn() == first
    assert not {*AT_IMPORT} & {*shared}
