"""What importing torch's compiler takes is known beside a cold start, where eager does without that import."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compilot.artifacts.rundir import RunDir
from compilot.engines.traits import IMPORT_S
from compilot.progress import Observer
from compilot.records import Guard, Shipment
from compilot.trials import local
from compilot.trials.attempt import first_call
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.protocol import Built
from compilot.trials.steps import importing
from compilot.trials.workers import Workers

BUILT = Built(
    cold_s=5.0,
    cold_cache=True,
    cpu_s=5.0,
    compiler_runs=1,
    import_s=1.5,
    guard=Guard(positional=1, keywords=(), tensors=()),
)


class FakeChild:
    """Has built already."""

    owner = "some"

    def ask(self, request: Any, expect: type, *, limit_s: float, doing: str) -> Built:
        return BUILT


def imported(monkeypatch: pytest.MonkeyPatch, *, before: bool) -> float:
    """Seconds of an import that takes three and a half, in a process that may have it already."""
    monkeypatch.setattr(importing, "time", SimpleNamespace(perf_counter=iter([1.0, 4.5]).__next__))
    compiling = SimpleNamespace(dynamo_is_here=lambda: before, import_dynamo=lambda: None)
    monkeypatch.setattr(importing, "compiling", compiling)
    return importing.import_compiler()


def test_the_import_is_timed_and_guessed_where_the_process_was_forked_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert imported(monkeypatch, before=False) == 3.5
    assert imported(monkeypatch, before=True) == IMPORT_S


@pytest.mark.parametrize(("too", "import_s"), [(False, 1.5), (True, 0.0)])
def test_a_target_that_imports_the_compiler_itself_makes_eager_pay_for_it_too(
    tmp_path: Path, too: bool, import_s: float
) -> None:
    workers = Workers(None, RunDir(tmp_path), limits=Limits(), observer=Observer())
    workers.imports_compiler = too
    child: Any = FakeChild()
    measured = first_call(workers.build(child, Limits()))
    assert (measured.cold_s, measured.import_s) == (5.0, import_s)


@pytest.mark.parametrize(("imports", "known"), [(("jinja2",), False), (("jinja2", "torch._dynamo"), True)])
def test_what_the_target_imports_is_seen_in_eagers_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: tuple[str, ...], known: bool
) -> None:
    opened = SimpleNamespace(ref=None, notes=(), imports=imports)
    monkeypatch.setattr(local, "LoadLook", lambda: SimpleNamespace(result=lambda: None))
    monkeypatch.setattr(LocalRunner, "_start_eager", lambda self: opened)
    runner = LocalRunner(RunDir.make(tmp_path / "run"), limits=Limits(), observer=Observer())
    runner.open(Shipment(sys_path=(), cwd="", target="nowhere.py:nothing"))
    assert runner.workers.imports_compiler is known
