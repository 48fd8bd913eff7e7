"""Make, keep and read back what every candidate is compared with.

In: a workload and its cases. Out: a `Reference` record, and one file per kept case in `folder` with eager's outputs,
the float64 outputs, what eager did to its inputs and buffers. Made once per run, read by every candidate's process
(memory-mapped).
The first case is run twice: a model whose outputs differ is stochastic (dropout), or stateful when it keeps something
in its attributes from call to call; changed buffers (BatchNorm in train mode) are put back before every call and so
are no obstacle.
The float64 reference is the same unit of work in double precision. It is given up, with a note, when the copy
cannot run, when the model is too large for it, or when the model is stochastic (double precision draws other random
numbers).
Cases on which eager raises have no right answer: they are not kept but listed, with what was raised (raising.py says
what becomes of them); those of unequal sizes are left out without a word.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch import Tensor, nn

from compilot.errors import InputError
from compilot.measure.bounds import bounded
from compilot.measure.closeness import coarser, compare, rms
from compilot.measure.expected import Judgeable, save_expected
from compilot.measure.raising import raised
from compilot.records import Raising, Reference
from compilot.workload.observing import Seen, Watch
from compilot.workload.outputs import difference
from compilot.workload.state import changed_attributes, save_attributes
from compilot.workload.unit import Unit
from compilot.workload.variations import Case

RUNNING = "running"  # file with the name of the case under way: some inputs end eager's process (integer division)
MEMORY_SHARE = (
    0.25  # of the free memory: the double copy of a float32 model needs twice the model, of a half one four times
)


class _Repeat(NamedTuple):
    """Does eager repeat itself?"""

    stochastic: bool = False
    seeded: bool = False
    stateful: str = ""
    note: str = ""


def make_reference(workload: Judgeable, cases: Sequence[Case], folder: Path) -> Reference:
    """Run eager and float64 on every case and keep the results in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        return _Maker(workload, folder).make(cases)


def coarsest_dtype(model: nn.Module) -> torch.dtype:
    """The least precise floating dtype among the parameters; float64 where there are none."""
    found = torch.float64
    for dtype in {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}:
        found = coarser(found, dtype)
    return found


def too_large_for_double(model: nn.Module) -> int:
    """Bytes of a model whose double copy would not fit into the free memory; 0: it fits."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()])
    return size if size > MEMORY_SHARE * psutil.virtual_memory().available else 0


def case_seed(workload: Judgeable, number: int, seeded: bool) -> int | None:
    """What torch is seeded with before a kept case; each has its own, since draws may have been baked in as constants.

    None: the model draws no random numbers.
    """
    return workload.seed + number if seeded else None


def describe_error(error: BaseException) -> str:
    """Type and first line of an exception."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__


