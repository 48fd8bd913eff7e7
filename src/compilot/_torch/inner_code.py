"""Whose code is a frame? In: nothing. Out: how the file names of torch's, compilot's and Python's own code begin."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_FOLDERS = (Path(torch.__path__[0]), Path(__file__).parents[1])
INNER_CODE = ("<", *(f"{folder}{os.sep}" for folder in _FOLDERS))  # no code of a model
