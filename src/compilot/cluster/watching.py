"""Progress of every node in one view. In: the nodes' events. Out: one line per node for the observer, notes with names.

A thread per node waits for its events; a node that is lost, or does not answer, is simply not heard any more. Rounds of
a race are shown as those of a local run.
"""

from __future__ import annotations

import threading

from compilot.cluster.events import Event
from compilot.cluster.member import EVENTS_S, Member
from compilot.errors import CompilotError
from compilot.progress import Observer
from compilot.records import Candidate


class Watching:
    """Listens to nodes."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._end = threading.Event()
        self._notes: set[str] = set()
        self._lock = threading.Lock()

    def listen(self, member: Member) -> None:
        """From now on."""
        name = f"compilot-events-{member.name}"
        threading.Thread(target=self._listen, args=(member,), name=name, daemon=True).start()

    def gave(self, member: Member, candidate: Candidate) -> None:
        """A node begins a trial."""
        self._observer.at_node(member.name, candidate.label)

    def idle(self, member: Member) -> None:
        """A node has nothing to do."""
        self._observer.at_node(member.name, "idle")

    def forget(self, member: Member) -> None:
        """A node is gone."""
        self._observer.at_node(member.name, "")

    def close(self) -> None:
        """Nobody listens any more."""
        self._end.set()

    def _listen(self, member: Member) -> None:
        seen = 0
        while not self._end.is_set() and not member.lost:
            try:
                events: list[Event] = member.link.now("since", seen, EVENTS_S).result(2 * EVENTS_S)
            except (CompilotError, TimeoutError):
                return
            for event in events:
                seen = event.number
                if not self._end.is_set() and not member.lost:
                    self._show(member.name, event)

    def _show(self, name: str, event: Event) -> None:
        if event.kind == "doing":
            self._observer.at_node(name, event.args[0])
        elif event.kind == "racing":
            self._observer.racing(*event.args)
        elif self._is_news(event.args[0]):
            self._observer.note(f"{name}: {event.args[0]}")

    def _is_news(self, note: str) -> bool:
        """What several nodes say alike is said once."""
        with self._lock:
            known = note in self._notes
            self._notes.add(note)
        return not known
