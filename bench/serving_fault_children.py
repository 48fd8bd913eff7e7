"""Children that are killed, disks that are full, stores that are away, several processes: with real children.

In: the number of a run. Out: a Run. The first run of a case goes on until the plan is live; the others end when the
fault has its event and the child is there again. Children are not nice here: they are waited for.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from compilot.artifacts import store
from compilot.serve import SwapEvent, SwapState
from compilot.serve.records import EventKind
from serving_fault_plans import with_engine
from serving_load import AT_ONCE, LIMIT_S, Faulty, Load, Missed, Run, inputs, judged, net, own_cache

KILLED = "killed by SIGKILL"
FULL = "No space left on device"
# few calls until it is live, and a load that leaves the children some time
QUICKLY: dict[str, Any] = {"shadow": 0.5, "shadow_calls": 8, "canary_calls": 8, "margin": 1e9, "pause_s": 0.02}
MOMENTS_S = (0.0, 3.0, 0.2, 2.0, 0.5, 4.0, 1.0, 2.5, 1.5, 3.5)  # of the child's life; a build takes longer
FETCH_MOMENTS_S = tuple(moment / 2 for moment in MOMENTS_S)  # a fetch from the slow store takes longer
PIECES, PIECE_S = 20, 0.05  # of each answer of the slow store
WIDE = 512  # so that a disk is full of weights, too
ROOM = (0, 4, 16, 64, 100, 200, 300, 400, 450, 500)  # KiB; with 600 everything fits
DISK_KIB = 64 << 10
NAMESPACE = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
MOUNTED = f'mount -t tmpfs -o mode=700,size={DISK_KIB}k none "$0" && exec "$@"'
PROCESSES, THREADS = 4, 32


def is_live(load: Load) -> bool:
    """Whether a plan answers."""
    return load.swap.state is SwapState.LIVE


def kill_child(load: Load, moment_s: float) -> SwapEvent:
    """Kill the child at this moment of its life; the event that says so."""
    load.until(lambda: load.swap.building_pid is not None, "there is no child")
    pid = load.swap.building_pid
    after = len(load.events)
    time.sleep(moment_s)
    if pid is not None and load.swap.building_pid == pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return load.until_event(KILLED, after=after, kind=EventKind.POSTPONED)
    raise Missed(f"the child was gone after {moment_s} s")


def another_child(load: Load) -> None:
    """It is tried again."""
    load.until(lambda: load.swap.building_pid is not None, "it is not tried again")


# ------------------------------------------------------------------------------------------------------------- killed


def killed_building(number: int) -> Run:
    """With nothing to start from."""

    def body(load: Load) -> SwapEvent:
        found = kill_child(load, MOMENTS_S[number % len(MOMENTS_S)])
        another_child(load)
        if number == 0:
            load.until(lambda: is_live(load), "it does not go live")
        return found

    with own_cache() as folder:
        return judged(Load(net(), None, folder, **QUICKLY), body)


def killed_fetching(number: int) -> Run:
    """With a store that has the bundle and takes its time: in the middle of listings, small files, the bundle."""

    def body(load: Load) -> SwapEvent:
        found = kill_child(load, FETCH_MOMENTS_S[number % len(MOMENTS_S)])
        if number == 0:
            load.until(lambda: is_live(load), "it does not go live")
        return found

    with own_cache() as folder, slow_store(filled_store()) as url:
        return judged(Load(net(), url, folder, **QUICKLY), body)


def killed_live(number: int) -> Run:
    """While a plan is live: another one is built; in each second run the child builds for calls of another size."""
    return killed_adopting(number) if number % 2 else killed_promoting(number)


def killed_promoting(number: int) -> Run:
    """A live plan goes on."""

    def body(load: Load, engine: Faulty) -> SwapEvent:
        load.until(lambda: is_live(load), "it does not go live")
        load.swap.promote(None)
        found = kill_child(load, MOMENTS_S[number % len(MOMENTS_S)])
        if not is_live(load):
            raise Missed(f"the live plan does not go on: {load.swap.state}")
        another_child(load)
        if number == 0:
            load.until(lambda: load.swap.stats().swaps["live"] == 2, "the second one does not go live")
        return found

    return with_engine(None, body, **QUICKLY)


def killed_adopting(number: int) -> Run:
    """A live bundle goes on."""
    more = inputs(rows=3)[0]

    def body(load: Load) -> SwapEvent:
        load.until(lambda: is_live(load), "it does not go live")
        with torch.inference_mode():
            for _ in range(64):
                load.swap(more)
        found = kill_child(load, MOMENTS_S[number % len(MOMENTS_S)])
        if not is_live(load):
            raise Missed(f"the live plan does not go on: {load.swap.state}")
        another_child(load)
        return found

    with own_cache() as folder:
        return judged(Load(net(), bundle(), folder, **QUICKLY), body)


def killed_rolled_back(number: int) -> Run:
    """The live plan fails while the next one is built, and then the child is killed."""

    def body(load: Load, engine: Faulty) -> SwapEvent:
        load.until(lambda: is_live(load), "it does not go live")
        load.swap.promote(None)
        load.until(lambda: load.swap.building_pid is not None, "there is no child")

        def failing(_: int, answer: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("device lost")

        engine.fault = failing
        load.until(lambda: load.swap.state is SwapState.ROLLED_BACK, "it is not rolled back")
        found = kill_child(load, MOMENTS_S[number % len(MOMENTS_S)])
        another_child(load)
        if number == 0:
            load.until(lambda: is_live(load), "it does not go live")
        return found

    return with_engine(None, body, **QUICKLY)


@functools.cache
def bundle() -> Path:
    """A bundle of the model, built once."""
    folder = Path(tempfile.mkdtemp(prefix="serving-bundle-"))
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with own_cache() as home, Load(net(), None, home, **QUICKLY) as load:
        load.until(lambda: is_live(load), "the bundle is not built")
        [made] = (home / "cache" / "serve").glob("*/model.cpbundle")
        shutil.copy(made, folder / "model.cpbundle")
    return folder / "model.cpbundle"


@functools.cache
def filled_store() -> Path:
    """A store with that bundle."""
    place = bundle().parent / "store"
    store.push(bundle(), place.as_uri())
    return place


# --------------------------------------------------------------------------------------------------------- disk, store


def disk_full(number: int) -> Run:
    """In a process of its own, whose cache is on a disk that nobody else sees."""
    with tempfile.TemporaryDirectory() as disk:
        words = [*NAMESPACE, "sh", "-c", MOUNTED, disk, sys.executable, __file__, "disk-full", disk, str(number)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False, env=_found_here())
    try:
        return msgspec.json.decode(ran.stdout.splitlines()[-1], type=Run)
    except (IndexError, msgspec.DecodeError):
        last = (ran.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return Run(missed=(f"it was not run: {last}",), answers=0, wrong=0, failed=0)


def on_the_disk(disk: Path, number: int) -> Run:
    """The body of that process."""
    filler = disk / "filler"
    room = ROOM[number % len(ROOM)] << 10
    filler.write_bytes(b"\0" * (DISK_KIB * 1024 - room - 4096))  # a folder has a page, too
    with contextlib.suppress(OSError), (disk / "last").open("wb", buffering=0) as file:
        while not room and file.write(b"\0" * 4096):
            pass

    def body(load: Load) -> SwapEvent:
        found = load.until_event(FULL, kind=EventKind.POSTPONED)
        if number == 0:
            filler.unlink()
            load.until(lambda: is_live(load), "it does not go live on a disk with room")
        return found

    with own_cache() as folder:
        os.environ["COMPILOT_CACHE"] = str(disk / "cache")
        return judged(Load(net(width=WIDE), None, folder, **QUICKLY), body)


def store_away(number: int) -> Run:
    """Each kind of absence in turn."""

    def body(load: Load) -> SwapEvent:
        found = load.until_event(words, kind=EventKind.POSTPONED)
        if number == 0:
            shutil.copytree(filled_store(), place)
            load.until(lambda: is_live(load), "it does not go live when the store is back")
        return found

    with own_cache() as folder, contextlib.ExitStack() as stack:
        place = folder / "nowhere"
        kinds: list[Callable[[], tuple[str, str]]] = [
            lambda: (place.as_uri(), "nowhere does not exist"),
            lambda: (f"http://127.0.0.1:{_closed_port()}/bundles", "127.0.0.1"),
            lambda: (stack.enter_context(answering_with_errors()), "127.0.0.1"),
            lambda: (stack.enter_context(never_answering()), "took longer than 4 s"),
        ]
        url, words = kinds[number % len(kinds)]()
        if number == 0:
            filled_store()
        bounds = AT_ONCE._replace(limit_s=4.0) if number % len(kinds) == 3 else AT_ONCE
        return judged(Load(net(), url, folder, bounds=bounds, **QUICKLY), body)


def _closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def answering(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a web server on this machine that is there for the body."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def answering_with_errors() -> Iterator[str]:
    """A web server that is there and not well."""

    class Unwell(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with answering(Unwell) as url:
        yield f"{url}/bundles"


@contextlib.contextmanager
def slow_store(place: Path) -> Iterator[str]:
    """A web server with these files; each answer takes a second."""

    class Slow(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(place))

        def do_GET(self) -> None:
            path = Path(self.translate_path(self.path))
            if not path.is_file():
                return super().do_GET()
            data, asked = path.read_bytes(), self.headers.get("Range")
            if asked is None:
                self.send_response(200)
            else:
                first, last = asked.removeprefix("bytes=").split("-")
                begin, end = int(first or 0), min(int(last or len(data)), len(data) - 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
                data = data[begin : end + 1]
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            return self.send_slowly(data)

        def send_slowly(self, data: bytes) -> None:
            size = max(1, -(-len(data) // PIECES))
            with contextlib.suppress(OSError):  # whoever asked was killed
                for start in range(0, len(data), size):
                    self.wfile.write(data[start : start + size])
                    time.sleep(PIECE_S)

        def log_message(self, *_: Any) -> None:
            pass

    with answering(Slow) as url:
        yield url


@contextlib.contextmanager
def never_answering() -> Iterator[str]:
    """A port that takes connections and says nothing."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen(64)
        yield f"http://127.0.0.1:{found.getsockname()[1]}/bundles"


