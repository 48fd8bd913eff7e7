"""Fresh processes that serve a bundle and are asked what it was not built for, or whose model is updated afterwards.

Rows 35 and 36 of what compilot must survive: eager's answers or a typed error, never wrong numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_help import DATA, Told, told

Packer = Callable[..., Path]
NOT_TAKEN = {
    "larger batch": "shape",
    "empty batch": "shape",
    "strides": "strides",
    "dtype": "dtype",
    "dtype that eager refuses": "dtype",
    "device": "device",
    "gradients": "gradients enabled",
    "autocast": "autocast",
}
REFUSED = ("dtype that eager refuses", "device")  # by eager too: there is no answer to count
UPDATES = ["load_state_dict", "optimizer_step", "to_and_back", "adapter", "edit_in_place", "merge_and_refresh"]


def asked(cache: Path, *words: object) -> Told:
    command = [sys.executable, str(DATA / "ask_and_change.py"), *map(str, words)]
    env = {**os.environ, "COMPILOT_CACHE": str(cache)}
    return told(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


@pytest.fixture(scope="module", params=["onnxruntime", pytest.param("aoti", marks=pytest.mark.compiles)])
def odd_calls(request: pytest.FixtureRequest, packed: Packer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return asked(tmp_path_factory.mktemp("cache"), "odd", packed(request.param))


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_row_35_a_call_that_a_bundle_was_not_built_for_is_eagers(odd_calls: Told, case: str) -> None:
    """AOTInductor's own loader would give wrong numbers for some of them, or corrupt the heap."""
    found = odd_calls[case]
    assert found["right"], found
    assert found["fast"] == 0
    assert len(found["why"]) == (0 if case in REFUSED else 1)
    assert all(NOT_TAKEN[case] in reason for reason in found["why"])
    assert found["alone"].startswith("NoFallback: ")  # without a model there is no eager
    assert NOT_TAKEN[case] in found["alone"]


def test_row_35_the_usual_call_is_served_before_and_after(odd_calls: Told) -> None:
    assert odd_calls["usual"]["error"] < 1e-4
    assert odd_calls["usual"]["fast"] == [1, 1]  # the one at the end


@pytest.fixture(scope="module")
def updates(packed: Packer, tuned: Packer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a process told about updates of its model, with a bundle and with a plan file."""
    plan = tuned("onnxruntime") / "plan.json"
    return asked(tmp_path_factory.mktemp("cache"), "updates", packed("onnxruntime"), plan)


@pytest.mark.parametrize("update", UPDATES)
def test_row_36_an_update_of_the_model_or_of_its_watched_weight_is_seen_by_the_next_call_and_said_once(
    updates: Told, update: str
) -> None:
    assert len(updates[update]) == 2  # with a bundle and with a plan file
    for found in updates[update]:
        assert found["before"] < 1e-4
        assert found["served"][0] > 0
        assert found["changed"]
        assert found["right"] == [True] * 5
        assert found["served"][1] == found["served"][0]  # eager's answers, all of them
        [said] = found["said"]
        assert "weights" in said
        assert "run 'compilot tune' again" in said


def test_row_36_another_weight_edited_in_place_is_seen_when_its_turn_comes_and_said_once(updates: Told) -> None:
    assert len(updates["edit_another_in_place"]) == 2
    for found in updates["edit_another_in_place"]:
        assert found["changed"]
        old = found["right"].index(True)
        assert 0 < old <= found["limit"]
        assert all(found["right"][old:])  # never an old answer again
        assert found["served"][1] == found["served"][0] + old
        [said] = found["said"]
        assert "weights" in said
        assert "run 'compilot tune' again" in said
