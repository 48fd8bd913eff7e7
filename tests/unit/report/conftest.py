"""Whole runs on a runner that runs nothing are made by a module beside the tests of `tune`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tuning"))
