"""How long does `compilot history` take over 10,000 runs?

    python bench/history.py [--runs 10000] [--repeats 5] [--journal JOURNAL]

Writes so many run directories with a journal each, in a temporary folder with a list of runs of its own, and times:
the first look, which reads every journal; later ones, which ask the index; the whole command in a fresh process, with
everything listed and as JSON; and the first look after the index was deleted. The journal is that of a small run (5
candidates, 45 KB) unless one is given. Prints medians. The claim: a list of 10,000 runs in under a second.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.ledger import history, index

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "unit")]


def small_journal(folder: Path) -> Path:
    """The journal of the run that the unit tests use."""
    from conftest import SmallRun  # type: ignore[import-not-found]

    path: Path = SmallRun().write(folder) / "journal.jsonl"
    return path


def write_runs(journal: bytes, folder: Path, number: int) -> None:
    """Directories with a journal each, all in the list; no two headers are the same."""
    for one in range(number):
        run_dir = RunDir(folder / f"run-{one:05d}")
        run_dir.path.mkdir(parents=True)
        header, _, rest = journal.partition(b"\n")
        minute = b"2026-%02d-%02dT%02d:%02d:00+00:00" % (1 + one // 28 % 12, 1 + one % 28, one // 60 % 24, one % 60)
        run_dir.journal.write_bytes(_with_created(header, minute, one) + b"\n" + rest)
        state.begun(run_dir, f"Net{one % 50}")
        state.ended(run_dir, state.Ending.PLAN)


def _with_created(header: bytes, created: bytes, one: int) -> bytes:
    import msgspec

    told = msgspec.json.decode(header)
    return msgspec.json.encode({**told, "created": created.decode(), "budget_s": 90.0 + one})


def timed(do: Callable[[], object], repeats: int) -> str:
    """Median seconds with the smallest and the largest, and of CPU time, which a busy machine does not stretch."""
    walls, cpus = [], []
    for _ in range(repeats):
        begin, cpu = time.perf_counter(), cpu_s()
        do()
        walls.append(time.perf_counter() - begin)
        cpus.append(cpu_s() - cpu)
    spread = f"({min(walls):.3f}-{max(walls):.3f}, {repeats} times)"
    return f"{statistics.median(walls):.3f} s {spread}; CPU {statistics.median(cpus):.3f} s"


def cpu_s() -> float:
    """Of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "compilot", "history", *words], stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--journal", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compilot-history-") as name:
        folder = Path(name)
        os.environ[state.STATE_VARIABLE] = str(folder / "state")
        journal = (asked.journal or small_journal(folder / "model")).read_bytes()
        write_runs(journal, folder / "runs", asked.runs)
        print(f"{asked.runs} runs, journals of {len(journal) / 1e3:.0f} KB")
        print("first look, every journal read: ", timed(history.entries, 1))
        assert len(history.entries()[0]) == asked.runs
        print("later looks, from the index:    ", timed(history.entries, asked.repeats))
        print("compilot history (30 newest):   ", timed(command, asked.repeats))
        print("compilot history --limit 0:     ", timed(lambda: command("--limit", "0"), asked.repeats))
        print("compilot history --json, all:   ", timed(lambda: command("--limit", "0", "--json"), asked.repeats))
        sizes = [(folder / "state" / name).stat().st_size / 1e6 for name in (index.FILE_NAME, state.FILE_NAME)]
        print("the index has {:.1f} MB, the list of runs {:.1f} MB".format(*sizes))
        (folder / "state" / index.FILE_NAME).unlink()
        print("after the index was deleted:    ", timed(history.entries, 1))


if __name__ == "__main__":
    main()
