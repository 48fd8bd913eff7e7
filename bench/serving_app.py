"""The server that bench/serving.py loads: FastAPI around one model, eager alone or with a Swap.

    uvicorn serving_app:app        COMPILOT_BENCH_SERVING=eager|swap|plan|promised|building|sleeping, ..._LOG=FILE

eager: the model alone; swap: a Swap with nothing to start from. plan and promised have the plan in COMPILOT_BENCH_PLAN:
applied before the first request and called without a Swap, or as the source of one. building: eager, and a thread like
a Swap's own has a child build again and again; sleeping: the child only sleeps. POST /hold stops and continues it.

POST /predict takes a seed and answers with the sum and the first scores of the model's answer to that seed's image: a
request is small, the work is the model's. GET /state says who answers, what went wrong and how many
builds there were.
"""

import os
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, Request
from torch import nn

import compilot

SIDE = 96
MODE = os.environ.get("COMPILOT_BENCH_SERVING", "swap")


def model():
    """A small residual network: some ten milliseconds on two cores."""
    torch.manual_seed(0)
    blocks = []
    for into, out, stride in ((3, 32, 2), (32, 64, 2), (64, 128, 2), (128, 128, 1), (128, 256, 2)):
        blocks += [nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)).eval()


def image(seed):
    """The image of a seed, the same in every process."""
    return torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def target():
    """For `compilot tune`."""
    return model(), (image(0),)


@torch.inference_mode()
def scores(call, seed):
    """What a request is answered with."""
    return call(image(seed))[0, :4].tolist()


@asynccontextmanager
async def lifespan(app: FastAPI):
    plain = model()
    app.state.swap = app.state.child = None
    app.state.call = plain
    plan = os.environ.get("COMPILOT_BENCH_PLAN")
    if MODE == "plan":
        app.state.call = compilot.compile(plain, plan)
    elif MODE in ("building", "sleeping"):
        import serving_child

        app.state.child = serving_child.Held(plain, image(0), sleeps=MODE == "sleeping")
    elif MODE != "eager":
        source = plan if MODE == "promised" else None
        app.state.swap = app.state.call = compilot.serve.Swap(plain, source, log=os.environ.get("COMPILOT_BENCH_LOG"))
    yield
    if app.state.swap is not None:
        app.state.swap.close()
    if app.state.child is not None:
        app.state.child.close()


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
def predict(seed: int, request: Request) -> dict[str, object]:
    swap = request.app.state.swap
    return {"scores": scores(request.app.state.call, seed), "state": "eager" if swap is None else str(swap.state)}


@app.get("/state")
def state(request: Request) -> dict[str, object]:
    swap, child = request.app.state.swap, request.app.state.child
    if child is not None:
        return {"state": "eager", "reason": child.problem, "builds": child.builds}
    if swap is None:
        return {"state": "eager", "reason": ""}
    return {"state": str(swap.state), "reason": swap.reason}


@app.post("/hold")
def hold(on: bool, request: Request) -> dict[str, object]:
    child = request.app.state.child
    child.hold() if on else child.go_on()
    return {"held": on}
