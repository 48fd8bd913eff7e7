"""Calls that are kept to prove a plan with, and an example that is like them without being one of them.

In: calls of users. Out: at most eight copies, in this process's memory only, until the plan is live; and, for the child
that builds, a call of the same form with made values. Of what a user sent this leaves the process: sizes and dtypes,
mean and spread of eight or more floats, the ends of integers that differ, plain numbers and flags. Texts and other
objects never do: of such a call there is no example. Calls that the program itself gave (`warm`) are examples as they
are. Covered: bounded bytes, calls of other sizes first.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch

from compilot._tree import Call, call_leaves, map_call

MOST_CALLS = 8
MOST_BYTES = 64 << 20  # of all of them together
LEAST_FLOATS = 8  # of fewer, mean and spread would tell the values
_FLAGS = (int, float, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_PLAIN = (*_FLAGS, str)


class NoExample(Exception):
    """No call can be made like this one; the reason, without anything that the user sent."""


class KeptCall(NamedTuple):
    """A copy of a call, and the modes that it was made in."""

    call: Call
    grad: bool
    given: bool = False  # by the program itself, not by a user


class KeptCalls:
    """A few calls of the server."""

    def __init__(self) -> None:
        self.renew_locks()
        self._kept: list[KeptCall] = []
        self._forms: set[Any] = set()
        self._bytes = 0
        self.wanted = True  # asked at every call, without the lock
        self._open = True  # for what the program itself gives

    def renew_locks(self) -> None:
        """For the start, and in a forked child: the thread that held one is not there any more."""
        self._lock = threading.Lock()
        self.arrived = threading.Event()  # there is at least one
        if getattr(self, "_kept", None):
            self.arrived.set()

    def offer(self, call: Call, *, given: bool = False) -> None:
        """Keep a copy, unless there are enough, or it is as the others and half of the places are taken.

        given: by the program itself; it takes a user's place where there is no other.
        """
        if not self.wanted and not (given and self._open):
            return
        form = form_of(call)
        with self._lock:
            if given and len(self._kept) >= MOST_CALLS and (users := [one for one in self._kept if not one.given]):
                self._kept = [one for one in self._kept if one is not users[-1]]
                self._bytes -= _bytes(users[-1].call)
            known = form in self._forms and len(self._kept) >= MOST_CALLS // 2
            size = _bytes(call)
            full = len(self._kept) >= MOST_CALLS or self._bytes + size > MOST_BYTES
            if full or (known and not given):
                return
            self._kept.append(KeptCall(_copied(call), torch.is_grad_enabled(), given))
            self._forms.add(form)
            self._bytes += size
            self.wanted = len(self._kept) < MOST_CALLS
            self.arrived.set()

    def all(self) -> list[KeptCall]:
        """Those that are kept now."""
        with self._lock:
            return list(self._kept)

    def example(self) -> KeptCall | None:
        """What the child may have: a call that the program gave, else one that is made like the first that can be.

        Raises NoExample.
        """
        kept = self.all()
        if given := next((one for one in kept if one.given), None):
            return given
        can = next((one for one in kept if not _withheld(one.call)), kept[0] if kept else None)
        return KeptCall(made_like(can.call), can.grad) if can else None

    def forget(self) -> None:
        """Let go of all of them, and keep no more."""
        with self._lock:
            self._kept, self._forms, self._bytes, self.wanted, self._open = [], set(), 0, False, False
            self.arrived.clear()

    def begin_anew(self) -> None:
        """Keep calls again."""
        with self._lock:
            self.wanted, self._open = len(self._kept) < MOST_CALLS, True


def form_of(call: Call) -> tuple[Any, ...]:
    """Sizes and dtypes of every tensor, and the plain values."""
    return tuple(
        (leaf.path, tuple(leaf.value.shape), leaf.value.dtype)
        if isinstance(leaf.value, torch.Tensor)
        else (leaf.path, leaf.value if isinstance(leaf.value, _PLAIN) else type(leaf.value).__name__)
        for leaf in call_leaves(call)
    )


def sizes_of(call: Call) -> dict[str, tuple[int, ...]]:
    """The sizes of every tensor of a call, by path."""
    return {leaf.path: tuple(leaf.value.shape) for leaf in call_leaves(call) if isinstance(leaf.value, torch.Tensor)}


def _bytes(call: Call) -> int:
    return sum(
        leaf.value.numel() * leaf.value.element_size()
        for leaf in call_leaves(call)
        if isinstance(leaf.value, torch.Tensor)
    )


def _copied(call: Call) -> Call:
    def copied(_: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with torch.inference_mode(False):
            copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            return copy.copy_(value.detach())

    return map_call(call, copied)


def made_like(call: Call) -> Call:
    """A call of the same form: numbers of the same mean and spread, integers between the same ends, the same flags.

    Raises NoExample where there is anything else in it.
    """
    if problem := _withheld(call):
        raise NoExample(problem)
    generator = torch.Generator().manual_seed(0)

    def made(_: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with torch.no_grad():
            copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            return copy.copy_(_values(value.detach().cpu(), generator)).to(value.device)

    return map_call(call, made)


def _withheld(call: Call) -> str:
    """Why no call is made like this one; "": one can be."""
    for leaf in call_leaves(call):
        if not isinstance(leaf.value, (torch.Tensor, *_FLAGS)):
            kind = type(leaf.value).__name__
            return f"{leaf.path} is a {kind}, and what users send is not passed on; give an example with warm()"
    return ""


def _values(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not value.numel():
        return value
    if value.is_floating_point():
        finite = value[value.isfinite()].double()
        drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        spread = float(finite.std(correction=0)) if finite.numel() >= LEAST_FLOATS else 0.0
        return drawn * spread + float(finite.mean()) if spread else drawn
    if value.is_complex():
        return torch.randn(value.shape, generator=generator, dtype=torch.complex128)
    low, high = int(value.min()), int(value.max())
    if low == high:  # indices stay in range
        low, high = 0, max(high, 1)
    return torch.randint(low, high + 1, value.shape, generator=generator)
