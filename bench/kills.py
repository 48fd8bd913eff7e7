"""What does a run leave behind that is ended at a bad moment? `compilot tune` under SIGKILL, SIGTERM and SIGINT.

    python bench/kills.py [WORDS ...] [--signals KILL,TERM,INT] [--all] [--seed 0] [--slice 1/4] [--json FILE]

A small model is tuned with two engines whose speed is certain (kills_model.py, kills_engine.py) and the run is ended at
each moment of kills_moments.py, from the first import to the last file; with WORDS, at those whose name has one of
them. The signals take turns, another one first for each seed; --all sends each of them at each moment. Checked after
each: how soon every process of the run was gone (all carry a mark in their environment, whatever group or session they
went to); the plan is absent or loads; the journal is absent or can be read; what else lies about, in the run directory
and among the temporary files. Then the run is resumed as the message says, or begun again in the same directory where
there is no journal: it must end well, decide as an undisturbed run does, leave every line as it was, and build nothing
again that was in the journal. Ends with exit code 1 if any of that is not so. About 45 s per row on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import psutil

from compilot.artifacts import journal as journals
from compilot.artifacts.planfile import load_plan
from compilot.errors import CompilotError
from compilot.records import JournalLine, RaceLine, TrialLine, VerdictLine
from kills_moments import Moment, Seen, moments

BENCH = Path(__file__).parent
TARGET = f"{BENCH / 'kills_model.py'}:model"
RUN = """
import kills_engine
kills_engine.shorten(doctor={doctor}, sets={sets})
kills_engine.slow_disk({disk_s})
from compilot.cli.main import run
run()
"""
OPTIONS = ("--engines", "quick,middling", "--budget", "3m")
SETS = 3  # of fresh processes for the confirmation, as in a usual run
DISK_S = 0.05  # how long each step to the disk takes: long enough to look at it and strike
GONE_S = 5.0  # what an ended run promises
END_S = 300.0  # for a whole run: then it hangs
LOOK_S = 0.005
WINNER = "quick"
SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT}


class Row(NamedTuple):
    """What one ended run left, and what became of it when it was resumed."""

    stage: str
    moment: str
    signal: str
    gone_s: float
    orphans: tuple[str, ...]
    files: str  # what was there of plan and journal
    litter: tuple[str, ...]  # what nobody asked for, after the end and after the resume
    resumed: str
    problems: tuple[str, ...]


def main() -> int:
    options = parse()
    chosen = list(moments(tuple(options.words)))
    names = options.signals.split(",")
    jobs = [(m, names[(i + options.seed) % len(names)]) for i, m in enumerate(chosen)]
    if options.all:
        jobs = [(m, name) for m in chosen for name in names]
    part, parts = map(int, options.slice.split("/"))
    rows = []
    for number, (moment, name) in list(enumerate(jobs))[part - 1 :: parts]:
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            rows.append(one(moment, name, Path(folder), random.Random(f"{options.seed} {number}")))
        print(line(rows[-1]), flush=True)
    print(f"\n{len(rows)} runs ended, {sum(bool(row.problems) for row in rows)} with problems; "
          f"the slowest was gone after {max(row.gone_s for row in rows):.1f} s")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=2))
    return any(row.problems for row in rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--signals", default=",".join(SIGNALS))
    parser.add_argument("--all", action="store_true", help="each signal at each moment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slice", default="1/1", help="2/4: every fourth one, from the second on")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def line(row: Row) -> str:
    """One line of the table."""
    return " | ".join([
        f"{row.stage}: {row.moment}", row.signal, f"gone after {row.gone_s:.1f} s", f"{len(row.orphans)} orphans",
        row.files, row.resumed, "; ".join(row.problems) or "ok",
    ])  # fmt: skip


# ------------------------------------------------------------------------------------------------------- one ended run


class Tuning:
    """A `compilot tune` in a folder of its own, whose processes can be told from all others."""

    def __init__(
        self, home: Path, *arguments: str, doctor: bool = False, sets: int = SETS, disk_s: float = 0.0
    ) -> None:
        self.home = home
        self.mark = f"KILLS_MARK={uuid.uuid4().hex}"
        (home / "tmp").mkdir(exist_ok=True)
        env = {**os.environ, "PYTHONPATH": str(BENCH), "KILLS_BUILDS": str(home / "builds"),
               "TMPDIR": str(home / "tmp"), "KILLS_MARK": self.mark.partition("=")[2]}  # fmt: skip
        code = RUN.format(doctor=doctor, sets=sets, disk_s=disk_s)
        command = [sys.executable, "-c", code, "tune", TARGET, *OPTIONS, *arguments]
        with (home / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                command, cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=stderr, preexec_fn=heed_interrupts
            )

    def until(self, moment: Moment, rng: random.Random) -> bool:
        """Wait for the moment; False: the run ended before it came."""
        while not moment.come(Seen.of(self.home)):
            if self.process.poll() is not None:
                return False
            time.sleep(LOOK_S)
        time.sleep(rng.uniform(0.0, moment.spread_s))
        return self.process.poll() is None

    def alive(self) -> list[psutil.Process]:
        """Every process that has the mark, wherever it went."""
        return [one for one in psutil.process_iter() if self.mark in environment(one.pid)]

    def gone(self) -> tuple[float, tuple[str, ...]]:
        """How long it took until none was left, and which were there after that; these are ended here."""
        begin = time.monotonic()
        while (left := self.alive()) and time.monotonic() - begin < GONE_S:
            self.process.poll()
            time.sleep(0.02)
        took_s = time.monotonic() - begin
        orphans = tuple(described(one) for one in left)
        for one in left:
            one.kill()
        self.process.wait(timeout=GONE_S)
        return took_s, orphans


def one(moment: Moment, name: str, home: Path, rng: random.Random) -> Row:
    """End one run at a moment and resume it."""
    tuning = Tuning(home, "--out", "run", doctor=moment.doctor, disk_s=DISK_S)
    problems = [] if tuning.until(moment, rng) else ["the run ended before the moment came"]
    tuning.process.send_signal(SIGNALS[name])
    gone_s, orphans = tuning.gone()
    problems += [f"still running: {orphan}" for orphan in orphans]
    if Seen.of(home).said:  # before its first words Python itself has the say
        problems += told_badly(tuning.process.returncode, Seen.of(home).said, name)
    files, lines, wrong = left_files(home / "run")
    litter = littered(home, after_kill=name == "KILL")
    resumed, more = resume(home, lines)
    problems += [*wrong, *litter, *more]
    return Row(moment.stage, moment.name, name, gone_s, orphans, files, tuple(litter), resumed, tuple(problems))


def told_badly(code: int, said: str, name: str) -> list[str]:
    """What is wrong with the last words of a run that could have some."""
    wrong = [f"exit code {code}, not 130"] if name != "KILL" and code not in (0, 130) else []
    return wrong + ([f"a traceback: {said.splitlines()[-1]}"] if "Traceback" in said else [])


def left_files(run: Path) -> tuple[str, list[JournalLine], list[str]]:
    """The state of plan and journal, the journal's lines, and what is wrong with them."""
    problems, lines = [], []
    torn = Seen.of(run.parent).torn
    for path, read in ((run / "plan.json", load_plan), (run / "journal.jsonl", journals.read)):
        try:
            found = read(path) if path.exists() else None
        except CompilotError as problem:
            problems.append(f"{path.name} cannot be read: {problem}")
            continue
        lines = found if isinstance(found, list) else lines
    plan = "plan whole" if (run / "plan.json").exists() else "no plan"
    journal = f"journal of {len(lines)} lines{', one torn' if torn else ''}"
    return f"{plan}, {journal if (run / 'journal.jsonl').exists() else 'no journal'}", lines, problems


