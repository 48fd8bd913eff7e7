"""How often each size was called, however many there are. In: sizes of calls. Out: counts in bounded memory.

The first sizes are kept as they are. When there is no room for another one, it is rounded up to powers of two, for
which an eighth of the room is reserved; when that is full, too, the call is counted without its sizes. So is a call
with names for which there is no room, or with sizes that no reader takes. Smallest and largest sizes are exact in any
case, of all calls but those. Not covered: threads (who shares a tally holds a lock).
"""

from __future__ import annotations

from collections.abc import Iterable

from compilot.traces.lines import NAMES_BYTES, Key, is_readable, name_bytes

MOST_KEYS = 4096  # of a recorded trace
_ROUNDED_SHARE = 8  # one key in so many is reserved for rounded sizes


def rounded(key: Key) -> Key:
    """Every size rounded up to a power of two; 0 stays 0."""
    return tuple((name, 1 << (size - 1).bit_length() if size else 0) for name, size in key)


class Tally:
    """Counts by sizes."""

    def __init__(self, most: int = MOST_KEYS, names_bytes: int = NAMES_BYTES) -> None:
        self._most = most
        self._names_left = names_bytes
        self.taken = 0  # sizes that somebody keeps elsewhere and will add; their room is not given away
        self.counts: dict[Key, int] = {}
        self.lines: dict[Key, int] = {}  # where each is first
        self.ranges: dict[str, tuple[int, int]] = {}  # smallest and largest size, by name
        self.rounded = self.left_out = 0  # calls

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.counts.values()) + self.left_out

    @property
    def most_exact(self) -> int:
        """So many sizes are kept as they are."""
        return self._most - self._most // _ROUNDED_SHARE - self.taken

    def add(self, key: Key, calls: int = 1, line: int = 0) -> None:
        """Calls with these sizes."""
        if key in self.counts or self.widen(key):
            self.put(key, calls, line)
        else:
            self.left_out += calls

    def add_all(self, other: Tally) -> None:
        """Everything that another one counted; sizes that it rounded do not widen the ranges."""
        for name, (low, high) in other.ranges.items():
            self.widen(((name, low), (name, high)))
        for key, calls in other.counts.items():
            if all(name in self.ranges for name, _ in key):
                self.put(key, calls, other.lines.get(key, 0))
            else:
                self.left_out += calls
        self.rounded += other.rounded
        self.left_out += other.left_out

    def cut(self, key: Key) -> Key:
        """Rounded sizes, no larger than the largest real ones."""
        return tuple((name, min(size, self.ranges[name][1]) if name in self.ranges else size) for name, size in key)

    def settle(self) -> None:
        """Cut all rounded sizes: the ranges are known now."""
        for key in [key for key in self.counts if self.rounded and self.cut(key) != key]:
            cut, calls, line = self.cut(key), self.counts.pop(key), self.lines.pop(key, 0)
            self.counts[cut] = self.counts.get(cut, 0) + calls
            self.lines.setdefault(cut, line)

    def sorted(self) -> Iterable[tuple[Key, int]]:
        """The most frequent first; of equals the one that was there first."""
        return sorted(self.counts.items(), key=lambda item: -item[1])

    def put(self, key: Key, calls: int = 1, line: int = 0) -> None:
        """The same for sizes that are in the ranges already."""
        if key not in self.counts and len(self.counts) >= self.most_exact:
            self._put_rounded(rounded(key), calls, line)
            return
        self.lines.setdefault(key, line)
        self.counts[key] = self.counts.get(key, 0) + calls

    def _put_rounded(self, key: Key, calls: int, line: int) -> None:
        if key in self.counts or len(self.counts) < self._most - self.taken:
            self.lines.setdefault(key, line)
            self.counts[key] = self.counts.get(key, 0) + calls
            self.rounded += calls
        else:
            self.left_out += calls

    def widen(self, key: Key) -> bool:
        """Have the ranges hold these sizes; False where that cannot be, and then nothing is changed."""
        new = sum(name_bytes(name) for name in {name for name, _ in key if name not in self.ranges})
        if new > self._names_left or not is_readable(key):
            return False
        self._names_left -= new
        for name, size in key:
            low, high = self.ranges.get(name, (size, size))
            self.ranges[name] = min(low, size), max(high, size)
        return True
