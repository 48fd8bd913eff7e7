"""`compilot.record`: the same answers, and the sizes of every call in a small file."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compilot
from compilot.errors import CompilotWarning, InputError
from compilot.runtime import size_counts, start
from compilot.runtime.fast import restore
from compilot.runtime.recording import recorded
from compilot.traces.lines import MAX_LINE_BYTES
from compilot.traces.tally import Tally


class Net(nn.Module):
    """Takes what it is given, in whatever form."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Any, mask: Any = None, **more: Any) -> Any:
        if isinstance(mask, str):
            raise ValueError(mask)
        return x * self.scale if isinstance(x, torch.Tensor) else x

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) * 2


class Keyed(Net):
    """Has keys of its own."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        return x if mask is None else mask.get("k", mask.get("l"))


class Looked(nn.Module):
    """Takes a dict, as many models of batches do."""

    def forward(self, batch: dict[str, Any], input_ids: Any = None) -> Any:
        return batch.get("image")


@dataclass
class Batch:
    image: torch.Tensor
    label: str


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sizes.jsonl"


def counts(file: Path) -> dict[str, int]:
    """Sizes as text -> calls."""
    found = compilot.read_trace(file).sizes
    return {" ".join(f"{name}={size}" for name, size in one.sizes.items()): one.calls for one in found}


def test_answers_and_attributes_are_the_models(file: Path) -> None:
    model, x = Net().eval(), torch.randn(3, 4)
    served = compilot.record(model, file)
    assert torch.equal(served(x), model(x))
    assert isinstance(served, Net)
    assert not served.training
    assert [*served.parameters()] == [*model.parameters()]
    served.train()
    served.note = "kept"
    assert model.training
    assert model.note == "kept"
    assert type(model) is Net
    assert torch.equal(served.twice(x), model(x) * 2)  # which calls itself, and that is counted
    served.forward(x)  # which is no call
    served.close()
    assert counts(file) == {"x:0=3 x:1=4": 2}


def test_hooks_run_once(file: Path) -> None:
    model, seen = Net(), []
    model.register_forward_hook(lambda *_: seen.append(1))
    with compilot.record(model, file) as served:
        served(torch.ones(1))
    assert seen == [1]


def test_names_are_the_same_by_position_and_by_keyword_before_and_after_the_first_calls(file: Path) -> None:
    x, mask = torch.ones(2, 3), torch.ones(5)
    with compilot.record(Net(), file) as served:
        for _ in range(150):
            served(x, mask)
            served(x, mask=mask)
            served(mask=mask, x=x)
            served(x=x, mask=None)
            served(x, extra=mask)
    sizes = "x:0=2 x:1=3"
    assert counts(file) == {f"{sizes} mask:0=5": 450, sizes: 150, f"{sizes} extra:0=5": 150}


def test_nested_inputs_zero_sizes_scalars_and_values_that_are_no_tensors(file: Path) -> None:
    small, none = torch.ones(2), torch.ones(0, 7)
    with compilot.record(Net(), file) as served:
        for _ in range(300):
            served({"image": small, "rest": [none, (3, "text")]}, torch.tensor(1.0))
            served(Batch(none, "a label"))
            served([])
            served(3.5, mask=None)
    assert counts(file) == {"x.0:0=2 x.1.0:0=0 x.1.0:1=7": 300, "x.image:0=0 x.image:1=7": 300, "": 600}


def test_a_call_of_another_kind_is_not_taken_for_one_that_looks_like_it(file: Path) -> None:
    """Known forms are found by a key; everything that the form rests on must be part of it."""
    a, b = torch.ones(2), torch.ones(3)
    with compilot.record(Keyed(), file) as served:
        for _ in range(250):
            served([a], {"k": a})
        for _ in range(10):
            served([a, b], {"k": a})
            served([a], {"k": a, "l": b})
            served((a,), {"k": a})
            served([a], {"l": a})
            served([3], {"k": a})
            served([a], None)
            served([a], {"k": torch.ones(2, 1)})
    assert counts(file) == {
        "x.0:0=2 mask.k:0=2": 260,
        "x.0:0=2 x.1:0=3 mask.k:0=2": 10,
        "x.0:0=2 mask.k:0=2 mask.l:0=3": 10,
        "x.0:0=2 mask.l:0=2": 10,
        "mask.k:0=2": 10,
        "x.0:0=2": 10,
        "x.0:0=2 mask.k:0=2 mask.k:1=1": 10,
    }


def test_the_first_calls_are_kept_in_order(file: Path) -> None:
    with compilot.record(Net(), file) as served:
        for number in range(1000):
            served(torch.empty(number % 7))
    trace = compilot.read_trace(file)
    assert trace.calls == 1000
    assert [call.sizes["x:0"] for call in trace.first] == [number % 7 for number in range(200)]


def test_a_call_on_which_the_model_raises_counts(file: Path) -> None:
    with compilot.record(Net(), file) as served:
        for _ in range(300):
            with pytest.raises(ValueError, match="no such mask"):
                served(torch.ones(2), "no such mask")
    assert counts(file) == {"x:0=2": 300}
    assert "no such mask" not in file.read_text()  # sizes only


def test_no_call_of_any_thread_is_lost(file: Path) -> None:
    served = compilot.record(Net(), file)
    tensors = [torch.empty(size) for size in range(1, 9)]

    def work() -> None:
        for number in range(2000):
            served(tensors[number % 8])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served.close()
    assert counts(file) == {f"x:0={size}": 1500 for size in range(1, 9)}


def test_many_sizes_stay_within_bounds_and_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_counts, "Tally", lambda: Tally(512))
    with compilot.record(Net(), file) as served:
        for number in range(3000):
            served(torch.empty(number, 0))
        inside = served._compilot_counts
        assert len(inside._ticks) + len(inside._tally.counts) <= 512
    trace = compilot.read_trace(file)
    assert (trace.calls, trace.dims["x:0"].min, trace.dims["x:0"].max) == (3000, 0, 2999)
    assert trace.rounded > 2400
    assert len(trace.sizes) <= 512


def test_the_file_is_there_from_the_start_private_and_brought_up_to_date(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size_counts, "EVERY_S", 0.02)
    served = compilot.record(Net(), file)
    assert "calls" not in json.loads(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    served(torch.ones(2))
    deadline = time.monotonic() + 30
    while "calls" not in json.loads(file.read_text().splitlines()[0]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert counts(file) == {"x:0=2": 1}
    served.close()


def test_after_close_calls_go_on_uncounted(file: Path) -> None:
    served = compilot.record(Net(), file)
    served(torch.ones(2))
    served.close()
    served.close()
    assert torch.equal(served(torch.ones(2)), torch.full((2,), 2.0))
    assert counts(file) == {"x:0=2": 1}


def test_a_trace_is_continued_and_nothing_else_is_overwritten(file: Path) -> None:
    for _ in range(2):
        with compilot.record(Net(), file) as served:
            for _ in range(300):
                served(torch.ones(2))
    assert counts(file) == {"x:0=2": 600}
    with pytest.raises(InputError, match=r"this is the trace of another model \(Linear\) than .* \(Net\)"):
        compilot.record(nn.Linear(2, 2), file)
    file.write_text("x:0=4\n")
    with pytest.raises(InputError, match="is there already and is no recorded trace"):
        compilot.record(Net(), file)
    assert file.read_text() == "x:0=4\n"
    with pytest.raises(InputError, match="is no file"):
        compilot.record(Net(), file.parent)
    with pytest.raises(InputError, match="cannot write the trace"):
        compilot.record(Net(), file.parent / "nowhere" / "sizes.jsonl")


def test_what_is_no_model_or_is_recorded_already_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match=r"of type function, not an nn\.Module"):
        compilot.record(lambda x: x, file)  # type: ignore[arg-type]
    with compilot.record(Net(), file) as served:
        with pytest.raises(InputError, match="recorded already"):
            compilot.record(served, file)
        with pytest.raises(InputError, match="recorded; pass the original model"):
            compilot.compile(served, "plan.json")


def test_copies_are_the_models_and_are_not_recorded(file: Path) -> None:
    with compilot.record(Net(), file) as served:
        for copied in (copy.deepcopy(served), pickle.loads(pickle.dumps(served))):
            assert type(copied) is Net
            copied(torch.ones(2))
        served(torch.ones(3))
    assert counts(file) == {"x:0=3": 1}


def test_a_full_disk_is_told_once_and_calls_go_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    served = compilot.record(Net(), file)
    served(torch.ones(2))
    monkeypatch.setattr(size_counts, "write_trace", full)
    with pytest.warns(CompilotWarning, match=r"cannot write the trace .*: No space left on device"):
        served._compilot_counts.flush()
    served._compilot_counts.flush()  # said once: another warning would fail here
    monkeypatch.undo()
    served.close()
    assert counts(file) == {"x:0=2": 1}


def test_the_model_is_freed_and_its_trace_written(file: Path) -> None:
    model = Net()
    served = compilot.record(model, file)
    served(torch.ones(2))
    gone = weakref.ref(model)
    del model, served
    gc.collect()
    assert gone() is None
    assert counts(file) == {"x:0=2": 1}


def test_in_place_the_model_itself_is_recorded(file: Path) -> None:
    model = Net()
    served = recorded(model, file, inplace=True)
    assert served is model
    model(torch.ones(2))
    served.close()
    assert counts(file) == {"x:0=2": 1}


def test_a_fast_model_is_recorded_whoever_answers(make_fast: Any, file: Path) -> None:
    fast = make_fast(Net().eval(), torch.ones(2))
    with torch.no_grad(), compilot.record(fast, file) as served:
        for _ in range(250):
            served(torch.ones(2))
        served(torch.ones(3))
    assert (served.stats().calls, served.stats().fast) == (251, 250)
    assert counts(file) == {"x:0=2": 250, "x:0=3": 1}
    assert compilot.read_trace(file).header.model == "Net"  # type: ignore[union-attr]
    assert isinstance(served, compilot.Fast)
    assert restore(served) is served


def test_a_bundle_is_recorded_from_its_start(make_fast: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = make_fast(Net().eval(), torch.ones(2))
    monkeypatch.setattr(start, "start", lambda *_: fast)
    assert start.load("net.cpbundle") is fast
    served: Any = start.load("net.cpbundle", record=file)
    with torch.no_grad():
        served(torch.ones(2))
    served.close()
    assert counts(file) == {"x:0=2": 1}


SCRIPT = """
import os, sys, multiprocessing
import torch, compilot
from torch import nn

