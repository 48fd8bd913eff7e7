"""`compare` names what changed between two runs: an option of torch, a layer, the machine, the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

import compilot as public
from compilot.identity.layers import MAX_TOLD, changed_layers, layers_of
from compilot.identity.model import model_fingerprint
from compilot.ledger.changes import Change
from compilot.records import Diagnosis, DiagnosisLine, Fingerprint, SourceCommit, State, TrialLine


class Net(nn.Module):
    def __init__(self, hidden: int = 4, *, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(3, hidden)
        self.act = nn.LayerNorm(hidden) if norm else nn.ReLU()
        self.last = nn.Linear(hidden, 2)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.act(self.first(x))) * self.scale
        return out


def of(model: nn.Module, small_run: Any, **machine: Any) -> Fingerprint:
    here = msgspec.structs.replace(small_run.header.fingerprint.machine, **machine)
    return Fingerprint(machine=here, model=model_fingerprint(model.eval()))


def changed(first: Path, second: Path, area: str) -> dict[str, Change]:
    return {one.what: one for one in public.compare(first, second).changes if one.area == area}


def test_equal_runs_have_no_changes(make_run: Any) -> None:
    a, b = make_run("a", source=SourceCommit(commit="a" * 40)), make_run("b", source=SourceCommit(commit="a" * 40))
    found = public.compare(a.path, b.path)
    assert found.changes == ()
    assert found.sentence == "nothing that was recorded differs."
    assert found.not_compared == ("torch's own options and the environment at the build of the chosen candidate",)


def looked_at(run: Any, model: nn.Module) -> Path:
    """The run, with what the look at this model found in its journal."""
    with run.open_journal() as journal:
        journal.append(DiagnosisLine(diagnosis=Diagnosis(layers=layers_of(model))))
    path: Path = run.path
    return path


def test_a_changed_layer_is_named(make_run: Any, small_run: Any) -> None:
    models = {"a": Net(), "b": Net(hidden=8), "c": Net(norm=True)}
    runs = {name: looked_at(make_run(name, fingerprint=of(model, small_run)), model) for name, model in models.items()}
    wider = [one.sentence for one in public.compare(runs["a"], runs["b"]).changes]
    assert wider[:2] == [
        "layer 'first': Linear(in_features=3, out_features=4, bias=True) -> "
        "Linear(in_features=3, out_features=8, bias=True)",
        "layer 'last': Linear(in_features=4, out_features=2, bias=True) -> "
        "Linear(in_features=8, out_features=2, bias=True)",
    ]
    assert wider[-1].endswith("changed, from 26 to 50 values")
    other = [one.sentence for one in public.compare(runs["a"], runs["c"]).changes]
    assert other[0] == "layer 'act': ReLU() -> LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"


def test_many_changed_layers_are_counted_and_new_ones_named() -> None:
    old, new = ({f"{n}": f"Linear({n + more})" for n in range(8)} for more in (0, 1))
    assert changed_layers(old, new)[-1] == "3 more layers changed"
    assert len(changed_layers(old, new)) == MAX_TOLD + 1
    assert changed_layers({"a": "A()"}, {"a": "A()", "b": "B()"}) == ["layer 'b' (B()) is new"]
    assert changed_layers({"a": "A()", "b": "B()"}, {"a": "A()"}) == ["layer 'b' (B()) is gone"]
    assert changed_layers({}, new) == changed_layers(old, {}) == changed_layers(old, old) == []


def test_a_changed_attribute_and_another_commit_are_named(make_run: Any, small_run: Any) -> None:
    edited = Net()
    edited.scale = 2.0
    a = make_run("a", fingerprint=of(Net(), small_run), source=SourceCommit(commit="1" * 40))
    b = make_run("b", fingerprint=of(edited, small_run), source=SourceCommit(commit="2" * 40, dirty=True))
    code = changed(a.path, b.path, "code")
    assert "attribute 'scale' from 1.0 to 2.0" in code["model.structure_sha256"].sentence
    assert code["git commit"].sentence == "git commit: 111111111111 -> 222222222222 with changes"


def test_another_machine_and_other_versions_are_named(make_run: Any, small_run: Any) -> None:
    before = small_run.header.fingerprint
    machine = msgspec.structs.replace(
        before.machine, cpu_model="Other CPU", cores=64, torch="2.14.0", cpu_isa=("avx2", "avx512f"),
        engines={"openvino": "2026.1"},
    )  # fmt: skip
    a, b = make_run("a"), make_run("b", fingerprint=msgspec.structs.replace(before, machine=machine))
    found = public.compare(a.path, b.path)
    sentences = [one.sentence for one in found.changes]
    assert sentences == [
        "torch: 2.13.0 -> 2.14.0",
        "openvino: none -> 2026.1",
        "CPU: Some CPU -> Other CPU",
        "number of usable cores: 2 -> 64",
        "CPU instructions: now with avx512f",
    ]
    assert found.sentence == "versions and machine changed."


def test_a_changed_option_of_torch_is_named(make_run: Any, small_run: Any) -> None:
    a, b = make_run("a"), make_run("b")
    chosen = small_run.verdict.chosen_id
    for run, precision, fusion in ((a, "highest", "False"), (b, "medium", "True")):
        key = run.compile_key(chosen)
        key.parent.mkdir(parents=True)
        told = {"created": "", "state": {"float32_matmul_precision": precision}, "config": {"epilogue_fusion": fusion}}
        key.write_text(json.dumps(told | {"environment": {"OMP_NUM_THREADS": "2"}}))
    settings = [one.sentence for one in changed(a.path, b.path, "settings").values()]
    assert settings == [
        "torch's compiler option epilogue_fusion: False -> True",
        "torch's float32_matmul_precision: highest -> medium",
    ]


def test_another_choice_is_named_by_its_options_and_numbers_by_their_intervals(make_run: Any, small_run: Any) -> None:
    from compilot.verdict.compare import compare

    a = make_run("a")
    eager, plain = small_run.trials[0].candidate, small_run.trials[1].candidate
    small_run.verdict = msgspec.structs.replace(
        small_run.verdict, chosen_id=plain.id, comparisons=(compare(small_run.confirm, plain.id, eager.id),)
    )
    b = make_run("b", budget_s=30.0, engines=("inductor",))
    assert [one.sentence for one in changed(a.path, b.path, "settings").values()] == [
        "chosen: inductor freezing -> inductor",
        "options.freezing: True -> none",
    ]
    assert [one.sentence for one in changed(a.path, b.path, "options").values()] == [
        "budget_s: 90.0 -> 30.0",
        "engines: none -> inductor",
    ]
    numbers = changed(a.path, b.path, "numbers")
    assert numbers["speed-up over eager"].sentence.endswith("; the intervals do not overlap")
    assert "the chosen candidate's median call" in numbers
    assert "eager's median call" not in numbers  # the very same samples


def test_candidates_that_ended_otherwise_are_named(make_run: Any, small_run: Any) -> None:
    a, b = make_run("a"), make_run("b")
    failed = msgspec.structs.replace(small_run.trials[1], state=State.CRASHED, reason="SIGSEGV")
    with b.open_journal() as journal:
        journal.append(TrialLine(trial=failed, at_s=1.0))
    [only] = public.compare(a.path, b.path).changes
    assert only.sentence == "candidate inductor: ok -> crashed (SIGSEGV)"


def test_a_run_without_a_verdict_is_compared_as_far_as_it_goes(make_run: Any) -> None:
    a, b = make_run("a"), make_run("b", finished=False)
    found = public.compare(a.path, b.path)
    assert "the chosen candidate: a run has no verdict" in found.not_compared
