"""Does a damaged bundle ever get through? Flipped bits, truncations, and kill -9, in full counts over a real bundle.

    python bench/bundle_faults.py BUNDLE [--flips 1000] [--warm-flips 400] [--cuts 200] [--kills 50] [--run DIR]
                                  [--pack-kills 20] [--seed 0] [--json FILE]

BUNDLE is one that `compilot.load` takes (bench/coldstart.py packs some). Flips and cuts: each damaged copy is
started as a server would, from an empty cache; it must be refused. Half of the flips are in the last 600 bytes, where
the zip's directory ends. Warm flips: the same with the whole bundle unpacked already; only a bit in a packed file that
such a start does not read may go unnoticed, and the answer must be right. A crash would end the worker that does this
and is counted. The native code of an AOTInductor bundle gets a canary first, which
leaves a file behind when it is loaded: a copy that was refused after it sang is counted as FOREIGN CODE RAN.
Kills: a process that writes and unpacks the bundle without end is killed at a random moment; afterwards the bundle at
its place must be whole or absent, and a start from the same cache must work. With --run, a run directory, a real
`compilot pack` of it is killed as well, at random moments of its whole length, each time over a bundle that is there.
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
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from compilot.artifacts.bundle import DIGEST, MANIFEST
from compilot.artifacts.frame import member_span
from compilot.packing.writing import publish, seal
from compilot.records import Manifest

TAIL = 600  # bytes: the end of the zip's directory, its end record and the digest of both
CANARY = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void sing(void) { fclose(fopen(getenv("CANARY"), "w")); }
"""
PACK = "from compilot.cli.main import run; run()"
CHURN = """
import sys
from pathlib import Path
from compilot.artifacts.bundle import open_bundle
from compilot.artifacts.unpack import unpacked
from compilot.artifacts.bundle_trust import Trust
from compilot.packing.writing import publish
from compilot.files import atomic
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
        os.environ["CANARY"] = str(Path(folder) / "canary")
        if options.worker:
            return damaged(with_canary(options.bundle, Path(folder)), Path(folder), options)
        found = {
            "damage": crash_proof(options),
            "kills": kills(options.bundle, Path(folder), options.kills, options.seed),
        }
        if options.run:
            found["pack kills"] = pack_kills(options.run, Path(folder), options.pack_kills, options.seed)
    found["seconds"] = round(time.monotonic() - began)
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found))
    return None


def crash_proof(options: argparse.Namespace) -> dict[str, Any]:
    """The damage run in a process of its own: if it dies, that is the result."""
    command = [sys.executable, __file__, str(options.bundle), "--worker"]
    command += ["--flips", str(options.flips), "--cuts", str(options.cuts), "--seed", str(options.seed)]
    command += ["--warm-flips", str(options.warm_flips)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return {"crashed": run.returncode, "last words": run.stderr[-2000:]}
    counts: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return counts


def with_canary(bundle: Path, folder: Path) -> Path:
    """The bundle with a canary before its native code, every digest right; as it is where it holds no such code."""
    inside = folder / "inside"
    shutil.unpack_archive(bundle, inside, "zip")
    libraries = list(inside.glob("artifacts/**/model-*.so"))
    if not libraries:
        return bundle
    for number, library in enumerate(libraries):
        _add_canary(library, folder / f"code{number}")
    manifest = msgspec.json.decode((inside / MANIFEST).read_bytes(), type=Manifest)
    seal(inside, manifest, None)
    out = folder / "canary.cpbundle"
    publish(inside, out, as_folder=False)
    return out


def _add_canary(library: Path, folder: Path) -> None:
    """Put a library in place of the model's own, which it brings along from another place when it is loaded."""
    folder.mkdir()
    shutil.copyfile(library, folder / "model.so")
    (folder / "canary.c").write_text(CANARY)
    made = ["-o", folder / "canary.so", folder / "canary.c", "-Wl,--no-as-needed", folder / "model.so"]
    subprocess.run(["gcc", "-shared", "-fPIC", *made], check=True)
    shutil.copyfile(folder / "canary.so", library)


