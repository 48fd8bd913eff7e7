"""`compilot tune` in a process of its own, and what its journal says: read as plain JSON, of any version.

In: a target, a budget, a run folder, perhaps the src folder of another checkout. Out: how the process ended; from the
journal every candidate that was tried with its seconds, what was chosen, and the trial seconds until it was first
tried. The seconds of a candidate are those of its first trial line: later lines about it (a loss in a race, a second
cold start) are no further trials. Eager's own trial counts as one. Not covered: racing the plans (plan_arms.py).
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from compilot._durations import parse_duration
from compilot.records import Candidate, Record, normal_form
from stepping import SOURCES

MODELS = Path(__file__).resolve().parent / "engines_models.py"
SPENT_OVER_S = 900.0  # beyond its budget a tune may finish its confirmation; then it is stuck
NO_PRIOR = "--no-prior"
CODE = "from compilot.cli.main import run; run()"


class Ended(NamedTuple):
    """How a tune ended."""

    wall_s: float
    problem: str = ""  # "": there is a plan


class Tried(Record, frozen=True, kw_only=True):
    """One candidate of a run."""

    id: str
    label: str
    state: str  # the last word on it
    wall_s: float  # of its first trial
    at_s: float  # since the run began, when that trial ended
    code: str | None = None  # digest of its program, where there is one
    same_as: str | None = None
    eager: bool = False  # the baseline itself
    program: str = ""  # id without what only the process does with memory; "": the id
    by_eager: bool = False  # eager in another layout or process: it has no program


class Story(Record, frozen=True, kw_only=True):
    """What a run tried and chose."""

    tried: tuple[Tried, ...]  # in the order of the first trials
    chosen: str  # id; "": there is no verdict
    decision: str = ""
    because: str = ""
    decided_s: float = 0.0  # since the run began
    spent_s: float | None = None  # trial seconds until the chosen one was first tried, its own included
    found_s: float | None = None  # seconds since the run began until then

    @property
    def label(self) -> str:
        """Of what was chosen."""
        return next((one.label for one in self.tried if one.id == self.chosen), "none")

    @property
    def states(self) -> dict[str, int]:
        """How many candidates ended how, the baseline left out."""
        return dict(sorted(Counter(one.state for one in self.tried if not one.eager).items()))

    @property
    def distinct_ok(self) -> int:
        """Programs or sessions that ended ok: by program where that is known, else by settings; none twice.

        What a process does with freed memory or denormals makes no other program, and eager has none.
        """
        able = [one for one in self.tried if one.state == "ok" and not one.by_eager and one.same_as is None]
        programs = [(one.program or one.id, one.code) for one in able]
        codes = {program: code for program, code in programs if code is not None}
        return len({codes.get(program) or program for program, _ in programs})


def tune(
    model: str,
    folder: Path,
    budget: str,
    *,
    sources: Path = SOURCES,
    target: str = "",
    without_prior: bool = True,
    words: Sequence[str] = (),
) -> Ended:
    """Tune a model of engines_models.py into a folder; what an earlier, cut-off run left there is removed.

    words: further ones of the command, "--horizon", "100".
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = [NO_PRIOR] if without_prior and NO_PRIOR in options_known(sources) else []
    command = [
        "tune",
        target or f"{MODELS}:{model}",
        "--budget",
        budget,
        "--out",
        str(folder),
        "--quiet",
        *wanted,
        *words,
    ]
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, _ended)
    with folder.with_name(f"{folder.name}.log").open("wb") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-c", CODE, *command],
                stdout=log,
                stderr=log,
                timeout=3 * parse_duration(budget) + SPENT_OVER_S,
                env=environment(sources),
            )
            problem = "" if done.returncode == 0 else f"compilot tune ended with code {done.returncode}: {log.name}"
        except subprocess.TimeoutExpired:
            problem = "compilot tune did not end"
    return Ended(round(time.monotonic() - begin, 1), problem)


def _ended(number: int, frame: object) -> None:
    """A bench that is ended takes its tune along: two at once would spoil each other's times."""
    raise SystemExit(128 + number)


