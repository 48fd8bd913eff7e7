"""Advice about the model as a whole and about time: with the finding before the edit, without it afterwards.

Advice about code has programs of its own (test_break_programs.py). What bounds a call is no fault: something always
does, so its advice makes no finding go away.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from advised import advised_edit
from torch import nn

import compilot.diagnose
from compilot.diagnose.edits import NONE_KNOWN, Edit
from compilot.diagnose.model import inspection, vanishing_checks
from compilot.diagnose.report_records import (
    CompileTime,
    DoctorReport,
    InputPipeline,
    Roofline,
    RooflinePoint,
    Saving,
    StageTime,
)
from compilot.diagnose.timing import bound
from compilot.diagnose.timing.findings import time_findings
from compilot.records import Finding, Reference
from compilot.workload import Workload

X = (torch.ones(2, 4),)
Findings = Callable[[], Iterable[Finding]]


class Steps(nn.Module):
    def __init__(self, scales: object) -> None:
        super().__init__()
        self.scales = scales

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


class Checked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and x.min() < 0:
            raise ValueError("negative")
        return x.sqrt()


class Unchecked(nn.Module):
    """Its calling program checks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()


def of_model(model: nn.Module, eager_call_s: float = 1.0) -> Iterable[Finding]:
    return inspection.model_findings(Workload(model, X), eager_call_s)


def of_times(**parts: object) -> Iterable[Finding]:
    report = DoctorReport(schema=1, compilot="0", created="", label="Net", **parts)  # type: ignore[arg-type]
    return time_findings(report)


def loading(load_s: float, step_s: float) -> Iterable[Finding]:
    return of_times(input_pipeline=InputPipeline(load_s=load_s, step_s=step_s))


def compiling(total_s: float, *savings: Saving) -> Iterable[Finding]:
    stages = (StageTime(name="C++ compile", wall_s=total_s),)
    return of_times(stages=stages, compile_time=CompileTime(total_s=total_s, savings=savings))


KEPT = Saving(what="kept cache", saves_s=30.0, because="")
PAIRS: dict[Edit, list[tuple[Findings, Findings]]] = {
    Edit.EVAL: [(lambda: of_model(nn.Dropout()), lambda: of_model(nn.Dropout().eval()))],
    Edit.LARGER_CALLS: [(lambda: of_model(nn.ReLU().eval(), 20e-6), lambda: of_model(nn.ReLU().eval(), 20e-6 * 64))],
    Edit.READABLE_STATE: [
        (
            lambda: inspection.not_fingerprinted(Steps(iter([1, 2]))),
            lambda: inspection.not_fingerprinted(Steps([1, 2])),
        )
    ],
    Edit.NO_RANDOM: [
        (
            lambda: inspection.random_findings(Reference(kind="eager", cases=(), stochastic=True, seeded=True)),
            lambda: inspection.random_findings(Reference(kind="eager", cases=())),
        )
    ],
    Edit.CHECK_BEFORE: [
        (lambda: vanishing_checks.findings(Checked()), lambda: vanishing_checks.findings(Unchecked())),
    ],
    Edit.FASTER_LOADER: [
        (lambda: loading(7.0, 10.0), lambda: loading(0.1, 3.1)),
        (lambda: loading(2.0, 10.0), lambda: loading(0.1, 8.1)),
    ],
    Edit.COMPILE_LESS: [(lambda: compiling(39.0, KEPT), lambda: compiling(39.0 - KEPT.saves_s))],
    Edit.SHIP_ARTIFACT: [(lambda: compiling(39.0), lambda: of_times())],
}
LIMITS = (Edit.BATCH_CALLS, Edit.LESS_OVERHEAD, Edit.FEWER_BYTES, Edit.BETTER_KERNELS)


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_the_finding_is_gone_after_the_edit(edit: Edit) -> None:
    for before, after in PAIRS[edit]:
        (finding,) = before()
        assert advised_edit(finding.advice) is edit
        assert list(after()) == []


def test_every_advice_that_is_not_about_code_has_a_pair() -> None:
    others = list(Edit)[list(Edit).index(Edit.EVAL) :]
    left = [edit for edit in others if edit not in PAIRS and edit not in LIMITS]
    assert [edit for edit in left if not edit.value.startswith(NONE_KNOWN)] == []


def test_every_limit_has_its_advice() -> None:
    said = [
        bound.advice("overhead", 1e-6),
        *(bound.advice(limit, 1.0) for limit in ("overhead", "memory", "compute")),
    ]
    assert tuple(map(advised_edit, said)) == LIMITS


def test_nothing_is_advised_near_the_roof() -> None:
    point = RooflinePoint(label="eager", call_s=1.0, flops_per_s=1.0, roof_share=0.9)
    (finding,) = of_times(roofline=Roofline(peak_flops_per_s=1.0, bandwidth_bytes_per_s=1.0, points=(point,)))
    assert finding.advice.startswith(NONE_KNOWN)


def test_no_advice_is_written_anywhere_else() -> None:
    """A sentence in place of an `Edit` would come without its pair."""
    folder = Path(next(iter(compilot.diagnose.__path__)))
    written = [
        f"{file.name}:{keyword.value.lineno}"
        for file in sorted(folder.rglob("*.py"))
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("Finding", "GraphBreak", "Recompile")
        for keyword in call.keywords
        if keyword.arg in ("advice", "fix") and isinstance(keyword.value, ast.Constant | ast.JoinedStr | ast.BinOp)
    ]
    assert written == []
