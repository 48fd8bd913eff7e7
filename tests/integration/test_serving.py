"""Serving for real: a child builds, several worker processes load its files, and each server of the examples answers.

All of them serve one model, so one build is enough for all: it is made by the first that needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from compilot.serve import Bounds, Swap, SwapState, sentinel_report
from compilot.serve.records import EventKind
from compilot.serve.sentinel import read_events

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LIMIT_S = 300.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def cache(shared: Path) -> Iterator[Path]:
    """The cache of all servers here; it has the model's bundle already."""
    sys.path.insert(0, str(EXAMPLES))
    before = os.environ.get("COMPILOT_CACHE")
    os.environ["COMPILOT_CACHE"] = str(shared / "cache")
    yield shared / "cache"
    if before is None:
        del os.environ["COMPILOT_CACHE"]
    else:
        os.environ["COMPILOT_CACHE"] = before


@pytest.fixture(scope="module")
def built(cache: Path, shared: Path) -> Swap:
    """A Swap that had nothing to start from, and is live."""
    from serving_model import example, load

    at_once = Bounds(
        nice=0, idle=False, share=1.0, one_core_from=99
    )  # other tests use the cores, too: nice children would wait for them
    swap = Swap(load(), None, shadow=0.5, shadow_calls=4, canary_calls=4, log=shared / "built.jsonl", bounds=at_once)
    with torch.inference_mode():
        swap.warm([example()])
        end = time.monotonic() + LIMIT_S
        while not swap.live():
            assert time.monotonic() < end, swap.reason
            assert not swap._standing.settled or swap.live(), swap.reason
            assert torch.allclose(swap(example()), swap.model(example()), atol=1e-4)
            time.sleep(0.01)
    return swap


def test_without_a_source_a_child_builds_and_proves_the_first_engine_that_passes(built: Swap, shared: Path) -> None:
    from serving_model import example

    states = [event.state for event in read_events(shared / "built.jsonl") if event.kind is EventKind.STATE]
    assert list(dict.fromkeys(states)) == ["building", "loading", "proving", "shadow", "canary", "live"]
    [one] = [event for event in read_events(shared / "built.jsonl") if event.kind is EventKind.BUILT]
    assert one.cpu_s is not None
    assert one.cpu_s > 0.5
    assert one.peak_memory_bytes is not None
    assert one.peak_memory_bytes > 50e6
    with torch.inference_mode():
        for _ in range(100):
            assert torch.allclose(built(example()), built.model(example()), atol=1e-4)
    stats = built.stats()
    assert stats.mismatches == 0
    assert stats.recompiles == 0
    assert stats.builds == 1
    assert "torch._inductor.compile_fx" not in sys.modules or stats.fast  # nothing was traced for it
    assert not list((shared / "cache" / "serve").glob("*/job-*"))  # what the child was given is gone


