"""TensorRT, run plane: torch.compile with the backend that torch_tensorrt registers when it is imported.

In: a LoadRequest. Out: a callable that builds in `prepare`; it bakes the weights in. Unproven: written without a GPU at
hand. Not covered: engines kept in files between processes.
"""

from __future__ import annotations

import importlib

import msgspec
import torch

from compilot.engines.inductor.load import load as load_backend
from compilot.engines.protocol import Infeasible, Loaded, LoadRequest

BACKEND = "dynamo:torch_tensorrt"


def load(request: LoadRequest) -> Loaded:
    """The callable for these settings; nothing is built yet."""
    if not torch.cuda.is_available():
        raise Infeasible("tensorrt needs a CUDA GPU")
    try:
        importlib.import_module("torch_tensorrt")
    except ImportError as error:
        raise Infeasible("torch_tensorrt is not installed; pip install torch-tensorrt") from error
    settings = msgspec.structs.replace(request.settings, engine=BACKEND)
    return load_backend(request._replace(settings=settings))._replace(frozen_weights=True)
