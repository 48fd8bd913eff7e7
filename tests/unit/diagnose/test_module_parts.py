"""Where eager's time goes in the module tree: shares by path, seen with hooks that leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from compilot import diagnose
from compilot.diagnose.graphs.search_hints import search_hints
from compilot.diagnose.model import module_parts as looking
from compilot.diagnose.model.module_parts import is_single, module_parts, parts_of, shares_of, with_shares
from compilot.diagnose.report_records import Category, CodeFrame, DoctorReport, GraphBreak
from compilot.diagnose.timing import submodules
from compilot.diagnose.timing.submodules import Timed, timed_submodules
from compilot.records import BreakPlace, Diagnosis, Reference, RepeatedBlock, encode
from compilot.workload import Workload

BLOCK = RepeatedBlock(class_name="Block", paths=("h.0", "h.1"), parameters=1, structure_sha256="0")


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Block(nn.Module):
    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.mix = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.mix(x))


class Net(nn.Module):
    """Runs two of its three blocks, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.h[1](self.h[1](self.h[0](x))))


def workload(model: nn.Module | None = None) -> Workload:
    return Workload(model or Net().eval(), (torch.randn(64, 64),))


def hooks(model: nn.Module) -> list[Any]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_forward_hooks_with_kwargs")
    return [hook for module in model.modules() for kind in kinds for hook in getattr(module, kind)]


def test_shares_are_of_the_whole_call_and_single_layers_are_no_parts() -> None:
    times = {"": Timed(0.9, 1), "net": Timed(3.0, 1), "net.conv": Timed(6.0, 1), "small": Timed(0.1, 1)}
    (only,) = parts_of(times, {"": "Root", "net": "Net", "small": "Small"})
    assert (only.path, only.class_name, only.share, only.calls) == ("net", "Net", 0.9, 1)


def test_outermost_parts_come_first_and_larger_ones_before_smaller_ones() -> None:
    times = {"": Timed(1.0, 1), "a.b": Timed(2.0, 1), "a.c": Timed(3.0, 1), "z": Timed(1.0, 1)}
    found = parts_of(times, dict.fromkeys(times, "Part"))
    assert [part.path for part in found] == ["z", "a.c", "a.b"]


def test_there_are_not_too_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_PARTS", 2)
    times = {"": Timed(0.0, 1), "a": Timed(2.0, 1), "b": Timed(3.0, 1), "c": Timed(4.0, 1)}
    assert [part.path for part in parts_of(times, dict.fromkeys(times, "Part"))] == ["c", "b"]


def test_a_block_that_never_ran_has_no_share() -> None:
    times = {"": Timed(6.0, 1), "h.0": Timed(4.0, 1)}
    assert with_shares([BLOCK], times)[0].shares == (0.4, 0.0)


def test_a_run_that_was_disturbed_in_one_place_does_not_change_the_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part at its quickest, and the whole is their sum: else a noisy machine makes every share too small."""
    clock, delays = Clock(), iter([9, 0, 0, 9, 9, 0])  # no run is quick in both

    class Part(nn.Module):
        def forward(self) -> None:
            clock.now += 5 + next(delays)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = Part(), Part()

        def forward(self) -> None:
            self.one()
            self.other()

    monkeypatch.setattr(submodules, "time", clock)
    model = Both()
    assert shares_of(timed_submodules(model, model, repeats=3, long_enough_s=1e9)) == {
        "": 1.0,
        "one": 0.5,
        "other": 0.5,
    }


def test_without_times_nothing_is_said() -> None:
    assert parts_of({}, {}) == ()
    assert with_shares([BLOCK], {})[0].shares == ()


def test_layers_of_torch_are_single_and_what_holds_others_is_not() -> None:
    assert is_single(nn.Linear(2, 2))
    assert not is_single(nn.Sequential(nn.Linear(2, 2)))
    assert not is_single(Block())


class Again(nn.Module):
    """Calls itself once."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, deeper: bool = True) -> None:
        self.clock.now += 2
        if deeper:
            self(deeper=False)


def test_a_module_that_calls_itself_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(submodules, "time", clock)
    model = nn.Sequential(Again(clock))
    found = timed_submodules(model, model[0], repeats=1)
    assert found["0"] == Timed(own_s=4.0, calls=2)


def test_a_real_model_is_timed_and_left_as_it_was() -> None:
    load = workload()
    found = module_parts(
        load, [RepeatedBlock(class_name="Block", paths=("h.0", "h.1", "h.2"), parameters=1, structure_sha256="0")]
    )
    by_path = {part.path: part for part in found.parts}
    assert by_path["h.1"].calls == 2
    assert set(by_path) <= {"h.0", "h.1", "head"}  # neither the list nor the layers
    (block,) = found.repeated
    assert block.shares[2] == 0.0
    assert block.shares[1] > 0.0 < block.shares[0]
    assert sum(block.shares) < 1.0
    assert hooks(load.model) == []


def test_a_model_that_does_not_bear_watching_has_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **named: Any) -> Any:
        raise RuntimeError("no hooks here")

    load = workload()
    monkeypatch.setattr(load.model.head[0], "register_forward_pre_hook", refuse)
    assert module_parts(load, [BLOCK]) == ((), (BLOCK,))
    assert hooks(load.model) == []


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_part_that_is_scripted_leaves_the_others_as_they_are() -> None:
    model = Net().eval()
    model.h[0] = torch.jit.script(nn.Sequential(nn.Linear(64, 64), nn.ReLU()))
    load = workload(model)
    before = [type(module) for module in load.model.modules()]
    found = module_parts(load, [BLOCK])
    assert found.repeated[0].paths == BLOCK.paths
    assert [type(module) for module in load.model.modules()] == before
    with torch.no_grad():
        assert load.model(*load.call.args).shape == (64, 64)


def test_the_look_at_eager_has_them_and_they_travel() -> None:
    seen = diagnose.inspect(workload(), Reference(kind="eager", cases=()))
    assert seen.parts
    assert seen.repeated[0].shares
    assert diagnosis_again(seen) == seen


def diagnosis_again(seen: Diagnosis) -> Diagnosis:
    import msgspec

    return msgspec.json.decode(encode(seen), type=Diagnosis)


def test_the_search_learns_in_which_submodules_the_compiler_stops() -> None:
    place = CodeFrame(file="m.py", line=3, function="forward", source="if x.sum() > 5:")
    branch = GraphBreak(where=place, category=Category.DATA_DEPENDENT_BRANCH, cause="", fix="", modules=("h.3", "h.4"))
    printed = GraphBreak(where=place, category=Category.PRINT, cause="", fix="", modules=("",))
    report = DoctorReport(schema=1, compilot="0", created="", label="Net", breaks=(branch, printed))
    assert search_hints(report)["breaks"] == (
        BreakPlace(where="m.py:3", modules=("h.3", "h.4"), stops_export=True),
        BreakPlace(where="m.py:3", modules=("",), stops_export=False),
    )