class _Maker:
    """One run of make_reference: the notes and the float64 unit live here while it lasts."""

    def __init__(self, workload: Judgeable, folder: Path) -> None:
        self.workload, self.folder = workload, folder
        self.unit = workload.unit(workload.model)
        self.notes: list[str] = []
        self.kept: list[str] = []
        self.raising: list[Raising] = []
        self.exact_cases = 0
        self.double: Unit | None = None
        self.typical: dict[str, float] = {}
        self.watch = Watch()
        self.slowest_s = 0.0  # of the cases so far
        self.eager_error: float | None = None  # worst of the cases so far

    def make(self, cases: Sequence[Case]) -> Reference:
        repeat = self._repeat(cases)
        self.double = None if repeat.stochastic or repeat.stateful else self._in_double()
        for case in cases:
            self._make_case(case, repeat)
        if not self.kept:
            raise InputError(f"the model raises on every input it was given ({self.notes[0]}); fix the example.")
        if len(self.kept) == 1:  # one more call shows whether eager's own results share memory
            only = next(case for case in cases if case.name == self.kept[0])
            self.watch.see(self.unit.run(only.call, self._seed(repeat)).output.tensors)
        with suppress(OSError):
            (self.folder / RUNNING).unlink()
        return Reference(
            kind="float64" if self.exact_cases else "eager",
            cases=tuple(self.kept),
            stochastic=repeat.stochastic,
            seeded=repeat.seeded,
            stateful=repeat.stateful,
            overwritten=tuple(sorted(self.watch.overwritten())),
            raising=tuple(self.raising),
            eager_error=self.eager_error,
            notes=tuple(self.notes),
        )

    def _repeat(self, cases: Sequence[Case]) -> _Repeat:
        """Find the first case that runs and see whether eager repeats itself on it."""
        attributes = save_attributes(self.workload.model)
        for case in cases:
            try:
                first = self.unit.run(case.call)
            except Exception:  # noted when the case's turn comes
                continue
            repeat = _repeatability(self.unit, case, first, attributes, self.workload.seed)
            self.notes += [repeat.note] if repeat.note else []
            return repeat
        return _Repeat()

    def _in_double(self) -> Unit | None:
        if size := too_large_for_double(self.workload.model):
            self.notes.append(f"no float64 reference: the model ({size / 1e9:.1f} GB) is too large for the free memory")
            return None
        try:
            return self.unit.in_double()
        except Exception as error:
            self.notes.append(f"no float64 reference: the model cannot be copied ({describe_error(error)})")
            return None

    def _timed(self, case: Case, repeat: _Repeat) -> tuple[Seen, float]:
        start = time.perf_counter()
        return self.unit.run(case.call, self._seed(repeat)), time.perf_counter() - start

    def _seed(self, repeat: _Repeat) -> int | None:
        return case_seed(self.workload, len(self.kept), repeat.seeded)

    def _make_case(self, case: Case, repeat: _Repeat) -> None:
        with suppress(OSError):  # a full disk is told when the case itself is written
            (self.folder / RUNNING).write_text(case.name)
        try:
            with bounded(self.slowest_s) if case.bold else nullcontext():
                if case.mirror is not None:
                    self.unit.run(case.mirror, self._seed(repeat))
                seen, seconds = self._timed(case, repeat)
                exact = self._exact(case, seen)
        except Exception as error:
            if case.mirror is None:
                self.notes.append(f"case '{case.name}' dropped: eager raises {describe_error(error)}")
                self.raising.append(raised(case.name, error))
            return
        self.slowest_s = max(self.slowest_s, seconds)
        self.watch.see(seen.output.tensors)
        if not self.typical and not case.special:
            self.typical = {path: rms(t) for path, t in _floating(exact | seen.values) if t.numel()}
        save_expected(self.folder, len(self.kept), case.call, seen, exact, self.typical)
        if not case.special:
            self._add_error(seen, exact)
        self.kept.append(case.name)

    def _add_error(self, seen: Seen, exact: dict[str, Tensor]) -> None:
        """Eager's own distance from float64, as a candidate's is measured."""
        coarsest = coarsest_dtype(self.workload.model)
        for path, tensor in exact.items():
            own, usual = seen.values[path], self.typical.get(path, 0.0)
            found = compare(own, own, tensor, case="", output=path, typical=usual, coarsest=coarsest)
            if found.relative is not None and not found.all_nan:
                self.eager_error = max(self.eager_error or 0.0, found.relative)

    def _exact(self, case: Case, eager: Seen) -> dict[str, Tensor]:
        """The float64 outputs of a case, where their shapes are eager's."""
        if self.double is None:
            return {}
        try:
            seen = self.double.run(case.call)
        except Exception as error:
            self.notes.append(f"no float64 reference for case '{case.name}': {describe_error(error)}")
            if not self.exact_cases:  # it will fail on the other cases too
                self.double = None
            return {}
        self.exact_cases += 1
        found = seen.output.tensors
        return {path: seen.values[path] for path, t in eager.output.tensors.items() if _usable(found.get(path), t)}


def _repeatability(unit: Unit, case: Case, first: Seen, attributes: dict[str, str], seed: int) -> _Repeat:
    """Run eager again; where the outputs differ, find out whether seeding or the model's attributes explain it."""
    second = unit.run(case.call)
    changed = changed_attributes(unit.model, attributes)
    if not (how := _disagreement(first, second)):
        names = ", ".join(sorted(first.state))
        return _Repeat(
            note=f"every call changes the model's buffers ({names}); they are put back each time" * bool(names)
        )
    again = [unit.run(case.call, seed) for _ in range(2)]
    if not _disagreement(*again):
        return _Repeat(stochastic=True, seeded=True, note=f"the model is stochastic: two eager runs differ ({how})")
    if changed:
        return _Repeat(stateful=", ".join(changed), note=f"one call changes the next through {', '.join(changed)}")
    return _Repeat(stochastic=True, note=f"the model is stochastic and seeding torch does not help: {how}")


def _disagreement(first: Seen, second: Seen) -> str:
    """How two eager runs differ, "" when they do not beyond rounding."""
    if text := difference(first.output.structure, second.output.structure):
        return text
    for path, one in first.values.items():
        close = compare(
            second.values[path],
            one,
            None,
            case="",
            output=path,
            typical=0.0,
            coarsest=torch.float64,
        )
        if not close.check.passed or close.non_finite:
            return f"{close.check.why or close.non_finite} at {path}"
    return ""


def _usable(found: Tensor | None, eager: Tensor) -> bool:
    if found is None or found.shape != eager.shape:
        return False
    return found.is_complex() == eager.is_complex() and found.is_floating_point() == eager.is_floating_point()


def _floating(tensors: dict[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
    return ((path, tensor) for path, tensor in tensors.items() if tensor.is_floating_point() or tensor.is_complex())
