"""What the pytest fixture `compilot` asserts. In: models with inputs, plans. Out: nothing, a failure, or a skip.

Graph breaks and recompiles are the doctor's, from a process of its own; numbers are judged as candidates of `tune` are,
here; speed is raced in fresh processes, and a failure is raced a second time. A failure says what is wrong, where, and
what to do. What cannot be told from noise is a skip, never a pass and never a failure.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from compilot.records import Comparison, Finding, Plan, Race
    from compilot.report.data import Row

BREAKS = ("graph-break", "compile-failure")
RECOMPILES = ("recompile", "recompile-limit")


class Asserting(NamedTuple):
    """The fixture's value."""

    fail: Callable[[str], None]
    skip: Callable[[str], None]
    pairs: int = 40
    processes: int = 3

    def no_graph_breaks(self, model: nn.Module, *inputs: Any, **kwargs: Any) -> None:
        """torch.compile makes one graph of a call with these inputs."""
        from compilot.workload import Workload

        self._none(Workload(model, inputs, kwargs), BREAKS, "graph break")

    def no_recompiles(self, model: nn.Module, inputs: Sequence[Any]) -> None:
        """torch.compile compiles once for all these calls: each is a tuple of arguments, a tensor, or a dict."""
        from compilot.workload import Workload

        self._none(Workload(model, examples=list(inputs)), RECOMPILES, "recompile")

    def same_numbers(
        self, first: Any, second: Any, *inputs: Any, tolerance: float | None = None, **kwargs: Any
    ) -> None:
        """Two callables give the same answers; limits as in `tune`, or tolerance as relative error of each output.

        Structure, shapes, types, integers and the places of NaN and infinity must be the same at any tolerance.
        """
        import torch

        from compilot.gate.answers import compare_answers

        answers = []
        for fn in (first, second):
            torch.manual_seed(0)
            with torch.no_grad():
                answers.append(fn(*copy.deepcopy(inputs), **copy.deepcopy(kwargs)))
        base, other = _outputs(*answers)
        found = compare_answers({"these inputs": base}, {}, {"these inputs": other}, tolerance=tolerance)
        if found.wrong:
            self.fail(f"the answers differ: {found.wrong}")
        elif not found.tensors:
            self.skip("the answers hold no tensors and no numbers to compare")

    def faster_than(
        self,
        plan: Plan | str | os.PathLike[str],
        base: Plan | str | os.PathLike[str] = "eager",
        *,
        at_least: float = 1.0,
        model: Any = None,
    ) -> None:
        """A plan is at least so many times as fast as "eager", "compile" (plain torch.compile) or another plan.

        model: a target, or a Workload; the plan's own target unless given.
        """
        seen = self._raced(plan, base, model)
        if _is_below(seen, at_least):
            again = self._raced(plan, base, model)
            if _is_below(again, at_least):
                self.fail(f"not {at_least:g}x as fast as {_name(base)}: {_shown(seen)}, and again {_shown(again)}")
            seen = again
        if _is_undecided(seen):
            self.skip(f"inconclusive: too few pairs were timed against {_name(base)}; give the race more of them")
        elif seen.low < at_least:
            text = f"inconclusive: {_shown(seen)} against {_name(base)}, and {at_least:g}x was asked for"
            self.skip(f"{text}; give the race more pairs or processes, on a quiet machine")

    # ------------------------------------------------------------------------------------------------------ measuring

    def _none(self, workload: Any, kinds: Sequence[str], noun: str) -> None:
        from compilot.api.examining import examine

        report = examine(workload, quick=True, progress=False)
        found = [one for one in report.findings if one.kind in kinds]
        if found:
            many = f"{len(found)} {noun}{'' if len(found) == 1 else 's'}"
            self.fail("\n".join([f"{report.label} has {many}:", *(_told(one) for one in found)]))
        elif report.unseen:
            self.skip(f"the doctor did not see everything: {'; '.join(report.unseen)}")

    def _raced(self, plan: Any, base: Any, model: Any) -> Comparison:
        from compilot.api.benching import bench
        from compilot.api.plans import load_plan
        from compilot.engines.eager.build import EAGER
        from compilot.report import read_run

        plans = [one for one in (plan, base) if one not in ("eager", "compile")]
        opened = [one if not isinstance(one, str | os.PathLike) else load_plan(_file(one)) for one in plans]
        target: Any = model if model is not None else opened[0].workload.target
        if any(_has_several(one) for one in opened):
            text = "the plan has programs for several sizes or parts, and faster_than races one for the whole model"
            self.fail(f"{text}: measure it with compilot.bench(..., trace=...).")
        if target is None:
            self.fail("the plan was made from live objects; give model=, a target or a Workload.")
        with tempfile.TemporaryDirectory(prefix="compilot-race-") as folder:
            out = Path(folder) / "run"
            measured = bench(target, plans=plans, pairs=self.pairs, processes=self.processes, out=out, progress=False)
            races = [race for race in read_run(measured.run_dir).races if race.purpose == "bench"]
        mine = opened[0].entries[0].candidate.id if opened[0].entries else EAGER.id
        return self._compared(races, mine, self._id(base, opened, measured), measured.rows)

    def _compared(self, races: Sequence[Race], mine: str, theirs: str, rows: Sequence[Row]) -> Comparison:
        """From the last race that holds both."""
        from compilot.verdict.compare import compare

        wanted = 2 if mine == theirs else 1
        both = [race for race in races if min(race.arms.count(mine), race.arms.count(theirs)) >= wanted]
        if both:
            return compare(both[-1], mine, theirs)
        if failed := [row for row in rows if row["id"] in (mine, theirs) and row["state"] != "ok"]:
            self.fail(f"{failed[0]['candidate']} could not be measured: {failed[0]['note'] or failed[0]['state']}")
        self.skip("the two were never timed beside each other: they are the same, or do not fit into memory together")
        raise AssertionError("fail and skip end the test")

    def _id(self, base: Any, opened: Sequence[Plan], measured: Any) -> str:
        from compilot.engines.eager.build import EAGER

        if base == "eager":
            return EAGER.id
        if base != "compile":
            return opened[1].entries[0].candidate.id if opened[1].entries else EAGER.id
        mine = {entry.candidate.id for plan in opened for entry in plan.entries}
        found = [row["id"] for row in measured.rows if row["id"] not in {*mine, EAGER.id} and row["state"] == "ok"]
        if not found:
            self.skip("torch.compile could not be measured on this model")
        return str(found[0])


