"""For pytest: the fixture `compilot`, loaded by itself where compilot is installed (entry point `pytest11`).

    def test_model(compilot):
        compilot.no_graph_breaks(model, x)

In: a model with its inputs, or plans. Out: nothing, or a failure that says what is wrong and where; what cannot be told
from noise is skipped, with the reason. Under pytest-xdist, or with --compilot-off, tests that use it are skipped:
processes beside each other cannot be timed. Light: nothing of torch is imported before a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from compilot.testing.asserting import Asserting

XDIST = "compilot measures, and nothing may run beside it: run these tests without -n"
OFF = "tests that use compilot are switched off"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options --compilot-*."""
    group = parser.getgroup("compilot", "compilot: speed and correctness of PyTorch models")
    group.addoption("--compilot-off", action="store_true", help="Skip tests that use the fixture 'compilot'.")
    group.addoption(
        "--compilot-pairs", type=int, default=40, metavar="N", help="Pairs in each process of a race (default: 40)."
    )
    group.addoption(
        "--compilot-processes", type=int, default=3, metavar="N", help="Sets of fresh processes (default: 3)."
    )


@pytest.fixture
def compilot(request: pytest.FixtureRequest) -> Asserting:
    """Assertions about compiled models: no_graph_breaks, no_recompiles, same_numbers, faster_than."""
    if request.config.getoption("--compilot-off"):
        pytest.skip(OFF)
    if hasattr(request.config, "workerinput"):
        pytest.skip(XDIST)
    from compilot.testing.asserting import Asserting

    return Asserting(
        fail=_fail,
        skip=_skip,
        pairs=request.config.getoption("--compilot-pairs"),
        processes=request.config.getoption("--compilot-processes"),
    )


def _fail(text: str) -> None:
    __tracebackhide__ = True
    pytest.fail(text, pytrace=False)


def _skip(text: str) -> None:
    __tracebackhide__ = True
    pytest.skip(text)
