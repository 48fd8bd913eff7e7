"""Bundles with several entries, and starts that are noted: fake engines, no compiler."""

from __future__ import annotations

import copy
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import compilot
from compilot._tree import Call
from compilot.api import verifying, whycold
from compilot.artifacts.planfile import save_plan
from compilot.cli.main import app
from compilot.diagnose.cachemiss import why_cold
from compilot.engines import registry
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import BundleError, CompilotWarning, InputError, StaleBundle
from compilot.identity.keys import KEY_FILE, key_components, save_components
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.packing.writing import publish, seal
from compilot.records import (
    BUNDLE_SCHEMA,
    PLAN_SCHEMA,
    BundleEntry,
    Candidate,
    DynamicDim,
    Evidence,
    Fingerprint,
    Golden,
    Manifest,
    PaddedDim,
    PaddedInput,
    PaddedOutput,
    Padding,
    Plan,
    PlanEntry,
    ProcessSettings,
    Settings,
    Shapes,
    Weights,
    WorkloadRef,
)
from compilot.runtime import golden
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import taken_by

USUAL = ProcessSettings()
X = torch.randn(4, 3)
UP_TO_EIGHT = (DynamicDim(input="input", dim=0, min=1, max=8),)


class Adding:
    """An engine that answers as the model does, plus something."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.error = 0.0
        self.calls = 0
        self.while_called: Callable[[], None] = lambda: None

    def load(self, request: LoadRequest) -> Loaded:
        def call(x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.while_called()
            answer: torch.Tensor = request.model(x) + self.error
            return answer

        return Loaded(call=call)


@pytest.fixture
def engines() -> Iterator[tuple[Adding, Adding]]:
    made = Adding(), Adding()
    for name, engine in zip(("first", "second"), made, strict=True):
        registry.register(name, None, engine)
    yield made
    for name in ("first", "second"):
        registry.unregister(name)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(3, 3).eval()


def entry_of(model: nn.Module, size: int, settings: Settings, process: ProcessSettings = USUAL) -> PlanEntry:
    dynamic = UP_TO_EIGHT if settings.shapes is Shapes.DYNAMIC else ()
    call = Call((torch.randn(size, 3),), {})
    return PlanEntry(
        guard=make_guard(model, call, dynamic=dynamic, shapes=settings.shapes, grad=False),
        candidate=Candidate(settings=settings, label=settings.engine, rationale="", process=process),
        evidence=Evidence(),
        sentence="fast",
    )


def golden_of(folder: Path, number: int, model: nn.Module, size: int) -> Golden:
    """The golden call of an entry, with the model's own answer to it."""
    call = Call((torch.randn(size, 3),), {})
    with torch.no_grad():
        right = model(*call.args)
    inputs, outputs = (f"golden/{number}-{end}.safetensors" for end in ("inputs", "outputs"))
    (folder / "golden").mkdir(exist_ok=True, parents=True)
    golden.save(golden.input_tensors(call), folder / inputs)
    golden.save(golden.output_tensors(right), folder / outputs)
    return Golden(inputs=inputs, outputs=outputs, expected=golden.expected(right, right))


def bundle_of(
    folder: Path,
    model: nn.Module,
    entries: tuple[PlanEntry, ...],
    packed: tuple[BundleEntry, ...],
    *,
    frozen: bool = False,
) -> Path:
    """The folder with what was put there, sealed as a bundle; frozen: an engine bakes the model's weights in."""
    fingerprint = Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model, weights=frozen))
    plan = Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Linear"),
        fingerprint=fingerprint,
        because="test",
        entries=entries,
    )
    save_plan(plan, folder / "plan.json")
    manifest = Manifest(
        schema=BUNDLE_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        label="Linear",
        engine=entries[0].candidate.settings.engine,
        fingerprint=fingerprint,
        weights=Weights.MODEL,
        entries=packed,
    )
    seal(folder, manifest, None)
    publish(folder, folder.with_suffix(".cpbundle"), as_folder=False)
    return folder.with_suffix(".cpbundle")


