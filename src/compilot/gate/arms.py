"""The processes of a check, seen from the parent. In: a side and a candidate. Out: an arm that can be timed.

Each arm is a process of its own that runs arm.py with the side's interpreter, in the side's folder, with a workspace
and a compile cache of its own. A step that fails raises `ArmFailed` with whose it was. Not covered: which arms are
started when (races.py), what the figures mean (judging.py).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from compilot.gate import arm as arm_file
from compilot.gate.sides import Side
from compilot.records import Candidate, State
from compilot.trials.child import BATCH_LIMIT_S, Child, Dead
from compilot.trials.limits import Limits, worker_env
from compilot.trials.opening import opening
from compilot.trials.processes import Ends, Start
from compilot.trials.protocol import (
    AnswersKept,
    ArmFacts,
    BatchTimed,
    Build,
    Built,
    Done,
    Failed,
    KeepAnswers,
    KeepState,
    Look,
    Looked,
    Opened,
    Reply,
    Request,
    StateTaken,
    TakeState,
    TimeBatch,
    Warm,
    Warmed,
)

STEP_S = 120.0  # weights written and read, cases answered: seconds of the largest models that fit
ARM_FILE = Path(arm_file.__file__)

R = TypeVar("R", bound=Reply)


class ArmFailed(Exception):
    """An arm's step failed, or its process is gone."""

    def __init__(self, name: str, reason: str, *, crashed: bool = False, by_machine: bool = False) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason
        self.crashed = crashed  # the process ended
        self.by_machine = by_machine  # by SIGKILL, a memory limit or a deadline: not of its own doing, maybe


class Role(NamedTuple):
    """One arm's part in a race."""

    side: Side
    candidate: Candidate
    again: bool = False  # the second process of the base: how much equal programs differ

    @property
    def name(self) -> str:
        """The column: "base eager", "base eager again", "head torch.compile"."""
        return f"{self.side.name} {self.candidate.label}{' again' if self.again else ''}"


class LiveArm:
    """One running arm: `measure.racing.Arm`, and the steps before."""

    def __init__(self, role: Role, workspace: Path, log: Path, limits: Limits, start: Start | None = None) -> None:
        """start: who starts its process; a fresh interpreter of its side if nobody is named."""
        self.role, self._limits, self._workspace = role, limits, workspace
        workspace.mkdir(mode=0o755, parents=True, exist_ok=True)
        side = role.side
        roots = {arm_file.FOREIGN: side.foreign, arm_file.OWN: side.root}
        self._child = Child(
            role.name,
            log=log,
            env={**worker_env(workspace), **{name: root for name, root in roots.items() if root}},
            memory_limit_bytes=limits.machine_bytes,
            start=start or fresh_arm(side.python),
        )

    @property
    def name(self) -> str:
        return self.role.name

    @property
    def pid(self) -> int:
        return self._child.pid

    def begin_opening(self) -> None:
        """Send the first request and do not wait: two sides open at the same time."""
        request = opening(self.role.side.shipment, self.role.candidate, self._workspace)
        with self._story():
            self._child.send(request, doing="opening the target")

    def opened(self) -> Opened:
        """Wait until the model is there."""
        with self._story():
            return self._must(self._child.receive(Opened, limit_s=self._limits.open_s))

    def begin_building(self) -> None:
        """As `begin_opening`."""
        with self._story():
            self._child.send(Build(), doing="building and answering the first call")

    def built(self) -> Built:
        """Wait until the first call is answered."""
        with self._story():
            return self._must(self._child.receive(Built, limit_s=self._limits.build_s))

    def keep_state(self, path: Path) -> None:
        """Write weights and inputs for the others."""
        self._ask(KeepState(path=str(path)), Done, "writing its weights")

    def take_state(self, path: Path) -> StateTaken:
        """Copy the first arm's weights and inputs."""
        return self._ask(TakeState(path=str(path)), StateTaken, "copying the weights")

    def keep_answers(self, cases: Path, path: Path, *, double: bool) -> AnswersKept:
        """Answer the cases of the first arm."""
        request = KeepAnswers(cases=str(cases), path=str(path), double=double)
        return self._ask(request, AnswersKept, "answering the cases", self._limits.check_s)

    def warm(self, callers: int) -> Warmed:
        """Call until steady."""
        request = Warm(for_s=self._limits.warm_s, callers=callers)
        return self._ask(request, Warmed, "warming up", self._limits.warm_s + STEP_S)

    def look(self, *, weights: bool = False) -> ArmFacts:
        """What it has to say of itself."""
        return self._ask(Look(weights=weights), Looked, "counting").facts

    def time_batch(self) -> float:
        """Arm: seconds per call over one batch."""
        return self._ask(TimeBatch(), BatchTimed, "timing a batch", BATCH_LIMIT_S).per_call_s

    def settle(self) -> bool:
        """Arm: wait until its processes are idle."""
        return self._child.settle()

    def close(self) -> None:
        """End the process."""
        self._child.quit()

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    def _ask(self, request: Request, expect: type[R], doing: str, limit_s: float = STEP_S) -> R:
        with self._story():
            return self._must(self._child.ask(request, expect, limit_s=limit_s, doing=doing))

    def _must(self, reply: R | Failed) -> R:
        if isinstance(reply, Failed):
            raise ArmFailed(self.name, reply.reason, by_machine=reply.error == arm_file.MACHINE)
        return reply

    def _story(self) -> _Story:
        return _Story(self.name)


class _Story:
    """A death of the process becomes the arm's failure."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Dead):
            outside = error.state in (State.INFEASIBLE, State.TIMED_OUT)
            raise ArmFailed(self._name, error.reason, crashed=True, by_machine=outside) from error


def fresh_arm(python: str) -> Start:
    """A new interpreter that runs arm.py."""

    def start(ends: Ends, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [python, str(ARM_FILE), str(ends.requests), str(ends.replies)],
            stdin=subprocess.DEVNULL,
            stdout=ends.log,
            stderr=ends.log,
            pass_fds=(ends.requests, ends.replies),
            start_new_session=True,
            env=env,
        )

    return start
