"""Code behind a library's decorator is the user's: an edit of it is another model, another file name is not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from compilot.identity.model import model_fingerprint
from compilot.records import ModelFingerprint

NET = """
import contextlib, functools
from dataclasses import dataclass

import torch
from torch import nn


def own(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)

    return inner


@dataclass
class Scores:
    logits: torch.Tensor

    def __post_init__(self):
        self.count = 1.0


HELPER
def helper(x):
    return x + 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    FORWARD
    def forward(self, x):
        return Scores(helper(self.layer(x)) + 0.0)
"""
DECORATORS = (
    "@torch.no_grad()",
    "@torch.inference_mode()",
    "@torch.autocast('cpu', enabled=False)",
    "@torch.compiler.disable",
    "@torch.jit.unused",
    "@functools.lru_cache(None)",
    "@functools.cache",
    "@own",
)
EDITS = {
    "the body of forward": ("+ 0.0)", "+ 5.0)"),
    "the body of a helper": ("x + 0.5", "x - 0.5"),
    "a method of the output's class": ("count = 1.0", "count = 2.0"),
}


def fingerprint(folder: Path, text: str, stem: str = "net") -> ModelFingerprint:
    folder.mkdir()
    (folder / f"{stem}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(stem, folder / f"{stem}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return model_fingerprint(module.Net().eval())
    finally:
        del sys.modules[stem]


@pytest.fixture(params=[(where, decorator) for where in ("HELPER", "FORWARD") for decorator in DECORATORS])
def text(request: pytest.FixtureRequest) -> str:
    where, decorator = request.param
    return NET.replace(where, decorator).replace("HELPER\n", "").replace("    FORWARD\n", "")


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_another_model(tmp_path: Path, text: str, edit: str) -> None:
    old, new = EDITS[edit]
    assert old in text
    before, after = fingerprint(tmp_path / "a", text), fingerprint(tmp_path / "b", text.replace(old, new))
    assert before.code_sha256 != after.code_sha256


def test_another_file_name_is_the_same_model(tmp_path: Path, text: str) -> None:
    before, after = fingerprint(tmp_path / "a", text), fingerprint(tmp_path / "b", text, "other_name")
    assert before == after
    assert not {"net", "other_name"} & before.libraries.keys()