@pytest.fixture
def overlapping(tmp_path: Path, model: nn.Module, engines: tuple[Adding, Adding]) -> Path:
    """Any batch up to eight by the first engine; batches of four, which the first takes too, by the second."""
    folder = tmp_path / "both"
    entries = (
        entry_of(model, 2, Settings(engine="first", shapes=Shapes.DYNAMIC)),
        entry_of(model, 4, Settings(engine="second")),
    )
    packed = tuple(BundleEntry(folder="", golden=golden_of(folder, i, model, size)) for i, size in enumerate((2, 4)))
    return bundle_of(folder, model, entries, packed)


@pytest.fixture
def padded(tmp_path: Path, model: nn.Module, engines: tuple[Adding, Adding]) -> Path:
    """Batches of one to eight, padded to eight for the first engine; batches of twelve by the second."""
    folder = tmp_path / "padded"
    padding = Padding(
        dims=(
            PaddedDim(
                min=1,
                size=8,
                inputs=(PaddedInput(path="args[0]", dim=0),),
                outputs=(PaddedOutput(path="output", dim=0),),
            ),
        )
    )
    eight = entry_of(model, 8, Settings(engine="first"))
    eight = msgspec.structs.replace(eight, name="up to 8", guard=taken_by(eight.guard, padding), padding=padding)
    entries = (eight, msgspec.structs.replace(entry_of(model, 12, Settings(engine="second")), name="12"))
    packed = tuple(BundleEntry(folder="", golden=golden_of(folder, i, model, size)) for i, size in enumerate((3, 12)))
    return bundle_of(folder, model, entries, packed)


def test_padded_entries_travel_in_bundles(padded: Path, model: nn.Module, engines: tuple[Adding, Adding]) -> None:
    first, second = engines
    fast = compilot.compile(model, padded, strict=True)
    assert (first.calls, second.calls) == (1, 1)  # both golden calls, the first of them padded
    with torch.no_grad():
        for batch in (1, 5, 8, 12, 5, 9):
            x = torch.randn(batch, 3)
            torch.testing.assert_close(fast(x), model(x))
    stats = fast.stats()
    assert {name: entry.fast for name, entry in stats.entries.items()} == {"up to 8": 4, "12": 1}
    assert stats.fallbacks == {"shape of args[0]: 9x3, plan has 12x3": 1}
    copied = copy.deepcopy(fast)
    with torch.no_grad():
        torch.testing.assert_close(copied(X), model(X))


