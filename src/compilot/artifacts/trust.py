"""Who may be loaded? A bundle holds native code: loading it is running it.

In: where a bundle lies, the bytes of its manifest, its signature if it has one. Out: a TrustDecision with its reason.
The one default: an unsigned bundle is loaded only if nobody but this user and root can change it; a signed one only if
a trusted key signed it. `require_signature` refuses unsigned ones altogether.
Trusted keys are the files in trusted_keys/ of compilot's configuration ($COMPILOT_CONFIG, else $XDG_CONFIG_HOME or
~/.config, /compilot), and what COMPILOT_TRUSTED_KEYS or an option names: files or folders.
Covered: files and folders with all that is in them, the folders above them (whoever can rename there can swap the
bundle), links among them, key files that others can change, paths that are exchanged between opening and asking.
Not covered: whether the files are what the manifest says (digests, where the bundle is read); root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compilot.errors import EnvironmentProblem, KeyProblem, SignatureRefused
from compilot.files.private import lets_nobody_in, others_can_change, user_folder

if TYPE_CHECKING:
    from compilot.artifacts.signing import PublicKey, Signature

KEYS_VARIABLE = "COMPILOT_TRUSTED_KEYS"
CONFIG_VARIABLE = "COMPILOT_CONFIG"


class TrustDecision(NamedTuple):
    """May this bundle be loaded?"""

    ok: bool
    why: str
    key_id: str | None = None  # the trusted key that signed it
    changeable: str = ""  # why others could still change the file: copy it to a private place before checking digests


def decide_trust(
    path: Path,
    manifest: bytes,
    signature: Signature | None,
    *,
    trusted: Sequence[PublicKey] = (),
    require_signature: bool = False,
    seen: Mapping[str, os.stat_result] | None = None,
) -> TrustDecision:
    """The default rule, applied to one bundle (a file or a folder). seen: what of it is open, see who_can_change."""
    changeable = who_can_change(path, seen)
    if signature is not None:
        return _decide_signed(manifest, signature, trusted, changeable)
    if require_signature:
        why = "it is not signed, and a signature is required; sign it where it is made ('compilot pack --sign KEY')"
        return TrustDecision(False, why, changeable=changeable)
    if changeable:
        advice = "copy it to a place of your own, or have it signed with a key you trust"
        return TrustDecision(False, f"it is not signed, and {changeable}; {advice}", changeable=changeable)
    return TrustDecision(True, "not signed; nobody but this user and root can change it")


def who_can_change(path: Path, seen: Mapping[str, os.stat_result] | None = None, growing: str | None = None) -> str:
    """Why somebody else could change the bundle, with the entry it is about; "": nobody can.

    seen: each file and folder that was opened, by its name in the bundle ("": the bundle itself), those above first;
    the path has no links then, and must lead to these very files still. None: whatever lies there now.
    growing: a folder in it in which the owner's own processes may be at work, so that entries come and go.
    The modes of what lies in a folder that lets nobody else in do not count.
    """
    shut: set[str] = set()  # folders that nobody else gets into
    try:
        path = path if seen else Path(os.path.realpath(path))
        for name, opened in (seen or look(path)).items():
            shut_in = bool(name) and os.path.dirname(name) in shut
            comes_and_goes = growing is not None and name.startswith(f"{growing}/")
            if why := _why_changeable(path / name, opened, not name, shut_in, comes_and_goes):
                return f"{path / name}: {why}"
            if lets_nobody_in(opened) or (shut_in and stat.S_ISDIR(opened.st_mode)):
                shut.add(name)
    except OSError as problem:
        return f"{problem.filename or path} cannot be looked at ({problem.strerror or problem})"
    return ""


def _why_changeable(path: Path, opened: os.stat_result, above: bool, shut_in: bool, comes_and_goes: bool) -> str:
    if not comes_and_goes:
        return others_can_change(path, opened, above=above, shut_in=shut_in)
    try:
        return others_can_change(path, above=above, shut_in=shut_in)
    except FileNotFoundError:
        return ""


def trusted_keys(paths: Sequence[Path] = ()) -> tuple[PublicKey, ...]:
    """Every key trusted here: the folder of the configuration, the environment, and these files or folders."""
    named = [Path(part) for part in os.environ.get(KEYS_VARIABLE, "").split(os.pathsep) if part]
    keys: dict[str, PublicKey] = {}
    for place in (*_usual_folder(), *named, *paths):
        for file in _key_files(place):
            key = _load_safely(file)
            keys.setdefault(key.key_id, key)
    return tuple(keys.values())


def trusted_folder() -> Path:
    """Where 'compilot keys trust' puts keys."""
    return user_folder(CONFIG_VARIABLE, "XDG_CONFIG_HOME", ".config") / "trusted_keys"


def _decide_signed(
    manifest: bytes, signature: Signature, trusted: Sequence[PublicKey], changeable: str
) -> TrustDecision:
    from compilot.artifacts.signing import verify  # here and below: an unsigned bundle's start does not pay for it

    try:
        key_id = verify(manifest, signature, trusted)
    except SignatureRefused as problem:
        return TrustDecision(False, str(problem).removesuffix("."), changeable=changeable)
    return TrustDecision(True, f"signed with trusted key {key_id}", key_id, changeable)


def look(path: Path) -> dict[str, os.stat_result]:
    """What lies at a path: it itself as "", and all that is in it by name, those above first; no link is followed."""
    found = {"": path.lstat()}
    for root, folders, files in os.walk(path):
        for entry in (os.path.join(root, name) for name in (*folders, *files)):
            with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                found[os.path.relpath(entry, path)] = os.lstat(entry)
    return found


def _usual_folder() -> Iterator[Path]:
    try:
        folder = trusted_folder()
    except EnvironmentProblem:
        return  # no HOME: no folder of trusted keys
    if folder.is_dir():
        yield folder


def _key_files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    from compilot.artifacts.signing import PUBLIC_SUFFIX

    place = Path(os.path.realpath(place))
    must_be_safe(place)
    return sorted(place.glob(f"*{PUBLIC_SUFFIX}"))


def _load_safely(file: Path) -> PublicKey:
    from compilot.artifacts.signing import load_public_key

    place = Path(os.path.realpath(file))
    return load_public_key(place, lambda opened: must_be_safe(place, opened))._replace(path=file)


def must_be_safe(place: Path, opened: os.stat_result | None = None) -> None:
    """A KeyProblem if others can change a key file, or a folder of them; the path without links, and what is read."""
    why = others_can_change(place, opened)
    if why:
        raise KeyProblem(f"{place} cannot say whom to trust: {why}.")
