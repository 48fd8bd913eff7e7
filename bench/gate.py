"""How often is the gate right? Checks of a model whose slow-down is known, one after the other.

    python bench/gate.py [--out FOLDER] [--steps N] [--only aa,slow30] [--runs N] [--budget TIME] [--arms eager,compile]

  aa       equal code on both sides: none may be red (20 checks)
  slow30   3 of 10 blocks computed twice, the same answers: red 10 of 10 with the default budget
  slow20   2 of 10: at least 9 of 10, the rest inconclusive
  slow10   1 of 10, with a budget of 10 minutes: at least 8 of 10, the rest inconclusive
  hog      equal code, with a process beside it that uses a core: none may be red (10 checks)

Equal code is red by any metric, or by the exit code; extra work by its time only, since it has more kernels as well. A
check that measured nothing is no pass: its case misses the goal.
Each finished check is a line of gate.jsonl: started again, the bench goes on after the last one. Lines of another
version of the code stay in the file and count for nothing. Exit code 0: all done and every goal reached; 1: a goal was
missed; 75: call again. Nothing else may run meanwhile. --runs and --budget are for trying the bench itself; such lines
are of other cases and reach no goal.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.records import Record
from stepping import MORE, MoreToDo, StampedLines, Steps, say

DEFAULT_OUT = Path("bench/results/gate")
MODEL = """
import torch
from torch import nn

EXTRA = {extra}  # blocks of ten that are computed twice: so many tenths more work, and the same answers


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(256) for _ in range(10))

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            y = block(x)
            if number < EXTRA:  # in another order, or a compiler would see that it is the same
                y = (y + block(x.flip(0)).flip(0)) / 2
            x = y
        return x


def net():
    return Net().eval(), (torch.randn(64, 256),)
"""


class Case(NamedTuple):
    """One kind of check and its goal."""

    name: str
    extra: int
    runs: int
    least_red: int = 0
    most_red: int = 0
    budget: str = "3m"
    hog: bool = False


CASES = (
    Case("aa", 0, 20),
    Case("slow30", 3, 10, 10, 10),
    Case("slow20", 2, 10, 9, 10),
    Case("slow10", 1, 10, 8, 10, budget="10m"),
    Case("hog", 0, 10, hog=True),
)
COLUMNS = ("case", "checks", "red", "pass", "inconclusive", "not measured", "goal")


class Latency(Record, frozen=True, kw_only=True):
    """Of one arm."""

    arm: str
    verdict: str
    change: float | None
    low: float | None
    high: float | None
    mde: float | None
    races: int


class CheckLine(Record, frozen=True, kw_only=True, tag="check"):
    """One finished check."""

    case: str  # with the budget and the arms, where they are not the bench's own
    number: int
    verdict: str
    exit_code: int
    because: str
    latencies: tuple[Latency, ...]
    red: tuple[str, ...]  # metrics that failed it
    wall_s: float
    at: str = ""
    code: str = ""


class Options(NamedTuple):
    """How the bench is run."""

    runs: int | None
    budget: str | None
    arms: str


def label(case: Case, options: Options) -> str:
    """A case's name among the lines: one that was only tried is another case."""
    tried = [text for text in (options.budget, options.arms if options.arms != "eager,compile" else "") if text]
    return " ".join([case.name, *tried])


def project(folder: Path, extra: int) -> None:
    """A repository whose main has no extra work, and a working tree that has."""
    (folder / "model.py").write_text(MODEL.format(extra=0))
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.com", "-C", str(folder)]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    (folder / "model.py").write_text(MODEL.format(extra=extra))


