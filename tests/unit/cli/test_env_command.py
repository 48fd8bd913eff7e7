"""`compilot env`: what it says of the machine, with the measuring replaced."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from compilot.cli import env
from compilot.errors import InputError
from compilot.trials.protocol import ToolchainReady

AA = {"outcome": "no-difference", "ratio": 1.003, "low": 0.99, "high": 1.01, "pairs": 40, "margin": 0.012}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch, small_run: Any) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = {
        "machine": msgspec.to_builtins(small_run.header.fingerprint.machine),
        "toolchain": {"works": True, "problem": None, "first_compile_s": 7.25},
        "engines": {
            "eager": {"ok": True, "version": "2.13.0", "why": "", "install": ""},
            "openvino": {"ok": False, "version": "", "why": "not installed", "install": "pip install openvino"},
        },
        "precisions": {
            "bf16": {"engines": [], "why": "this CPU has no bf16 arithmetic"},
            "int8-dynamic": {"engines": ["onnxruntime"], "why": ""},
        },
        "aa": AA,
    }

    def look(pairs: int, known: env.Known) -> dict[str, Any]:
        found = {**document, "aa": document["aa"] if pairs else None}
        known(found, tuple(found))
        return found

    monkeypatch.setattr(env, "look", look)
    return document


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
    monkeypatch.setattr(env, "_runner", lambda: nullcontext(SlowRunner(compiles=compiles)))
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
    assert "40 pairs, ratio 1.003 (95 % 0.990-1.010): no difference; margin used here: 1.2 %" in text


def test_without_noise_there_is_no_such_line(looked: Any, compilot: Any) -> None:
    assert "A/A" not in compilot("env", "--no-noise").stdout


def test_a_broken_compiler_is_quoted(looked: Any, compilot: Any) -> None:
    looked["toolchain"].update(works=False, problem="g++ not found")
    assert "does not work: g++ not found" in compilot("env").stdout


def test_a_machine_that_differs_from_itself_is_called_not_quiet() -> None:
    assert "the machine is not quiet" in env.noise_line({**AA, "outcome": "faster"})


def test_a_noisy_machine_is_told_so() -> None:
    text = env.noise_line({**AA, "ratio": 0.8, "low": 0.6, "high": 1.1, "margin": 0.31})
    assert "no difference that could be told from noise; margin used here: 31.0 %" in text
    assert "too noisy to prove gains below 31 %: end other programs" in text


def test_json(looked: Any, compilot: Any) -> None:
    assert json.loads(compilot("env", "--json").stdout) == json.loads(json.dumps(looked))


LOAD = {"busy": True, "others": 1.0, "steal": 0.0, "cores": 2, "processes": [{"name": "make", "pid": 9, "share": 0.9}]}


def test_a_busy_machine_is_named_and_who_makes_it_so() -> None:
    told = "load      busy: other processes use 100 % of a core (make, pid 9: 90 %); differences below about 1.5x "
    assert env.lines({"load": LOAD}, ["load"])[0].startswith(told)


def test_a_quiet_one_and_one_that_does_not_say() -> None:
    quiet = {**LOAD, "busy": False, "others": 0.02, "processes": []}
    assert env.lines({"load": quiet}, ["load"]) == ["load      quiet: other processes use 2 % of a core"]
    assert "does not say" in env.lines({"load": None}, ["load"])[0]


def test_the_look_at_the_machine_is_part_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "_runner", lambda: nullcontext(SlowRunner(compiles=True)))
    assert set(env.look(0)["load"]) >= {"busy", "others", "steal", "cores", "processes", "smallest_shown"}