torch.set_num_threads(1)
served = compilot.record(nn.ReLU(), sys.argv[1])
for _ in range(250):
    served(torch.ones(2))

def work():
    for _ in range(210):
        served(torch.ones(5))

child = os.fork()
if not child:
    work()
    sys.exit(0)
os.waitpid(child, 0)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
served(torch.ones(3))
"""


def test_a_forked_child_counts_its_own_calls_in_its_own_file_and_all_are_written_at_their_end(file: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, str(file)], check=True)
    assert counts(file) == {"input:0=2": 250, "input:0=3": 1}
    children = sorted(file.parent.glob("sizes.*.jsonl"))
    assert [counts(one) for one in children] == [{"input:0=5": 210}] * 2
    assert compilot.merge_traces([file, *children], file.parent / "all.jsonl").calls == 671


def test_pid_in_the_name_is_the_process(file: Path) -> None:
    with compilot.record(Net(), file.parent / "sizes-{pid}.jsonl") as served:
        served(torch.ones(2))
    assert counts(file.parent / f"sizes-{os.getpid()}.jsonl") == {"x:0=2": 1}


def test_keys_that_are_not_of_the_models_code_are_never_written(file: Path) -> None:
    """Names are words of the code; a key of a dict may be somebody's name."""
    x = torch.ones(2)
    with compilot.record(Looked(), file) as served:
        for _ in range(150):
            served({"patient-Jane-Doe": x, "Jane": {"Doe": x}, "image": x, "input_ids": x, 7: x})
            served({"image": x}, input_ids={"Jane": x})
    assert counts(file) == {
        "batch.0:0=2 batch.1.0:0=2 batch.image:0=2 batch.input_ids:0=2 batch.4:0=2": 150,
        "batch.image:0=2 input_ids.0:0=2": 150,
    }
    assert "Jane" not in file.read_text()
    assert "Doe" not in file.read_text()


