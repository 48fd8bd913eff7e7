"""`compilot env`: is this machine fit for measuring? In: nothing. Out: fingerprint, compiler, engines, A/A noise.

The A/A measurement times one small eager model against itself in two processes: whatever difference it shows is the
machine's own, and candidates must beat it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.records import Comparison
    from compilot.trials.protocol import ToolchainReady
    from compilot.trials.runner import Runner

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
        document = look(aa_pairs if noise else 0)
        if json:
            common.print_json(document)
        else:
            print("\n".join(lines(document)))


def look(aa_pairs: int) -> dict[str, Any]:
    """Everything there is to say, as plain data; no A/A measurement for zero pairs."""
    import msgspec

    from compilot.artifacts.rundir import RunDir
    from compilot.identity.machine import machine_fingerprint
    from compilot.progress import Observer
    from compilot.trials.limits import Limits
    from compilot.trials.local import LocalRunner

    with (
        tempfile.TemporaryDirectory(prefix="compilot-env-") as folder,
        LocalRunner(RunDir(Path(folder)), limits=Limits(), observer=Observer()) as runner,
    ):
        common.tell("trying the C++ compiler ...")
        toolchain = runner.try_compiler()
        aa = measure_noise(runner, aa_pairs) if aa_pairs else None
    return {
        "machine": msgspec.to_builtins(machine_fingerprint()),
        "toolchain": _toolchain(toolchain),
        "engines": _engines(),
        "precisions": _precisions(machine_fingerprint().cpu_isa),
        "aa": msgspec.to_builtins(aa),
    }


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


def lines(document: dict[str, Any]) -> list[str]:
    """The document for people."""
    from compilot.identity import isa

    machine = document["machine"]
    shown = {
        "CPU": f"{machine['cpu_model']}, {machine['cores']} cores, {machine['threads']} torch threads",
        "vector": ", ".join(sorted(isa.at_run_time(machine["cpu_isa"]))) or "none known",
        "GPU": machine.get("gpu") or "none",
        "system": f"{machine['platform']}, {machine['glibc']}",
        "torch": f"{machine['torch']}, Python {machine['python']}",
        "compiler": _compiler_line(machine.get("compiler"), document["toolchain"]),
    }
    text = [f"{name:<10}{value}" for name, value in shown.items()]
    text += [f"{'engine':<10}{name}: {_engine_line(found)}" for name, found in document["engines"].items()]
    text += [f"{'precision':<10}{name}: {_precision_line(found)}" for name, found in document["precisions"].items()]
    return [*text, *([noise_line(document["aa"])] if document["aa"] else [])]


def _compiler_line(version: str | None, toolchain: dict[str, Any]) -> str:
    if not toolchain["works"]:
        return f"{version or 'none found'}: does not work: {toolchain['problem']}"
    return f"{version or 'unknown'}, works; first compile with its shared header {toolchain['first_compile_s']:.1f} s"


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
