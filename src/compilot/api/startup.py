"""How long a bundle takes to start, step by step, in a process of its own.

Run as `python -m compilot.api.startup BUNDLE [--keys FILE]... [--require-signature]`: writes one JSON object with
the seconds of each step: import torch (which every user of torch pays), import compilot, open, verify, load, golden
call, and the first call after it; or `refused`, the sentence with which a start is refused. Covered: bundles that are
the whole model. Others need their model: time those where it is.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from compilot.errors import CompilotError


def main(argv: list[str]) -> None:
    """Start the bundle and write down what each step took, or why it cannot be started."""
    try:
        told = timed(argv)
    except CompilotError as refused:
        told = {"refused": str(refused)}
    sys.stdout.write(json.dumps(told) + "\n")


def timed(argv: list[str]) -> dict[str, Any]:
    """What each step of the start took."""
    began = time.perf_counter()
    import torch

    torch_s = time.perf_counter() - began
    from compilot.artifacts.bundle_trust import Trust
    from compilot.runtime.bundles import example_call
    from compilot.runtime.sources import ApplyOptions
    from compilot.runtime.start import start

    imported_s = time.perf_counter() - began - torch_s
    keys = [argv[i + 1] for i, word in enumerate(argv) if word == "--keys"]
    trust = Trust(keys, "--require-signature" in argv)
    fast = start(None, Path(argv[0]), ApplyOptions(trust, plain_outputs=True))
    call = example_call(Path(argv[0]), trust)
    began = time.perf_counter()
    with torch.set_grad_enabled(call.grad):
        fast(*call.args, **call.kwargs)
    first_s = time.perf_counter() - began
    steps = {"import torch": torch_s, "import compilot": imported_s, **fast.startup, "first call": first_s}
    return {"steps": steps, "fast": fast.stats().fast, "threads": torch.get_num_threads()}


if __name__ == "__main__":
    main(sys.argv[1:])
