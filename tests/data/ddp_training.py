"""One rank of a data-parallel training on loopback: every part of a plan against eager's own loop.

In: {"rank", "ranks", "port"} as JSON. Out: for each part how far its weights are from eager's after some updates, and
who ran; what is refused, in words; as JSON on the last line. Nothing needs a C++ compiler.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from training_plans import AOT, plan_of_step

import compilot
from compilot.engines.protocol import Infeasible
from compilot.records import CompiledWay, OptimizerWay, Region, StepParts, StepRules
from compilot.training import TrainStep, compiled_updates, make_step

ACCUMULATE, UPDATES = 2, 3
PARTS = {
    "fused": StepParts(optimizer=OptimizerWay.FUSED),
    "compiled update": StepParts(optimizer=OptimizerWay.COMPILED),
    "update one by one": StepParts(optimizer=OptimizerWay.KERNEL),
    "model": StepParts(compiled=CompiledWay.MODEL),
    "regions": StepParts(compiled=CompiledWay.REGIONS),
    "model with loss": StepParts(compiled=CompiledWay.WITH_LOSS),
}
REFUSED = {
    "one graph": StepParts(compiled=CompiledWay.ONE_GRAPH),
    "compiled autograd": StepParts(compiled=CompiledWay.MODEL, compiled_autograd=True),
}
BLOCKS = (Region(selector="blocks.*", settings=AOT),)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8)  # a bias would have no gradient there
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)])
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.inner(x))
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.out(x)
        return out


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batches_of(rank: int) -> list[tuple[Tensor, Tensor]]:
    """Each rank has its own."""
    made = torch.Generator().manual_seed(100 + rank)
    count = ACCUMULATE * UPDATES
    return [(torch.randn(4, 6, generator=made), torch.randint(0, 3, (4,), generator=made)) for _ in range(count)]


def start() -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(5)
    model = DistributedDataParallel(Net())
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def by_hand(rank: int) -> nn.Module:
    model, optimizer = start()
    for number, batch in enumerate(batches_of(rank)):
        if number % ACCUMULATE == 0:
            optimizer.zero_grad()
        (loss_of(model, batch) / ACCUMULATE).backward()
        if number % ACCUMULATE == ACCUMULATE - 1:
            optimizer.step()
    return model


def trained(rank: int, make: Callable[[nn.Module, torch.optim.Optimizer], TrainStep]) -> dict[str, Any]:
    torch.compiler.reset()
    model, optimizer = start()
    step = make(model, optimizer)
    for batch in batches_of(rank):
        step(batch)
    wanted = by_hand(rank).state_dict()
    far = max(float((value - wanted[name]).abs().max()) for name, value in model.state_dict().items())
    weights = [float(value.double().sum()) for value in model.parameters()]
    told = step.stats()
    return {"far": far, "weights": weights, "fallbacks": {**told.fallbacks, **told.optimizer_fallbacks}, **counts(told)}


def counts(told: Any) -> dict[str, int]:
    return {"fast": told.fast, "steps": told.steps}


def of_parts(parts: StepParts) -> Callable[[nn.Module, torch.optim.Optimizer], TrainStep]:
    regions = BLOCKS if parts.compiled is CompiledWay.REGIONS else ()

    def make(model: nn.Module, optimizer: torch.optim.Optimizer) -> TrainStep:
        return make_step(
            model, loss_of, optimizer, parts, settings=AOT, regions=regions, accumulate=ACCUMULATE, strict=True
        )

    return make


def by_plan(model: nn.Module, optimizer: torch.optim.Optimizer) -> TrainStep:
    """As a user does it: the plan was made for the model without DDP."""
    step = StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED)
    plan = plan_of_step(Net(), batches_of(0)[0], step, rules=StepRules(accumulate=ACCUMULATE))
    return compilot.train_step(model, loss_of, optimizer, plan, strict=True)


def refusal(parts: StepParts) -> str:
    try:
        of_parts(parts)(*start())
    except Infeasible as error:
        return str(error)
    return "it was not refused"


def main(rank: int, ranks: int, port: int) -> None:
    torch.set_num_threads(1)
    plain = compiled_updates.compiled_function
    compiled_updates.compiled_function = lambda function, **given: plain(function, **{**given, "backend": "eager"})
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(minutes=5),
    )
    told = {name: trained(rank, of_parts(parts)) for name, parts in PARTS.items()}
    told["plan"] = trained(rank, by_plan)
    refused = {name: refusal(parts) for name, parts in REFUSED.items()}
    print(json.dumps({"trained": told, "refused": refused}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