def test_keywords_that_are_no_names_are_never_written(file: Path) -> None:
    with compilot.record(Net(), file) as served:
        served(torch.ones(2), **{"patient Jane": torch.ones(3), "extra": torch.ones(4)})
    assert counts(file) == {"x:0=2 extra:0=4 kwargs.0:0=3": 1}


def test_names_without_end_stay_within_bounds_and_the_file_can_be_read_and_continued(file: Path) -> None:
    """What has no room is counted without its sizes."""
    x = torch.ones(2, 3)
    served = compilot.record(Net(), file)
    for number in range(3000):
        served(x, **{f"request_{number}_{'x' * 20}": x})
    assert len(served._compilot_counts._tally.ranges) < 1000
    served.close()
    assert max(map(len, file.read_bytes().splitlines(keepends=True))) <= MAX_LINE_BYTES
    trace = compilot.read_trace(file)
    assert trace.calls == 3000
    assert 2000 < trace.left_out < 3000
    with compilot.record(Net(), file) as again:
        again(x)
        again(x, another_one_that_has_no_room_however_short_it_may_be=x)
    after = compilot.read_trace(file)
    assert (after.calls, after.left_out) == (3002, trace.left_out + 1)


def test_a_call_with_thousands_of_tensors_is_counted_without_its_sizes(file: Path) -> None:
    with compilot.record(Net(), file) as served:
        served([torch.ones(2, 3)] * 2500)
        served(torch.ones(2))
        served([torch.ones(2, 3)] * 2500)
    trace = compilot.read_trace(file)
    assert (trace.calls, trace.left_out, [call.sizes for call in trace.first]) == (3, 2, [{"x:0": 2}])


