"""How a store is laid out: what is where, and why nobody can get in anybody's way.

    objects/ab/ab12....cpbundle                         a bundle, by the SHA-256 of its bytes; written once
    index/MODEL/MACHINE/CREATED.WEIGHTS.ab12....json    one small StoreEntry for each bundle
    names/NAME/MODEL.KIND                               which models are called so: by label, or by class

In: a bundle's description. Out: names and bytes. MODEL and MACHINE are digests of the fingerprints, so that a bundle
for a model is found by listing one prefix; CREATED and WEIGHTS tell which entries are worth reading. There is no
central index that two pushes could fight over: an index entry is written after its object, and all have names that only
the same content can have. Names are a help: models without them are found by one of their entries. Before names there
was only index/MODEL/MACHINE/ab12....json: such entries are read as they are.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from compilot.records import Fingerprint, MachineFingerprint, ModelFingerprint, Record

STORE_SCHEMA = 2  # raised when an older compilot could misread an entry; it leaves those alone. 2: as the plan's
INDEX = "index"
OBJECTS = "objects"
NAMES = "names"
SUFFIX = ".cpbundle"
ID_DIGITS = 16  # of a model or machine: enough to be unique, short enough to type
MAX_ENTRY_BYTES = 2**20  # an entry has about a kilobyte
ANY_WEIGHTS = "any"  # in a name: the bundle runs with whatever weights the user's model has
CARRIED = "c"  # in a name, after the weights: they go into the user's model, whatever it has
_ID = rf"[0-9a-f]{{{ID_DIGITS}}}"
_FACTS = rf"(?:(\d{{0,14}})\.({ANY_WEIGHTS}|{_ID})({CARRIED}?)\.)?"
_INDEX_NAME = re.compile(rf"{INDEX}/({_ID})/({_ID})/{_FACTS}([0-9a-f]{{64}})\.json")
_NAMED = re.compile(rf"{NAMES}/([^/]+)/({_ID})\.(label|class)")
_SHA256 = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_OBJECT_NAME = re.compile(rf"{OBJECTS}/[0-9a-f]{{2}}/([0-9a-f]{{64}}){re.escape(SUFFIX)}")


class Description(NamedTuple):
    """What a bundle says about itself."""

    label: str
    engine: str  # of the first entry
    engines: tuple[str, ...]  # of all entries
    needs_compiler: bool  # at the start
    carries_weights: bool  # for the user's model, whatever that one's are
    bundle_schema: int
    created: str
    compilot: str
    fingerprint: Fingerprint


class Unreadable(NamedTuple):
    """An index file that is no entry, to this compilot."""

    why: str
    is_garbage: bool  # no compilot could use it; otherwise another version may


class StoreEntry(Record, frozen=True, kw_only=True):
    """One bundle in a store: enough to choose it without fetching it."""

    schema: int
    sha256: str  # of the whole file
    size_bytes: int
    label: str
    engine: str  # of the first entry
    engines: tuple[str, ...] = ()  # of all entries
    needs_compiler: bool = False  # at the start
    carries_weights: bool = False  # for the user's model, whatever that one's are
    bundle_schema: int = 1  # entries that do not tell are from the time of the first
    created: str
    compilot: str
    fingerprint: Fingerprint
    signed_by: str | None = None  # id of the key, as the bundle says; "": not signed; None: the entry does not tell

    @property
    def model_id(self) -> str:
        """The id that `pull --model` takes."""
        return model_id(self.fingerprint.model)

    @property
    def weights(self) -> str:
        """The digest of the weights that it holds or is bound to, "" where it runs with any."""
        return self.fingerprint.model.weights_sha256 or ""

    @property
    def object_name(self) -> str:
        return object_name(self.sha256)

    @property
    def index_name(self) -> str:
        folder, _, file = self.old_index_name.rpartition("/")
        created = re.sub(r"\D", "", self.created, flags=re.ASCII)[:14]  # UTC: to the second
        weights = self.weights[:ID_DIGITS] or ANY_WEIGHTS
        return f"{folder}/{created}.{weights}{CARRIED if self.carries_weights else ''}.{file}"

    @property
    def old_index_name(self) -> str:
        """Its name before names told anything but the digest."""
        return f"{INDEX}/{self.model_id}/{machine_id(self.fingerprint.machine)}/{self.sha256}.json"

    @property
    def names(self) -> tuple[str, ...]:
        """The small files by which its model is found."""
        called = {"label": self.label, "class": self.fingerprint.model.class_name}
        return tuple(f"{NAMES}/{quote(name, safe='')}/{self.model_id}.{kind}" for kind, name in called.items() if name)


def make_entry(description: Description, sha256: str, size_bytes: int, signed_by: str) -> StoreEntry:
    """The index entry of a bundle; signed_by: the id of a key, "" for none."""
    told = description._asdict()
    return StoreEntry(schema=STORE_SCHEMA, sha256=sha256, size_bytes=size_bytes, signed_by=signed_by, **told)


class _Schema(msgspec.Struct):
    schema: int


def parse_entry(name: str, data: bytes) -> StoreEntry | Unreadable:
    """The entry in an index file, or why it is none; what another version of compilot may have made is no garbage."""
    if len(data) > MAX_ENTRY_BYTES:
        return Unreadable(f"{name} has {len(data)} bytes, too many for an entry", False)
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return Unreadable(f"{name} cannot be read: {problem}", True)
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema != STORE_SCHEMA:
            return Unreadable(f"{name} has store schema {schema}, this compilot reads {STORE_SCHEMA}", False)
        entry = msgspec.json.decode(data, type=StoreEntry)
    except msgspec.DecodeError as problem:
        return Unreadable(f"{name} is of another version of compilot: {problem}", False)
    own = {entry.index_name, entry.old_index_name}
    return entry if name in own else Unreadable(f"{name} is not about what its name says", True)


class IndexName(NamedTuple):
    """What the name of an index entry tells; an old one tells neither age nor weights."""

    name: str
    model: str
    machine: str
    sha256: str
    created: str | None  # digits that sort by age
    weights: str | None  # the first digits of its digest, "" for any
    carried: bool  # its weights go into the user's model, whatever it has


def parse_name(name: str) -> IndexName | None:
    """What a name tells; None: it is not that of an index entry."""
    match = _INDEX_NAME.fullmatch(name)
    if match is None:
        return None
    model, machine, created, weights, carried, sha256 = match.groups()
    known = "" if weights == ANY_WEIGHTS else weights
    return IndexName(name, model, machine, sha256, created, known, bool(carried))


class ModelName(NamedTuple):
    """One name of a model."""

    model: str  # its id
    name: str
    kind: str  # "label" or "class"


def parse_model_name(name: str) -> ModelName | None:
    """What a file below `names` says; None: it is somebody else's."""
    match = _NAMED.fullmatch(name)
    return ModelName(match[2], unquote(match[1]), match[3]) if match else None


def model_id(model: ModelFingerprint) -> str:
    """Equal for models that the same plan can serve; weight values do not count, they are looked at later."""
    return _digest(model.class_name, model.code_sha256, model.structure_sha256, model.parameters_sha256)


def machine_id(machine: MachineFingerprint) -> str:
    """Equal for machines and processes with the same fingerprint."""
    return _digest(msgspec.json.encode(machine, order="sorted").decode())


def is_index_name(name: str) -> bool:
    """True for the name of an index entry; a store may hold other people's files too."""
    return _INDEX_NAME.fullmatch(name) is not None


def object_name(sha256: str) -> str:
    """Where the bundle with this digest lies."""
    return f"{OBJECTS}/{sha256[:2]}/{sha256}{SUFFIX}"


def named_objects(index_name: str) -> set[str]:
    """The objects that a file in the index speaks of, by its name alone, whatever version wrote it."""
    return {object_name(sha256) for sha256 in _SHA256.findall(index_name)}


def object_digest(name: str) -> str | None:
    """The SHA-256 that an object's name promises; None: it is no object."""
    match = _OBJECT_NAME.fullmatch(name)
    return match[1] if match else None


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:ID_DIGITS]
