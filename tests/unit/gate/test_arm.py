"""The arm's own steps, in this process: what it says of a target, of the other side's weights, and of its answers."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from gate_history import SAMPLE
from torch import nn

from compilot.gate import arm as arm_file
from compilot.gate.arm import Arm, Work, answer, is_foreign, slope, tensors, with_tensors
from compilot.trials.protocol import Built, Looked, Warmed, decode_reply


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.linear(x)}


def opened(model: nn.Module, *args: torch.Tensor) -> Arm:
    arm = Arm.__new__(Arm)  # its audit hook could not be removed from this process
    arm.compiler = type("Runs", (), {"count": 0})()
    arm.work = Work((model.eval(), args), "net.py:net")
    arm.candidate, arm.workspace, arm.facts = {"settings": {}, "label": "eager"}, Path("."), {"open_s": 1.0}
    arm.fn, arm.batch, arm.calls, arm.callers, arm.open_peak = model, 1, 1, 1, 0
    return arm


def ask(arm: Arm, kind: str, **fields: Any) -> Any:
    """The reply as the parent reads it."""
    return decode_reply(json.dumps(answer(arm, {"type": kind, "id": 1, **fields})).encode())


def test_the_file_needs_nothing_but_the_standard_library_and_torch() -> None:
    tree = ast.parse(Path(arm_file.__file__).read_text())
    imported = {n.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    imported |= {(n.module or "").partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported - {"torch"} <= sys.stdlib_module_names
    ast.parse(Path(arm_file.__file__).read_text(), feature_version=(3, 9))


def test_an_arm_builds_warms_up_counts_and_times() -> None:
    arm = opened(Net(), torch.randn(3, 4))
    built = ask(arm, "Build")
    assert isinstance(built, Built)
    warmed = ask(arm, "Warm", for_s=0.05)
    assert isinstance(warmed, Warmed)
    assert warmed.calls_per_batch >= 1
    assert 0.0 < ask(arm, "TimeBatch").per_call_s < 1.0
    assert ask(arm, "Warm", for_s=0.05, callers=2).call_s > 0.0
    assert 0.0 < ask(arm, "TimeBatch").per_call_s < 1.0
    looked = ask(arm, "Look", weights=True)
    assert isinstance(looked, Looked)
    assert looked.facts.graph_breaks is None  # eager has none to count
    assert looked.facts.peak_rss_bytes > 1_000_000
    assert looked.facts.inputs == "[0][0] 3x4 float32"
    assert len(looked.facts.weights_sha256) == 64


def test_weights_and_inputs_are_copied_from_the_base(tmp_path: Path) -> None:
    base, head = opened(Net(), torch.randn(3, 4)), opened(Net(), torch.randn(3, 4))
    state = str(tmp_path / "state.pt")
    ask(base, "KeepState", path=state)
    taken = ask(head, "TakeState", path=state)
    assert (taken.parameters, taken.inputs) == ("", "")
    assert torch.equal(base.work.model.linear.weight, head.work.model.linear.weight)
    assert torch.equal(base.work.calls[0][0][0], head.work.calls[0][0][0])
    for arm, name in ((base, "base"), (head, "head")):
        kept = ask(arm, "KeepAnswers", cases=state, path=str(tmp_path / f"{name}.pt"), double=True)
        assert kept.repeats
        assert kept.cases == ("example 1", "seed 1", "seed 2")
    one, other = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("base", "head"))
    assert torch.equal(one["answers"]["seed 2"]["['y']"], other["answers"]["seed 2"]["['y']"])
    assert one["double"]["seed 1"]["['y']"].dtype is torch.float64


def test_equal_weights_and_buffers_are_left_alone(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(4)
    arm, state = opened(model, torch.randn(3, 4)), str(tmp_path / "state.pt")
    ask(arm, "KeepState", path=state)
    before = {name: tensor._version for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    ask(arm, "TakeState", path=state)
    assert ask(arm, "KeepAnswers", cases=state, path=str(tmp_path / "a.pt")).repeats
    assert before == {name: tensor._version for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def test_answers_begin_with_the_kept_buffers(tmp_path: Path) -> None:
    class Adding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return x + self.seen

    state, answers = str(tmp_path / "state.pt"), []
    for calls in (2, 7):
        torch.manual_seed(0)
        arm = opened(Adding(), torch.ones(3))
        ask(arm, "KeepState", path=state)
        for _ in range(calls):  # a warm-up has no fixed number of them
            arm.fn(*arm.work.calls[0][0])
        assert ask(arm, "KeepAnswers", cases=state, path=str(tmp_path / "a.pt")).repeats
        answers.append(torch.load(tmp_path / "a.pt", weights_only=True)["answers"]["example 1"][""])
    assert torch.equal(*answers)


def test_inputs_that_cannot_be_written_to_are_replaced(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x * mask

    state = str(tmp_path / "state.pt")
    base = opened(Masked(), torch.randn(4, 8), torch.rand(1, 8).expand(4, 8))
    with torch.inference_mode():
        head = opened(Masked(), torch.randn(4, 8), torch.rand(1, 8).expand(4, 8))
    ask(base, "KeepState", path=state)
    taken = ask(head, "TakeState", path=state)
    assert (taken.parameters, taken.inputs) == ("", "")
    for own, given in zip(head.work.calls[0][0], base.work.calls[0][0], strict=True):
        assert torch.equal(own, given)
        assert own.stride() == given.stride()


def test_a_workload_gets_the_inputs_too(tmp_path: Path) -> None:
    from compilot.workload import Workload

    state, given = str(tmp_path / "state.pt"), torch.randn(3, 4)
    ask(opened(Net(), given), "KeepState", path=state)
    head = opened(Net(), torch.randn(3, 4))
    head.work = Work(Workload(Net().eval(), (torch.randn(3, 4),)), "net.py:net")
    ask(head, "TakeState", path=state)
    seen: list[torch.Tensor] = []
    head.work.unit(seen.append)[0]()
    assert torch.equal(seen[0], given)


def test_other_parameters_and_inputs_are_named(tmp_path: Path) -> None:
    state = str(tmp_path / "state.pt")
    ask(opened(Net(), torch.randn(3, 4)), "KeepState", path=state)
    wider = ask(opened(Net(5), torch.randn(3, 5)), "TakeState", path=state)
    assert wider.parameters == "'linear.weight' was 4x4 float32 and is 5x5 float32"
    assert wider.inputs == "'[0][0]' was 3x4 float32 and is 3x5 float32"


def test_another_number_or_word_is_other_work(tmp_path: Path) -> None:
    class Steps(nn.Module):
        def forward(self, x: torch.Tensor, steps: int, how: str = "") -> torch.Tensor:
            return x * steps

    def made(steps: int, how: str) -> Arm:
        arm = opened(Steps(), torch.ones(3))
        arm.work = Work((Steps().eval(), (torch.ones(3), steps), {"how": how}), "net.py:net")
        return arm

    state = str(tmp_path / "state.pt")
    ask(made(10, "fast"), "KeepState", path=state)
    assert ask(made(10, "fast"), "TakeState", path=state).inputs == ""
    assert ask(made(20, "fast"), "TakeState", path=state).inputs == "'[0][1]' was 10 and is 20"
    assert ask(made(10, "slow"), "TakeState", path=state).inputs == "'[1]['how']' was 'fast' and is 'slow'"


def test_made_up_values_that_the_model_refuses_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Positive(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert bool((x > 0).all()), "negative"
            return x.sqrt()

    arm, state = opened(Positive(), torch.rand(200) + 0.01), str(tmp_path / "state.pt")
    ask(arm, "KeepState", path=state)
    kept = ask(arm, "KeepAnswers", cases=state, path=str(tmp_path / "a.pt"), double=True)
    assert kept.cases == ("example 1",)
    assert kept.repeats
    assert torch.load(tmp_path / "a.pt", weights_only=True)["double"].keys() == {"example 1"}
    arm.work.model.forward = lambda x: 1 / 0
    assert "ZeroDivisionError" in ask(arm, "KeepAnswers", cases=state, path=str(tmp_path / "b.pt")).reason
    capsys.readouterr()


def test_weights_that_are_only_read_to_be_compared_are_no_memory_of_the_model(tmp_path: Path) -> None:
    """In a process of its own: the peak of this one is higher than anything here."""
    code = f"""
