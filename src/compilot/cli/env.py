"""`compilot env`: is this machine fit for measuring? Prints what `compilot.environment` returns.

Each part is printed as soon as it is known; the last one takes the longest.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from compilot.api import environs
from compilot.api.environs import AA_PAIRS, LEAST_PAIRS, MOST_PAIRS, EngineHere, PrecisionHere, Toolchain
from compilot.cli import common
from compilot.records import Comparison, MachineFingerprint
from compilot.report.loads import load_words
from compilot.showing.plain import PlainObserver

NOISY = 0.05  # margin above which most gains of a compiler could not be proven


def env(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Measure the A/A noise.")] = True,
    aa_pairs: Annotated[
        int, typer.Option(min=LEAST_PAIRS, max=MOST_PAIRS, metavar="N", help="Pairs of the A/A measurement.")
    ] = AA_PAIRS,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show the machine's fingerprint, the compiler, the engines found, and how noisy timing is here."""
    with common.guarded(debug=debug, as_json=json):
        watcher = PlainObserver()
        if json:
            found = environs.environment(noise=noise, pairs=aa_pairs, observer=watcher)
            return common.print_json(common.document(found))
        known: dict[str, Any] = {}
        for name, part in environs.parts(aa_pairs if noise else 0, watcher):
            known[name] = part
            for line in part_lines(name, known):
                print(line, flush=True)  # measuring takes minutes on a busy machine, and a pipe would keep it back
    return None


def part_lines(name: str, known: dict[str, Any]) -> list[str]:
    """One part for people; known: it and those before it."""
    found = known[name]
    if name == "machine":
        return _machine_lines(found)
    if name == "engines":
        return [_row("engine", f"{engine}: {_engine_line(one)}") for engine, one in found.items()]
    if name == "precisions":
        return [_row("precision", f"{precision}: {_precision_line(one)}") for precision, one in found.items()]
    if name == "load":
        return [_row("load", load_words(found))]
    if name == "toolchain":
        return [_row("compiler", _compiler_line(known["machine"].compiler, found))]
    return [noise_line(found)]


def _row(name: str, value: str) -> str:
    return f"{name:<10}{value}"


def _machine_lines(machine: MachineFingerprint) -> list[str]:
    from compilot.identity import isa

    return [
        _row("CPU", f"{machine.cpu_model}, {machine.cores} cores, {machine.threads} torch threads"),
        _row("vector", ", ".join(sorted(isa.at_run_time(machine.cpu_isa))) or "none known"),
        _row("GPU", machine.gpu or "none"),
        _row("system", f"{machine.platform}, {machine.glibc}"),
        _row("torch", f"{machine.torch}, Python {machine.python}"),
    ]


def _compiler_line(version: str | None, toolchain: Toolchain) -> str:
    if not toolchain.works:
        return f"{version or 'none found'}: does not work: {toolchain.problem}"
    return f"{version or 'unknown'}, works; first compile with its shared header {toolchain.first_compile_s:.1f} s"


def _engine_line(found: EngineHere) -> str:
    if found.ok:
        return found.version
    return f"not usable: {found.why}" + (f"; install with: {found.install}" if found.install else "")


def _precision_line(found: PrecisionHere) -> str:
    return ", ".join(found.engines) or f"none: {found.why}"


def noise_line(aa: Comparison) -> str:
    """ "A/A: 40 pairs, ratio 1.003 (95 % 0.990-1.010): no difference; differences below 1.012x do not count here"."""
    quiet = "no difference" if aa.margin <= NOISY else "no difference that could be told from noise"
    words = {"no-difference": quiet, "undecided": "undecided: too few usable pairs"}
    result = words.get(aa.outcome, f"{aa.outcome}, although both sides are the same: the machine is not quiet")
    figures = f"ratio {aa.ratio:.3f} (95 % {aa.low:.3f}-{aa.high:.3f})"
    doubts = [doubt for doubt in aa.doubts if doubt != "one process"]  # two arms, one process each: by design
    doubts += [f"too noisy to prove gains below {1 + aa.margin:.3f}x: end other programs"] * (aa.margin > NOISY)
    noted = f"; {'; '.join(doubts)}" if doubts else ""
    counts = f"differences below {1 + aa.margin:.3f}x do not count here"
    return f"{'A/A':<10}{aa.pairs} pairs, {figures}: {result}; {counts}{noted}"
