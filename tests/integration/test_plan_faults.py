"""Plan files that are none, given to fresh processes (row 6 of what compilot must survive).

One typed error that names the field, exit code 2, and nothing of them applied.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_help import DATA, Told, command_line, try_starts

from compilot.records import PLAN_SCHEMA

Packer = Callable[..., Path]
MB = 2**20
ENTRY = "`$.entries[0]"
POSITIONAL, P50 = f"{ENTRY}.guard.positional`", f"{ENTRY}.evidence.p50_s`"
SPOILED = {
    "malformed": ('"because"', "because", "malformed JSON"),
    "unknown version": (f'"schema": {PLAN_SCHEMA}', '"schema": 9', f"plan schema 9, this compilot reads {PLAN_SCHEMA}"),
    "older version": (f'"schema": {PLAN_SCHEMA}', '"schema": 1', "has plan schema 1"),
    "huge": ("", "", "it has 100 MB, more than the 16 MB any plan needs"),
    "no number": ('"evidence": {', '"evidence": {"p50_s": NaN', f"nan is not a number that JSON allows, at {P50}"),
    "duplicate key": ('"positional": 1', '"positional": 1, "positional": 2', f"duplicate key, at {POSITIONAL}"),
    "wrong type": ('"positional": 1', '"positional": "1"', f"Expected `int`, got `str`, at {POSITIONAL}"),
    "unknown field": ('"positional": 1', '"positional": 1, "more": 1', f"unknown field `more`, at {ENTRY}.guard`"),
    "path that leaves": ('"work/', '"../work/', f"leaves the plan's folder, at {ENTRY}.artifacts_dir`"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tuned: Packer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run directories with a plan spoiled in each way; all of them want one thread, and one is whole."""
    home = tmp_path_factory.mktemp("plans")
    found: dict[str, Path] = {}
    for case, (old, new, _) in {"whole": ("", "", ""), **SPOILED}.items():
        run = shutil.copytree(tuned("onnxruntime"), home / case.replace(" ", "-"))
        document = json.loads((run / "plan.json").read_text())
        document["process"] = {"threads": 1}
        text = json.dumps(document)
        assert old in text
        (run / "plan.json").write_text(text.replace(old, new, 1))
        found[case] = run
    with (found["huge"] / "plan.json").open("ab") as plan:
        plan.truncate(100 * MB)  # sparse: takes no room
    return found


@pytest.fixture(scope="module")
def told(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What a process told about starting each of them, in three ways."""
    plans = {case: run / "plan.json" for case, run in runs.items() if case != "whole"}
    ways = ("compile", "in place", "settings")
    starts = {f"{case}, {how}": {"plan": plan, "how": how} for case, plan in plans.items() for how in ways}
    starts["whole"] = {"plan": runs["whole"] / "plan.json", "how": "strict"}
    return try_starts(tmp_path_factory.mktemp("starts"), starts)


@pytest.mark.parametrize("case", SPOILED)
def test_row_6_a_plan_that_is_none_is_a_typed_error_and_nothing_of_it_is_applied(
    runs: dict[str, Path], told: dict[str, Told], case: str
) -> None:
    for how in ("compile", "in place", "settings"):
        found = told[f"{case}, {how}"]
        assert found["refused"] == "PlanError"
        assert str(runs[case] / "plan.json") in found["why"]
        assert SPOILED[case][2] in found["why"]
        assert found["untouched"]  # the model's class and answers, the number of threads
        assert found["warnings"] == []
    assert told["whole"]["fast"] == 1  # spoiled in nothing, it is served


@pytest.mark.parametrize(("command", "case"), [*(("bench", case) for case in SPOILED), ("pack", "wrong type")])
def test_row_6_the_command_line_says_so_in_one_sentence(
    runs: dict[str, Path], tmp_path: Path, command: str, case: str
) -> None:
    plan = runs[case] / "plan.json"
    words = {"bench": (f"{DATA / 'bundling.py'}:one", "--plan", plan), "pack": (runs[case], "-o", "model.cpbundle")}
    ran = command_line(command, *words[command], cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {plan} ")
    assert SPOILED[case][2] in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # no bundle, no run directory
