"""The files of an OpenVINO candidate: the graph simplified once, and what the plugin makes of it.

In: a converted model, a folder and the settings. Out: `model.xml`, `model.bin` and mostly `model.blob`. The general
simplifications (batch norms into convolutions, sums of constants) are done here instead of at each start, so that the
plugin's own form of the graph finds all weights in `model.bin` and is small: 27 kB to 1.2 MB for the models of
bench/coldstart.py. Loading it takes half to two thirds of the time, its answers are the same to the bit, and it is as
fast. Where the plugin has weights of its own (lower precisions convert them), the form of a larger model is not kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compilot.engines.openvino.importing import import_openvino
from compilot.engines.openvino.load import BLOB_NAME, MODEL_NAME, WEIGHTLESS, WEIGHTS_NAME, properties
from compilot.engines.openvino.signal_stack import kept_signal_stack
from compilot.records import Settings

MOST_OF_THE_WEIGHTS = 1 / 4  # a larger blob has weights of its own: reading and checking them costs what it saves
SMALL_BYTES = 4 << 20  # small enough beside any weights
NAMES_ITS_CPU = b";isa="  # in the head of a blob; one that does not say where it belongs would be taken anywhere
_HEAD_BYTES = 256


def save(model: Any, folder: Path) -> None:
    """Write the graph, and its weights at full precision."""
    import_openvino().save_model(model, folder / MODEL_NAME, compress_to_fp16=False)  # its default: half precision


def add_compiled(folder: Path, settings: Settings) -> None:
    """Beside the graph what the plugin makes of it, where that is small."""
    (folder / BLOB_NAME).unlink(missing_ok=True)  # of an earlier build, perhaps with other weights
    blob = _compiled(folder / MODEL_NAME, settings)
    most = max(SMALL_BYTES, (folder / WEIGHTS_NAME).stat().st_size * MOST_OF_THE_WEIGHTS)
    if NAMES_ITS_CPU in blob[:_HEAD_BYTES] and len(blob) <= most:
        (folder / BLOB_NAME).write_bytes(blob)


def _compiled(path: Path, settings: Settings) -> bytes:
    """The plugin's form of the graph; empty where it cannot be had."""
    try:
        with kept_signal_stack():
            compiled = import_openvino().Core().compile_model(path, "CPU", properties(settings) | WEIGHTLESS)
            exported = compiled.export_model()
    except RuntimeError:  # whether the graph can run at all is asked by the first load, in words
        return b""
    return exported if isinstance(exported, bytes) else bytes(exported.getvalue())
