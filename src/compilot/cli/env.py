"""`compilot env`: is this machine fit for measuring? In: nothing. Out: fingerprint, compiler, engines, A/A noise.

Each part is printed as soon as it is known; the last one takes the longest. The A/A measurement times one small eager
model against itself in two processes: whatever difference it shows is the machine's own, and candidates must beat it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.records import Comparison
    from compilot.trials.local import LocalRunner
    from compilot.trials.protocol import ToolchainReady
    from compilot.trials.runner import Runner

Known = Callable[[dict[str, Any], Sequence[str]], None]  # the document so far, and the names of its new parts

AA_TARGET = "compilot.cli._aa_model:factory"
AA_PAIRS = 40
AA_CAP_S = 60.0
NOISY = 0.05  # margin above which most gains of a compiler could not be proven


def env(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Measure the A/A noise.")] = True,
    aa_pairs: Annotated[int, typer.Option(min=6, max=2000, help="Pairs of the A/A measurement.")] = AA_PAIRS,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show the machine's fingerprint, the compiler, the engines found, and how noisy timing is here."""
    with common.guarded(debug=debug, as_json=json):
        document = look(aa_pairs if noise else 0, _unheard if json else _print_parts)
        if json:
            common.print_json(document)


def _unheard(document: dict[str, Any], parts: Sequence[str]) -> None:
    """Who wants the whole document waits for it."""


def look(aa_pairs: int, known: Known = _unheard) -> dict[str, Any]:
    """Everything there is to say, as plain data; no A/A measurement for zero pairs.

    known: is called with each part as soon as there is one.
    """
    import msgspec

    from compilot.identity.machine import machine_fingerprint
    from compilot.report.files import load_document
    from compilot.trials.load import LoadLook

    document: dict[str, Any] = {}

    def learn(**parts: Any) -> None:
        document.update(parts)
        known(document, tuple(parts))

    load = LoadLook()  # beside what takes a second anyway
    machine = machine_fingerprint()
    learn(machine=msgspec.to_builtins(machine))
    learn(engines=_engines(), precisions=_precisions(machine.cpu_isa))
    learn(load=load_document(load.result(), None))
    with _runner() as runner:
        common.tell("trying the C++ compiler ...")
        learn(toolchain=_toolchain(runner.try_compiler()))
        learn(aa=msgspec.to_builtins(measure_noise(runner, aa_pairs)) if aa_pairs else None)
    return document


@contextmanager
def _runner() -> Iterator[LocalRunner]:
    """Worker processes whose files are gone afterwards."""
    from compilot.artifacts.rundir import RunDir
    from compilot.progress import Observer
    from compilot.trials.limits import Limits
    from compilot.trials.local import LocalRunner

    with (
        tempfile.TemporaryDirectory(prefix="compilot-env-") as folder,
        LocalRunner(RunDir(Path(folder)), limits=Limits(), observer=Observer()) as runner,
    ):
        yield runner


def _print_parts(document: dict[str, Any], parts: Sequence[str]) -> None:
    for line in lines(document, parts):
        print(line, flush=True)  # measuring takes minutes on a busy machine, and a pipe would keep the line back


def measure_noise(runner: Runner, pairs: int) -> Comparison:
    """Eager against eager, in two processes."""
    from compilot.engines.eager.build import EAGER
    from compilot.tuning.comparing import eager_against_itself
    from compilot.verdict.compare import compare
    from compilot.workload.dispatch import ship_target

    common.tell(f"timing a small eager model against itself, {pairs} pairs ...")
    runner.open(ship_target(AA_TARGET))
    runner.inspect()
    return compare(eager_against_itself(runner, pairs, AA_CAP_S), EAGER.id, EAGER.id)


def _toolchain(ready: ToolchainReady) -> dict[str, Any]:
    return {"works": ready.problem is None, "problem": ready.problem, "first_compile_s": ready.wall_s}


def _engines() -> dict[str, Any]:
    from compilot.engines import registry

    return {name: registry.build_half(name).available()._asdict() for name in registry.names()}


