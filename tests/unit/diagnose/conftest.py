"""Tests run on busy machines: here every time is trusted, but in test_trusted.py, which is about that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from compilot.diagnose import trusted


@pytest.fixture(scope="session", autouse=True)
def trusting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trusted, "TWICE", math.inf)
        patch.setattr(trusted, "_THREADS", Path("/nowhere"))
        patch.setattr(trusted.Others, "crowd", lambda self: False)
        yield
