"""A fleet on the story's cluster: four models for two kinds of machines, up to signed bundles in a store.

Both kinds are this machine: one node was started on one core only, and is labelled `large`. The commands are those that
a user types; the engine is in the manifest's folder, announced as an installed package's is, so that nodes have it from
there alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODELS = ("ash", "birch", "cedar", "dogwood")
MANIFEST = """
[defaults]
budget = "90s"
engines = ["quick"]

[machines]
usual = { labels = { kind = "w" } }
large = { labels = { pool = "large" } }

[models]
"""


@contextmanager
def one_core() -> Iterator[None]:
    """Processes that are started meanwhile have one core, and so do theirs."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def prepared(folder: Path) -> Path:
    """A folder with the manifest, the models and their engine."""
    place = folder / "fleet"
    place.mkdir()
    for name in ("sleepy_fleet.py", "sleepy_model.py", "sleepy_engines.py"):
        shutil.copy(HERE / name, place)
    lines = [f'{name} = {{ target = "sleepy_fleet.py:{name}" }}' for name in MODELS]
    (place / "fleet.toml").write_text(MANIFEST + "\n".join(lines))
    announced = place / "sleepy-1.dist-info"
    announced.mkdir()
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: sleepy\nVersion: 1\n")
    (announced / "entry_points.txt").write_text("[compilot.engines]\nquick = sleepy_engines:quick\n")
    return place


def commanded(place: Path, *words: str) -> dict[str, Any]:
    """What `compilot fleet` said, as JSON."""
    command = [sys.executable, "-m", "compilot", "fleet", *words, "--json"]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    try:
        return {"code": ended.returncode, **json.loads(ended.stdout)}
    except json.JSONDecodeError:
        return {"code": ended.returncode, "out": ended.stdout, "error": ended.stderr[-3000:]}


USE = """
import json, sys
sys.path.insert(0, "")
import compilot, sleepy_fleet, torch
known = {"trusted_keys": ["release.pub"], "require_signature": True}
pulled = compilot.pull("../store", "pulled.cpbundle", model="Ash", **known)
fast = compilot.load("../store", model="Ash", **known)
model, args = sleepy_fleet.ash()
with torch.no_grad():
    same = torch.allclose(fast(*args), model(*args), atol=1e-5)
print(json.dumps({"same": same, "bundle": pulled.sha256}))
"""


def consumer(place: Path, *pinned: str) -> dict[str, Any]:
    """What a machine that uses the store gets, with these words before the interpreter."""
    ended = subprocess.run([*pinned, sys.executable, "-c", USE], cwd=place, capture_output=True, text=True, check=False)
    try:
        told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (json.JSONDecodeError, IndexError):
        return {"error": ended.stderr[-2000:]}
    return told


def other_weights(place: Path) -> None:
    """Weights for one of the models, beside its code."""
    import torch
    from sleepy_fleet import birch

    model, _ = birch()
    torch.save({name: value + 1 for name, value in model.state_dict().items()}, place / "birch.pt")


def tell_fleet(story: Any, cluster: Any, client: str, folder: Path) -> None:
    """The cluster has nodes of the kind w; one more is started here."""
    import compilot

    place = prepared(folder)
    with one_core():
        small = cluster.add_node(num_cpus=1, labels={"pool": "large"})
    compilot.keys.new(place / "release")
    usual = ("fleet.toml", "--store", "../store", "--sign", "release")
    first = commanded(place, *usual, "--on", cluster.address)
    built = story.builds()
    again = commanded(place, *usual, "--on", client)
    built_again = story.builds()
    other_weights(place)
    changed = commanded(place, *usual, "--on", cluster.address)
    story.tell(
        "fleet",
        first=first,
        built=built,
        again=again,
        built_again=built_again,
        changed=changed,
        built_changed=story.builds(),
        cores=len(os.sched_getaffinity(0)),
    )
    story.tell(
        "consumers", usual=consumer(place), large=consumer(place, "taskset", "-c", str(min(os.sched_getaffinity(0))))
    )
    cluster.remove_node(small)
