"""A plan's folder: who could have changed it, and are its files the ones that were measured?

In: a plan file, or a candidate's folder and what the plan says of it. Out: the plan, or the folder with every file that
the plan names compared with its digest; UntrustedPlan where somebody else than this user and root can change any
of it, ArtifactError with the file's name where a file is not the one that was measured. The rule is that of bundles
(trust.py): links above are followed once, what was opened is what is asked about, and only then is a plan parsed or a
file handed to an engine. Nobody else can exchange a file between its check and its use: that is what the rule is for.
Covered: files, folders, links, pipes, sizes, missing files, files that the plan does not name. Not covered: what torch
adds to a compile cache has no digest (only the owner can add to it); whether plan and model fit (identity).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from compilot.artifacts import cachelist
from compilot.artifacts.bundle import OF_THIS_PROCESS
from compilot.artifacts.container import open_plain, span_of
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.trust import look, who_can_change
from compilot.engines import registry
from compilot.engines.of_candidate import traits_of
from compilot.errors import ArtifactError, UntrustedPlan
from compilot.files.digests import FilePart, Span, digest_read, parts_of, side_by_side
from compilot.modules.selectors import folder_of
from compilot.records import ArtifactFile, Candidate, Plan

PLAN_NAME = "plan.json"
LARGEST_LIST = 32 * 2**20  # bytes: a compile cache of some thousand files has a list of 1 MB
_NOTES = ("key.json",)  # what we keep in a candidate's folder besides; no engine opens it
_MEND = (
    "make it your own ('chown -R' and 'chmod -R go-w'), copy it to a place of your own, or use a bundle that is signed "
    "with a key you trust ('compilot pack --sign')"
)

Seen = Mapping[str, os.stat_result]


class Needs(NamedTuple):
    """How an engine uses its files."""

    cache: str = ""  # folder of a compile cache that is opened at each start; other processes may be compiling there
    nothing_more: bool = False  # its files are the whole model: one that the plan does not name must not be there
    closed: tuple[str, ...] = ()  # folders of regions ("regions/0/") for which the same holds


class Claim(NamedTuple):
    """What a plan or a journal says about a candidate's folder, to be checked now and perhaps again."""

    folder: Path
    files: tuple[ArtifactFile, ...]
    needs: Needs


def needs_of(candidate: Candidate) -> Needs:
    """How a candidate's engines use its files."""
    traits = traits_of(candidate)
    own = [registry.traits(region.settings.engine).standalone for region in candidate.regions]
    closed = tuple(f"{folder_of(number)}/" for number, alone in enumerate(own) if alone)
    return Needs(cache=traits.cache_folder, nothing_more=traits.standalone, closed=closed)


def open_plan(path: Path) -> Plan:
    """The plan in a file that nobody else can change; UntrustedPlan before anything of another one is parsed."""
    place = Path(os.path.realpath(path))

    def permit(opened: os.stat_result) -> None:
        if why := who_can_change(place, {"": opened}):
            raise UntrustedPlan(f"{path} is not used: {why}; {_MEND}.")

    return load_plan(path, place, permit)


def why_not_trusted(path: Path) -> str:
    """Why a plan that was read from this file must not be applied; "": nobody else can change it."""
    why = who_can_change(path)
    return f"{path} is not used: {why}; {_MEND}." if why else ""


def refuse_foreign(run: Path, parts: Iterable[Path]) -> None:
    """UntrustedPlan for a run directory if somebody else can change one of these parts of it, or anything in them."""
    for part in parts:
        if os.path.lexists(part) and (why := who_can_change(part)):
            raise UntrustedPlan(f"the run in {run} is not used: {why}; {_MEND}.")


def missing_file(claim: Claim) -> Path | None:
    """The first file or compile cache of the claim that is gone; `checked` lets an engine build a cache again."""
    return next((claim.folder / file.name for file in claim.files if not (claim.folder / file.name).exists()), None)


def checked(claim: Claim) -> Path | None:
    """The candidate's folder, every file that was named compared; None: there is none, and the engine builds."""
    if not claim.folder.is_dir():
        return None
    place = Path(os.path.realpath(claim.folder))  # once: what is asked about is what is opened
    seen = _looked_at(place)
    if why := who_can_change(place, seen, growing=claim.needs.cache or None):
        raise UntrustedPlan(f"the plan's files are not used: {why}; {_MEND}.")
    wanted = {file.name: file for file in _wanted(place, seen, claim)}
    for name in (*wanted, *_more(seen, claim.needs)):
        _compare_size(place, name, wanted.get(name), seen.get(name))
    _compare_digests(place, seen, wanted)
    return place


