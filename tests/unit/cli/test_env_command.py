"""`compilot env`: what it says of the machine, with the measuring replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from compilot.api import environs
from compilot.api.environs import EngineHere, PrecisionHere, Toolchain
from compilot.cli import env
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import BusyProcess, Comparison, Outcome
from compilot.report.loads import SeenLoad
from compilot.trials.protocol import ToolchainReady

AA = Comparison(
    candidate_id="eager",
    baseline_id="eager",
    outcome=Outcome.NO_DIFFERENCE,
    ratio=1.003,
    low=0.99,
    high=1.01,
    pairs=40,
    processes=1,
    margin=0.012,
    mde=0.01,
    aa_noise=0.01,
    doubts=("one process",),
)


LOAD = SeenLoad(busy=True, others=1.0, steal=0.0, cores=2, processes=(BusyProcess(name="make", pid=9, share=0.9),))


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch, small_run: Any) -> dict[str, Any]:
    """What is found, part by part; a test may change it."""
    found: dict[str, Any] = {
        "machine": small_run.header.fingerprint.machine,
        "engines": {
            "eager": EngineHere(ok=True, version="2.13.0"),
            "openvino": EngineHere(ok=False, why="not installed", install="pip install openvino"),
        },
        "precisions": {
            "bf16": PrecisionHere(engines=(), why="this CPU has no bf16 arithmetic"),
            "int8-dynamic": PrecisionHere(engines=("onnxruntime",)),
        },
        "load": LOAD,
        "toolchain": Toolchain(works=True, problem=None, first_compile_s=7.25),
        "aa": AA,
    }

    def parts(pairs: int, observer: Any) -> Iterator[tuple[str, Any]]:
        return iter([(name, part) for name, part in found.items() if pairs or name != "aa"])

    monkeypatch.setattr(environs, "parts", parts)
    return found


class SlowRunner:
    """Fails where the compiler is tried, or where the noise is measured."""

    def __init__(self, *, compiles: bool) -> None:
        self.compiles = compiles

    def try_compiler(self) -> ToolchainReady:
        if not self.compiles:
            raise InputError("the compiler never ends.")
        return ToolchainReady(wall_s=7.25)

    def open(self, shipment: Any) -> None:
        raise InputError("the noise part never ends.")


@pytest.mark.parametrize("compiles", [True, False])
def test_each_part_is_printed_before_the_next_begins(
    compiles: bool, compilot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environs, "_runner", lambda: nullcontext(SlowRunner(compiles=compiles)))
    ended = compilot("env")
    assert "never ends" in ended.stderr
    heads = list(dict.fromkeys(line.split()[0] for line in ended.stdout.splitlines()))
    known_first = ["CPU", "vector", "GPU", "system", "torch", "engine", "precision", "load"]
    assert heads == known_first + ["compiler"] * compiles


def test_it_names_machine_compiler_engines_and_noise(looked: Any, compilot: Any) -> None:
    text = compilot("env").stdout
    assert "Some CPU, 2 cores, 2 torch threads" in text
    assert "works; first compile with its shared header 7.2 s" in text
    assert "openvino: not usable: not installed; install with: pip install openvino" in text
    assert "bf16: none: this CPU has no bf16 arithmetic" in text
    assert "int8-dynamic: onnxruntime" in text
    assert "40 pairs, ratio 1.003 (95 % 0.990-1.010): no difference; differences below 1.012x do not count here" in text


def test_without_noise_there_is_no_such_line(looked: Any, compilot: Any) -> None:
    assert "A/A" not in compilot("env", "--no-noise").stdout


def test_a_broken_compiler_is_quoted(looked: Any, compilot: Any) -> None:
    looked["toolchain"] = Toolchain(works=False, problem="g++ not found", first_compile_s=0.1)
    assert "does not work: g++ not found" in compilot("env").stdout


def test_a_machine_that_differs_from_itself_is_called_not_quiet() -> None:
    assert "the machine is not quiet" in env.noise_line(msgspec.structs.replace(AA, outcome=Outcome.FASTER))


def test_a_noisy_machine_is_told_so() -> None:
    text = env.noise_line(msgspec.structs.replace(AA, ratio=0.8, low=0.6, high=1.1, margin=0.31))
    assert "no difference that could be told from noise; differences below 1.310x do not count here" in text
    assert "too noisy to prove gains below 1.310x: end other programs" in text
    assert "%" not in text.replace("95 %", "")  # one unit for differences


def test_json(looked: Any, compilot: Any) -> None:
    document = json.loads(compilot("env", "--json").stdout)
    assert list(document) == ["machine", "engines", "precisions", "load", "toolchain", "aa"]
    assert document["engines"]["openvino"] == {
        "ok": False,
        "version": "",
        "why": "not installed",
        "install": "pip install openvino",
    }
    assert document["precisions"]["int8-dynamic"] == {"engines": ["onnxruntime"], "why": ""}
    assert document["toolchain"] == {"works": True, "problem": None, "first_compile_s": 7.25}
    assert document["aa"]["ratio"] == 1.003
    assert json.loads(compilot("env", "--json", "--no-noise").stdout)["aa"] is None


def test_a_busy_machine_is_named_and_who_makes_it_so() -> None:
    told = "load      busy: other processes use 100 % of a core (make, pid 9: 90 %); differences below about 1.5x "
    assert env.part_lines("load", {"load": LOAD})[0].startswith(told)


def test_a_quiet_one_and_one_that_does_not_say() -> None:
    quiet = msgspec.structs.replace(LOAD, busy=False, others=0.02, processes=())
    assert env.part_lines("load", {"load": quiet}) == ["load      quiet: other processes use 2 % of a core"]
    assert "does not say" in env.part_lines("load", {"load": None})[0]


def test_the_look_at_the_machine_is_one_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environs, "_runner", lambda: nullcontext(SlowRunner(compiles=True)))
    found = dict(environs.parts(0, Observer()))
    assert found["load"] is None or found["load"].cores
    assert list(found) == ["machine", "engines", "precisions", "load", "toolchain"]
