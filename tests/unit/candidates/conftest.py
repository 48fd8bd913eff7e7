"""Searches over engines that a test makes up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from compilot.candidates.guided import GuidedSearch
from compilot.engines import registry
from compilot.engines.protocol import Availability
from compilot.engines.space import Acts, Knob, Seed, Space
from compilot.records import Diagnosis, Precision

Declared = Sequence[str] | Space


class MadeUp:
    """The build half of an engine that has this space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def available(self) -> Availability:
        return Availability(ok=True, version="1")

    def space(self, diagnosis: Diagnosis) -> Space:
        return self._space


def points(labels: Sequence[str]) -> Space:
    """A seed for each label; the knob between them is not varied."""
    knob = Knob("n", Acts.OPTION, tuple(labels), "", variations=())
    return Space((knob,), tuple(Seed(label, "test", {"n": label}) for label in labels))


@pytest.fixture
def over() -> Iterator[Callable[..., GuidedSearch]]:
    """A search over engines of these names and spaces, or names and labels of their seeds."""
    registered: list[str] = []

    def begun(
        engines: Mapping[str, Declared], diagnosis: Diagnosis, precisions: Sequence[Precision] = ()
    ) -> GuidedSearch:
        for name, declared in engines.items():
            half: Any = MadeUp(declared if isinstance(declared, Space) else points(declared))
            registry.register(name, half, half)
            registered.append(name)
        search = GuidedSearch(engines=tuple(engines), precisions=precisions)
        search.begin(diagnosis)
        return search

    yield begun
    for name in registered:
        registry.unregister(name)