@functools.cache
def options_known(sources: Path = SOURCES) -> str:
    """The help of `compilot tune` of a checkout: which options it has."""
    wide = {**environment(sources), "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run([sys.executable, "-c", CODE, "tune", "--help"], capture_output=True, text=True, env=wide)
    if done.returncode != 0:
        raise SystemExit(f"{sources} has no compilot that runs: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def environment(sources: Path) -> dict[str, str]:
    """This process's, with the checkout's compilot before any other."""
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != str(SOURCES)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(sources.resolve()), *others])}


# ------------------------------------------------------------------------------------------------------- its journal


def read_story(folder: Path) -> Story:
    """What the journal in a run folder says."""
    return story(read_plain(folder / "journal.jsonl"))


def read_plain(journal: Path) -> list[dict[str, Any]]:
    """Every whole line, whatever its form."""
    found = []
    for text in journal.read_bytes().splitlines() if journal.exists() else ():
        try:
            found.append(msgspec.json.decode(text))
        except msgspec.DecodeError:
            continue  # the last one of a run that was killed
    return found


def story(lines: list[dict[str, Any]]) -> Story:
    """The same from its lines."""
    tried: dict[str, Tried] = {}
    for line in (line for line in lines if line.get("type") == "trial"):
        now = _tried(line)
        first = tried.get(now.id, now)
        tried[now.id] = msgspec.structs.replace(now, wall_s=first.wall_s, at_s=first.at_s)
    last = next((line for line in reversed(lines) if line.get("type") == "verdict"), {"verdict": {}})
    chosen = last["verdict"].get("chosen_id", "")
    order = list(tried)
    upto = [tried[i] for i in order[: order.index(chosen) + 1]] if chosen in tried else []
    return Story(
        tried=tuple(tried.values()),
        chosen=chosen,
        decision=last["verdict"].get("decision", ""),
        because=last["verdict"].get("because", ""),
        decided_s=last.get("at_s", 0.0),
        spent_s=sum(one.wall_s for one in upto) if upto else None,
        found_s=upto[-1].at_s if upto else None,
    )


def _tried(line: dict[str, Any]) -> Tried:
    trial = line["trial"]
    candidate = trial["candidate"]
    return Tried(
        id=candidate_id(candidate),
        label=candidate.get("label", ""),
        state=trial["state"],
        wall_s=trial.get("wall_s", 0.0),
        at_s=line.get("at_s", 0.0),
        code=trial.get("code_sha256"),
        same_as=trial.get("same_as"),
        eager=is_eager(candidate),
        program=program_id(candidate),
        by_eager=by_eager(candidate),
    )


def candidate_id(candidate: dict[str, Any]) -> str:
    """As the record has it; of a form that this version does not know as the version that wrote it made it."""
    try:
        return msgspec.convert(candidate, Candidate).id
    except msgspec.ValidationError:
        named = {"settings": {}, "regions": [], "process": {}}
        normal = {name: candidate.get(name, empty) for name, empty in named.items()}
        return hashlib.sha256(msgspec.json.encode(normal_form(normal), order="sorted")).hexdigest()[:10]


def program_id(candidate: dict[str, Any]) -> str:
    """The id without what only the process does with freed memory and denormal numbers."""
    process = {k: v for k, v in candidate.get("process", {}).items() if k not in ("keep_memory", "flush_denormals")}
    return candidate_id({**candidate, "process": process})


def by_eager(candidate: dict[str, Any]) -> bool:
    """Whether eager runs it, in whatever layout, precision or process."""
    return candidate.get("settings", {}).get("engine", "eager") == "eager" and not candidate.get("regions")


def is_eager(candidate: dict[str, Any]) -> bool:
    """Whether it is the baseline, nothing changed."""
    settings = {k: v for k, v in candidate.get("settings", {}).items() if (k, v) != ("engine", "eager")}
    return not settings and not candidate.get("regions") and not candidate.get("process")