def damaged(bundle: Path, folder: Path, options: argparse.Namespace) -> None:
    """Start every damaged copy and count what came of it."""
    whole = bundle.read_bytes()
    draw = random.Random(options.seed)
    copy = folder / "damaged.cpbundle"
    counts: collections.Counter[str] = collections.Counter()
    copy.write_bytes(whole)
    counts[f"undamaged: {outcome(copy)}"] += 1  # or every refusal would prove nothing
    for number in range(options.flips):
        write_flipped(copy, whole, place(draw, len(whole), at_the_end=number % 2 == 1), draw)
        counts[f"flip: {outcome(copy)}"] += 1
    for _ in range(options.cuts):
        copy.write_bytes(whole[: draw.randrange(len(whole))])
        counts[f"cut: {outcome(copy)}"] += 1
    warm_flips(bundle, copy, counts, options.warm_flips, draw)
    print(json.dumps(dict(counts)))


def warm_flips(bundle: Path, copy: Path, counts: collections.Counter[str], number: int, draw: random.Random) -> None:
    """Flips with the whole bundle in the cache; apart by whether the byte is one that such a start reads."""
    whole = bundle.read_bytes()
    copy.write_bytes(whole)
    outcome(copy)  # fills the cache
    for count in range(number):
        at = place(draw, len(whole), at_the_end=count % 2 == 1)
        write_flipped(copy, whole, at, draw)
        where = "in a packed file that it does not read" if is_packed_copy(bundle, at) else "in what it reads"
        counts[f"warm flip {where}: {outcome(copy, keep_cache=True)}"] += 1


def place(draw: random.Random, size: int, *, at_the_end: bool) -> int:
    return size - 1 - draw.randrange(min(TAIL, size)) if at_the_end else draw.randrange(size)


def write_flipped(copy: Path, whole: bytes, at: int, draw: random.Random) -> None:
    copy.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :])


def is_packed_copy(bundle: Path, at: int) -> bool:
    """Whether a byte is data of a file that the first start unpacks; the manifest and its digest are always read."""
    with zipfile.ZipFile(bundle) as archive, bundle.open("rb") as file:
        members = [info for info in archive.infolist() if info.filename not in (MANIFEST, DIGEST)]
        spans = [member_span(file.fileno(), info) for info in members]
    return any(span.start <= at < span.start + span.size for span in spans)


def outcome(copy: Path, *, keep_cache: bool = False) -> str:
    """What a start gave, and whether native code of the bundle was loaded on the way."""
    canary = Path(os.environ["CANARY"])
    canary.unlink(missing_ok=True)
    if not keep_cache:
        shutil.rmtree(os.environ["COMPILOT_CACHE"], ignore_errors=True)
    told = _start(copy)
    sang = canary.exists()
    if told.startswith("refused"):
        return f"{told}, FOREIGN CODE RAN" if sang else told
    return f"{told}, the canary sang" if sang else told


def _start(copy: Path) -> str:
    import compilot

    try:
        compilot.load(copy, plain_outputs=True)  # runs the golden call and compares its answer
    except compilot.BundleError as refused:
        return "WRONG ANSWER" if "golden call" in str(refused) else "refused"
    except compilot.CompilotError as refused:
        return f"refused ({type(refused).__name__})"
    return "right answer"


def pack_kills(run: Path, folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill a real `compilot pack` at random moments; what was there before must stay, or the new one be whole."""
    out = folder / "real" / "packed.cpbundle"
    command = [sys.executable, "-c", PACK, "pack", str(run), "-o", str(out), "--quiet", "--no-twin"]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    draw = random.Random(seed + 2)
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(count):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.0, took))
        process.send_signal(signal.SIGKILL)
        process.wait()
        counts[outcome_after_kill(out) if out.exists() else "ABSENT: what was there is gone"] += 1
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    left = [path.name for path in out.parent.iterdir() if path != out]
    counts["leftovers after the next pack: " + (", ".join(left) or "none")] += 1
    return dict(counts)


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
    parser.add_argument("--warm-flips", type=int, default=400)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--run", type=Path, help="a run directory, to kill a real pack of it")
    parser.add_argument("--pack-kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
