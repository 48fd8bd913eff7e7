"""How nice the workers of a building child are: as nice as can be, unless strangers leave them nothing.

In: CPU seconds of the child and of the server, now and then. Out: the niceness of the autogroups that the child's
workers have. An autogroup at 19 has 15 parts where every other one on the machine has 1024: programs that have nothing
to do with the server can stop a build in this way, although the server leaves it time. Then, and only then, its weight
is raised step by step; once the server itself is busy it is as nice as before. Not covered: machines without
autogroups, where only a privileged process may become less nice.
"""

from __future__ import annotations

from compilot.serve.records import Bounds

PERIOD_S = 20.0  # between two looks: workers come and go
LEAST_SHARE = 0.05  # of one core: with less a build of a minute takes more than twenty
BUSY = 0.75  # of all cores: a server that uses so much leaves no time
STEP = 3  # in niceness: about twice the weight


class Pace:
    """The niceness of one child's workers."""

    def __init__(self, bounds: Bounds, cores: int, at_s: float) -> None:
        self.nice = bounds.nice
        self._bounds = bounds
        self._cores = cores
        self._at_s = at_s
        self._child_s: float | None = None
        self._server_s = 0.0

    def due(self, at_s: float) -> bool:
        """Whether it is time to look again."""
        return self._child_s is None or at_s - self._at_s >= PERIOD_S

    def look(self, at_s: float, child_s: float, server_s: float) -> None:
        """CPU seconds that were used until now."""
        if self._child_s is not None:
            passed = max(at_s - self._at_s, 1e-9)
            self._judge((child_s - self._child_s) / passed, (server_s - self._server_s) / passed)
        self._at_s, self._child_s, self._server_s = at_s, child_s, server_s

    def _judge(self, child: float, server: float) -> None:
        if server > BUSY * self._cores:
            self.nice = self._bounds.nice
        elif child < LEAST_SHARE:
            self.nice = min(self._bounds.nice, max(self._bounds.least_nice, self.nice - STEP))
