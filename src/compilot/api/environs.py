"""`compilot.environment`: is this machine fit for measuring? In: nothing. Out: an Environment.

Fingerprint, engines, precisions, compiler, and the A/A noise: one small eager model timed against itself in two
processes. Whatever difference that shows is the machine's own, and candidates must beat it. `parts` gives each part as
soon as it is known, for those who show them; the last one takes the longest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot.api.given import watched
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Comparison, MachineFingerprint, Record
from compilot.report.loads import SeenLoad, seen_load

if TYPE_CHECKING:
    from compilot.trials.local import LocalRunner
    from compilot.trials.protocol import ToolchainReady
    from compilot.trials.runner import Runner

AA_TARGET = "compilot.api.noise_model:factory"
AA_PAIRS = 40
LEAST_PAIRS, MOST_PAIRS = 6, 2000  # fewer have no interval; more are hours
AA_CAP_S = 60.0


class EngineHere(Record, frozen=True, kw_only=True, omit_defaults=False):
    """An engine on this machine."""

    ok: bool  # it can be used
    version: str = ""
    why: str = ""  # it cannot be used
    install: str = ""  # the command that would change that


class PrecisionHere(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A lower precision on this machine."""

    engines: tuple[str, ...]  # that compute in it when the user allows it
    why: str = ""  # there is none


class Toolchain(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The C++ compiler that torch uses."""

    works: bool
    problem: str | None  # None: it works
    first_compile_s: float  # with the shared header, which is built once per machine


class Environment(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What measurements here depend on."""

    machine: MachineFingerprint
    engines: dict[str, EngineHere]
    precisions: dict[str, PrecisionHere]  # "bf16", "fp16", "int8-dynamic"
    load: SeenLoad | None  # what other processes use now; None: not known
    toolchain: Toolchain
    aa: Comparison | None = None  # eager against itself; None: not measured


def environment(
    *, noise: bool = True, pairs: int = AA_PAIRS, observer: Observer | None = None, progress: bool = True
) -> Environment:
    """This machine, its compiler, the engines found and how noisy timing is here; what `compilot env` shows.

    noise=False leaves out the measurement, which takes longest; pairs is how many timings it compares.
    """
    with watched(observer, None, progress) as watcher:
        return Environment(**dict(parts(pairs if noise else 0, watcher)))


def parts(pairs: int, observer: Observer) -> Iterator[tuple[str, Any]]:
    """Each field of an Environment as soon as it is known; no A/A measurement for zero pairs."""
    from compilot.identity.machine import machine_fingerprint
    from compilot.trials.load import LoadLook

    if pairs and not LEAST_PAIRS <= pairs <= MOST_PAIRS:
        raise InputError(f"give {LEAST_PAIRS} to {MOST_PAIRS} pairs.")
    load = LoadLook()  # beside what takes a second anyway
    machine = machine_fingerprint()
    yield "machine", machine
    yield "engines", _engines()
    yield "precisions", _precisions(machine.cpu_isa)
    yield "load", seen_load(load.result())
    with _runner() as runner:
        observer.stage("trying the C++ compiler")
        yield "toolchain", _toolchain(runner.try_compiler())
        if pairs:
            observer.stage(f"timing a small eager model against itself, {pairs} pairs")
            yield "aa", _measured_noise(runner, pairs)


@contextmanager
def _runner() -> Iterator[LocalRunner]:
    """Worker processes whose files are gone afterwards."""
    from compilot.artifacts.rundir import RunDir
    from compilot.trials.limits import Limits
    from compilot.trials.local import LocalRunner

    with (
        tempfile.TemporaryDirectory(prefix="compilot-env-") as folder,
        LocalRunner(RunDir(Path(folder)), limits=Limits(), observer=Observer()) as runner,
    ):
        yield runner


def _measured_noise(runner: Runner, pairs: int) -> Comparison:
    """Eager against eager, in two processes."""
    from compilot.engines.eager.build import EAGER
    from compilot.tuning.comparing import eager_against_itself
    from compilot.verdict.compare import compare
    from compilot.workload.dispatch import ship_target

    runner.open(ship_target(AA_TARGET))
    runner.inspect()
    return compare(eager_against_itself(runner, pairs, AA_CAP_S), EAGER.id, EAGER.id)


def _toolchain(ready: ToolchainReady) -> Toolchain:
    return Toolchain(works=ready.problem is None, problem=ready.problem, first_compile_s=ready.wall_s)


def _engines() -> dict[str, EngineHere]:
    from compilot.engines import registry

    return {name: EngineHere(**registry.build_half(name).available()._asdict()) for name in registry.names()}


def _precisions(isa: tuple[str, ...]) -> dict[str, PrecisionHere]:
    """Which engines here compute in a lower precision when the user allows it, or why none does."""
    from compilot.candidates.spaces import serving, why_nobody
    from compilot.engines.space import LOWER
    from compilot.records import Diagnosis

    diagnosis = Diagnosis(cpu_isa=isa)
    return {
        precision.value: PrecisionHere(
            engines=tuple(serving((), diagnosis, precision)), why=why_nobody((), diagnosis, precision)
        )
        for precision in LOWER
    }