def littered(home: Path, *, after_kill: bool) -> list[str]:
    """Half-written files in sight, and temporary ones; what SIGKILL leaves hidden is for the next run to remove."""
    hidden = [] if after_kill else [path.name for path in (home / "run").glob(".*")]
    return [f"left behind: {name}" for name in [*hidden, *(path.name for path in (home / "tmp").iterdir())]]


def resume(home: Path, before: list[JournalLine], sets: int = SETS) -> tuple[str, list[str]]:
    """Go on with the run as its message says: what it decided, and what is wrong with that."""
    run = home / "run"
    builds = Seen.of(home).builds
    again = Tuning(home, "--resume" if (run / "journal.jsonl").exists() else "--out", "run", sets=sets)
    code = again.process.wait(timeout=END_S)
    _, orphans = again.gone()
    if code != 0:
        return "failed", [f"the resume ended with exit code {code}: {Seen.of(home).said[-300:]}"]
    after = journals.read(run / "journal.jsonl")
    tried = [candidate_of(one) for one in after if isinstance(one, TrialLine)]
    finished = {candidate_of(one) for one in before if isinstance(one, TrialLine)} - {"eager"}
    decided = [one.verdict for one in after if isinstance(one, VerdictLine)][-1]
    plan = load_plan(run / "plan.json")
    engine = plan.entries[0].candidate.settings.engine if plan.entries else "eager"
    problems = [f"still running after the resume: {orphan}" for orphan in orphans]
    problems += [f"tried twice: {name}" for name in set(tried) - {"eager"} if tried.count(name) > 1]
    problems += [f"built again: {name}" for name in finished if name in Seen.of(home).builds[len(builds) :]]
    problems += [] if races(after) <= 1 else ["the race among the finalists was run twice"]
    problems += [] if after[: len(before)] == before else ["lines of the journal changed"]
    problems += [] if engine == WINNER else [f"decided for {engine}: {decided.because}"]
    problems += [f"left after the resume: {path.name}" for path in run.glob(".*")]
    return f"{decided.decision.value} {engine}", problems


def races(lines: list[JournalLine]) -> int:
    """How often the finalists raced each other."""
    return sum(isinstance(one, RaceLine) and one.race.purpose == "race" for one in lines)


def candidate_of(one: TrialLine) -> str:
    """The engine's name."""
    return one.trial.candidate.settings.engine if not one.trial.candidate.is_eager else "eager"


def heed_interrupts() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would everything started from there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def environment(pid: int) -> list[str]:
    """The variables a living process was started with; none of a zombie and of other users' processes."""
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def described(process: psutil.Process) -> str:
    """A process for people."""
    try:
        return f"{process.pid} {' '.join(process.cmdline())[-60:]}"
    except psutil.Error:
        return f"{process.pid}"


if __name__ == "__main__":
    sys.exit(main())
