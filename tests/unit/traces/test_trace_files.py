"""The file of a recorded trace is bounded and adds up; traces merge; a sample has every size's share."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import compilot
from compilot.errors import InputError
from compilot.records import TRACE_SCHEMA, Trace, TraceHeader
from compilot.traces.lines import MAX_LINE_BYTES, Key
from compilot.traces.reading import scan
from compilot.traces.sampling import sample
from compilot.traces.tally import MOST_KEYS, Tally, rounded
from compilot.traces.writing import MAX_BYTES, write_trace

HEADER = TraceHeader(schema=TRACE_SCHEMA, model="Net", parameters_sha256="ab", began="2026-01-02T00:00:00+00:00")


def key(*sizes: int, name: str = "x") -> Key:
    return tuple((f"{name}:{dim}", size) for dim, size in enumerate(sizes))


def tallied(*calls: tuple[Key, int]) -> Tally:
    tally = Tally()
    for sizes, number in calls:
        tally.add(sizes, number)
    return tally


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "sizes.jsonl"
    tally = tallied((key(4, 8), 10), (key(2, 8), 3), ((), 2))
    write_trace(file, HEADER, [key(4, 8), key(2, 8), key(4, 8)], tally)
    trace = compilot.read_trace(file)
    assert (trace.calls, trace.distinct, trace.rounded, trace.left_out) == (15, 3, 0, 0)
    assert [call.sizes["x:0"] for call in trace.first] == [4, 2, 4]
    assert (trace.sizes[0].sizes, trace.sizes[0].calls) == ({"x:0": 4, "x:1": 8}, 10)
    assert trace.header is not None
    assert (trace.header.model, trace.header.calls) == ("Net", 15)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["sizes.jsonl"]


def test_sizes_are_rounded_up_and_zero_stays() -> None:
    assert rounded(key(0, 1, 2, 3, 5, 1000)) == key(0, 1, 2, 4, 8, 1024)


def test_a_tally_has_at_most_so_many_sizes_and_loses_no_call() -> None:
    tally = Tally(64)
    for number in range(10_000):
        tally.add(key(number, number * 7 % 1000))
    assert len(tally.counts) <= 64
    assert tally.calls == 10_000
    assert tally.rounded + tally.left_out == 10_000 - 56  # an eighth of the room is for rounded sizes
    assert tally.ranges == {"x:0": (0, 9999), "x:1": (0, 999)}


def test_a_file_is_never_larger_than_a_mebibyte(tmp_path: Path) -> None:
    """Many inputs with long names: the most frequent sizes stay exact, the others become coarse, all are counted."""
    names = [f"an_input_with_a_long_name_{number}" for number in range(12)]
    tally = Tally()
    for number in range(MOST_KEYS):
        sizes = tuple(pair for name in names for pair in key(1 + number % 700, 1 + number, name=name))
        tally.add(sizes, 1 + number % 13)
    first = list(tally.counts)[:200]
    write_trace(tmp_path / "sizes", HEADER, first, tally)
    assert (tmp_path / "sizes").stat().st_size <= MAX_BYTES
    trace = compilot.read_trace(tmp_path / "sizes")
    assert trace.calls == tally.calls
    assert trace.rounded > 0
    assert (trace.dims[f"{names[0]}:1"].min, trace.dims[f"{names[0]}:1"].max) == (1, MOST_KEYS)
    assert trace.sizes[0].calls >= 13


def test_no_line_is_longer_than_a_reader_takes(tmp_path: Path) -> None:
    """Of a trace by hand with very many names, those that have no room are counted without their sizes."""
    by_hand = tmp_path / "by hand"
    by_hand.write_text("".join(f"{'a' * 30}_{number}:0=4 b:0={number}\n" for number in range(2000)))
    both = compilot.merge_traces([by_hand], tmp_path / "both")
    assert (compilot.read_trace(by_hand).left_out, both.calls) == (0, 2000)
    assert 0 < both.left_out < 2000
    assert max(map(len, (tmp_path / "both").read_bytes().splitlines(keepends=True))) <= MAX_LINE_BYTES


def test_a_trace_whose_calls_all_had_too_many_tensors_drives_nothing(tmp_path: Path) -> None:
    tally = tallied((tuple((f"x.{number}:0", 4) for number in range(5000)), 3))
    write_trace(tmp_path / "sizes", HEADER, [], tally)
    assert compilot.read_trace(tmp_path / "sizes").left_out == 3
    with pytest.raises(InputError, match="has no sizes: its calls have more tensors than a trace takes"):
        scan(tmp_path / "sizes").calls()


def test_names_of_a_tally_have_a_bound() -> None:
    tally = Tally()
    for number in range(5000):
        tally.add(key(4, name=f"schöner_name_{number}"))
    assert tally.calls == 5000
    assert len(tally.ranges) == len(tally.counts) == 5000 - tally.left_out < 1000
    tally.add(key(9, name="schöner_name_0"))  # which has its room
    assert tally.ranges["schöner_name_0:0"] == (4, 9)


def recorded(folder: Path, name: str, header: TraceHeader, *calls: tuple[Key, int]) -> Path:
    write_trace(folder / name, header, [calls[0][0]], tallied(*calls))
    return folder / name


def test_traces_merge(tmp_path: Path) -> None:
    later = TraceHeader(schema=TRACE_SCHEMA, model="Net", parameters_sha256="ab", began="2026-01-03T00:00:00+00:00")
    one = recorded(tmp_path, "one", later, (key(4), 10), (key(2), 1))
    two = recorded(tmp_path, "two", HEADER, (key(4), 5), (key(9), 7))
    (tmp_path / "by hand").write_text("x:0=4\nx:0=1\n")
    both = compilot.merge_traces([one, two, tmp_path / "by hand"], tmp_path / "both")
    assert {one.sizes["x:0"]: one.calls for one in both.sizes} == {4: 16, 9: 7, 2: 1, 1: 1}
    assert [call.sizes["x:0"] for call in both.first] == [4]
    assert both.header is not None
    assert both.header.began == HEADER.began
    assert compilot.read_trace(tmp_path / "both") == both
    with pytest.raises(InputError, match="both is there already"):
        compilot.merge_traces([one, two], tmp_path / "both")


def test_what_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    one = recorded(tmp_path, "one", HEADER, (key(4), 10))
    other = recorded(tmp_path, "other", TraceHeader(schema=TRACE_SCHEMA, model="Other"), (key(4), 1))
    with pytest.raises(InputError, match=r"other is the trace of another model \(Other\) than .*one \(Net\)"):
        compilot.merge_traces([one, other], tmp_path / "both")
    with pytest.raises(InputError, match="no traces to merge"):
        compilot.merge_traces([], tmp_path / "both")
    with pytest.raises(InputError, match="cannot write"):
        compilot.merge_traces([one], tmp_path / "nowhere" / "both")
    assert not (tmp_path / "both").exists()


def trace_of(*calls: tuple[int, int]) -> Trace:
    return compilot.read_trace([{"x:0": size} for size, number in calls for _ in range(number)])


def test_a_short_trace_is_replayed_as_it_is() -> None:
    trace = compilot.read_trace([{"x:0": 4}, {"x:0": 9}, {"x:0": 4}])
    assert sample(trace, 10) == trace.first


def test_a_sample_has_every_sizes_share_and_is_the_same_for_a_seed() -> None:
    trace = trace_of((8, 700), (16, 250), (512, 50))
    drawn = [call.sizes["x:0"] for call in sample(trace, 100, seed=3)]
    assert {size: drawn.count(size) for size in set(drawn)} == {8: 70, 16: 25, 512: 5}
    assert drawn == [call.sizes["x:0"] for call in sample(trace, 100, seed=3)]
    assert drawn != [call.sizes["x:0"] for call in sample(trace, 100, seed=4)]
    assert drawn != sorted(drawn)
