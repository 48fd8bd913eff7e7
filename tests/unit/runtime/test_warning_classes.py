"""Each kind of warning has a class of its own, so that users can turn one kind off, or into an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import compilot
from compilot.errors import FallbackWarning, PlanNotUsedWarning, StalePlanWarning, UnprovenSpeedWarning
from compilot.records import ProcessSettings
from compilot.runtime.notices import Fallbacks
from compilot.runtime.process import tell_differing


def test_calls_that_eager_answered() -> None:
    with pytest.warns(FallbackWarning, match="gradients enabled"):
        Fallbacks().count("gradients enabled", lambda: 0)
    many = Fallbacks()
    for _ in range(99):
        many.count("shape of args[0]", lambda: 0)
    with pytest.warns(FallbackWarning, match="of 100 calls missed the fast path"):
        many.count("shape of args[0]", lambda: 0)


def test_a_plan_of_another_model(small_run: Any) -> None:
    with pytest.warns(StalePlanWarning) as caught:
        compilot.compile(nn.Linear(2, 2), small_run.plan)
    assert isinstance(caught[0].message, PlanNotUsedWarning)


def test_a_plan_that_others_can_change(run_dir: Path) -> None:
    (run_dir / "plan.json").chmod(0o666)
    with pytest.warns(PlanNotUsedWarning, match="others may write to it") as caught:
        compilot.compile(nn.Linear(2, 2), run_dir)
    assert not isinstance(caught[0].message, StalePlanWarning)


def test_another_number_of_threads() -> None:
    with pytest.warns(UnprovenSpeedWarning, match="threads = "):
        tell_differing(ProcessSettings(threads=torch.get_num_threads() + 1))


def test_one_kind_can_be_turned_off(small_run: Any, recwarn: pytest.WarningsRecorder) -> None:
    import warnings

    old = msgspec.structs.replace(small_run.plan, entries=())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", compilot.PlanNotUsedWarning)
        compilot.compile(nn.Linear(2, 2), old)
    assert not recwarn.list
