"""Several starts of a tiny compiled function, each in a process of its own; run by test_cachemiss.py.

In: a folder, and one argument per start: its name, and after commas what it changes first: a setting of the compiler
(NAME=VALUE) or of the process (torch.FUNCTION=VALUE calls it). Out: on stdout one JSON object, start -> hits and misses
of torch's own graph cache; in the folder NAME.json with the key components of each. All share one cache folder. The
starts are forks of a process that has imported torch and done nothing with it, because importing costs more than the
rest. A matrix product alone needs no C++ compiler.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
CACHE = FOLDER / "compiled"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(CACHE)  # read when torch is imported
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of compile workers

import torch  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor import compile_fx, config  # noqa: E402, F401

from compilot.identity.keys import key_components, save_components  # noqa: E402


def start(name: str, *changes: str) -> dict[str, int]:
    for change in changes:
        setting, _, value = change.partition("=")
        if setting.startswith("torch."):
            getattr(torch, setting.removeprefix("torch."))(json.loads(value))
        else:
            setattr(config, setting, json.loads(value))
    save_components(key_components(cache_dir=CACHE), FOLDER / f"{name}.json")
    with torch.no_grad():
        torch.compile(torch.mm)(torch.ones(2, 4), torch.ones(4, 3))
    return {what: counters["inductor"][f"fxgraph_cache_{what}"] for what in ("hit", "miss")}


def forked(name: str, *changes: str) -> dict[str, int]:
    """What a start in a process of its own says."""
    answer = FOLDER / f"{name}.answer"
    child = os.fork()
    if child == 0:
        try:
            answer.write_text(json.dumps(start(name, *changes)))
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(child, 0)
    return json.loads(answer.read_text())  # type: ignore[no-any-return]


if __name__ == "__main__":
    print(json.dumps({words.split(",")[0]: forked(*words.split(",")) for words in sys.argv[2:]}))
