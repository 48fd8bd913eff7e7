"""What the ranks of a distributed job tell each other outside of collectives.

In: the job's key-value store. Out: keys set and waited for, with a limit of ours. A collective has a time limit of its
own, so that nobody may sit in one while another rank builds; here a rank only asks now and then whether a key is there.
Covered: a rank that fails tells the others, who raise instead of waiting; a store whose server is gone; bundles of any
size, in pieces. Not covered: which rank does what (ranks.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compilot.errors import EnvironmentProblem, first_cause
from compilot.files import atomic

FIRST_NAP_S = 0.01
LONGEST_NAP_S = 0.5  # some thousand ranks then ask the store some thousand times a second
PIECE_BYTES = 4 << 20  # torch's store takes 8 MiB in one value
FAILED = "failed"


class Rendezvous:
    """Keys of one meeting; the store has a prefix of its own."""

    def __init__(self, store: Any, rank: int, ranks: int, wait_s: float) -> None:
        self.rank, self.ranks = rank, ranks
        self._store, self._wait_s = store, wait_s

    def tell(self, key: str, value: bytes = b"1") -> None:
        """Set a key for all."""
        self._store.set(key, value)

    def fail(self, problem: BaseException) -> None:
        """Tell everybody that this rank cannot go on; what another rank said before is the cause, and stays."""
        with contextlib.suppress(Exception):  # a store that is gone must not hide the problem itself
            if not self.has(FAILED):
                self.tell(FAILED, f"rank {self.rank}: {first_cause(problem)}".encode())

    def has(self, key: str) -> bool:
        """Whether a key is set."""
        return bool(self._store.check([key]))

    def wait_for(self, keys: Iterable[str], what: str) -> None:
        """Until all keys are there; EnvironmentProblem when the limit is reached, or a rank has failed."""
        left = list(keys)
        deadline, nap = time.monotonic() + self._wait_s, FIRST_NAP_S
        while left := [key for key in left if not self._asked(key)]:
            self.refuse_failed()
            if time.monotonic() > deadline:
                raise EnvironmentProblem(f"{what} took longer than {self._wait_s:g} s; give more time (wait).")
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP_S)
        self.refuse_failed()  # all keys are there, and yet somebody may have given up before

    def refuse_failed(self) -> None:
        """EnvironmentProblem with what a rank said that cannot go on."""
        if self._asked(FAILED):
            raise EnvironmentProblem(f"not all ranks are ready: {self.get(FAILED).decode()}")

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        value: bytes = self._store.get(key)
        return value

    def every(self, what: str) -> list[str]:
        """The key that each rank sets for itself."""
        return [f"{what}/{rank}" for rank in range(self.ranks)]

    def send(self, path: Path) -> None:
        """A file in pieces; the number of them last."""
        number = 0
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                self.tell(f"piece/{number}", piece)
                number += 1
        self.tell("pieces", str(number).encode())

    def receive(self, path: Path, what: str) -> None:
        """The same file, here."""
        self.wait_for(["pieces"], what)
        with atomic.writing(path, atomic.PRIVATE) as file:
            for number in range(int(self.get("pieces"))):
                file.write(self.get(f"piece/{number}"))

    def forget_pieces(self) -> None:
        """The store's server has them in memory."""
        if self.has("pieces"):
            for number in range(int(self.get("pieces"))):
                self._store.delete_key(f"piece/{number}")

    def _asked(self, key: str) -> bool:
        try:
            return self.has(key)
        except Exception as problem:
            text = f"the job's key-value store is gone ({first_cause(problem)}); a rank ended, look at its output."
            raise EnvironmentProblem(text) from problem
