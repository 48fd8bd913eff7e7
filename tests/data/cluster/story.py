"""What the cluster's tests look at: runs on a real Ray cluster whose nodes come and go. Started by test_cluster.py.

    python story.py FOLDER [PART ...]   in a network namespace that has only loopback; these parts, or all of it
    python story.py FOLDER drive    one run, as a process that can be killed; --resume continues it

Writes story.json into FOLDER: for each run its decision, what it said, which nodes built what. The run directories stay
beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet_story import tell_fleet

HERE = Path(__file__).parent
ENGINES = "quick,middling,plodding"
BUDGET = "150s"
CLIENT_PORT = 10001  # the network is the story's own
CLIENT = f"ray://127.0.0.1:{CLIENT_PORT}"


class Story:
    """A folder with runs, and what was seen of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[str, Any] = {}
        self.begin = time.monotonic()

    def tell(self, name: str, **facts: Any) -> None:
        self.seen[name] = facts
        (self.folder / "story.json").write_text(json.dumps(self.seen))
        print(f"[{time.monotonic() - self.begin:.1f}] {name}: {facts}", file=sys.stderr, flush=True)

    def builds(self) -> list[str]:
        """What was built since somebody asked."""
        path = Path(os.environ["SLEEPY_BUILDS"])
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def prepare(folder: Path) -> None:
    """One lease and one place for the nodes' files, apart from whatever else this machine does."""
    for name in ("COMPILOT_LEASES", "COMPILOT_NODE_FOLDER"):
        os.environ[name] = str(folder)
    os.environ["SLEEPY_BUILDS"] = str(folder / "builds")  # before the nodes start: they have it from here
    os.environ["COMPILOT_CACHE"] = str(folder / "cache")
    Path(os.environ["COMPILOT_CACHE"]).mkdir(mode=0o700, exist_ok=True)
    sys.path.insert(0, str(HERE))


def target(folder: Path) -> str:
    return f"{folder}/sleepy_model.py:model"


def drive(folder: Path, resume: bool) -> None:
    """One run on the cluster, from a folder that only this process sees."""
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(hidden)], check=True)
    for path in HERE.glob("sleepy_*.py"):
        shutil.copy(path, hidden)
    sys.path.remove(str(HERE))
    sys.path.insert(0, str(hidden))
    import sleepy_engines  # noqa: F401  # registers them

    import compilot

    run = str(folder / "killed")
    if resume:
        compilot.tune(resume=run, pack=None)
    else:
        address = os.environ["STORY_ADDRESS"]
        compilot.tune(target(hidden), engines=ENGINES, budget=BUDGET, out=run, on=address, nodes={"kind": "w"})