def test_sizes_that_no_reader_takes_are_left_out(file: Path) -> None:
    with compilot.record(Net(), file) as served:
        served([torch.empty(1).expand(2**31)])
        served([torch.empty(1, 1).expand(2**30, 2**30)])
    with compilot.record(Net(), file) as served:
        served([torch.ones(2)])
    trace = compilot.read_trace(file)
    assert (trace.calls, trace.left_out, trace.dims["x.0:0"].max) == (3, 2, 2)


class Hidden(dict):  # type: ignore[type-arg]
    """Nobody may look at it."""

    def items(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_calls_go_on_and_the_log_says_it(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = compilot.record(Net(), file)
    for _ in range(2):
        assert torch.equal(served(torch.ones(2), Hidden(a=1)), torch.full((2,), 2.0))
    said = "a call could not be recorded (RuntimeError); it was answered, but not counted."
    assert caplog.messages == [said]  # once
    served.close()


def test_what_compile_returns_can_be_closed_and_a_models_own_close_stays(make_fast: Any, file: Path) -> None:
    class Closing(Net):
        def close(self, how: str) -> str:
            return f"closed {how}"

    fast: compilot.Fast = make_fast(Net().eval(), torch.ones(2))
    fast.close()
    with torch.no_grad():
        fast(torch.ones(2))
    assert fast.stats().fast == 1
    assert make_fast(Closing().eval(), torch.ones(2)).close("well") == "closed well"
    served: compilot.Fast = compilot.record(fast, file)  # type: ignore[assignment]
    with torch.no_grad():
        served(torch.ones(2))
    served.close()
    assert counts(file) == {"x:0=2": 1}