import sys, torch
sys.path.insert(0, {str(Path(__file__).parents[3] / "src")!r})
from compilot.gate.arm import Arm, Work, answer, peak_rss_bytes
from pathlib import Path
from torch import nn
torch.manual_seed(0)

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40_000_000), requires_grad=False)
    def forward(self, x):
        return x + self.weight[0]

arm = Arm()
arm.work, arm.workspace = Work((Wide(), (torch.ones(3),)), "n:n"), Path("there is none")
arm.candidate, arm.facts = {{"settings": {{}}, "label": "eager"}}, {{"open_s": 1.0}}
arm.open_peak = peak_rss_bytes()
for kind in ("KeepState", "TakeState", "Build", "Warm"):
    answer(arm, {{"type": kind, "path": {str(tmp_path / "state.pt")!r}, "for_s": 0.01}})
    print(kind, peak_rss_bytes() - arm.open_peak)
print(arm.facts["peak_rss_bytes"] - arm.open_peak)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    *_, took, _, _, last = done.stdout.split("\n")[:-1]
    assert int(took.split()[1]) > 100_000_000  # they were read
    assert int(last) < 60_000_000


def test_a_caller_that_fails_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    class Alone(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("one at a time")
            return x

    arm = opened(Alone(), torch.ones(3))
    ask(arm, "Build")
    ask(arm, "Warm", for_s=0.01, callers=2)
    assert "RuntimeError: one at a time" in ask(arm, "TimeBatch").reason
    capsys.readouterr()


@pytest.mark.parametrize(
    ("problem", "of_machine"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (OSError(28, "No space left on device"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("g++: fatal error: Killed signal terminated program cc1plus"), True),
        (ValueError("no such head"), False),
        (FileNotFoundError(2, "No such file"), False),
    ],
)
def test_what_ran_out_may_be_the_machines_doing(
    problem: Exception, of_machine: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("wrapped") from problem

    failed = ask(opened(Raises(), torch.randn(3)), "Build")
    assert failed.error == (arm_file.MACHINE if of_machine else "")
    capsys.readouterr()


def test_an_installed_copy_of_the_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, installed = tmp_path / "project", tmp_path / "lib" / "site-packages" / "ours"
    (project / "src" / "ours").mkdir(parents=True)
    (project / "src" / "ours" / "__init__.py").touch()
    module = type(sys)("ours")
    module.__file__ = str(installed / "__init__.py")
    monkeypatch.setitem(sys.modules, "ours", module)
    monkeypatch.setenv(arm_file.OWN, str(project))
    arm_file.refuse_installed_copy()  # a folder that cannot be installed is no project
    (project / "pyproject.toml").touch()
    with pytest.raises(arm_file.Refused, match=r"'ours' was imported from .*make it an editable install"):
        arm_file.refuse_installed_copy()
    module.__file__ = str(project / "src" / "ours" / "__init__.py")  # as an editable install has it
    arm_file.refuse_installed_copy()
    assert arm_file.own_copy(str(project), "torch") == ""


def test_a_model_that_does_not_repeat_itself_is_seen(tmp_path: Path) -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    arm, state = opened(Counting(), torch.randn(3)), str(tmp_path / "state.pt")
    ask(arm, "KeepState", path=state)
    assert not ask(arm, "KeepAnswers", cases=state, path=str(tmp_path / "a.pt")).repeats


def test_what_the_model_raises_is_a_reply_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no such head")

    failed = ask(opened(Raises(), torch.randn(3)), "Build")
    assert "ValueError: no such head (test_arm.py:" in failed.reason
    assert "no such head" in capsys.readouterr().err


def test_targets_are_loaded_with_the_same_weights_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("blocks", "_compilot_side_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    one, other = (arm_file.load_target(f"{SAMPLE}/model.py:net") for _ in range(2))
    assert torch.equal(one.model.head.weight, other.model.head.weight)
    assert one.samples() == 8
    with pytest.raises(arm_file.Refused, match="has no 'nett'"):
        arm_file.load_target(f"{SAMPLE}/model.py:nett")
    monkeypatch.delitem(sys.modules, "blocks", raising=False)


def test_code_of_the_other_side_is_known_by_its_folder(tmp_path: Path) -> None:
    root = str(tmp_path.resolve())
    assert is_foreign(f"{root}/src/model.py", root)
    assert not is_foreign(f"{root}/.venv/lib/python3.11/site-packages/torch/__init__.py", root)
    assert not is_foreign("/elsewhere/model.py", root)
    assert not is_foreign(f"{root}-other/model.py", root)


def test_imported_code_of_the_other_side_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("intruder")
    module.__file__ = str(tmp_path / "intruder.py")
    monkeypatch.setitem(sys.modules, "intruder", module)
    monkeypatch.setenv(arm_file.FOREIGN, str(tmp_path.resolve()))
    with pytest.raises(arm_file.Refused, match=r"intruder\.py of the other side"):
        arm_file.refuse_foreign()
    monkeypatch.setattr(sys, "path", [str(tmp_path), "/usr/lib"])
    arm_file.leave_foreign_paths()
    assert sys.path == ["/usr/lib"]


@dataclasses.dataclass(frozen=True)
class Out:
    first: Any
    second: Any = None


def test_paths_lead_through_dataclasses() -> None:
    one, other = torch.ones(1), torch.zeros(1)
    found = tensors((Out(one), Out({"a": other}, one)))
    assert list(found) == ["[0].first", "[1].first['a']", "[1].second"]
    made = with_tensors((Out(one), Out(one)), {"[1].first": other})
    assert (made[0].first, made[1].first) == (one, other)
    assert isinstance(made[1], Out)


@pytest.mark.parametrize(("chosen", "after"), [(None, True), (False, False)])
def test_vector_extensions_are_not_tried_out_unless_the_user_has_decided(chosen: bool | None, after: bool) -> None:
    from torch._inductor import config

    with config.patch({"cpp.vec_isa_ok": chosen}):
        arm_file.trust_vector_isa()
        assert config.cpp.vec_isa_ok is after


def test_a_torch_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.config", type(sys)("config"))
    arm_file.trust_vector_isa()


def test_small_things() -> None:
    assert slope([1.0] * 9) == 0.0
    assert slope([1.0] * 6 + [1.0, 2.0, 2.0]) > 0.5
    assert tensors({"a": [torch.ones(2), 3.0]})["['a'][1]"] == 3.0
    with pytest.raises(arm_file.Refused, match="it must return"):
        Work("nothing", "net.py:net")
