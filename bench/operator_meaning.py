"""Where does an engine mean something else than eager? Every row of operator_table.py on every engine, with a verdict.

In: engines to ask, a part of the rows' names. Out: a table of rows on which an engine's answer is not eager's, or that
it refuses, with the first values that differ. Rows are built many at a time; a batch that an engine refuses is halved
until the row is found, so that a refusal has its row's name. Tensors are 12 to 400 numbers long: vector code and its
tail are both run. Exit code 1 where an answer differs and nothing refused it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compilot._tree import Call, output_leaves
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest, Infeasible, LoadRequest, NotTaken
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.guards import make_guard
from operator_rows import Row
from operator_table import rows

BATCH = 40  # rows per build: half of it is the export
RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}


class Found(NamedTuple):
    """What one engine made of one row."""

    engine: str
    row: str
    verdict: str  # "same", "differs", "refused" (the build), "guarded" (this call), "raises"
    detail: str = ""


class Batch(nn.Module):
    """Several rows as one model."""

    def __init__(self, batch: Sequence[Row]) -> None:
        super().__init__()
        self.batch = batch

    def forward(self, *inputs: Tensor) -> list[Any]:
        given, results = list(inputs), []
        for row in self.batch:
            mine, given = given[: len(row.values)], given[len(row.values) :]
            results.append(_plain(row.fn(*mine)))
        return results


def _plain(result: Any) -> Any:
    """A named tuple of torch's own cannot be rebuilt from a file."""
    return tuple(result) if isinstance(result, tuple) else result


def ask(engine: str, batch: Sequence[Row]) -> Iterator[Found]:
    """Build the rows together; halve what is refused."""
    try:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            call = _built(engine, Batch(batch).eval(), Call(_flat(row.example for row in batch), {}), Path(folder))
            yield from _answered(engine, batch, call)
    except Infeasible as why:
        if len(batch) == 1:
            yield Found(engine, batch[0].name, "refused", str(why))
            return
        middle = len(batch) // 2
        yield from ask(engine, batch[:middle])
        yield from ask(engine, batch[middle:])


def _flat(groups: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.clone() for group in groups for tensor in group)


def _built(engine: str, model: nn.Module, call: Call, folder: Path) -> Any:
    settings = Settings(engine=engine, shapes=Shapes.STATIC)
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=settings, label=engine, rationale="")
    registry.build_half(engine).build(BuildRequest(model, call, guard, candidate, folder))
    return registry.load_half(engine).load(LoadRequest(model, guard, settings, folder)).call


def _answered(engine: str, batch: Sequence[Row], call: Any) -> Iterator[Found]:
    """All rows at their values at once; one at a time, the others at their examples, where that is not taken."""
    values = [row.values for row in batch]
    try:
        results = call(*_flat(values))
    except NotTaken:
        for at, row in enumerate(batch):
            mixed = [r.values if r is row else r.example for r in batch]
            try:
                yield _compared(engine, row, call(*_flat(mixed))[at])
            except NotTaken as why:
                yield Found(engine, row.name, "guarded", str(why))
            except Exception as error:
                yield Found(engine, row.name, "raises", str(error)[:200])
        return
    except Exception as error:
        if len(batch) > 1:
            raise Infeasible(str(error)) from error  # one at a time
        yield Found(engine, batch[0].name, "raises", str(error)[:200])
        return
    for row, result in zip(batch, results, strict=True):
        yield _compared(engine, row, result)


def _compared(engine: str, row: Row, result: Any) -> Found:
    expected = _plain(row.fn(*_flat([row.values])))
    for have, want in zip(output_leaves(result), output_leaves(expected), strict=True):
        if why := _difference(have.value, want.value, row.values):
            return Found(engine, row.name, "differs", why)
    return Found(engine, row.name, "same")


def _difference(have: Tensor, want: Tensor, values: Sequence[Tensor]) -> str:
    if have.dtype != want.dtype or have.shape != want.shape:
        return f"{have.dtype} {tuple(have.shape)}, eager {want.dtype} {tuple(want.shape)}"
    wrong = _wrong(have.reshape(-1), want.reshape(-1))
    if not wrong.any():
        return ""
    at = int(wrong.nonzero()[0])
    same = all(v.numel() == want.numel() for v in values)
    given = f"of {', '.join(repr(v.reshape(-1)[at].item()) for v in values)}: " if same else ""
    numbers = f"{have.reshape(-1)[at].item()!r}, eager {want.reshape(-1)[at].item()!r}"
    return f"{int(wrong.sum())} of {want.numel()} differ, the first {given}{numbers}"


def _wrong(have: Tensor, want: Tensor) -> Tensor:
    if not want.is_floating_point():
        return have != want
    limit = RELATIVE[want.dtype]
    h, w = have.double(), want.double()
    finite = h.isfinite() & w.isfinite()
    off = (h - w).abs() > limit * w.abs() + torch.finfo(want.dtype).tiny
    odd = (h.isnan() != w.isnan()) | ((h != w) & ~h.isnan() & ~w.isnan() & ~finite)
    return torch.where(finite, off, odd)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", default=["onnxruntime", "openvino"])
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--json", type=Path, help="write everything here, too")
    parser.add_argument("--all", action="store_true", help="list refused rows, too")
    parser.add_argument("--parts", type=int, default=1, help="ask only one of so many parts: --part")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--batch", type=int, default=BATCH)
    chosen = parser.parse_args()
    wanted = sorted((row for row in rows() if re.search(chosen.only, row.name)), key=lambda row: row.name)
    wanted = wanted[len(wanted) * chosen.part // chosen.parts : len(wanted) * (chosen.part + 1) // chosen.parts]
    found: list[Found] = []
    for engine in chosen.engines:
        for start in range(0, len(wanted), chosen.batch):
            found += ask(engine, wanted[start : start + chosen.batch])
            print(f"{engine}: {start + chosen.batch}", file=sys.stderr)
    for one in found:
        if one.verdict in ("differs", "raises") or (chosen.all and one.verdict != "same"):
            print(f"{one.engine:12} {one.verdict:8} {one.row}: {one.detail}")
    for engine in chosen.engines:
        print(engine, dict(Counter(one.verdict for one in found if one.engine == engine)))
    if chosen.json:
        chosen.json.write_text(json.dumps([one._asdict() for one in found], indent=1))
    return int(any(one.verdict in ("differs", "raises") for one in found))


if __name__ == "__main__":
    sys.exit(main())
