"""Stores: bundles in a place that many machines can reach.

In: a bundle and a URL, or a URL and a machine. Out: `push` puts a bundle there once and for good; `pull` gets the one
that fits this machine best, or says why none does. Whoever can write to a store decides what is pulled from it, unless
bundles are signed: a signed one is only taken with a trusted key.
Covered: concurrent pushes, damaged objects and entries, interrupted transfers. Not covered: who may write (the server).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.store import finding
from compilot.artifacts.store.describe import check_pulled, claimed_signer, describe, refuse_damaged
from compilot.artifacts.store.fetching import Download, download, has_digest
from compilot.artifacts.store.finding import SHORTEST_ID, Candidates, Model
from compilot.artifacts.store.fit import (
    Fit,
    about_weights,
    chosen_because,
    machine_line,
    none_fits,
    rank,
    rules_all_out,
)
from compilot.artifacts.store.layout import (
    SUFFIX,
    IndexName,
    StoreEntry,
    Unreadable,
    machine_id,
    make_entry,
    parse_entry,
)
from compilot.artifacts.store.remote import Remote
from compilot.errors import InputError, NoneFits, StoreError, UntrustedBundle
from compilot.records import MachineFingerprint, ModelFingerprint, Record, encode

SHOWN_DIGITS = 12  # of a bundle's digest, as 'store ls' has them
MOST_MODELS = 20  # that a sentence names
__all__ = ["SHORTEST_ID", "SHOWN_DIGITS", "Listing", "Pulled", "Pushed", "choices", "listing", "pull", "push"]


class Listing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What is in a store."""

    entries: tuple[StoreEntry, ...]  # newest first
    problems: tuple[str, ...]  # index files that cannot be read, a sentence each


class Pushed(NamedTuple):
    """What a push did."""

    entry: StoreEntry
    was_there: bool  # the same bytes were pushed before


class Pulled(NamedTuple):
    """What a pull did."""

    path: Path
    fit: Fit
    signed_by: str | None  # id of the trusted key
    transfer: Download | None  # None: the file was there already
    skipped: tuple[str, ...] = ()  # better fits that are not trusted, a sentence each


def push(bundle: Path, url: str) -> Pushed:
    """Put a bundle into a store if it is whole; the object first, then the entry that makes it known."""
    description = describe(bundle)
    refuse_damaged(bundle)
    with bundle.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    entry = make_entry(description, sha256, bundle.stat().st_size, claimed_signer(bundle))
    remote = Remote(url)
    remote.must_be_writable()
    was_there = _put_once(remote, entry, bundle)
    if _is_news(remote, entry):
        remote.put_bytes(entry.index_name, encode(entry))
    for name in entry.names:
        if remote.size(name) is None:
            remote.put_bytes(name, b"{}\n")  # some servers have no empty files
    return Pushed(entry, was_there)


def pull(
    url: str,
    out: Path,
    machine: MachineFingerprint,
    wanted: str | ModelFingerprint | None = None,
    trust: Trust | None = None,
    *,
    by_digest: bool = False,
) -> Pulled:
    """Get the trusted bundle that fits this machine best; a file that is it already is left alone.

    by_digest: in the folder `out` it is called by its digest, so that versions lie side by side.
    """
    remote = Remote(url)
    remote.must_exist()
    refused: list[str] = []
    for fit in choices(remote, machine, wanted):
        try:
            return _take(remote, fit, path_in(out, fit, by_digest), trust or Trust())._replace(skipped=tuple(refused))
        except UntrustedBundle as refusal:
            refused.append(str(refusal))
    more = f" Nor is any other that fits ({len(refused) - 1})." if len(refused) > 1 else ""
    raise UntrustedBundle(refused[0] + more)


def path_in(out: Path, fit: Fit, by_digest: bool) -> Path:
    """The file to write: out itself, or a name in that folder."""
    name = f"{fit.entry.sha256}{SUFFIX}" if by_digest else file_name(fit.entry.label)
    return out / name if out.is_dir() else out


def _take(remote: Remote, fit: Fit, path: Path, trust: Trust) -> Pulled:
    """Get this one; UntrustedBundle if it is not trusted, and then nothing of it stays."""
    name = f"bundle {fit.entry.sha256[:SHOWN_DIGITS]} in {remote.url}"
    signers: list[str | None] = []

    def accept(file: Path) -> None:
        signers.append(check_pulled(file, fit.entry, trust, name))

    if has_digest(path, fit.entry.sha256):
        accept(path)
        return Pulled(path, fit, signers[0], None)
    done = download(remote, fit.entry, path, accept)
    return Pulled(path, fit, signers[0], done)


def file_name(label: str) -> str:
    """A bundle's name in a folder of the user's; the label comes from the store, so no part of it leads elsewhere."""
    return (re.sub(r"[^A-Za-z0-9_-]+", "-", label).strip("-") or "model") + SUFFIX


def listing(remote: Remote, model: str | None = None) -> Listing:
    """Every bundle that a store knows of; model: only those of this name or id."""
    found = finding.names_of(remote) if model is None else finding.candidates(remote, model).names
    names = [one.name for one in found]
    parsed = [parse_entry(name, data) for name, data in remote.read(names).items()]
    entries = sorted((one for one in parsed if isinstance(one, StoreEntry)), key=lambda entry: entry.created)
    problems = tuple(one.why for one in parsed if isinstance(one, Unreadable))
    return Listing(entries=tuple(reversed(entries)), problems=problems)


