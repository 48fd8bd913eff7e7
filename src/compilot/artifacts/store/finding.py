"""Which entries of a store are worth reading, however large it is.

In: a store, and which model. Out: the model's entries, and what else the store has, from a few listings by prefix; an
entry is read only when its name cannot be ruled out. With 10^5 bundles that is some hundred small files, not all.
Covered: stores of before names told anything (every entry of the model is read then). Not covered: which one fits
(fit.py), listing everything (`listing` in __init__.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from compilot.artifacts.store.layout import (
    ID_DIGITS,
    INDEX,
    NAMES,
    IndexName,
    StoreEntry,
    Unreadable,
    model_id,
    parse_entry,
    parse_model_name,
    parse_name,
)
from compilot.artifacts.store.remote import Remote
from compilot.records import ModelFingerprint

SHORTEST_ID = 4  # digits of a digest that are taken for one


class Model(NamedTuple):
    """One model of a store."""

    id: str
    label: str
    class_name: str


class Candidates(NamedTuple):
    """The entries to choose from, by name alone; and what else is there, for the sentence where none is."""

    names: tuple[IndexName, ...]
    models: tuple[Model, ...]  # all of the store, or () where nobody had to look


def candidates(remote: Remote, wanted: str | ModelFingerprint | None) -> Candidates:
    """The entries of the wanted model; of a fingerprint that the store does not have, those of its class."""
    if isinstance(wanted, ModelFingerprint):
        own = names_of(remote, [model_id(wanted)])
        return Candidates(own, ()) if own else _called(remote, lambda model: model.class_name == wanted.class_name)
    if wanted is None:
        return _called(remote, lambda model: True)
    found = _called(remote, lambda model: model.label == wanted)
    if found.names or len(wanted) < SHORTEST_ID:
        return found
    return found._replace(names=_by_id(remote, wanted))


def _called(remote: Remote, is_wanted: Callable[[Model], bool]) -> Candidates:
    models = models_of(remote)
    return Candidates(names_of(remote, [model.id for model in models if is_wanted(model)]), models)


def _by_id(remote: Remote, wanted: str) -> tuple[IndexName, ...]:
    """By the beginning of a model's id, else of a bundle's or of its weights': for those all names are looked at."""
    models = [model for model in remote.folders(INDEX) if model.startswith(wanted)]
    if models:
        return names_of(remote, models)
    everything = names_of(remote)
    digits = wanted[:ID_DIGITS]
    bundles = tuple(one for one in everything if one.sha256.startswith(wanted))
    return bundles or tuple(one for one in told(remote, everything) if (one.weights or "").startswith(digits))


def names_of(remote: Remote, models: Sequence[str] | None = None) -> tuple[IndexName, ...]:
    """The names of all entries of some models, each bundle once; None: of every model."""
    prefixes = [INDEX] if models is None else [f"{INDEX}/{model}" for model in models]
    found = (parse_name(name) for prefix in prefixes for name in remote.sizes(prefix))
    return _once(one for one in found if one is not None)


def _once(names: Iterable[IndexName]) -> tuple[IndexName, ...]:
    """A bundle that was pushed again has an old name and one that tells more."""
    kept: dict[tuple[str, str, str], IndexName] = {}
    for one in names:
        key = (one.model, one.machine, one.sha256)
        if key not in kept or one.created is not None:
            kept[key] = one
    return tuple(kept.values())


def models_of(remote: Remote) -> tuple[Model, ...]:
    """Every model that a store has bundles of."""
    there = remote.folders(INDEX)
    named: dict[str, dict[str, str]] = {}
    for one in map(parse_model_name, remote.sizes(NAMES)):
        if one is not None:
            named.setdefault(one.model, {})[one.kind] = one.name
    models = [_model(remote, model, named.get(model, {})) for model in sorted(there)]
    return tuple(model for model in models if model is not None)


def _model(remote: Remote, model: str, named: dict[str, str]) -> Model | None:
    """By its names, else by the first of its entries that can be read; None: it has none."""
    if "label" in named:
        return Model(model, named["label"], named.get("class", ""))
    for one in names_of(remote, [model]):
        for entry in read(remote, [one]).values():
            return Model(model, entry.label, entry.fingerprint.model.class_name)
    return None


def read(remote: Remote, names: Iterable[IndexName]) -> dict[str, StoreEntry]:
    """The entries that can be read, by name."""
    found = remote.read([one.name for one in names])
    parsed = {name: parse_entry(name, data) for name, data in found.items()}
    return {name: entry for name, entry in parsed.items() if not isinstance(entry, Unreadable)}


def told(remote: Remote, names: Iterable[IndexName]) -> tuple[IndexName, ...]:
    """The same with age and weights of every one: old names do not tell, so those entries are read."""
    names = tuple(names)
    entries = read(remote, [one for one in names if one.created is None])
    return tuple(_filled(one, entries) for one in names if one.created is not None or one.name in entries)


def _filled(one: IndexName, entries: dict[str, StoreEntry]) -> IndexName:
    if one.created is not None:
        return one
    known = parse_name(entries[one.name].index_name)
    assert known is not None  # a name of our own
    return known._replace(name=one.name)


def weights_by_age(names: Iterable[IndexName]) -> list[str]:
    """The sets of weights that bundles are bound to, the newest first; as old as the first bundle with them."""
    first: dict[str, str] = {}
    for one in names:
        if one.weights and one.created is not None:
            first[one.weights] = min(one.created, first.get(one.weights, one.created))
    return sorted(first, key=lambda weights: (first[weights], weights), reverse=True)


def is_for_another(one: IndexName, model: ModelFingerprint | None) -> bool:
    """Whether the name tells that it is for another model than this one, or for other weights."""
    if model is None:
        return False
    mine = (model.weights_sha256 or "")[:ID_DIGITS]
    return one.model != model_id(model) or bool(mine and one.weights and one.weights != mine and not one.carried)


def in_groups(names: Iterable[IndexName], model: ModelFingerprint | None) -> Iterator[list[IndexName]]:
    """The names in the order in which they are worth reading: those with the newest weights first.

    Whoever fits with newer weights is taken before all others, so that the first group with a fit has the best one.
    What is for another model or other weights comes last: it is read only to say so.
    """
    names = list(names)
    ages = {weights: age for age, weights in enumerate(weights_by_age(names))}

    def rank(one: IndexName) -> tuple[bool, int]:
        return is_for_another(one, model), ages.get(one.weights or "", 0)

    for _, group in groupby(sorted(names, key=rank), key=rank):
        yield list(group)
