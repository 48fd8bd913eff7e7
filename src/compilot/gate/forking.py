"""Arms that are forked from one process that has imported torch, and nothing of either side. In: sides. Out: a nursery.

An arm is then ready in a tenth of the time, and more of a check is left for its pairs. Only where base and head are run
by this very interpreter: one server serves both, so that what its imports took is the same for both sides' start-up.
Not covered: another interpreter, a stored baseline (whose start-up is of another day), a repository that compilot
itself is imported from; there every arm is a fresh interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from compilot.gate import arm
from compilot.gate.arms import fresh_arm
from compilot.gate.sides import Side
from compilot.trials import nursery

# As `python arm.py`: not even the imports of the server see the folder that the check was started in.
LAUNCH = (
    "import sys; del sys.path[: sys.path[:1] == ['']]; from compilot.trials.forkserver import main; main(sys.argv[1:])"
)


def can_fork(sides: Sequence[Side]) -> bool:
    """Whether all arms of these sides may come from one process."""
    same = len(sides) == 2 and all(side.python == sys.executable for side in sides)
    return same and not any(side.foreign and arm.is_foreign(arm.__file__, side.foreign) for side in sides)


def arm_nursery(log: Path) -> nursery.Nursery:
    """Where arms come from; its server starts with the first of them."""
    return nursery.Nursery(
        log,
        nursery.Kind(
            entry=arm.__name__,
            imports=("torch", arm.__name__),
            own=nursery.OWN | {arm.FOREIGN},
            launch=("-c", LAUNCH),
            fresh=fresh_arm(sys.executable),
        ),
    )