def test_nothing_of_the_tuning_plane_is_in_the_server(built: Swap, cache: Path) -> None:
    program = (
        "import sys, torch\nfrom serving_model import load, example\nimport compilot\n"
        "s = compilot.serve.Swap(load(), shadow=1.0, shadow_calls=1, canary=(1.0,), canary_calls=1)\n"
        "torch.set_grad_enabled(False)\n"
        "with torch.inference_mode():\n"
        "    s.warm([example()])\n"
        "    while not s.live(): s(example()); s.wait(0.05)\n"
        "print(s.stats().builds, *[m for m in sys.modules if m.startswith('compilot.') or m == 'torch._dynamo'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=EXAMPLES, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    builds, *modules = done.stdout.split()
    assert builds == "0"  # it loaded the other process's files
    rooms = {name.split(".")[1] for name in modules if "." in name}
    assert not rooms & {"tuning", "packing", "trials", "candidates", "diagnose", "verdict", "measure", "cli", "api"}


# --------------------------------------------------------------------------------------------------------- examples


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


QUICK = """
import importlib.util, sys

class Quick:  # changes the defaults when the module is imported: most processes of a server never import it
    def find_spec(self, name, path=None, target=None):
        if name != "compilot.serve.swap":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            quick = dict(shadow=1.0, shadow_calls=4, canary=(1.0,), canary_calls=4)
            module.Swap.__init__.__kwdefaults__.update(quick)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Quick())
"""


def in_few_calls() -> dict[str, str]:
    """The examples as they are, with other defaults of Swap: thousands of requests would be needed otherwise."""
    folder = Path(os.environ["COMPILOT_CACHE"]).parent / "defaults"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(QUICK)
    return {"PYTHONPATH": f"{folder}:{EXAMPLES}"}


@contextlib.contextmanager
def running(command: list[str], log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process group of its own, which is ended."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=EXAMPLES,
            env={**os.environ, **in_few_calls(), **env},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def asked(url: str, body: Any = None) -> Any:
    request = urllib.request.Request(url, headers={"content-type": "application/json"})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text[:1] in b"{[" else text.decode()


def until_up(url: str, process: subprocess.Popen[bytes], body: Any = None) -> Any:
    end = time.monotonic() + LIMIT_S
    while True:
        assert process.poll() is None
        try:
            return asked(url, body)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


def until_live(ask: Callable[[], Any], pause_s: float = 0.0) -> int:
    """Answers until one says that its worker is live; each is the model's own."""
    from serving_model import example, load

    with torch.no_grad():
        right = load()(example())[0]
    end, answers = time.monotonic() + LIMIT_S, 0
    while True:
        found = ask()
        answers += 1
        assert torch.allclose(torch.tensor(found["scores"]), right, atol=1e-4)
        if found["state"] == SwapState.LIVE:
            return answers
        assert time.monotonic() < end, found
        time.sleep(pause_s)


def image() -> Any:
    from serving_model import example

    return example()[0].tolist()


def test_fastapi_with_two_workers(built: Swap, shared: Path) -> None:
    port = free_port()
    folder = shared / "prometheus"
    folder.mkdir()
    command = [sys.executable, "-m", "uvicorn", "serve_fastapi:app", "--workers", "2", "--port", str(port)]
    with running(command, shared / "fastapi.log", PROMETHEUS_MULTIPROC_DIR=str(folder)) as process:
        url = f"http://127.0.0.1:{port}"
        until_up(f"{url}/compilot/readyz", process)
        until_live(lambda: asked(f"{url}/predict", image()))
        text = asked(f"{url}/compilot/metrics")
    assert "compilot_calls_total" in text
    events = read_events(shared / "cache" / "serve" / "events.jsonl")
    assert len({event.pid for event in events}) >= 2  # one Swap in each worker
    assert all(event.seconds is None for event in events if event.kind is EventKind.BUILT)  # nobody built again


def test_gunicorn_with_post_fork(built: Swap, shared: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-c", "serve_gunicorn.py", "-b", f"127.0.0.1:{port}"]
    with running([*command, "serve_gunicorn:application"], shared / "gunicorn.log") as process:
        assert until_up(f"http://127.0.0.1:{port}/", process)["ready"]
        until_live(lambda: asked(f"http://127.0.0.1:{port}/", image()))


def test_litserve(built: Swap, shared: Path) -> None:
    port = free_port()
    with running([sys.executable, "serve_litserve.py", str(port)], shared / "litserve.log") as process:
        url = f"http://127.0.0.1:{port}"
        until_up(f"{url}/health", process)
        until_live(lambda: asked(f"{url}/predict", {"image": image()}))


def test_plain_threads(built: Swap) -> None:
    done = subprocess.run(
        [sys.executable, "serve_threads.py"], cwd=EXAMPLES, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert " 0 wrong, live: proven on" in done.stdout


RAY = """
import json, ray, sys, time
from ray import serve
import serve_ray
ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
handle = serve.run(serve_ray.app, route_prefix="/")
import urllib.request
from serving_model import example
body = json.dumps(example()[0].tolist()).encode()
end = time.monotonic() + 200
while time.monotonic() < end:
    found = json.loads(urllib.request.urlopen("http://127.0.0.1:8000/", body, timeout=60).read())
    if found["state"] == "live":
        break
print(json.dumps(found), flush=True)
serve.shutdown()
ray.shutdown()
"""


def test_ray_serve(built: Swap, shared: Path) -> None:
    pytest.importorskip("ray")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("Ray binds to the host's address: it is only tried where a network of its own can be made")
    script = shared / "served_by_ray.py"
    script.write_text(RAY)
    inside = f"ip link set lo up && exec {sys.executable} {script}"
    env = {**os.environ, **in_few_calls(), "RAY_USAGE_STATS_ENABLED": "0"}
    env["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # else Ray gives a replica one, and that is another bundle
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", inside], cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]  # Ray says a word, too
    assert [json.loads(line)["state"] for line in told] == ["live"], done.stdout


def test_compilot_serve(built: Swap, shared: Path) -> None:
    log = shared / "served.jsonl"
    program = Path(sys.executable).with_name("compilot")
    options = ["--port", "0", "--json", "--shadow", "1", "--log", str(log)]
    with running([str(program), "serve", "serving_model.py:classifier", *options], shared / "serve.log") as process:
        end = time.monotonic() + LIMIT_S
        while "url" not in (shared / "serve.log").read_text():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        text = (shared / "serve.log").read_text()
        url = json.loads(text[text.index("{") : text.index("}") + 1])["url"]
        end = time.monotonic() + LIMIT_S
        while asked(f"{url}status")["stats"]["state"] != "live":
            assert time.monotonic() < end
            asked(f"{url}predict", {"image": [image()]})
        assert "aria-current" in asked(url)
    assert not sentinel_report(log).missed


TOGETHER = """
import sys, torch
from torch import nn
import compilot
from compilot.serve import Bounds
torch.manual_seed(0)
model, x = nn.Linear(5, 3).eval(), torch.ones(2, 5)
bounds = Bounds(nice=0, idle=False, share=1.0, one_core_from=99)
with compilot.serve.Swap(model, shadow=1.0, shadow_calls=2, canary_calls=2, log=sys.argv[1], bounds=bounds) as swap:
    with torch.inference_mode():
        swap.warm([x])
        while swap.state not in ("live", "rolled-back"):
            assert torch.allclose(swap(x), model(x), atol=1e-5)
            swap.wait(0.02)
    print(swap.state, swap.stats().builds)
"""


def test_processes_that_start_together_build_once(cache: Path, tmp_path: Path) -> None:
    """Another model than the others', so that nothing is there yet; the whole way, with a real child."""
    log = tmp_path / "events.jsonl"
    several = [
        subprocess.Popen([sys.executable, "-c", TOGETHER, str(log)], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [one.communicate(timeout=LIMIT_S)[0].split() for one in several]
    assert sorted(said) == [["live", "0"], ["live", "0"], ["live", "1"]]
    engines = {event.plan for event in read_events(log) if event.kind is EventKind.BUILT}
    assert len(engines) == 1
