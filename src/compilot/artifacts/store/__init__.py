"""Stores: bundles in a place that many machines can reach.

In: a bundle and a URL, or a URL and a machine. Out: `push` puts a bundle there once and for good; `pull` gets the one
that fits this machine best, or says why none does. Whoever can write to a store decides what is pulled from it, unless
bundles are signed: a signed one is only taken with a trusted key.
Covered: concurrent pushes, damaged objects and entries, interrupted transfers. Not covered: who may write (the server).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.store.describe import check_pulled, claimed_signer, describe, refuse_damaged
from compilot.artifacts.store.fetching import Download, download, has_digest
from compilot.artifacts.store.fit import Fit, about_weights, none_fits, rank
from compilot.artifacts.store.layout import (
    INDEX,
    SUFFIX,
    StoreEntry,
    Unreadable,
    is_index_name,
    make_entry,
    model_id,
    parse_entry,
)
from compilot.artifacts.store.remote import Remote
from compilot.errors import InputError, NoneFits, StoreError, UntrustedBundle
from compilot.records import MachineFingerprint, ModelFingerprint, Record, encode

SHORTEST_ID = 4  # digits of a digest that are taken for one
SHOWN_DIGITS = 12  # of a bundle's digest, as 'store ls' has them


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
    return Pushed(entry, was_there)


def pull(
    url: str,
    out: Path,
    machine: MachineFingerprint,
    wanted: str | ModelFingerprint | None = None,
    trust: Trust | None = None,
) -> Pulled:
    """Get the trusted bundle that fits this machine best; a file that is it already is left alone."""
    remote = Remote(url)
    remote.must_exist()
    refused: list[str] = []
    for fit in choices(listing(remote), machine, wanted, remote.url):
        try:
            return _take(remote, fit, out, trust or Trust())._replace(skipped=tuple(refused))
        except UntrustedBundle as refusal:
            refused.append(str(refusal))
    more = f" Nor is any other that fits ({len(refused) - 1})." if len(refused) > 1 else ""
    raise UntrustedBundle(refused[0] + more)


def _take(remote: Remote, fit: Fit, out: Path, trust: Trust) -> Pulled:
    """Get this one; UntrustedBundle if it is not trusted, and then nothing of it stays."""
    path = out / file_name(fit.entry.label) if out.is_dir() else out
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


def listing(remote: Remote) -> Listing:
    """Every bundle that a store knows of."""
    names = [name for name in remote.sizes(INDEX) if is_index_name(name)]
    parsed = [parse_entry(name, data) for name, data in remote.read(names).items()]
    entries = sorted((one for one in parsed if isinstance(one, StoreEntry)), key=lambda entry: entry.created)
    problems = tuple(one.why for one in parsed if isinstance(one, Unreadable))
    return Listing(entries=tuple(reversed(entries)), problems=problems)


def choices(found: Listing, machine: MachineFingerprint, wanted: str | ModelFingerprint | None, url: str) -> list[Fit]:
    """The bundles for one model that fit, the best first; raises NoneFits with what each of them needs."""
    model = wanted if isinstance(wanted, ModelFingerprint) else None
    entries = _of_model(found, wanted, url)
    fits = rank(entries, machine, model)
    if not fits[0].ok:
        raise NoneFits(f"{none_fits(fits)}; tune and pack it on a machine like this one, then push.")
    fitting = [fit for fit in fits if fit.ok]
    return fitting if model is not None else [fit._replace(note=about_weights(fits, fit)) for fit in fitting]


def _of_model(found: Listing, wanted: str | ModelFingerprint | None, url: str) -> list[StoreEntry]:
    if not found.entries:
        damaged = f" ({len(found.problems)} damaged index entries)" if found.problems else ""
        raise StoreError(f"{url} holds no bundles{damaged}; put one there with 'compilot push'.")
    entries = _wanted(found.entries, wanted)
    if not entries:
        raise NoneFits(f"none fits: {url} has no bundle of that model; it has {_models(found.entries)}.")
    if not isinstance(wanted, ModelFingerprint) and len({entry.model_id for entry in entries}) > 1:
        raise InputError(f"{url} has bundles of several models; say which model: {_models(entries)}.")
    return entries


def _wanted(entries: Iterable[StoreEntry], wanted: str | ModelFingerprint | None) -> list[StoreEntry]:
    """Bundles of the wanted model; a fingerprint without any gets those of its class: their fit says what differs."""
    if not isinstance(wanted, ModelFingerprint):
        return [entry for entry in entries if wanted is None or _is_called(entry, wanted)]
    same = [entry for entry in entries if entry.model_id == model_id(wanted)]
    return same or [entry for entry in entries if entry.fingerprint.model.class_name == wanted.class_name]


def _is_called(entry: StoreEntry, name: str) -> bool:
    """By class name, or by the beginning of what 'store ls' shows: bundle, model, weights."""
    ids = (entry.sha256, entry.model_id, entry.weights)
    return entry.label == name or (len(name) >= SHORTEST_ID and any(one.startswith(name) for one in ids))


def _models(entries: Iterable[StoreEntry]) -> str:
    return ", ".join(sorted({f"{entry.label} ({entry.model_id})" for entry in entries}))


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
