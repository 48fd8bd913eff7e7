"""FastAPI and uvicorn with two workers: `uvicorn serve_fastapi:app --workers 2`.

Each worker has its own Swap, made when the worker starts. One of them builds, the other loads its files.
"""

from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, Request

import compilot
from serving_model import example, load


@asynccontextmanager
async def lifespan(app: FastAPI):
    with compilot.serve.Swap(load()) as swap:
        with torch.inference_mode():
            app.state.swap = swap.warm([example()])
        app.mount("/compilot", compilot.serve.asgi(swap))  # /compilot/metrics, /compilot/readyz
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
def predict(image: list[list[list[float]]], request: Request) -> dict[str, object]:  # not async: FastAPI uses a thread
    swap = request.app.state.swap
    with torch.inference_mode():
        scores = swap(torch.tensor(image)[None])
    return {"label": int(scores.argmax()), "scores": scores[0].tolist(), "state": str(swap.state)}