def choices(remote: Remote, machine: MachineFingerprint, wanted: str | ModelFingerprint | None) -> Iterator[Fit]:
    """The bundles for one model that fit, the best first; raises NoneFits with what each of them needs.

    Entries are read as they are needed: the first choice is enough for most.
    """
    found = finding.candidates(remote, wanted)
    _refuse_unclear(found, wanted, remote.url)
    model = wanted if isinstance(wanted, ModelFingerprint) else None
    names = finding.told(remote, found.names)
    ages = finding.weights_by_age(names)
    unfit: list[Fit] = []
    fitting = 0
    for fit in _ranked(remote, names, machine, model):
        if not fit.ok:
            unfit.append(fit)
            continue
        fitting += 1
        note = "" if model is not None else about_weights(ages, fit)
        yield fit._replace(note=note, because=chosen_because(fit, len(names)))
    if not unfit and not fitting:
        raise _empty(remote.url, len(found.names))
    if not fitting:
        ask = "tune and pack it on a machine like this one, then push; or add to [machines] of a fleet's manifest: "
        raise NoneFits(f"{none_fits(unfit)}; {ask}{machine_line(machine)}")


def _ranked(
    remote: Remote, names: Sequence[IndexName], machine: MachineFingerprint, model: ModelFingerprint | None
) -> Iterator[Fit]:
    """Entries with their fit; one of this very machine is looked at before the others with the same weights.

    Of a machine whose bundles cannot run here, and of what is for another model, one entry is read for each machine:
    enough to say why.
    """
    here = machine_id(machine)
    hopeless: set[str] = set()  # ids of machines
    told: set[str] = set()  # ids of machines with an entry that is for another model
    for group in finding.in_groups(names, model):
        if finding.is_for_another(group[0], model):
            firsts = _one_of_each(group, told | hopeless)
            told |= {one.machine for one in firsts}
            yield from rank(finding.read(remote, firsts).values(), machine, model)
            continue
        mine = [one for one in group if one.machine == here]
        own = rank(finding.read(remote, mine).values(), machine, model)
        perfect = [fit for fit in own if fit.ok and not fit.unproven]
        yield from perfect
        others = _of_others(remote, [one for one in group if one.machine != here], machine, hopeless)
        rest = [fit.entry for fit in own if fit not in perfect]
        yield from rank([*rest, *others], machine, model)


def _one_of_each(group: Sequence[IndexName], known: set[str]) -> list[IndexName]:
    """The first name of each machine, but for those that are known."""
    firsts: dict[str, IndexName] = {}
    for one in group:
        if one.machine not in known:
            firsts.setdefault(one.machine, one)
    return list(firsts.values())


def _of_others(
    remote: Remote, group: Sequence[IndexName], machine: MachineFingerprint, hopeless: set[str]
) -> list[StoreEntry]:
    """The entries of other machines; of one that rules all its bundles out a single one, and then it is hopeless."""
    firsts = _one_of_each(group, hopeless)
    found = list(finding.read(remote, firsts).values())
    hopeless |= {machine_id(one.fingerprint.machine) for one in found if rules_all_out(one, machine)}
    seen = set(firsts)
    left = [one for one in group if one.machine not in hopeless and one not in seen]
    return [*found, *finding.read(remote, left).values()]


def _refuse_unclear(found: Candidates, wanted: str | ModelFingerprint | None, url: str) -> None:
    """No such model, or several."""
    if not found.names and not found.models:
        raise _empty(url, 0)
    if not found.names:
        raise NoneFits(f"none fits: {url} has no bundle of that model; it has {_models(found.models)}.")
    ids = {one.model for one in found.names}
    if not isinstance(wanted, ModelFingerprint) and len(ids) > 1:
        several = [model for model in found.models if model.id in ids]
        raise InputError(f"{url} has bundles of several models; say which model: {_models(several)}.")


def _empty(url: str, damaged: int) -> StoreError:
    more = f" ({damaged} damaged index entries)" if damaged else ""
    return StoreError(f"{url} holds no bundles{more}; put one there with 'compilot push'.")


def _models(models: Iterable[Model]) -> str:
    shown = sorted(f"{model.label} ({model.id})" for model in models)
    more = f" and {len(shown) - MOST_MODELS} more" if len(shown) > MOST_MODELS else ""
    return ", ".join(shown[:MOST_MODELS]) + more


def _is_news(remote: Remote, entry: StoreEntry) -> bool:
    """No entry is there, or one of an older compilot that tells less; what cannot be read may be a newer one's."""
    there = remote.read([entry.index_name]).get(entry.index_name)
    if there is None:
        return True
    known = parse_entry(entry.index_name, there)
    return isinstance(known, StoreEntry) and known != entry


def _put_once(remote: Remote, entry: StoreEntry, bundle: Path) -> bool:
    """Upload the object unless it is there; one with a wrong size is damaged and is not covered up."""
    size = remote.size(entry.object_name)
    if size is None:
        remote.put(entry.object_name, bundle)
        size = remote.size(entry.object_name)
        if size != entry.size_bytes:
            raise StoreError(f"the upload to {remote.url} arrived with {size} of {entry.size_bytes} bytes; push again.")
        return False
    if size != entry.size_bytes:
        raise StoreError(
            f"{entry.object_name} in {remote.url} is damaged: {size} bytes instead of {entry.size_bytes}; remove it "
            "with 'compilot store gc', then push again."
        )
    return True
