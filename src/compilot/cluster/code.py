"""The user's code on another machine. In: a shipment with this machine's paths. Out: folders of files that go along.

A target in a file goes with everything in its folder, as `python file.py` would find it; a target in a module, and an
engine that was registered here, with their package; live objects with the modules of the user's that are loaded.
Installed packages (site-packages) do not go: a node has its own. On the node the paths are those of where the files
are there; a node that has the same files at the same path (a shared folder, or the same machine) uses those.
Covered: links to files (a mounted ConfigMap has nothing else); private keys, which stay on this machine.
Not covered: files elsewhere that a factory reads; put them beside the target, or at the same path on every node. Links
to folders; keys in other forms than PEM.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from compilot.cluster import moving
from compilot.cluster.facts import CodeFolder
from compilot.errors import InputError
from compilot.records import Shipment
from compilot.workload.place import parse_target

MOST_BYTES = 1 << 30
MOST_FILES = 20_000
SKIPPED = {"__pycache__", "node_modules", "compilot-runs", "compilot-fleet", "site-packages"}
RUN, VENV = "journal.jsonl", "pyvenv.cfg"  # a folder with one of these holds no code of the user's
KEY_FILE_BYTES = 1 << 20  # a key has a few thousand; certificates before it, or JSON around it, some more
# The header alone is no key: code that looks for keys has it, too. Keys in JSON have \n as two characters.
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[rn])+(?:[\w+/=]{16}|[\w-]+:)")


def folders_of(shipment: Shipment, left_out: Sequence[Path] = ()) -> tuple[CodeFolder, ...]:
    """The files that a node needs to open it; left_out: as for `tree`."""
    found: dict[Path, set[Path]] = {}
    for root, files in _needed(shipment, left_out):
        found.setdefault(root, set()).update(files)
    return tuple(folder_of(root, files) for root, files in found.items() if files)


def folder_of(root: Path, files: Iterable[Path] | None = None) -> CodeFolder:
    """These files of a folder, or all of them, with their digests."""
    chosen = sorted(tree(root) if files is None else files)
    _refuse_many(root, chosen)
    facts = tuple(moving.fact(root, path) for path in chosen)
    key = hashlib.sha256(msgspec.json.encode((str(root), facts))).hexdigest()[:16]
    return CodeFolder(root=str(root), files=facts, key=key)


def translated(shipment: Shipment, places: Mapping[str, Path], work: Path) -> Shipment:
    """The shipment with the node's paths: places has where each root is there; work is a folder that exists."""

    def there(path: str) -> str:
        for root, place in places.items():
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return str(place) + path[len(root.rstrip("/")) :]
        return path

    target = shipment.target
    if target is not None and (file := parse_file(target)):
        target = f"{there(file)}:{target.rpartition(':')[2]}"
    cwd = there(shipment.cwd)
    own = tuple(dict.fromkeys(there(entry) for entry in shipment.sys_path))
    return msgspec.structs.replace(
        shipment,
        target=target,
        cwd=cwd if Path(cwd).is_dir() else str(work),
        sys_path=tuple(dict.fromkeys((*(str(place) for place in places.values()), *_user_entries(own)))),
    )


def parse_file(target: str) -> str | None:
    """The file of a target that names one; nothing is looked for on the disk."""
    module = target.rpartition(":")[0]
    return module if module.endswith(".py") else None


def tree(root: Path, left_out: Iterable[Path] = ()) -> Iterator[Path]:
    """Every file below a folder, without hidden ones, environments, runs and private keys.

    left_out: files and folders below it that do not go, either; the folder itself always does.
    """
    without = {path.resolve() for path in left_out}
    for place, folders, names in os.walk(root):
        if place != str(root) and {RUN, VENV} & set(names):
            folders[:] = []
            continue
        shown = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        folders[:] = [name for name in shown if Path(place, name).resolve() not in without]
        paths = [Path(place, name) for name in names if not name.startswith(".")]
        goes = (path for path in paths if path.is_file() and path.resolve() not in without)
        yield from (path for path in goes if not holds_private_key(path))


def holds_private_key(path: Path) -> bool:
    """Whether a file is a secret, or has one in it."""
    return path.stat().st_size <= KEY_FILE_BYTES and PRIVATE_KEY.search(path.read_bytes()) is not None


def _needed(shipment: Shipment, left_out: Sequence[Path]) -> Iterator[tuple[Path, Iterable[Path]]]:
    if shipment.target is not None and (file := parse_file(shipment.target)):
        yield Path(file).parent, tree(Path(file).parent, left_out)
    elif shipment.target is not None:
        yield from _package(parse_target(shipment.target).module, (*shipment.sys_path, shipment.cwd), left_out)
    else:
        yield from _loaded(shipment.sys_path)
    for module in shipment.engine_modules:
        yield from _package(module, shipment.sys_path, left_out)


def _package(module: str, path: Sequence[str], left_out: Sequence[Path]) -> Iterator[tuple[Path, Iterable[Path]]]:
    """The top package of a module, where it is the user's own."""
    top = module.partition(".")[0]
    for entry in _user_entries(path):
        root = Path(entry)
        if (root / top).is_dir():
            yield root, tree(root / top, left_out)
            return
        if (root / f"{top}.py").is_file():
            yield root, [root / f"{top}.py"]
            return


def _loaded(path: Sequence[str]) -> Iterator[tuple[Path, Iterable[Path]]]:
    """The files of modules that this process has imported from the user's own folders."""
    roots = sorted((Path(entry) for entry in _user_entries(path)), key=lambda root: -len(root.parts))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and _is_users(file):
            found = Path(file).absolute()
            root = next((root for root in roots if root in found.parents), None)
            if root is not None and found.is_file():
                yield root, [found]


def _user_entries(path: Sequence[str]) -> list[str]:
    return [entry for entry in dict.fromkeys(path) if entry and _is_users(entry)]


def _is_users(path: str) -> bool:
    """Neither Python's own nor installed; compilot itself is installed on every node."""
    own = Path(__file__).parents[2]
    fixed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    inside = any(Path(path) == Path(place) or Path(place) in Path(path).parents for place in (*fixed, str(own)))
    return not inside and "site-packages" not in path and not path.endswith(".zip")


def _refuse_many(root: Path, files: Sequence[Path]) -> None:
    total = sum(path.stat().st_size for path in files)
    if total > MOST_BYTES or len(files) > MOST_FILES:
        raise InputError(
            f"{root} has {len(files)} files with {total >> 20} MiB, too much to bring to every node (at most "
            f"{MOST_BYTES >> 20} MiB in {MOST_FILES} files); put the target into a folder of its own."
        )