def _outputs(first: Any, second: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of two answers by path; where both have a whole number of Python's, as one that must be equal."""
    import torch

    from compilot.gate.arm import leaves, tensors

    found, other = tensors(first), tensors(second)
    whole, also = ({path: leaf for path, leaf in leaves(one) if isinstance(leaf, int)} for one in (first, second))
    for path in whole.keys() & also.keys():
        found[path] = torch.tensor(True)
        other[path] = torch.tensor(whole[path] == also[path])
    return found, other


def _is_undecided(one: Comparison) -> bool:
    return one.outcome == "undecided"


def _is_below(one: Comparison, at_least: float) -> bool:
    return not _is_undecided(one) and one.high < at_least


def _has_several(plan: Plan) -> bool:
    """Whether its programs are for several sizes or for parts of the model: a trace's plan."""
    entries = plan.entries
    return len(entries) > 1 or any(one.module or one.is_for_sizes for one in entries)


def _told(finding: Finding) -> str:
    where = f"{finding.where}: " if finding.where else ""
    snippet = f"\n    {finding.snippet}" if finding.snippet else ""
    return f"  {where}{finding.explanation}{snippet}\n    fix: {finding.advice}"


def _shown(one: Comparison) -> str:
    from compilot.verdict.words import interval, times

    return f"{times(one.ratio)} ({interval(one)})"


def _name(base: Any) -> str:
    if base == "compile":
        return "torch.compile"
    return str(base) if isinstance(base, str | os.PathLike) else "the other plan"


def _file(plan: str | os.PathLike[str]) -> Path:
    path = Path(plan)
    return path / "plan.json" if path.is_dir() else path
