"""Does anything that passed the gate ever give a wrong number? Random models x engines x inputs unlike the example.

    python bench/redteam.py [--models 200] [--first 0] [--engines onnxruntime,openvino,inductor,aoti]
                            [--compile-every 3] [--draws 40] [--minutes 60] [--out bench/results/redteam] [--keep-old]
    python bench/redteam.py --only 17 --engines openvino         # one attack again, whatever the journal says

Each model is made from its number (redteam_models.py), so every finding can be repeated. The attacks are made in a
process of their own (redteam_attack.py) through the product's own steps, and judged apart from it (redteam_judge.py).
What passed the gate must answer rightly, or leave the call to eager; where eager raises, it must raise; it must never
end the process. Engines that run the C++ compiler take part in every third model only, since a build takes ten seconds.
The journal has one line per attack, with a digest of compilot's code; a run goes on where the last one stopped, and
judges again what other code was judged by, unless --keep-old says that those rows count. The last line of a model and
engine is the one that counts. Bounded by --models and --minutes. Exits with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import compilot

HERE = Path(__file__).parent
ENGINES = ("onnxruntime", "openvino", "inductor", "aoti")
COMPILED = ("inductor", "aoti")
LIMIT_S = 240.0  # of one attack; a build takes ten seconds on a quiet machine


class Worker:
    """The attacking process; started again when it ends."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """One attack; an engine that ends the process, or takes for ever, is data."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(wanted) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
        line = process.stdout.readline() if ready else ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = self.stop()
        return {"state": "crashed" if ready else "timed-out", "reason": f"the process ended with {code}"}

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "redteam_attack.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log.open("a"),
                text=True,
            )
        return self._process

    def stop(self) -> int | None:
        """End the process; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None and process.stdin is not None:
            process.stdin.close()
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def main() -> int:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.out / "journal.jsonl"
    rows, code = read(journal), code_digest()
    done = judged(rows, None if options.keep_old else code)
    end, worker = time.monotonic() + options.minutes * 60, Worker(options.out / "stderr.log")
    try:
        for number, engine in wanted(options):
            if options.only is None and ((number, engine) in done or time.monotonic() > end):
                continue
            begin = time.monotonic()
            found = worker.ask({"model": number, "engine": engine, "draws": options.draws})
            seconds = round(time.monotonic() - begin, 1)
            row = {"model": number, "engine": engine, "code": code, "seconds": seconds, **found}
            tell(row)
            if options.only is None:
                rows.append(row)
                with journal.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    finally:
        worker.stop()
    return summary(rows, code) if options.only is None else 0


def code_digest() -> str:
    """Of compilot's own code, as this process would import it."""
    root, found = Path(compilot.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]


def judged(rows: list[dict[str, Any]], code: str | None) -> set[tuple[int, str]]:
    """Models and engines that this code has judged; None: any code."""
    return {(row["model"], row["engine"]) for row in rows if code is None or row.get("code") == code}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    parser.add_argument("--only", type=int, help="number of one model")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--compile-every", type=int, default=3)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--keep-old", action="store_true", help="rows that other code was judged by count, too")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "redteam")
    return parser.parse_args()


def wanted(options: argparse.Namespace) -> list[tuple[int, str]]:
    """Which attacks, in order."""
    engines = options.engines.split(",")
    if options.only is not None:
        return [(options.only, engine) for engine in engines]
    numbers = range(options.first, options.first + options.models)
    often = {engine: options.compile_every if engine in COMPILED else 1 for engine in engines}
    return [(number, engine) for number in numbers for engine in engines if number % often[engine] == 0]


def read(journal: Path) -> list[dict[str, Any]]:
    """The lines so far; a torn last one is dropped."""
    rows = []
    for line in journal.read_text().splitlines() if journal.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def is_finding(row: dict[str, Any]) -> bool:
    """Wrong numbers after the gate, a process that ended, or a bug of ours."""
    return bool(row.get("faults")) or row["state"] in ("crashed", "broken", "timed-out")


def tell(row: dict[str, Any]) -> None:
    """One attack on one line."""
    told = f"{row['calls']} calls, {row['fast']} fast" if row["state"] == "passed" else row["reason"]
    faults = "".join(f"\n      WRONG {fault}" for fault in row.get("faults", ()))
    print(
        f"{row['model']:>5} {row['engine']:<12} {row['seconds']:>5.1f} s {row['state']:<11} {told[:110]}{faults}",
        flush=True,
    )


def summary(rows: list[dict[str, Any]], code: str) -> int:
    """Counts by engine, of the last row of each model and engine; 1 where there is a finding."""
    rows = list({(row["model"], row["engine"]): row for row in rows}.values())
    names = ("passed", "refused", "infeasible", "calls", "fast", "raised", "notes", "findings")
    print(f"{'engine':<12}" + "".join(f"{name:>11}" for name in names))
    for engine in sorted({row["engine"] for row in rows}):
        own = [row for row in rows if row["engine"] == engine]
        states = collections.Counter(row["state"] for row in own)
        sums = [sum(row.get(key, 0) for row in own) for key in ("calls", "fast", "raised", "notes")]
        counts = [states["passed"], states["wrong"], states["infeasible"], *sums, sum(map(is_finding, own))]
        print(f"{engine:<12}" + "".join(f"{count:>11}" for count in counts))
    findings = sum(map(is_finding, rows))
    passed = sum(row["state"] == "passed" for row in rows)
    old = sum(row.get("code") != code for row in rows)
    print(f"{passed} pairs of model and engine passed the gate; {findings} findings; {old} rows are of other code")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