@contextmanager
def beside(hog: bool) -> Iterator[None]:
    """With a process that uses one core, where that is wanted."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if hog else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def check(case: Case, number: int, options: Options) -> CheckLine:
    """One check as a user makes it."""
    with tempfile.TemporaryDirectory(prefix="bench-gate-") as place, beside(case.hog):
        folder = Path(place)
        project(folder, case.extra)
        command = [sys.executable, "-m", "compilot", "check", "model.py:net", "--base-ref", "main", "--json", "--quiet"]
        command += ["--budget", options.budget or case.budget, "--arms", options.arms, "--out", str(folder / "run")]
        begin = time.monotonic()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        wall_s = time.monotonic() - begin
    try:
        report = msgspec.json.decode(done.stdout)
        metrics = report["metrics"]
    except (msgspec.DecodeError, KeyError):
        raise SystemExit(f"the check itself failed: {done.stderr[-2000:]}") from None
    return CheckLine(
        case=label(case, options),
        number=number,
        verdict=report["verdict"],
        exit_code=done.returncode,
        because=report["because"],
        latencies=tuple(
            Latency(**{field: one[field] for field in Latency.__struct_fields__})
            for one in metrics
            if one["metric"] == "latency"
        ),
        red=tuple(f"{one['metric']} ({one['arm']})" for one in metrics if one["verdict"] in ("slower", "worse")),
        wall_s=wall_s,
    )


def is_red(line: CheckLine, case: Case) -> bool:
    """Equal code by anything. Extra work by its time: it also has more kernels, which is no proof of the races."""
    if case.extra == 0:
        return line.exit_code == 1 or bool(line.red)
    return any(one.verdict == "slower" for one in line.latencies)


def is_measured(line: CheckLine) -> bool:
    """Whether it says anything: it came to an end, and something was timed."""
    return line.exit_code in (0, 1) and any(one.verdict != "not-measured" for one in line.latencies)


def of_this_code(journal: StampedLines[CheckLine]) -> list[CheckLine]:
    """Lines of the code as it is: what another version found says nothing of it."""
    return [line for line in journal.lines if line.code == journal.code]


def run(cases: Sequence[Case], journal: StampedLines[CheckLine], steps: Steps, options: Options) -> None:
    """Every check that is not in the journal yet; the cases in turns, so that a part says something of each."""
    wanted = [(number, case) for case in cases for number in range(options.runs or case.runs)]
    for number, case in sorted(wanted, key=lambda one: one[0]):
        done = {(line.case, line.number) for line in of_this_code(journal)}
        if (label(case, options), number) in done:
            continue
        steps.take()
        line = check(case, number, options)
        journal.append(line)
        shown = ", ".join(f"{one.arm} {one.verdict} {one.change or 0:+.1%}" for one in line.latencies)
        say(line.case, f"{number + 1}: {line.verdict} in {line.wall_s:.0f} s ({shown})")


def table(cases: Sequence[Case], lines: Sequence[CheckLine], options: Options) -> tuple[str, bool]:
    """How often each case was red, and whether all goals are reached."""
    rows, reached = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"], True
    for case in cases:
        own = [line for line in lines if line.case == label(case, options)]
        red = sum(is_red(line, case) for line in own)
        others = [line for line in own if not is_red(line, case)]
        seen = [[one.verdict for one in line.latencies] for line in others if is_measured(line)]
        unclear, unseen = sum("inconclusive" in found for found in seen), len(others) - len(seen)
        missed = case.extra > 0 and len(seen) > unclear  # what is not red must be inconclusive
        good = len(own) >= case.runs and case.least_red <= red <= case.most_red and not missed and not unseen
        reached = reached and good
        goal = f"{case.least_red} to {case.most_red} red" if case.most_red else "none red"
        cells = (label(case, options), len(own), red, len(seen) - unclear, unclear, unseen, goal)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows), reached


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--steps", type=int, default=None, help="checks to make now; the rest another time")
    parser.add_argument("--only", default=None, help="names of cases, with commas")
    parser.add_argument("--runs", type=int, default=None, help="checks of each case, to try the bench")
    parser.add_argument("--budget", default=None, help="of each check, to try the bench")
    parser.add_argument("--arms", default="eager,compile")
    given = parser.parse_args(argv)
    names = given.only.split(",") if given.only else [case.name for case in CASES]
    if unknown := set(names) - {case.name for case in CASES}:
        raise SystemExit(f"unknown cases: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CASES)}")
    cases = [case for case in CASES if case.name in names]
    options = Options(given.runs, given.budget, given.arms)
    journal: StampedLines[CheckLine] = StampedLines(given.out / "gate.jsonl", CheckLine)
    more = False
    try:
        run(cases, journal, Steps(given.steps), options)
    except MoreToDo:
        more = True
    text, reached = table(cases, of_this_code(journal), options)
    print(text)
    return MORE if more else 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
