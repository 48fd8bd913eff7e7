"""Diagnosis: what one look at the eager model says before anything is tried.

In: a workload and its reference runs. Out: a Diagnosis with findings in plain words. Runs in the eager worker.
Covered: facts that decide which candidates make sense, repeated blocks, where in the module tree the time goes, train
mode, stochastic models, tiny work, the features by which models are compared. Not covered: graph breaks, recompiles and
stage times; the doctor finds those (`diagnose.examination`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilot._cores import usable_cores
from compilot._tree import call_leaves, is_tensor
from compilot.diagnose import trusted
from compilot.diagnose.edits import TRAIN_MODE, Edit
from compilot.diagnose.model.denormals import meets_denormals
from compilot.diagnose.model.features import features
from compilot.identity.layers import layers_of
from compilot.records import Diagnosis, Finding, Reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from compilot.workload import Workload

TINY_CALL_S = 50e-6  # below this, guards and dispatch of a compiled call eat what fusion could gain
TIMED_CALLS = 5
LEAST_TIMED_S = 0.01  # calls of microseconds are timed more often: among five of them the first, slow ones would decide
MOST_TIMED_CALLS = 200


def inspect(workload: Workload, reference: Reference) -> Diagnosis:
    """Look at the model and its inputs, time a few eager calls."""
    import torch

    from compilot._torch.products import onednn_gain
    from compilot.diagnose.model import vanishing_checks
    from compilot.diagnose.model.module_parts import module_parts
    from compilot.diagnose.model.region_fitness import unfit_parts
    from compilot.diagnose.model.repeated_blocks import repeated_blocks

    modules = list(workload.model.modules())
    tensors = [leaf.value for leaf in call_leaves(workload.call) if is_tensor(leaf.value)]
    eager_call_s = _eager_call_s(workload)
    where = module_parts(workload, repeated_blocks(workload.model))
    return Diagnosis(
        findings=(
            *model_findings(workload, eager_call_s),
            *random_findings(reference),
            *vanishing_checks.findings(workload.model),
            *not_fingerprinted(workload.model),
        ),
        eager_call_s=eager_call_s,
        has_4d_input=any(t.dim() == 4 and t.is_floating_point() for t in tensors),
        has_conv=any(isinstance(m, torch.nn.Conv2d) for m in modules),
        unjudgeable=_unjudgeable(reference),
        training=workload.model.training,
        stochastic=reference.stochastic,
        floating_inputs=any(t.is_floating_point() for t in tensors),
        dynamic=bool(workload.dynamic),
        cuda=any(t.is_cuda for t in tensors),
        parameter_bytes=sum(p.numel() * p.element_size() for p in workload.model.parameters()),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        onednn_gain=onednn_gain(),
        denormals=meets_denormals(workload),
        repeated=where.repeated,
        parts=where.parts,
        unfit=unfit_parts(workload, where.paths()),
        eager_error=reference.eager_error,
        features=features(workload),
        layers=layers_of(workload.model),
    )


def _eager_call_s(workload: Workload) -> float | None:
    watch = trusted.Stopwatch()
    with workload.unit(workload.model).restored() as unit:
        while _more_calls(watch.samples):
            watch.lap(unit.call)
        typical_s = watch.typical()
        return None if typical_s is None else typical_s / unit.calls


def _more_calls(samples: Sequence[float]) -> bool:
    return len(samples) < TIMED_CALLS or (len(samples) < MOST_TIMED_CALLS and sum(samples) < LEAST_TIMED_S)


def model_findings(workload: Workload, eager_call_s: float | None) -> tuple[Finding, ...]:
    """What is true of the model as a whole; eager_call_s is None where no time can be trusted."""
    found = []
    if workload.model.training:
        found.append(
            Finding(
                kind=TRAIN_MODE,
                where="",
                explanation="the model is in train mode: dropout is active and batch norm updates its statistics",
                advice=Edit.EVAL(),
            )
        )
    if eager_call_s is not None and eager_call_s < TINY_CALL_S:
        found.append(
            Finding(
                kind="tiny-work",
                where="",
                explanation=f"one eager call takes {eager_call_s * 1e6:.0f} microseconds, not much more than a guard",
                advice=Edit.LARGER_CALLS(),
            )
        )
    return tuple(found)


def not_fingerprinted(model: nn.Module) -> Iterator[Finding]:
    """What no plan can recognise again, in one finding."""
    from compilot.identity.uncovered import uncovered
    from compilot.identity.wording import told

    if unread := uncovered(model):
        yield Finding(
            kind="not-fingerprinted",
            where=unread[0].path,
            explanation=f"a plan cannot check whether these changed: their state cannot be read: {told(unread)}",
            advice=Edit.READABLE_STATE(),
            count=len(unread),
        )


def random_findings(reference: Reference) -> tuple[Finding, ...]:
    """What a model that draws random numbers means for the candidates."""
    if not reference.seeded:
        return ()
    return (
        Finding(
            kind="stochastic",
            where="",
            explanation="the model draws random numbers: two eager runs differ unless torch is seeded",
            advice=Edit.NO_RANDOM(),
        ),
    )


def _unjudgeable(reference: Reference) -> str | None:
    """Why eager cannot serve as the judge of others."""
    if reference.stochastic and not reference.seeded:
        why = "two eager runs on the same input differ, seeded or not, so no candidate can be judged correct"
        return f"{why}; call model.eval(), or remove the random part, then tune again"
    if reference.stateful:
        why = f"the model keeps state between calls that changes its answers ({reference.stateful})"
        return f"{why}; pass the state as an input, or reset it within forward, then tune again"
    return None