# ---------------------------------------------------------------------------------------------------------- processes


def processes(number: int) -> Run:
    """Workers of one server that start together with an empty cache."""
    with own_cache() as folder:
        words = [sys.executable, __file__, "process", str(folder)]
        several = [
            subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=_found_here()) for _ in range(PROCESSES)
        ]
        said = [json.loads(one.communicate(timeout=LIMIT_S * 2)[0] or "{}") for one in several]
    missed = [problem for one in said for problem in one.get("missed", ["a process said nothing"])]
    builds, loads = [one.get("builds") for one in said], [one.get("loads") for one in said]
    if sorted(map(str, builds)) != ["0"] * (PROCESSES - 1) + ["1"]:
        missed.append(f"builds {builds}")
    if loads != [1] * PROCESSES:
        missed.append(f"loads {loads}")
    if lost := [one["lost"] for one in said if one.get("lost")]:
        missed.append(f"lost answers {lost}")
    total = {key: sum(one.get(key, 0) for one in said) for key in ("answers", "wrong", "failed")}
    return Run(missed=tuple(missed), note=f"builds {builds}, loads {loads}", **total)


def worker(folder: Path) -> dict[str, Any]:
    """The body of one of them."""
    load = Load(net(), None, folder, threads=THREADS, **{**QUICKLY, "pause_s": 0.2})

    def body(one: Load) -> None:
        one.until(lambda: is_live(one), "it does not go live")

    run = judged(load, body)
    stats = load.swap.stats()
    loads = sum(event.state is SwapState.LOADING and event.kind is EventKind.STATE for event in load.events)
    lost = stats.calls - load.answers - load.failed
    return {**msgspec.to_builtins(run), "builds": stats.builds, "loads": loads, "lost": lost}


def _found_here() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def main() -> None:
    import logging

    logging.getLogger("compilot").setLevel(logging.CRITICAL)
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "process":
        print(json.dumps(worker(folder)))
    else:
        print(msgspec.json.encode(on_the_disk(folder, int(sys.argv[3]))).decode())


if __name__ == "__main__":
    main()
