"""A plan on its way to the calls: asked beside eager, compared, counted; and who it is.

In: a loaded Fast and its plan. Out: for one call, both answers and what came of comparing them. Covered: in turns who
is first; calls that the plan does not take; engines that fail where eager does not; inputs that the model itself
changes (seen at the first comparison, before anything is run twice). Not covered: what follows from it (swap.py).
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from compilot._tree import Call, call_leaves
from compilot.errors import first_cause
from compilot.records import Plan
from compilot.runtime.dispatch import FAILED, Dispatcher
from compilot.runtime.fast import Fast
from compilot.serve.judging import Judge
from compilot.serve.outcomes import Outcome, Verdict
from compilot.serve.pairs import PairWindow

QUOTING = (FAILED, "engine switched off", "arguments that cannot be compared")  # reasons that quote an error
MUTATES = "the model changes its inputs, so its calls cannot be answered twice to be compared"

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBERS = re.compile(r"(?<![A-Za-z_\d])[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")


class NotAnswered(Exception):
    """Eager would have answered in the engine's place."""


class Trial:
    """One plan in one server process."""

    def __init__(self, fast: Fast, plan: Plan, *, label: str, digest: str = "", traced: bool = False) -> None:
        self.fast = fast
        self.plan = plan
        self.label = label
        self.digest = digest
        self.traced = traced  # torch.compile runs in this process: another thread count would compile again
        self.judge = Judge(plan)
        self.pairs = PairWindow()
        self.call: Callable[..., Any] = type(fast)._compilot_core.call  # takes the place of self first
        self.threads: set[int] = set()  # at which its answers were compared
        self.stage = 0
        self.passed = 0  # in this stage
        self.compared = self.mismatches = self.failures = 0
        self.not_taken = 0
        self.live_since = 0  # number of the call
        self.made: tuple[Any, ...] = ()  # what it was loaded from, where entries can be added to it
        self.adopted = ""  # what it has besides the plan before it, a sentence
        self._built_before = 0  # programs, when it went live
        self._at_threads: Counter[int] = Counter()
        self.on_missed: Callable[[str, Call], None] | None = None
        self.on_failed: Callable[[str], None] | None = None
        self._here = threading.local()
        self._first = True
        for link in self.links:
            link.watch(self)

    @property
    def links(self) -> list[Dispatcher]:
        """The dispatchers of its entries."""
        return list(type(self.fast)._compilot_entries.values())

    def seal(self, why: str) -> None:
        """Build nothing any more in this process."""
        for link in self.links:
            link.seal(why)

    def is_live(self, number: int) -> None:
        """From this call on it answers."""
        self.live_since, self._built_before = number, self.fast.stats().compiles

    def proven_at(self, threads: int) -> int:
        """One more comparison at this thread count; how many there are."""
        self._at_threads[threads] += 1
        return self._at_threads[threads]

    def counts(self) -> Counter[str]:
        """What is added up over all plans of a Swap."""
        found = Counter(compared=self.compared, mismatches=self.mismatches, failures=self.failures)
        if self.traced and self.live_since:
            found["recompiles"] = self.fast.stats().compiles - self._built_before
        return found

    # ---- Watcher: what the dispatchers tell ----------------------------------------------------------------------

    def missed(self, reason: str, call: Call) -> None:
        """Eager is about to answer in the engine's place."""
        reason = without_values(reason)
        if getattr(self._here, "comparing", False):
            raise NotAnswered(reason)
        if self.on_missed is not None and not reason.startswith(FAILED):
            self.on_missed(reason, call)

    def failed(self, reason: str) -> None:
        """The engine failed, eager did not."""
        self.failures += 1
        if self.on_failed is not None:
            self.on_failed(without_values(reason))

    # ---- comparing -----------------------------------------------------------------------------------------------

    def compare(self, model: nn.Module, call: Call, *, plan_first: bool) -> Outcome:
        """Both answers to a call; what eager raises is the user's own error and is raised."""
        if self._first:
            return self._compare_first(model, call)
        if plan_first:
            asked = self._ask(call)
            eager, eager_s = _timed(model, call)
        else:
            eager, eager_s = _timed(model, call)
            asked = self._ask(call)
        return self._judged(eager, eager_s, asked)

    def _compare_first(self, model: nn.Module, call: Call) -> Outcome:
        """Eager first, between two looks at the inputs."""
        before = [leaf.value.clone() for leaf in call_leaves(call) if isinstance(leaf.value, torch.Tensor)]
        eager, eager_s = _timed(model, call)
        after = [leaf.value for leaf in call_leaves(call) if isinstance(leaf.value, torch.Tensor)]
        if not all(_equal(one, other) for one, other in zip(before, after, strict=True)):
            return Outcome(Verdict.FAILED, eager, why=MUTATES)
        self._first = False
        return self._judged(eager, eager_s, self._ask(call))

    def _ask(self, call: Call) -> tuple[Any, float, str]:
        """The plan's own answer, its seconds, and why there is none."""
        self._here.comparing = True
        begin = time.perf_counter()
        try:
            answer = self.call(None, *call.args, **call.kwargs)
        except NotAnswered as reason:
            return None, 0.0, str(reason)
        except Exception as error:
            return None, 0.0, without_values(f"{FAILED}: {first_cause(error)}")
        finally:
            self._here.comparing = False
        return answer, time.perf_counter() - begin, ""

    def _judged(self, eager: Any, eager_s: float, asked: tuple[Any, float, str]) -> Outcome:
        answer, plan_s, why = asked
        if why:
            verdict = Verdict.FAILED if why.startswith(FAILED) else Verdict.NOT_TAKEN
            return Outcome(verdict, eager, why=why)
        difference = self.judge.difference(eager, answer)
        if difference is not None:
            return Outcome(Verdict.MISMATCH, eager, answer, difference)
        return Outcome(Verdict.SAME, eager, answer, "", eager_s, plan_s)


def without_values(reason: str) -> str:
    """The same; an error that it quotes loses its numbers and quoted texts: they may be a user's."""
    if not reason.startswith(QUOTING):
        return reason
    return _NUMBERS.sub("#", _QUOTED.sub("'...'", reason))


def _timed(model: nn.Module, call: Call) -> tuple[Any, float]:
    begin = time.perf_counter()
    answer = model(*call.args, **call.kwargs)
    return answer, time.perf_counter() - begin


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_floating_point() or one.is_complex():
        return bool(torch.equal(one.nan_to_num(), other.nan_to_num()))
    return bool(torch.equal(one, other))