def check_again(claims: tuple[Claim, ...]) -> None:
    """Compare all files once more, before they are loaded once more."""
    for claim in claims:
        checked(claim)


def _looked_at(place: Path) -> Seen:
    seen = look(place)
    for name, found in seen.items():
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            kind = "a link" if stat.S_ISLNK(found.st_mode) else "not a plain file"
            raise UntrustedPlan(f"the plan's files are not used: {place / name} is {kind}; put the file itself there.")
    return seen


def _wanted(place: Path, seen: Seen, claim: Claim) -> Iterator[ArtifactFile]:
    """Every file that the plan names and the engine opens."""
    for file in claim.files:
        if not file.name.endswith("/"):
            yield file
        elif (
            claim.needs.cache and file.name.rstrip("/") in seen
        ):  # a cache that is gone is built again, by torch itself
            yield from _listed(place, seen, file)


def _listed(place: Path, seen: Seen, cache: ArtifactFile) -> tuple[ArtifactFile, ...]:
    name = cachelist.list_name(cache.name)
    found = seen.get(name)
    if found is None or not stat.S_ISREG(found.st_mode):
        _refuse(place, name, "is missing")
    if found.st_size > LARGEST_LIST:
        _refuse(place, name, f"has {found.st_size} bytes, more than any list needs")
    with _opened(place, name, found) as whole:
        data = os.pread(whole.fd, whole.size, 0)
    try:
        return cachelist.read_list(data, cache)
    except ValueError as problem:
        _refuse(place, name, f"cannot be used: {problem}", problem)


def _more(seen: Seen, needs: Needs) -> Iterator[str]:
    """Files that an engine could take for its own although the plan does not name them."""
    for name in (name for name, found in seen.items() if stat.S_ISREG(found.st_mode)):
        noted = name in _NOTES or cachelist.is_list(name)
        if name.startswith(needs.closed) or (needs.nothing_more and "/" not in name and not noted):
            yield name


def _compare_size(place: Path, name: str, wanted: ArtifactFile | None, found: os.stat_result | None) -> None:
    if wanted is None:
        _refuse(place, name, "is not among the files that were measured")
    if found is None or not stat.S_ISREG(found.st_mode):
        _refuse(place, name, "is missing")
    if found.st_size != wanted.size_bytes:
        _refuse(place, name, f"has {found.st_size} bytes instead of {wanted.size_bytes}")


def _compare_digests(place: Path, seen: Seen, wanted: Mapping[str, ArtifactFile]) -> None:
    def compare(file: ArtifactFile, part: FilePart) -> None:
        with _opened(place, file.name, seen[file.name]) as whole:
            if digest_read(part.within(whole)) != part.sha256:
                _refuse(place, file.name, "is not the file that was measured: its digest is another one")

    side_by_side(compare, [(file, part) for file in wanted.values() for part in _parts(place, file)])


def _parts(place: Path, file: ArtifactFile) -> list[FilePart]:
    try:
        return parts_of(file)
    except ValueError as problem:
        _refuse(place, file.name, "has more or fewer pieces in the plan than a file of its size", problem)


@contextmanager
def _opened(place: Path, name: str, looked_at: os.stat_result) -> Iterator[Span]:
    """A file for reading that is still the one that was looked at; what goes wrong on the way refuses it by name."""
    try:
        with open_plain(place / name) as file:
            if not os.path.samestat(os.fstat(file.fileno()), looked_at):
                _refuse(place, name, "was replaced by another file while it was checked")
            yield span_of(file)
    except (OSError, EOFError) as problem:
        if isinstance(problem, OSError) and problem.errno in OF_THIS_PROCESS:
            raise
        _refuse(place, name, f"cannot be read ({problem})", problem)


def _refuse(place: Path, name: str, why: str, cause: Exception | None = None) -> NoReturn:
    raise ArtifactError(
        f"{place / name} {why}; put the plan's folder back as it was, or run 'compilot tune' again."
    ) from cause