def test_each_golden_call_goes_to_its_own_entry(
    overlapping: Path, model: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    first, second = engines
    fast = compilot.compile(model, overlapping, strict=True)
    assert (first.calls, second.calls) == (1, 1)
    assert fast.stats()[:-1] == (0, 0, {}, 2, (), {})  # the user has made no call yet
    assert list(fast.stats().entries) == ["entry 0", "entry 1"]
    x = torch.randn(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    assert (first.calls, second.calls) == (2, 1)  # in use, the first that takes a call answers it
    assert (fast.stats().calls, fast.stats().fast) == (1, 1)


def test_the_calls_of_users_are_recorded_and_the_golden_ones_are_not(
    overlapping: Path, model: nn.Module, engines: tuple[Adding, Adding], tmp_path: Path
) -> None:
    fast = compilot.compile(model, overlapping, strict=True, record=tmp_path / "sizes.jsonl")
    with torch.no_grad():
        fast(torch.randn(4, 3))
    fast.close()  # type: ignore[operator]
    trace = compilot.read_trace(tmp_path / "sizes.jsonl")
    assert [(one.sizes, one.calls) for one in trace.sizes] == [({"input:0": 4, "input:1": 3}, 1)]


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_entry_that_answers_wrongly_is_found_behind_another_that_takes_its_calls(
    overlapping: Path, model: nn.Module, engines: tuple[Adding, Adding], wrong: int
) -> None:
    engines[wrong].error = 1.0
    with pytest.raises(BundleError, match="wrong answer to its golden call"):
        compilot.compile(model, overlapping, strict=True)


@pytest.fixture
def trained(model: nn.Module) -> nn.Module:
    """The same model with other weights, a thousand times as large."""
    other = nn.Linear(3, 3).eval()
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1000)
    return other


def one_entry(folder: Path, model: nn.Module, *, frozen: bool) -> Path:
    entries = (entry_of(model, 2, Settings(engine="first")),)
    packed = (BundleEntry(folder="", golden=golden_of(folder, 0, model, 2)),)
    return bundle_of(folder, model, entries, packed, frozen=frozen)


def test_a_model_that_was_trained_since_is_held_to_its_own_answer(
    tmp_path: Path, model: nn.Module, trained: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    bundle = one_entry(tmp_path / "shared", model, frozen=False)
    fast = compilot.compile(trained, bundle, strict=True)
    x = torch.randn(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), trained(x))
    assert fast.stats().fast_share == 1.0
    engines[0].error = 10.0  # of an answer in the hundreds
    with pytest.raises(BundleError, match="wrong answer to its golden call"):
        compilot.compile(trained, bundle, strict=True)


def test_frozen_weights_that_changed_are_named(
    tmp_path: Path, model: nn.Module, trained: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    bundle = one_entry(tmp_path / "frozen", model, frozen=True)
    assert compilot.compile(model, bundle, strict=True).stats().calls == 0
    assert engines[0].calls == 1
    with pytest.raises(StaleBundle, match="the weight values frozen into the plan changed"):
        compilot.compile(trained, bundle, strict=True)
    assert engines[0].calls == 1


def test_an_entry_whose_guard_does_not_take_its_golden_call_proves_nothing(
    tmp_path: Path, model: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    entries = (entry_of(model, 4, Settings(engine="second")), entry_of(model, 2, Settings(engine="first")))
    odd = (msgspec.structs.replace(entries[0].guard, training=True), entries[1].guard)
    entries = tuple(msgspec.structs.replace(e, guard=g) for e, g in zip(entries, odd, strict=True))  # type: ignore
    packed = tuple(BundleEntry(folder="", golden=golden_of(tmp_path / "odd", i, model, s)) for i, s in ((0, 4), (1, 2)))
    with pytest.raises(BundleError, match="does not answer its golden call by its engine"):
        compilot.compile(model, bundle_of(tmp_path / "odd", model, entries, packed), strict=True)


def test_an_entry_that_keeps_eager_goes_along_with_another(
    tmp_path: Path, model: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    threads = ProcessSettings(threads=torch.get_num_threads())
    entries = (entry_of(model, 4, Settings(), threads), entry_of(model, 2, Settings(engine="first")))
    packed = tuple(BundleEntry(folder="", golden=golden_of(tmp_path / "mix", i, model, s)) for i, s in ((0, 4), (1, 2)))
    fast = compilot.compile(model, bundle_of(tmp_path / "mix", model, entries, packed), strict=True)
    assert (fast.stats().calls, engines[0].calls) == (0, 1)


def test_a_golden_call_of_a_bundle_that_keeps_eager_is_no_call_of_the_user(tmp_path: Path, model: nn.Module) -> None:
    packed = (BundleEntry(folder="", golden=golden_of(tmp_path / "kept", 0, model, 4)),)
    bundle = bundle_of(tmp_path / "kept", model, (entry_of(model, 4, Settings()),), packed)
    fast = compilot.compile(model, bundle, strict=True)
    assert fast.stats().calls == 0
    fast(X)
    assert fast.stats() == (1, 0, {"the plan keeps the model eager": 1}, 0, (), {}, {})


@pytest.mark.usefixtures("engines")
def test_an_engines_entry_without_a_golden_call_is_not_served(tmp_path: Path, model: nn.Module) -> None:
    entries = (entry_of(model, 4, Settings()), entry_of(model, 2, Settings(engine="first")))
    eager = bundle_of(tmp_path / "eager", model, entries[:1], (BundleEntry(folder=""),))
    assert compilot.compile(model, eager, strict=True).stats().calls == 0
    unproven = bundle_of(tmp_path / "both", model, entries, (BundleEntry(folder=""),) * 2)
    with pytest.raises(BundleError, match="no golden call for its entry first"):
        compilot.compile(model, unproven, strict=True)


# ------------------------------------------------------------------------------------------------ in place


def test_in_place_nobody_is_served_before_the_golden_call_was_right(
    overlapping: Path, model: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    seen: list[type] = []
    engines[1].while_called = lambda: seen.append(type(model))
    fast = compilot.compile(model, overlapping, strict=True, inplace=True)
    assert seen == [nn.Linear]
    assert fast is model
    assert (type(model).__name__, model.stats().calls) == ("Linear", 0)  # type: ignore[operator]
    assert [engine.calls for engine in engines] == [1, 1]
    with torch.no_grad():
        torch.testing.assert_close(model(X), nn.Linear.forward(model, X))
    assert type(compilot.runtime.restore(model)) is nn.Linear


@pytest.mark.usefixtures("engines")
def test_a_bundle_that_fails_leaves_what_was_compiled_in_place_before(overlapping: Path, model: nn.Module) -> None:
    fast = compilot.compile(model, overlapping, strict=True, inplace=True)
    kind = type(fast)
    with pytest.raises(InputError, match="compiled already"):
        compilot.compile(model, overlapping, strict=True, inplace=True)
    assert type(model) is kind


# ------------------------------------------------------------------------------------------------ loaded once more


def test_copies_and_pickles_start_the_bundle_again(
    overlapping: Path, model: nn.Module, engines: tuple[Adding, Adding]
) -> None:
    fast = compilot.compile(model, overlapping, strict=True)
    with torch.no_grad():
        model.weight.add_(1.0)  # type: ignore[operator]
        for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            assert "verify" in other.startup
            torch.testing.assert_close(other(X), model(X))
            assert (other.stats().calls, other.stats().fast) == (1, 1)
    assert [engine.calls for engine in engines] == [5, 3]  # three starts with two golden calls, two calls of the user
    engines[1].error = 1.0
    with pytest.raises(BundleError, match="wrong answer to its golden call"):
        copy.deepcopy(fast)


@pytest.mark.usefixtures("engines")
def test_a_copy_is_not_made_from_another_bundle_that_lies_there_now(
    overlapping: Path, model: nn.Module, tmp_path: Path
) -> None:
    fast = compilot.compile(model, overlapping, strict=True)
    entry, right = entry_of(model, 2, Settings(engine="first")), golden_of(tmp_path / "other", 0, model, 2)
    other = bundle_of(tmp_path / "other", model, (entry,), (BundleEntry(folder="", golden=right),))
    other.replace(overlapping)
    with pytest.raises(BundleError, match="not the bundle any more"):
        copy.deepcopy(fast)


@pytest.mark.usefixtures("engines")
def test_refresh_does_not_load_files_that_were_damaged_since(
    overlapping: Path, model: nn.Module, tmp_path: Path
) -> None:
    fast = compilot.compile(model, overlapping, strict=True)
    fast.refresh()
    plan = next((tmp_path / "cache/bundles").glob("*/plan.json"))
    plan.write_bytes(plan.read_bytes().replace(b"{", b" ", 1))
    with pytest.raises(BundleError, match=r"plan\.json does not match its digest"):
        fast.refresh()


# ------------------------------------------------------------------------------------------------ starts are noted


@pytest.fixture
def with_cache(tmp_path: Path, model: nn.Module) -> Path:
    """A bundle with a compile cache, as a torch.compile plan without a twin gives one."""
    folder = tmp_path / "cached"
    artifacts = folder / "artifacts/0"
    (artifacts / "inductor").mkdir(parents=True)
    (artifacts / "inductor/kernel.so").write_bytes(b"compiled")
    entry = entry_of(model, 2, Settings(engine="dynamo:eager"))
    right = golden_of(folder, 0, model, 2)
    key = key_components(
        settings=entry.candidate.settings,
        guard=entry.guard,
        model=model_fingerprint(model),
        cache_dir=artifacts / "inductor",
    )
    save_components(key, artifacts / KEY_FILE)
    packed = BundleEntry(folder="artifacts/0", golden=right, needs_compiler=True, start_s=11.2)
    return bundle_of(folder, model, (entry,), (packed,))


def test_why_cold_compares_a_bundle_with_its_last_start(with_cache: Path, model: nn.Module) -> None:
    assert whycold.latest(with_cache)[1] == "this machine now"
    compilot.compile(model, with_cache, strict=True)
    start, which = whycold.latest(with_cache)
    assert which == "its last start on this machine"
    assert why_cold(whycold.read(with_cache), start) == ()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.warns(CompilotWarning, match="unproven"):
            compilot.compile(model, with_cache, strict=True)
    finally:
        torch.set_num_threads(threads)
    causes = why_cold(whycold.read(with_cache), whycold.latest(with_cache)[0])
    assert [cause.component for cause in causes] == ["threads"]


def test_verify_says_what_a_start_with_a_compile_cache_needs(with_cache: Path) -> None:
    shown = CliRunner().invoke(app, ["verify", str(with_cache)]).stdout
    assert "needs    the model object and a C++ compiler; started in 11 s where it was packed" in shown


def test_an_operator_of_the_users_own_is_told_with_the_next_step(
    tmp_path: Path, model: nn.Module, engines: tuple[Adding, Adding], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: LoadRequest) -> Loaded:  # in torch 2.13's words
        advice = "Consider using C++ TORCH_LIBRARY APIs. See the landing page for more details."
        raise Infeasible(f"RuntimeError: Could not find schema for mine::roll. Custom operators cannot run. {advice}")

    monkeypatch.setattr(engines[0], "load", refuse)
    names = ("mine::roll", "aten::mm.default", "mine::roll")
    calls = {"nodes": [{"name": "buf", "node": {"target": name, "inputs": []}} for name in names]}
    (tmp_path / "own/artifacts/0").mkdir(parents=True)
    (tmp_path / "own/artifacts/0/model-ab.json").write_bytes(msgspec.json.encode(calls))
    bundle = one_entry(tmp_path / "own", model, frozen=False)
    with pytest.raises(BundleError) as refused:
        compilot.compile(model, bundle, strict=True)
    assert str(refused.value) == (
        f"{bundle} cannot be loaded: this process does not know the operator mine::roll; "
        "import the module that registers mine::roll before compilot.compile."
    )
    shown = CliRunner().invoke(app, ["verify", str(bundle)]).stdout
    assert "needs    the model object and the operator mine::roll (import the module that registers it)\n" in shown


def test_verify_says_of_a_process_that_said_nothing_that_it_printed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = subprocess.CompletedProcess([], 1, stdout="", stderr="")
    monkeypatch.setattr(verifying.subprocess, "run", lambda *args, **kwargs: silent)
    with pytest.raises(BundleError, match=r"^net\.cpbundle did not start: it printed nothing$"):
        verifying._start_up(Path("net.cpbundle"), [], False)


@pytest.mark.slow
def test_verify_tells_a_refused_start_in_one_sentence(overlapping: Path) -> None:
    with pytest.raises(BundleError) as refused:
        verifying._start_up(overlapping, [], False)
    assert str(refused.value).startswith(f"{overlapping} was packed for something else: first: ")
    assert str(refused.value).count(str(overlapping)) == 1


def test_why_cold_says_that_a_bundle_without_a_compiler_has_no_cold_start(overlapping: Path) -> None:
    with pytest.raises(InputError, match=r"compiles nothing when it starts.*verify --time"):
        whycold.read(overlapping)


def test_a_model_that_draws_random_numbers_gives_its_golden_answer_at_every_start(
    tmp_path: Path, engines: tuple[Adding, Adding]
) -> None:
    noisy = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    folder = tmp_path / "noisy"
    packed = (BundleEntry(folder="", golden=golden_of(folder, 0, noisy, 4)),)
    bundle = bundle_of(folder, noisy, (entry_of(noisy, 4, Settings(engine="first")),), packed)
    before = torch.get_rng_state()
    for _ in range(3):
        compilot.compile(noisy, bundle, strict=True)
    assert torch.equal(before, torch.get_rng_state())
    assert engines[0].calls == 3
