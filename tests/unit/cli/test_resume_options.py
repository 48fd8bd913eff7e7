"""`compilot tune --resume`: target and options are those of the run, unless the command line gives other ones."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.records import PRIOR_BY_DEFAULT, DynamicDim, Goal, Objective, Precision, RunHeader, WorkloadRef
from compilot.tuning.journal import make_header
from compilot.tuning.options import TuneOptions
from compilot.workload.dynamic import merge

ASKED = (
    *("--budget", "90s", "--objective", "throughput", "--horizon", "1000", "--engines", "inductor,eager"),
    *("--max-memory", "2GiB", "--seed", "7", "--dynamic", "x:0=1..8"),
    *("--allow-precision", "bf16", "--tolerance", "0.03"),
    *("--max-compile", "45s", "--max-error", "0.001", "--preset", "research"),
    "--prior" if not PRIOR_BY_DEFAULT else "--no-prior",
)
DIMS = (DynamicDim(input="x", dim=0, min=1, max=8),)


def begun(fake: Any, compilot: Any, small_run: Any, *, target: str | None = "net.py:net") -> TuneOptions:
    """A run in `here` whose journal has what was asked for, as the worker would have understood it."""
    compilot("tune", "net.py:net", *ASKED, "--out", "elsewhere", "--quiet")
    options: TuneOptions = fake.asked["options"]
    shipment = fake.asked["shipment"]
    ref = WorkloadRef(label="Net", target=target and str(Path(target).absolute()), seed=shipment.seed, dynamic=DIMS)
    small_run.header = make_header(ref, small_run.header.fingerprint, options)
    small_run.write(Path("here"), finished=False)
    fake.asked = {}
    return options


def test_the_command_that_an_interruption_prints_is_taken_as_printed(
    fake: Any, compilot: Any, small_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = begun(fake, compilot, small_run)
    fake.raises = KeyboardInterrupt()
    said = compilot("tune", "net.py:net", "--resume", "here", "--quiet").stderr
    fake.raises, fake.asked = None, {}
    _, _, command = said.partition("resume with: compilot ")
    assert compilot(*shlex.split(command)).exit_code == 0
    assert fake.asked["resume"] is True
    assert fake.asked["finish_early"] is True
    assert fake.asked["options"]._replace(argv=()) == options._replace(argv=())
    assert (fake.asked["shipment"].seed, fake.asked["shipment"].extra_dynamic) == (7, DIMS)


def test_the_target_may_be_left_out(fake: Any, compilot: Any, small_run: Any) -> None:
    begun(fake, compilot, small_run)
    fake.raises = KeyboardInterrupt()
    result = compilot("tune", "--resume", "here", "--quiet")
    assert result.stderr == "interrupted; resume with: compilot tune --resume here\n"
    assert fake.asked["shipment"].target == str(Path("net.py").absolute()) + ":net"


def test_what_the_command_line_gives_counts(fake: Any, compilot: Any, small_run: Any) -> None:
    begun(fake, compilot, small_run)
    compilot(
        *("tune", "--resume", "here", "--budget", "10m", "--objective", "latency", "--engines", "aoti"),
        *("--seed", "0", "--dynamic", "y:1=2..4", "--tolerance", "0.04", "--max-memory", "1GiB", "--horizon", "5"),
    )
    options, shipment = fake.asked["options"], fake.asked["shipment"]
    assert (options.budget_s, options.engines, options.max_memory_bytes) == (600.0, ("aoti",), 2**30)
    assert (options.goal.objective, options.goal.horizon_calls) == (Objective.LATENCY, 5)
    assert (options.allow_precision, options.tolerance) == ((Precision.BF16,), 0.04)
    assert (shipment.seed, shipment.extra_dynamic) == (0, (DynamicDim(input="y", dim=1, min=2, max=4),))


def test_callers_are_kept_and_a_horizon_as_far_as_it_makes_sense(fake: Any, compilot: Any, small_run: Any) -> None:
    begun(fake, compilot, small_run)
    small_run.header = msgspec.structs.replace(small_run.header, concurrency=4)
    small_run.write(Path("four"), finished=False)
    compilot("tune", "--resume", "four", "--quiet")
    assert fake.asked["options"].goal == Goal(objective=Objective.THROUGHPUT, horizon_calls=1000, concurrency=4)
    compilot("tune", "--resume", "four", "--objective", "p99", "--quiet")
    assert fake.asked["options"].goal == Goal(objective=Objective.P99)


def test_lower_precisions_can_be_closed_again(fake: Any, compilot: Any, small_run: Any) -> None:
    begun(fake, compilot, small_run)
    compilot("tune", "--resume", "here", "--allow-precision", "")
    assert (fake.asked["options"].allow_precision, fake.asked["options"].tolerance) == ((), None)


def test_a_run_that_was_resumed_with_other_options_keeps_those(fake: Any, compilot: Any, small_run: Any) -> None:
    begun(fake, compilot, small_run)
    later: RunHeader = msgspec.structs.replace(small_run.header, budget_s=600.0)
    with RunDir(Path("here")).open_journal() as journal:
        journal.append(later)
    compilot("tune", "--resume", "here")
    assert fake.asked["options"].budget_s == 600.0


def test_a_run_from_python_objects_has_no_target_to_go_on_with(fake: Any, compilot: Any, small_run: Any) -> None:
    begun(fake, compilot, small_run, target=None)
    result = compilot("tune", "--resume", "here")
    assert (result.exit_code, fake.asked) == (2, {})
    assert "tuned from Python objects" in result.stderr


def test_dimensions_from_the_run_are_the_same_beside_the_targets_own() -> None:
    own = (DynamicDim(input="x", dim=0, min=1, max=4), DynamicDim(input="a", dim=1, min=2, max=3))
    of_the_run = merge(own, DIMS)
    assert merge(own, of_the_run) == of_the_run
