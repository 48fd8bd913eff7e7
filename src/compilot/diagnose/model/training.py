"""What one look at a training says. In: a Training and its reference. Out: a Diagnosis with `step`: the facts that
decide which ways to do the step can work, and where its time goes.

Runs in eager's worker. Everything that the look changes is put back. Not covered: graph breaks and recompiles, which
the doctor finds as for any model.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from compilot._cores import usable_cores
from compilot._torch.products import onednn_gain
from compilot._torch.training import gradient_hook
from compilot._tree import call_leaves, is_tensor
from compilot.diagnose import trusted
from compilot.diagnose.edits import Edit
from compilot.diagnose.model.inspection import not_fingerprinted
from compilot.diagnose.model.repeated_blocks import repeated_blocks
from compilot.identity.layers import layers_of
from compilot.measure.step_reference import window
from compilot.modules.selectors import of_block
from compilot.records import Diagnosis, Finding, OptimizerWay, Reference, RepeatedBlock, StepFacts
from compilot.workload.eager_step import EagerStep, autocast
from compilot.workload.loop import Loop
from compilot.workload.steps import Steps
from compilot.workload.training import Training

LOOKS = 5
WAITING = 0.1  # of a step: data that takes more is worth a finding
MOST_WAITING = 0.5  # of a step: then the step itself is not what to tune
DATA = "data-loading"
SPREAD_OF = {"foreach": OptimizerWay.FOREACH, "fused": OptimizerWay.FUSED}
COMPILABLE = "torch.optim"  # those whose code torch.compile is known to take


def inspect_training(training: Training, reference: Reference) -> Diagnosis:
    """Look at the training, time the parts of a few eager steps."""
    repeated, facts = repeated_blocks(training.model), None
    with Steps(training.model, training).restored() as unit:
        assert isinstance(unit, Steps)
        step_s = _step_s(unit)
        facts = _facts(training, unit, repeated, reference)
    tensors = [leaf.value for leaf in call_leaves(training.call) if is_tensor(leaf.value)]
    return Diagnosis(
        findings=(*_findings(facts, step_s), *not_fingerprinted(training.model)),
        eager_call_s=step_s,
        has_4d_input=any(t.dim() == 4 and t.is_floating_point() for t in tensors),
        has_conv=any(isinstance(module, nn.Conv2d) for module in training.model.modules()),
        training=True,
        stochastic=reference.stochastic,
        floating_inputs=any(t.is_floating_point() for t in tensors),
        cuda=any(t.is_cuda for t in tensors),
        parameter_bytes=sum(p.numel() * p.element_size() for p in training.model.parameters()),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        onednn_gain=onednn_gain(),
        repeated=repeated,
        layers=layers_of(training.model),
        step=facts,
    )


def _step_s(unit: Steps) -> float | None:
    watch = trusted.Stopwatch()
    unit.call()  # the optimizer makes its state
    for _ in range(LOOKS):
        watch.lap(unit.call)
    return watch.typical()


def _facts(training: Training, unit: Steps, repeated: tuple[RepeatedBlock, ...], reference: Reference) -> StepFacts:
    loop = unit.loop
    optimizer = loop.optimizer
    parts = _part_times(training, loop)
    share = unit.model_share()
    return StepFacts(
        optimizer=type(optimizer).__name__,
        ways=tuple(optimizer_ways(optimizer)),
        compilable=type(optimizer).__module__.startswith(COMPILABLE),
        tensors=len(loop.parameters),
        shapes=len({tuple(parameter.shape) for parameter in loop.parameters}),
        hooks=gradient_hook(training.model) or "",
        blocks=tuple(of_block(one.structure_sha256) for one in repeated if one.level == 0),
        drops=reference.stochastic,
        batch_norm=any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in training.model.modules()),
        forward_s=parts[0],
        backward_s=parts[1],
        update_s=parts[2],
        data_s=None if share is None else share.request_s - share.model_s,
    )


def optimizer_ways(optimizer: Optimizer) -> Iterator[OptimizerWay]:
    """The ways that it has by its own settings, besides the one it uses now."""
    defaults = optimizer.defaults
    used = next((way for name, way in SPREAD_OF.items() if defaults.get(name)), OptimizerWay.LOOP)
    known = [OptimizerWay.LOOP, *(way for name, way in SPREAD_OF.items() if name in defaults)]
    yield from (way for way in known if way is not used and len(known) > 1)


def _part_times(training: Training, loop: Loop) -> tuple[float | None, float | None, float | None]:
    """Medians of forward and loss, backward, and update, from steps that are taken apart."""
    step = loop.step
    if not isinstance(step, EagerStep):
        return None, None, None
    samples = [_parts_of_step(training, loop, step, number) for number in range(LOOKS)]
    medians = [statistics.median(column) for column in zip(*samples, strict=True)]
    return medians[0], medians[1], medians[2]


def _parts_of_step(training: Training, loop: Loop, step: EagerStep, number: int) -> tuple[float, float, float]:
    batch = window(training, number)[0]
    loop.forget_gradients()
    with autocast(training.rules.autocast):
        forward_s, value = _timed(lambda: training.loss(loop.model, batch))
    backward_s, _ = _timed(value.backward)
    update_s, _ = _timed(step.clip_and_step)
    loop.advance()
    return forward_s, backward_s, update_s


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def _findings(facts: StepFacts, step_s: float | None) -> Iterator[Finding]:
    if facts.data_s is None or not step_s or facts.data_s < WAITING * step_s:
        return
    share = facts.data_s / step_s
    limit = (
        "the loader is the limit: a faster step only waits longer" if share >= MOST_WAITING else "no plan saves that"
    )
    yield Finding(
        kind=DATA,
        where="",
        explanation=f"{share:.0%} of a step is waiting for the loader ({facts.data_s * 1e3:.3g} ms); {limit}",
        advice=Edit.FASTER_LOADER(first="load while the step computes"),
        cost_s=facts.data_s,
    )
