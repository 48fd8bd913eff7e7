"""Does a damaged bundle ever get through? Flipped bits, truncations, and kill -9, in full counts over a real bundle.

    python bench/bundle_faults.py BUNDLE [--flips 1000] [--cuts 200] [--kills 50] [--seed 0] [--json FILE]

BUNDLE is one that `compilot.load` takes (bench/coldstart.py packs some). Flips and cuts: each damaged copy is
started as a server would; it must be refused, or answer its golden call rightly (a bit that nobody reads). A crash
would end the worker that does this and is counted. Kills: a process that packs and unpacks without end is killed at a
random moment; afterwards the bundle at its place must be whole or absent, and a start from the same cache must work.
Each seed damages other places, so that the counts can be reached in several short runs.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHURN = """
import sys
from pathlib import Path
from compilot.artifacts.bundle import open_bundle
from compilot.artifacts.unpack import unpacked
from compilot.artifacts.vouching import Trust
from compilot.packing.writing import publish
from compilot.artifacts import atomic
staged, out = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while True:
    publish(staged, out, as_folder=False)
    with open_bundle(out, Trust()) as bundle:
        atomic.remove(unpacked(bundle))
"""


def main() -> None:
    options = parse()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COMPILOT_CACHE"] = str(Path(folder) / "cache")
        if options.worker:
            return damaged(options.bundle, Path(folder), options.flips, options.cuts, options.seed)
        found = {
            "damage": crash_proof(options),
            "kills": kills(options.bundle, Path(folder), options.kills, options.seed),
        }
    found["seconds"] = round(time.monotonic() - began)
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found))
    return None


def crash_proof(options: argparse.Namespace) -> dict[str, Any]:
    """The damage run in a process of its own: if it dies, that is the result."""
    command = [sys.executable, __file__, str(options.bundle), "--worker"]
    command += ["--flips", str(options.flips), "--cuts", str(options.cuts), "--seed", str(options.seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return {"crashed": run.returncode, "last words": run.stderr[-2000:]}
    counts: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return counts


def damaged(bundle: Path, folder: Path, flips: int, cuts: int, seed: int) -> None:
    """Start every damaged copy and count what came of it."""
    whole = bundle.read_bytes()
    draw = random.Random(seed)
    copy = folder / "damaged.cpbundle"
    counts: collections.Counter[str] = collections.Counter()
    copy.write_bytes(whole)
    counts[f"undamaged: {outcome(copy)}"] += 1  # or every refusal would prove nothing
    for number in range(flips + cuts):
        at = draw.randrange(len(whole))
        bit = bytes([whole[at] ^ (1 << draw.randrange(8))])
        copy.write_bytes(whole[:at] + bit + whole[at + 1 :] if number < flips else whole[:at])
        kind = "flip" if number < flips else "cut"
        counts[f"{kind}: {outcome(copy)}"] += 1
    print(json.dumps(dict(counts)))


def outcome(copy: Path) -> str:
    import compilot

    shutil.rmtree(os.environ["COMPILOT_CACHE"], ignore_errors=True)
    try:
        compilot.load(copy, plain_outputs=True)  # runs the golden call and compares its answer
    except compilot.BundleError as refused:
        return "WRONG ANSWER" if "golden call" in str(refused) else "refused"
    except compilot.CompilotError as refused:
        return f"refused ({type(refused).__name__})"
    return "right answer"


def kills(bundle: Path, folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill a packing and unpacking process at random moments; look at what is left each time."""
    staged, out = folder / "staged", folder / "packed.cpbundle"
    shutil.unpack_archive(bundle, staged, "zip")
    draw = random.Random(seed + 1)
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(count):
        process = subprocess.Popen([sys.executable, "-c", CHURN, str(staged), str(out)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0.0, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        counts["absent, nothing there to start" if not out.exists() else outcome_after_kill(out)] += 1
    return dict(counts)


def outcome_after_kill(out: Path) -> str:
    import compilot

    try:
        compilot.load(out, plain_outputs=True)
    except compilot.CompilotError as refused:
        return f"UNUSABLE: {refused}"
    return "whole: right answer"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