def _precisions(isa: tuple[str, ...]) -> dict[str, Any]:
    """Which engines here compute in a lower precision when the user allows it, or why none does."""
    from compilot.candidates.spaces import serving, why_nobody
    from compilot.engines.space import LOWER
    from compilot.records import Diagnosis

    found: dict[str, Any] = {}
    diagnosis = Diagnosis(cpu_isa=isa)
    for precision in LOWER:
        able = serving((), diagnosis, precision)
        found[precision.value] = {"engines": able, "why": why_nobody((), diagnosis, precision)}
    return found


def lines(document: dict[str, Any], parts: Sequence[str]) -> list[str]:
    """Some parts of the document for people."""
    return [line for part in parts for line in _part_lines(part, document)]


def _part_lines(part: str, document: dict[str, Any]) -> list[str]:
    found = document[part]
    if part == "machine":
        return _machine_lines(found)
    if part == "engines":
        return [_row("engine", f"{name}: {_engine_line(one)}") for name, one in found.items()]
    if part == "precisions":
        return [_row("precision", f"{name}: {_precision_line(one)}") for name, one in found.items()]
    if part == "load":
        return [_row("load", _load_line(found))]
    if part == "toolchain":
        return [_row("compiler", _compiler_line(document["machine"].get("compiler"), found))]
    return [noise_line(found)] if found else []


def _row(name: str, value: str) -> str:
    return f"{name:<10}{value}"


def _machine_lines(machine: dict[str, Any]) -> list[str]:
    from compilot.identity import isa

    return [
        _row("CPU", f"{machine['cpu_model']}, {machine['cores']} cores, {machine['threads']} torch threads"),
        _row("vector", ", ".join(sorted(isa.at_run_time(machine["cpu_isa"]))) or "none known"),
        _row("GPU", machine.get("gpu") or "none"),
        _row("system", f"{machine['platform']}, {machine['glibc']}"),
        _row("torch", f"{machine['torch']}, Python {machine['python']}"),
    ]


def _compiler_line(version: str | None, toolchain: dict[str, Any]) -> str:
    if not toolchain["works"]:
        return f"{version or 'none found'}: does not work: {toolchain['problem']}"
    return f"{version or 'unknown'}, works; first compile with its shared header {toolchain['first_compile_s']:.1f} s"


def _load_line(found: dict[str, Any] | None) -> str:
    """Whether others use the machine now, as a run would say it."""
    import msgspec

    from compilot.records import MachineLoad
    from compilot.verdict.busy import busy_words, quiet_words

    if found is None:
        return "not known: this machine does not say what other processes use"
    load = msgspec.convert({name: found[name] for name in MachineLoad.__struct_fields__}, MachineLoad)
    return busy_words(load) if found["busy"] else quiet_words(load)


def _engine_line(found: dict[str, Any]) -> str:
    if found["ok"]:
        return f"{found['version']}"
    return f"not usable: {found['why']}" + (f"; install with: {found['install']}" if found["install"] else "")


def _precision_line(found: dict[str, Any]) -> str:
    return ", ".join(found["engines"]) or f"none: {found['why']}"


def noise_line(aa: dict[str, Any]) -> str:
    """ "A/A: 40 pairs, ratio 1.003 (95 % 0.990-1.010): no difference; margin used here: 1.2 %"."""
    quiet = "no difference" if aa["margin"] <= NOISY else "no difference that could be told from noise"
    words = {"no-difference": quiet, "undecided": "undecided: too few usable pairs"}
    result = words.get(aa["outcome"], f"{aa['outcome']}, although both arms are the same: the machine is not quiet")
    figures = f"ratio {aa['ratio']:.3f} (95 % {aa['low']:.3f}-{aa['high']:.3f})"
    doubts = [
        doubt for doubt in aa.get("doubts", ()) if doubt != "one process"
    ]  # two arms, one process each: by design
    doubts += [f"too noisy to prove gains below {aa['margin'] * 100:.0f} %: end other programs"] * (
        aa["margin"] > NOISY
    )
    noted = f"; {'; '.join(doubts)}" if doubts else ""
    return f"{'A/A':<10}{aa['pairs']} pairs, {figures}: {result}; margin used here: {aa['margin'] * 100:.1f} %{noted}"
