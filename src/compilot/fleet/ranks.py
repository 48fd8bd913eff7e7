"""`compilot.fleet.load_together`: a distributed job whose ranks start from one build.

In: a function that gives a bundle, called on every rank and run on one. Out: a `Fast` on each, all of them ready at the
same moment: what takes long (building, fetching, loading, compiling) is done before anybody returns, and outside of
collectives, so that no collective runs into its time limit. Ranks load by digest: a copy that is damaged is fetched
again, from the builder's file or through the job's own store; no rank builds in the builder's place.
Covered: ranks on other hosts without a shared disk, a builder that fails or takes long, ranks that fail.
Not covered: groups of ranks that want different bundles (call it with one function that gives the right one).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from compilot.api.asking import seconds
from compilot.artifacts.store.fetching import digest_of_file, has_digest
from compilot.errors import EnvironmentProblem, InputError
from compilot.files import atomic
from compilot.files.private import cache_home, private_directory
from compilot.fleet.rendezvous import Rendezvous
from compilot.records import Record, encode

if TYPE_CHECKING:
    from torch import nn

    from compilot.runtime import Fast

AnyPath = str | os.PathLike[str]
WAIT = "30m"  # as torch's own limit for collectives of gloo
_MEETINGS = itertools.count()  # every rank makes the same calls in the same order, as with collectives


class Built(Record, frozen=True, kw_only=True):
    """What the builder tells the others."""

    sha256: str
    path: str  # of the bundle, where the builder sees it


def load_together(
    build: Callable[[], Any],
    *,
    model: nn.Module | None = None,
    builder: int = 0,
    wait: str | float = WAIT,
    trusted_keys: Sequence[AnyPath] = (),
    require_signature: bool = False,
) -> Fast:
    """Start every rank of a torch.distributed job from one bundle; call it on all ranks, outside of collectives.

    build gives a bundle: its path, or what `compilot.pack` or `compilot.pull` returned. It runs on the rank `builder`
    only; the others wait, for `wait` at most, and load the same bytes by their digest. model: use the bundle for this
    model (`compilot.compile`); without it, as `compilot.load`. A rank that fails makes all of them raise.
    """
    meeting = _meeting(builder, seconds(wait, "the longest wait (wait)"))
    try:
        path = _built(meeting, build, builder) if meeting.rank == builder else _fetched(meeting, builder)
        fast = _loaded(path, model, trusted_keys, require_signature)
        meeting.tell(f"ready/{meeting.rank}")
        meeting.wait_for(meeting.every("ready"), "loading on all ranks")
    except BaseException as problem:
        meeting.fail(problem)
        raise
    if meeting.rank == builder:
        meeting.forget_pieces()
    return fast


def _meeting(builder: int, wait_s: float) -> Rendezvous:
    import torch.distributed as dist

    from compilot._torch.ranks import job_store

    if not (dist.is_available() and dist.is_initialized()):
        raise InputError("this is for distributed jobs: call torch.distributed.init_process_group first.")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if not 0 <= builder < ranks:
        raise InputError(f"builder is a rank from 0 to {ranks - 1}; not {builder!r}.")
    return Rendezvous(job_store(f"compilot/{next(_MEETINGS)}"), rank, ranks, wait_s)


def _built(meeting: Rendezvous, build: Callable[[], Any], builder: int) -> Path:
    """Build, tell the others, and send the bytes to those who cannot read the file."""
    path = _path(build())
    meeting.tell("built", encode(Built(sha256=digest_of_file(path), path=str(path))))
    others = [rank for rank in range(meeting.ranks) if rank != builder]
    answered = [f"asked/{rank}" for rank in others]
    meeting.wait_for(answered, "the ranks' answer to the build")
    if any(meeting.get(key) == b"send" for key in answered):
        meeting.send(path)
    return path


def _fetched(meeting: Rendezvous, builder: int) -> Path:
    """The builder's bundle, here: the copy of an earlier start, the builder's own file, or its bytes."""
    meeting.wait_for(["built"], f"the build on rank {builder}")
    built = msgspec.json.decode(meeting.get("built"), type=Built)
    kept = private_directory(cache_home() / "ranks") / f"{built.sha256}.cpbundle"
    here = has_digest(kept, built.sha256) or _copied(Path(built.path), kept, built.sha256)
    meeting.tell(f"asked/{meeting.rank}", b"here" if here else b"send")
    if not here:
        meeting.receive(kept, f"fetching the bundle of rank {builder}")
        if not has_digest(kept, built.sha256):
            raise EnvironmentProblem(f"the bundle of rank {builder} arrived damaged; start the job again.")
    return kept


def _copied(source: Path, path: Path, sha256: str) -> bool:
    """Copy the builder's file if it can be read here and is the one; False: it is not."""
    try:
        if not has_digest(source, sha256):
            return False
        return atomic.copy_file(source, path, atomic.PRIVATE) == sha256
    except OSError:
        return False


def _path(given: Any) -> Path:
    """The bundle's file."""
    for name in ("bundle", "path"):  # of PackedBundle, of PulledBundle
        given = getattr(given, name, given)
    path = Path(given)
    if not path.is_file():
        raise InputError(f"build must give the path of a bundle file; {path} is none.")
    return path.absolute()


def _loaded(path: Path, model: nn.Module | None, keys: Sequence[AnyPath], require_signature: bool) -> Fast:
    from compilot import runtime

    if model is None:
        return runtime.load(path, trusted_keys=keys, require_signature=require_signature)
    return runtime.compile(model, path, strict=True, trusted_keys=keys, require_signature=require_signature)
