"""Advice for a line, blame for a stack, cost of a gap, and what became of the findings."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._torch.dynamo_events import LimitEvent, RecompileEvent
from compilot.diagnose import driving, fixcheck, frames, ranking
from compilot.diagnose.graphs import advice, breaks, causes
from compilot.diagnose.graphs.watching import module_path
from compilot.diagnose.recompiles import changes
from compilot.diagnose.report_records import Category, CodeFrame, DoctorReport, GraphBreak, Recompile
from compilot.records import Finding
from compilot.workload import Workload

LIBRARY = f"{sysconfig.get_path('purelib')}/torch/nn/modules/linear.py"
STDLIB = f"{sysconfig.get_path('stdlib')}/copy.py"


def frame(file: str, line: int) -> CodeFrame:
    return CodeFrame(file=file, line=line, function="f")


def at(source: str) -> CodeFrame:
    return CodeFrame(file="m.py", line=1, function="forward", source=source)


@pytest.mark.parametrize(
    ("category", "source", "expected"),
    [
        (Category.DATA_DEPENDENT_BRANCH, "if y.sum() > 0:", "torch.where(y.sum() > 0,"),
        (Category.DATA_DEPENDENT_BRANCH, "while err > 1:", "torch.while_loop, its condition being `err > 1`"),
        (Category.DATA_DEPENDENT_BRANCH, "assert x.min() > 0", "torch._assert_async(x.min() > 0)"),
        (Category.DATA_DEPENDENT_BRANCH, "elif y.any():", "torch.where(y.any(),"),
        (Category.SCALAR_READ, "s = x.max().item()  # scale", "`s = x.max()`"),
        (Category.SCALAR_READ, "n = int(lengths)", "keep the tensor: `n = lengths.long()`"),
        (Category.SCALAR_READ, "n = float(x.max().item())", "keep the tensor: `n = x.max()`"),
        (Category.SCALAR_READ, "y = x[int(k)]", "stack all that `x` may give"),
        (Category.SCALAR_READ, "y = torch.zeros(n.item(), 3)", "pass `n` to forward as a Python number"),
        (Category.SCALAR_READ, "y = x * math.exp(n.item())", "`torch.exp(n)`"),
        (Category.SCALAR_READ, "y = f(x, n.item())", "no edit is known from this line alone"),
        (Category.SCALAR_READ, "ts.sort(key=lambda t: t.max().item())", "torch.stack([t.max() for t in ts]).argsort()"),
        (
            Category.SCALAR_READ,
            "ts = sorted(ts, key=lambda t: t.item(), reverse=True)",
            "torch.stack([t for t in ts]).argsort(descending=True)",
        ),
        (Category.SCALAR_READ, "t = min(ts, key=lambda t: t.item())", "torch.stack([t for t in ts]).argmin()"),
        (Category.SCALAR_READ, "y = x * max(s.item(), 1.0)", "`y = x * max(s, 1.0)`"),
        (Category.SCALAR_READ, "ys = [f(v) for v in x.tolist()]", "no edit is known from this line alone"),
        (Category.SCALAR_READ, "ys = [v * 2 for v in x.tolist()]", "`ys = [v * 2 for v in x]`"),
        (Category.AUTOGRAD, "(g,) = torch.autograd.grad(y, x)", "trace_autograd_ops"),
        (Category.AUTOGRAD, "y.retain_grad()", "no edit is known that keeps it in forward"),
        (
            Category.UNSUPPORTED_OPERATOR,
            "y = nn.utils.rnn.pack_padded_sequence(x, n)",
            "no edit is known that keeps pa",
        ),
        (Category.UNSUPPORTED_OPERATOR, "y, _ = self.gru(x)", "allow_rnn"),
        (Category.CONTEXT_MANAGER, "stack.enter_context(lock)", "put the context manager around the model's call"),
        (Category.SCALAR_READ, "if x.max().item() > 5:", "torch.where(x.max() > 5, then, otherwise)"),
        (
            Category.SCALAR_READ,
            "elif 0 < x.item() < 5 and not y.any():",
            "(0 < x) & (x < 5) & torch.logical_not(y.any())",
        ),
        (Category.SCALAR_READ, "if int(k) > 3:", "torch.where(k.long() > 3, then, otherwise)"),
        (Category.SCALAR_READ, "y = a if x.item() > 0 else b", "torch.where(x > 0, a, b)"),
        (
            Category.SCALAR_READ,
            "if mask is not None and mask.sum().item() > 0:",
            "let Python decide what needs no tensor",
        ),
        (Category.SCALAR_READ, "while err.item() > 1:", "torch.while_loop, its condition being `err > 1`"),
        (Category.SCALAR_READ, "assert x.min().item() > 0", "torch._assert_async(x.min() > 0)"),
        (Category.SCALAR_READ, "for i in range(n.item()):", "x = torch.where(i < n, new, x)"),
        (Category.SCALAR_READ, "return x[:, : n.item()]", "compare torch.arange(...) with it and mask"),
        (Category.PRINT, "print(x)", "`if not torch.compiler.is_compiling(): print(x)`"),
        (Category.DYNAMIC_OUTPUT_SHAPE, "z = y[y > 0]", "torch.where(y > 0, y, 0) in place of `y[y > 0]`"),
        (Category.CONTEXT_MANAGER, "with self.lock:", "put `with self.lock:` around the model's call"),
        (Category.CONTEXT_MANAGER, "with self.lock, self.log as log:", "put `with self.lock, self.log:` around"),
        (Category.DATA_DEPENDENT_BRANCH, "x = f(", "torch.where"),
    ],
)
def test_the_advice_is_about_this_line(category: Category, source: str, expected: str) -> None:
    assert expected in advice.advise(category, at(source))


@pytest.mark.parametrize("source", ["if x.item() > 5:", "for i in range(n.item()):", "while bool(x.any()):"])
def test_no_setting_is_advised_for_a_number_that_decides_control_flow(source: str) -> None:
    assert "capture_scalar_outputs" not in advice.advise(Category.SCALAR_READ, at(source))
    assert "capture_scalar_outputs" in advice.advise(Category.SCALAR_READ, at("y = x * s.item()"))


def test_a_number_that_gets_a_name_is_followed_to_where_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("def forward(x, n):\n    n = n.item()\n    for _ in range(n):\n        x = x + 1\n    return x\n")
    line = CodeFrame(file=str(file), line=2, function="forward", source="n = n.item()")
    assert "x = torch.where(step < n, new, x)" in advice.advise(Category.SCALAR_READ, line)


def test_every_category_of_a_break_has_advice() -> None:
    recompiles = list(Category)[list(Category).index(Category.SHAPE) :]
    for category in set(Category) - set(recompiles):
        assert advice.advise(category, at("x"))


def test_of_two_breaks_in_one_message_the_first_is_the_cause() -> None:
    message = (
        "Data-dependent branching\n  Explanation: Detected it.\n  Hint: a\n\n  Developer debug context: jump\n\n"
        "*** While handling this graph break, another graph break occurred: ***\n\ngraph break in loop\n  b"
    )
    told = causes.read(message)
    assert told == ("Data-dependent branching", "Detected it.", "jump")
    assert causes.categorise(told, "if x > 0:") is Category.DATA_DEPENDENT_BRANCH


def test_the_users_frame_is_blamed_and_the_library_frame_is_kept() -> None:
    where, inside = frames.blame([frame("drive.py", 1), frame("user.py", 5), frame(LIBRARY, 9)], "drive.py")
    assert (where.file, where.line) == ("user.py", 5)
    assert inside is not None
    assert (inside.file, inside.library) == (LIBRARY, True)


def test_frames_above_the_boundary_are_not_the_models() -> None:
    where, inside = frames.blame([frame("user.py", 1), frame("drive.py", 1), frame(LIBRARY, 9)], "drive.py")
    assert (where.file, inside) == (LIBRARY, None)


def test_the_standard_library_is_not_the_users() -> None:
    assert frames.is_library(STDLIB)
    assert frames.is_library("<frozen os>")
    assert not frames.is_library(__file__)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("L['self']", ""),
        ("L['self'].linear", "linear"),
        ("L['self']._modules['layers']._modules['0']", "layers.0"),
        ("L['self'].layers[3].up", "layers.3.up"),
    ],
)
def test_module_paths_are_the_users(source: str, path: str) -> None:
    assert module_path(source) == path


def report(*findings: Finding) -> DoctorReport:
    return DoctorReport(schema=1, compilot="0", created="", label="Net", findings=findings)


def finding(snippet: str, line: int = 1, kind: str = "graph-break", cost_s: float = 1.0, what: str = "") -> Finding:
    place = f"m.py:{line}"
    return Finding(kind=kind, where=place, explanation="", advice="", snippet=snippet, cost_s=cost_s, what=what)


def test_a_moved_line_is_still_the_same_finding() -> None:
    check = fixcheck.compare(report(finding("a", 1), finding("b", 2)), report(finding("b", 7), finding("c", 9)))
    assert [one.snippet for one in check.gone] == ["a"]
    assert [one.where for one in check.stayed] == ["m.py:7"]
    assert [one.snippet for one in check.new] == ["c"]


def test_of_two_equal_lines_one_may_go() -> None:
    check = fixcheck.compare(report(finding("a", 1), finding("a", 2)), report(finding("a", 1)))
    assert (len(check.gone), len(check.stayed), len(check.new)) == (1, 1, 0)


def test_two_changes_in_one_function_are_told_apart() -> None:
    threads, grad = (finding("def forward", kind="recompile", what=what) for what in ("the threads", "the grad mode"))
    check = fixcheck.compare(report(threads), report(grad))
    assert (check.gone, check.stayed, check.new) == ((threads,), (), (grad,))


def test_a_function_that_no_longer_gives_up_is_better_and_not_fixed() -> None:
    limit = finding("f", kind="recompile-limit", what="self.step")
    again = finding("f", kind="recompile", what="self.step")
    assert fixcheck.compare(report(limit), report(again)) == fixcheck.FixCheck(stayed=(again,), better=(again,))
    assert fixcheck.compare(report(again), report(limit)) == fixcheck.FixCheck(stayed=(limit,), worse=(limit,))


def test_nothing_is_gone_while_not_everything_was_looked_at() -> None:
    part = msgspec.structs.replace(report(finding("b")), unseen=("example 2 failed",))
    check = fixcheck.compare(report(finding("a"), finding("b")), part)
    assert check == fixcheck.FixCheck(not_checked=(finding("a"),), stayed=(finding("b"),))


def test_what_stops_compiling_for_good_comes_first_then_the_most_costly() -> None:
    ranked = ranking.rank(
        [
            finding("cheap", cost_s=1.0),
            finding("dear", cost_s=2.0),
            finding("limit", kind="recompile-limit", cost_s=0.1),
        ]
    )
    assert [one.snippet for one in ranked] == ["limit", "dear", "cheap"]
    assert [one.snippet for one in ranking.top_findings(report(*ranked, finding("fourth")))] == [
        "limit",
        "dear",
        "cheap",
    ]


def again(
    line: int, function: str = "forward", guard: str = "tensor 'x' size mismatch at index 0. expected 4, actual 6"
) -> Any:
    event = RecompileEvent(f"{line}/1", function, "m.py", line, False, (f"{line}/0: {guard}",), ("",))
    return changes.Seen(event, "example 2", 0.1)


def sized(call: str, *guards: str, now: str = "") -> Any:
    """No earlier compile fits; its guards, the latest first."""
    told = tuple(f"0/{number}: {text}" for number, text in reversed(list(enumerate(reversed(guards)))))
    return changes.Seen(RecompileEvent("0/9", "forward", "m.py", 3, False, told, (now,) * len(told)), call, 0.1)


def mismatch(old: int, new: int) -> str:
    return f"tensor 'x' size mismatch at index 0. expected {old}, actual {new}"


def test_size_one_does_not_hide_that_the_dimension_should_be_marked() -> None:
    first, second = sized("smallest", mismatch(16, 1)), sized("largest", mismatch(1, 64), mismatch(16, 64))
    one, other = changes.reconcile([first, second], [])
    assert one.cause.endswith("changed from 16 to 1; sizes 0 and 1 always get code of their own")
    assert "size 1 has its own code" in one.fix
    assert "mark_dynamic" not in one.fix
    assert (other.old, other.new) == ("16", "64")
    assert other.fix.startswith("call torch._dynamo.mark_dynamic(x, 0) before the first call")


def test_a_first_call_of_size_one_is_reported_as_such() -> None:
    (found,) = changes.reconcile([sized("example 2", mismatch(1, 2))], [])
    assert "make the first call with size 2 or more" in found.fix


def test_a_dimension_that_is_dynamic_already_is_never_to_be_marked() -> None:
    (found,) = changes.reconcile([sized("smallest", "2 <= x.size()[0]  # y", now="1")], [])
    assert "is 1: the dimension is dynamic already, but sizes 0 and 1" in found.cause
    assert "mark_unbacked(x, 0)" in found.fix
    (found,) = changes.reconcile([sized("largest", "x.size()[0] <= 32", now="64")], [])
    assert "is 64: the dimension is dynamic already" in found.cause
    assert found.cause.endswith("the compiled code was made for at most 32 only")
    assert "mark_dynamic" not in found.fix
    first, second = sized("example 2", mismatch(4, 6)), sized("example 3", "2 <= x.size()[0] <= 9", mismatch(4, 40))
    assert [one.old for one in changes.reconcile([first, second], [])] == ["4", "2 to 9"]


def test_what_plans_see_to_is_not_among_the_first_findings_of_a_run() -> None:
    seen = [sized("largest", "tensor 'batch['image']' size mismatch at index 1. expected 4, actual 6")]
    (plain,) = changes.reconcile(seen, [])
    (found,) = changes.reconcile(seen, [], declared={("batch.image", 1)})
    assert (plain.declared, found.declared) == (False, True)
    assert found.fix.endswith("a plan of 'compilot tune' handles declared dimensions by itself")
    told = ranking.of_recompile(found, calls=1)
    assert ranking.top_findings(report(told, finding("a"))) == (finding("a"),)
    gave_up = ranking.of_recompile(msgspec.structs.replace(found, limit_hit=True), calls=1)
    assert ranking.top_findings(report(gave_up)) == (gave_up,)


def test_a_recompile_is_spread_over_the_calls_of_the_drive() -> None:
    made = DoctorReport(schema=1, compilot="0", created="", label="Net", calls=("a",) * 21)
    assert made.spread == 21
    assert msgspec.structs.replace(made, driven=4).spread == 4


def test_every_function_that_gave_up_is_kept() -> None:
    limits = [LimitEvent("forward", "m.py", 3, 8, ""), LimitEvent("block", "m.py", 9, 8, "")]
    (found,) = changes.reconcile([again(1, "outer"), again(3), again(9, "block")], limits)
    assert found.limit_hit
    assert found.gave_up == ("m.py:3", "m.py:9")
    assert "gave up, and forward and block run in eager" in found.cause
    assert not changes.reconcile([again(1)], limits)[0].limit_hit


def test_a_recompile_of_a_break_that_hit_the_limit_is_not_hidden_by_the_break() -> None:
    made = GraphBreak(where=at("s = x.max().item()"), category=Category.SCALAR_READ, cause="", fix="")
    followed = Recompile(
        where=at("y * s"),
        function=at(""),
        category=Category.ARGUMENT_VALUE,
        what="",
        old="",
        new="",
        cause="",
        fix="",
        resumed=True,
        name="s",
        count=3,
    )
    (known,), others = breaks.fold([made], [followed])
    assert (known.recompiles, others) == (3, ())
    assert ranking.of_break(known).recompiles == 3
    (known,), (limited,) = breaks.fold([made], [msgspec.structs.replace(followed, limit_hit=True)])
    assert known.recompiles == 0  # it is counted once, as a finding of its own
    finding = ranking.of_recompile(limited, calls=1)
    assert finding.kind == "recompile-limit"
    assert "remove the graph break at m.py:1 first" in finding.advice


def test_a_failing_call_leaves_a_sentence_and_the_drive_goes_on() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, 8)

    calls: list[str] = []
    load = Workload(Net(), examples=[(torch.ones(16),), (torch.ones(3),), (torch.ones(16),)])
    (told,) = driving.drive(load, load.model, calls.append)
    assert calls == ["example 1", "example 2", "example 3"]
    assert told.startswith("example 2 failed: RuntimeError: shape '[2, 8]' is invalid")


def test_a_finding_about_the_whole_model_is_told_once() -> None:
    first, second = (Finding(kind="tiny-work", where="", explanation=f"{n} us", advice="") for n in (41, 43))
    assert ranking.once([finding("a"), first, second]) == (finding("a"), first)
    bf16, fp16 = (
        Finding(kind="precision", where="", explanation=f"nobody runs {n}", advice="") for n in ("bf16", "fp16")
    )
    assert ranking.once([bf16, fp16, bf16]) == (bf16, fp16)
    assert len(ranking.once([finding("a", 1), finding("a", 2)])) == 2
