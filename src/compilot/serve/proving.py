"""Proof in the server, before any user's call is answered or shadowed: the kept calls against eager.

In: a loaded plan (its golden calls were asked when it was loaded) and the kept calls. Out: nothing, or NotProven with
the reason, or Incomparable where the model is to blame. Eager is asked twice first: a model whose own answers differ
cannot be compared. Calls that eager itself refuses, or that the plan does not take, prove nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from compilot.serve.keeping import KeptCall
from compilot.serve.outcomes import Verdict
from compilot.serve.trial import MUTATES, Trial

RANDOM = "eager's own answers to one call differ: a plan's cannot be compared with them"


class NotProven(Exception):
    """The plan must not answer."""


class Incomparable(Exception):
    """No plan can be compared with this model's own answers."""


def prove(trial: Trial, model: nn.Module, kept: Sequence[KeptCall]) -> int:
    """How many of the kept calls the plan answered as eager does; NotProven at the first that it does not."""
    proven = 0
    for number, one in enumerate(kept):
        with torch.set_grad_enabled(one.grad):
            try:
                outcome = trial.compare(model, one.call, plan_first=False)
            except Exception:  # the user's own mistake: eager raised
                continue
            if number == 0 and trial.judge.difference(outcome.eager, model(*one.call.args, **one.call.kwargs)):
                raise Incomparable(RANDOM)
        if outcome.verdict is Verdict.MISMATCH:
            raise NotProven(f"a kept call is answered wrongly: {outcome.why}")
        if outcome.verdict is Verdict.FAILED:
            raise (Incomparable if outcome.why == MUTATES else NotProven)(outcome.why)
        proven += outcome.verdict is Verdict.SAME
    return proven