def tell_all(folder: Path) -> None:
    import ray
    import sleepy_engines  # noqa: F401
    from ray.cluster_utils import Cluster

    import compilot

    story = Story(folder)
    head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": CLIENT_PORT}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [add(cluster) for _ in range(2)]

    class Watcher(compilot.Observer):
        """Keeps what is said, and strikes when a node is at something."""

        def __init__(self) -> None:
            self.notes: list[str] = []
            self.at: list[tuple[str, str]] = []
            self.strike: Callable[[str, str], None] = lambda node, text: None
            self.on_race: Callable[[str], None] = lambda purpose: None

        def note(self, text: str) -> None:
            self.notes.append(text)

        def at_node(self, node: str, text: str) -> None:
            self.at.append((node, text))
            self.strike(node, text)

        def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
            self.on_race(purpose)

    def run(name: str, watcher: Watcher, **where: Any) -> None:
        try:
            plan = compilot.tune(
                target(HERE), engines=ENGINES, budget=BUDGET, out=folder / name, observer=watcher, **where
            )
            ended: dict[str, Any] = {"chosen": plan.entries[0].candidate.label if plan.entries else "eager"}
        except compilot.CompilotError as problem:
            ended = {"error": f"{type(problem).__name__}: {problem}"}
        story.tell(name, **ended, notes=watcher.notes, at=watcher.at, builds=story.builds())

    parts = sys.argv[2:] or ["calm", "removed", "killed", "fleet", "client"]
    if "calm" in parts:
        run("local", Watcher())
        run("calm", Watcher(), on=cluster.address)

    # ------------------------------------------------ nodes removed in the middle of a build, of a trial and of a race
    if "removed" in parts:
        nodes.append(add(cluster))
        watcher, struck, wanted = Watcher(), dict[str, str](), threading.Event()

        def remove(moment: str, name: str) -> None:
            if moment not in struck and (node := named(nodes, name)) is not None:
                struck[moment] = name
                nodes.remove(node)
                threading.Thread(target=gone, args=(moment, node)).start()

        def gone(moment: str, node: Any) -> None:
            cluster.remove_node(node, allow_graceful=False)
            if moment == "trial":
                wanted.set()  # for the race: another one must be there then

        def strike(name: str, text: str) -> None:
            if "building" in text and "eager" not in text:
                remove("build", name)
            elif "pairing" in text and "build" in struck and struck["build"] != name:
                remove("trial", name)

        def on_race(purpose: str) -> None:
            if purpose == "race" and {"build", "trial"} <= struck.keys():
                remove("race", first_of(watcher))

        watcher.strike, watcher.on_race = strike, on_race
        labelled = {"on": cluster.address, "nodes": {"kind": "w"}}
        tuning = threading.Thread(target=run, args=("removed", watcher), kwargs=labelled)
        tuning.start()
        while tuning.is_alive():
            tuning.join(0.2)
            if wanted.is_set():
                wanted.clear()
                nodes.append(add(cluster))  # Ray starts nodes in the main thread only
        story.seen["removed"]["struck"] = struck

    # --------------------------------------------------------------------------------------------- the driver is killed
    if "killed" in parts:
        while len(nodes) < 2:
            nodes.append(add(cluster))
        env = {**os.environ, "STORY_ADDRESS": cluster.address}
        command = ["unshare", "-m", sys.executable, __file__, str(folder), "drive"]
        with (folder / "driver.log").open("w") as log:
            driver = subprocess.Popen(command, env=env, stderr=log, start_new_session=True)
            journal = folder / "killed" / "journal.jsonl"
            while driver.poll() is None and (not journal.exists() or journal.read_text().count('"type":"trial"') < 2):
                time.sleep(0.05)  # eager and one candidate
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            before = journal.read_text() if journal.exists() else ""
            built = story.builds()
            again = subprocess.run([*command, "--resume"], env=env, stderr=log, check=False)
        story.tell(
            "killed", before=before, resumed=again.returncode, builds=[built, story.builds()], log=log_of(folder)
        )

    # ---------------------------------------------------------- many models; a real engine, by another kind of address
    if "fleet" in parts:
        tell_fleet(story, cluster, CLIENT, folder)
    if "client" in parts:
        tell_client(story, folder)

    # -------------------------------------------------------------------------------------- what cannot be placed, said
    from compilot.cluster.nodes import Cluster as Nodes

    try:
        Nodes(cluster.address, labels={"kind": "gpu"}, wait_s=2.0).nodes()
    except compilot.CompilotError as problem:
        story.tell("unplaceable", error=str(problem))
    with Nodes(cluster.address, HERE) as ours:
        found = ours.nodes()
        answers = [ours.call(one.id, "sleepy_answers:where", b"asked").result(60).decode() for one in found]
        story.tell(
            "nodes", found=[[one.name, one.host, one.labels, one.fingerprint.threads] for one in found], answers=answers
        )
    ray.shutdown()
    cluster.shutdown()
    story.tell("end", left=[path.name for path in folder.glob("compilot-nodes-*/*")])


def tell_client(story: Story, folder: Path) -> None:
    """A run with a real engine, as a user types it on a machine that is no node of the cluster."""
    words = ["tune", f"{HERE.parent / 'bundling.py'}:one", "--engines", "onnxruntime", "--budget", "60s"]
    where = ["--on", CLIENT, "--out", str(folder / "client"), "--json"]
    command = [sys.executable, "-m", "compilot", *words, *where]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    story.tell("client", code=ended.returncode, out=ended.stdout, error=ended.stderr[-3000:])


def first_of(watcher: Any) -> str:
    """The node that has the races: the last one that was told so, or the one that no note names."""
    told = [note.split(" ")[0] for note in watcher.notes if "has the races" in note]
    if told:
        return str(told[-1])
    joined = {note.split(" ")[0] for note in watcher.notes if "takes candidates" in note}
    return next(name for name, _ in watcher.at if name not in joined)


def add(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, labels={"kind": "w"})


def named(nodes: list[Any], name: str) -> Any:
    return next((node for node in nodes if name.endswith(node.node_id[:6])), None)


def log_of(folder: Path) -> str:
    return (folder / "driver.log").read_text()


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
    if "drive" in sys.argv:
        drive(Path(sys.argv[1]), "--resume" in sys.argv)
    else:
        tell_all(Path(sys.argv[1]))
