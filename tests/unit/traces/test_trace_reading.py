"""One reader for every trace: lines of sizes, recorded files, ten million lines, and what is wrong in one."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import compilot
from compilot.errors import InputError
from compilot.records import CallSizes, DimRange
from compilot.traces import reading
from compilot.traces.reading import FIRST_CALLS, scan

HEADER = '{"type":"trace","schema":1,"model":"Net","calls":5}'


def written(folder: Path, *lines: str) -> Path:
    file = folder / "sizes.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_both_spellings_comments_and_empty_lines(tmp_path: Path) -> None:
    file = written(tmp_path, "# what production sends", "x:0=2 x:1=37", "", '  {"x:1": 5}  ', "x:0=2 x:1=37")
    found = compilot.read_trace(file)
    assert found.first == (
        CallSizes(line=2, sizes={"x:0": 2, "x:1": 37}),
        CallSizes(line=4, sizes={"x:1": 5}),
        CallSizes(line=5, sizes={"x:0": 2, "x:1": 37}),
    )
    assert (found.calls, found.distinct, found.header, found.path) == (3, 2, None, file)
    assert [(one.sizes, one.calls, one.line) for one in found.sizes] == [
        ({"x:0": 2, "x:1": 37}, 2, 2),
        ({"x:1": 5}, 1, 4),
    ]


def test_n_is_a_count_only_below_a_header(tmp_path: Path) -> None:
    recorded = compilot.read_trace(written(tmp_path, HEADER, '{"x:0":4}', '{"x:0":9}', '{"x:0":4,"n":2}', '{"n":1}'))
    assert (recorded.calls, recorded.dims["x:0"].calls) == (5, 4)  # one call had no tensors
    assert [call.sizes for call in recorded.first] == [{"x:0": 4}, {"x:0": 9}]  # lines without n, in order
    assert {one.calls: one.sizes for one in recorded.sizes}[3] == {"x:0": 4}
    plain = compilot.read_trace(written(tmp_path, '{"x:0":4,"n":2}'))
    assert plain.calls == 1
    assert plain.dims["n"].max == 2


def test_mappings_are_a_trace_too() -> None:
    assert compilot.read_trace([{"x:0": 4}, {"x:0": 9}]).dims["x:0"].max == 9


def test_one_size_is_a_trace() -> None:
    dim = compilot.read_trace([{"x:0": 4}]).dims["x:0"]
    assert (dim.min, dim.p50, dim.p99, dim.max, dim.distinct) == (4, 4, 4, 4, 1)
    assert [(one.low, one.high, one.calls) for one in dim.bins] == [(4, 4, 1)]


def test_quantiles_and_bins_cover_every_call(tmp_path: Path) -> None:
    trace = compilot.read_trace([{"x:0": size, "y:0": 100 + size % 50} for size in range(1, 1001)])
    x, y = trace.dims["x:0"], trace.dims["y:0"]
    assert (x.p50, x.p90, x.p99) == (500, 900, 990)
    assert [(one.low, one.high) for one in x.bins][:4] == [(1, 1), (2, 2), (3, 4), (5, 8)]  # far apart: they double
    assert len({one.high - one.low for one in y.bins[:-1]}) == 1  # close together: equal widths
    for dim in (x, y):
        assert sum(one.calls for one in dim.bins) == dim.calls == 1000
        assert all(one.high + 1 == after.low for one, after in zip(dim.bins, dim.bins[1:], strict=False))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "has no calls"),
        (["# only a comment", ""], "has no calls"),
        ([HEADER], "has no calls"),
        (["x:0=4", "x:0=-3"], "line 2 of the shape trace: the size -3 of x:0 is negative"),
        (["x:0=4", '{"x:0": -1}'], "line 2 of the shape trace: the size -1 of x:0 is negative"),
        (["", "x:0=2147483648"], "line 2 of the shape trace: the size 2147483648 of x:0 is beyond 2147483647"),
        (["x:0=2147483647 x:1=2147483647"], "line 1 of the shape trace: the sizes of x make 4611686014132420609"),
        (["x:0=4 x:0=4"], "line 1 of the shape trace: 'x:0' is there twice"),
        (['{"x:0": 4, "x:0": 5}'], "line 1 of the shape trace: 'x:0' is there twice"),
        (["x:0"], "line 1 of the shape trace: cannot read 'x:0'"),
        (["{x:0: 4}"], "line 1 of the shape trace is not a JSON object"),
        (['{"x:0": 4.5}'], "call 1 of the shape trace is {'x:0': 4.5}; write sizes by name"),
        (['{"x:0": true}'], "write sizes by name"),
        (['{"x:0": {"a": 1}}'], "write sizes by name"),
        ([HEADER, '{"x:0":4,"n":0}'], 'line 2 of the shape trace: the count "n" is 0'),
        ([HEADER, '{"x:0":4,"n":"many"}'], "line 2 of the shape trace: the count \"n\" is 'many'"),
        (["x:0=4", HEADER], "line 2 of the shape trace: another recorded trace begins here; add up traces with"),
        ([HEADER, '{"x:0":4}', HEADER, '{"x:0":5}'], "line 3 of the shape trace: another recorded trace begins here"),
        (["x:0=4", '{"x:0": 4, "type": "call"}'], "call 2 of the shape trace is {'x:0': 4, 'type': 'call'}"),
        (['{"type":"trace","schema":9,"model":"Net"}'], "line 1 of the shape trace: the header has the schema 9"),
        (['{"type":"trace","schema":1}'], "line 1 of the shape trace: the header cannot be read"),
        (['{"type":"trace","schema":1,"model":"Net","colour":"red"}'], "the header cannot be read"),
        (['{"type":"journal","schema":1,"model":"Net"}'], "the header cannot be read"),
        (["x:0=" + "4" * 70_000], "line 1 of the shape trace: it is longer than 65536 bytes"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(lines: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as problem:
        compilot.read_trace(written(tmp_path, *lines))
    assert told in str(problem.value)


@pytest.mark.parametrize("content", [b"x:0=4\n\xff\xfe\x00\n", b"x:0=4\n\x80"])
def test_bytes_that_are_no_text_are_told_with_their_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "sizes").write_bytes(content)
    with pytest.raises(InputError, match=r"line 2 of the shape trace: it is not UTF-8"):
        compilot.read_trace(tmp_path / "sizes")


def test_a_byte_order_mark_and_carriage_returns_are_fine(tmp_path: Path) -> None:
    (tmp_path / "sizes").write_bytes(b"\xef\xbb\xbfx:0=4\r\nx:0=5\r\n")
    assert compilot.read_trace(tmp_path / "sizes").calls == 2


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="cannot read the shape trace"):
            compilot.read_trace(path)


def test_memory_is_flat_however_many_lines_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_KEYS_READ", 512)
    monkeypatch.setattr(reading, "_KNOWN_LINES", 512)

    def peak(lines: int) -> tuple[int, Any]:
        file = written(tmp_path, *(f"x:0={number % 7919} y:0={number % 31}" for number in range(lines)))
        tracemalloc.start()
        trace = compilot.read_trace(file)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used, trace

    few, _ = peak(1_500)
    many, trace = peak(15_000)
    assert many < 1.5 * few
    assert trace.calls == 15_000
    assert trace.rounded > 13_000
    assert len(trace.sizes) <= 512
    assert (trace.dims["x:0"].min, trace.dims["x:0"].max) == (0, 7918)  # exact, though most sizes were rounded
    assert max(one.sizes["x:0"] for one in trace.sizes) == 7918  # and nothing is larger than what was there
    assert len(trace.first) == FIRST_CALLS


def test_a_recorded_trace_drives_its_first_calls_then_every_other_size_once(tmp_path: Path) -> None:
    lines = [HEADER, '{"x:0":4}', '{"x:0":4}', '{"x:0":7,"n":1}', '{"x:0":9,"n":50}', '{"x:0":4,"n":3}']
    found = scan(written(tmp_path, *lines))
    assert [(call.line, call.sizes["x:0"]) for call in found.calls()] == [(2, 4), (3, 4), (5, 9), (4, 7)]
    assert found.ranges == {"x:0": DimRange(min=4, max=9)}


def test_the_exact_ranges_of_a_header_count_where_sizes_were_rounded(tmp_path: Path) -> None:
    header = json.loads(HEADER) | {"rounded": 2, "left_out": 1, "ranges": {"x:0": {"min": 3, "max": 300}}}
    trace = compilot.read_trace(written(tmp_path, json.dumps(header), '{"x:0":8}', '{"x:0":512,"n":2}'))
    assert (trace.dims["x:0"].min, trace.dims["x:0"].max, trace.calls) == (3, 300, 4)
    assert (trace.rounded, trace.left_out) == (2, 1)
    assert trace.sizes[0].sizes == {"x:0": 300}
