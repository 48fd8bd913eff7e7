"""What reading a trace needs. In: numbers of lines. Out: seconds and peak memory of `compilot.read_trace` for each.

Every number is read in a process of its own, from a file of heavy-tailed lengths and batches of 1 to 8, written first:
about 20,000 different sizes, of which the reader keeps 16,384. Memory is the process's largest resident set above what
it had before it read.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compilot

LINES = (100_000, 1_000_000, 10_000_000)
AT_ONCE = 10_000


def write(path: Path, lines: int) -> None:
    """A trace of so many calls, the same for every run."""
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(0, lines, AT_ONCE):
            sizes = ((draw.randint(1, 8), 1 + int(draw.lognormvariate(4.5, 1.2))) for _ in range(AT_ONCE))
            file.write("".join(f"input_ids:0={batch} input_ids:1={length}\n" for batch, length in sizes))


def peak_mib() -> float:
    """The largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read(path: Path) -> dict[str, float]:
    """Read it in this process."""
    compilot.read_trace([{"x:0": 1}])  # imports are not the file's
    before, begin = peak_mib(), time.process_time()
    trace = compilot.read_trace(path)
    seconds = time.process_time() - begin
    found = {"calls": trace.calls, "sizes": len(trace.sizes), "rounded": trace.rounded}
    return {**found, "cpu_s": seconds, "added_mib": peak_mib() - before}


def main() -> None:
    """A row for each number of lines."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("lines", nargs="*", type=int, default=LINES)
    options.add_argument("--read", type=Path, help="read this file in this process")
    asked = options.parse_args()
    if asked.read is not None:
        print(json.dumps(read(asked.read)))
        return
    print(f"{'lines':>12} {'CPU s':>8} {'added MiB':>10} {'sizes':>8} {'rounded':>9}")
    for lines in asked.lines:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "sizes.txt", lines)
            command = [sys.executable, __file__, "--read", str(Path(folder) / "sizes.txt")]
            row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        shown = f"{row['cpu_s']:>8.1f} {row['added_mib']:>10.1f} {row['sizes']:>8} {row['rounded']:>9}"
        print(f"{lines:>12} {shown}", flush=True)


if __name__ == "__main__":
    main()
