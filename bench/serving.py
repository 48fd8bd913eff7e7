"""Does a server keep its promise while a plan is built beside it, and is it faster afterwards?

    python bench/serving.py run DIR [--only PART,PART] [--seconds 900] [--alternations 10] [--period 20] [--share 0.5]
    python bench/serving.py table DIR
    python bench/serving.py picture DIR -o docs/serving.svg

On loopback, bounded in time and count. Eager's capacity is measured first (closed loop, eager alone); then requests
come at half of it, at fixed times whatever the answers do (open loop: latency counts from when a request was due).
Every answer is compared with the model's own. Parts, each a line of DIR/serving.jsonl, so that a run that was
interrupted goes on where it was:
  capacity   requests a second, and eager alone: time to the first answer, p50 and p95 at the load
  swap       a server with nothing to start from: first answer, latency by second until it is live, and after
  beside     the tail with the building child continued and stopped in turns (its whole process tree); the server's own
             thread starts and watches it, and builds again and again, so that there is one to stop
  idle       the same with a child that only sleeps: A/A
  starts     seconds to the first answer, eager alone and with a Swap in turns
  speed      p50 of a live Swap and of the same plan without one, in turns
The claims: no answer failed or wrong; first answer no later than eager's alone; median ratio of p95 with and without
the child at most 1.3; p50 after the swap at the plan's speed (within 10 %, median of the turns).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

BENCH = Path(__file__).parent
START_S = 120.0
WARM_S = 3.0
SEEDS = 16
SAME_START, SAME_SPEED = 1.05, 1.10  # largest ratios that count as no later, and as the plan's speed
CLOSE = 1e-3  # largest difference of a score that is still the same answer; the proof itself is the Swap's
HEAD = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Answer(NamedTuple):
    """One request."""

    due_s: float  # since the load began
    latency_s: float  # from when it was due
    ok: bool
    state: str


# ------------------------------------------------------------------------------------------------------------ loading


async def ask(port: int, seed: int, right: list[float]) -> tuple[bool, str]:
    """One request over a connection of its own."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /predict?seed={seed} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode())
        data = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        told = json.loads(data.partition(b"\r\n\r\n")[2])
        same = all(abs(a - b) <= CLOSE * (1 + abs(b)) for a, b in zip(told["scores"], right, strict=True))
        return b" 200 " in data[:16] and same, told["state"]
    except (OSError, ValueError, KeyError, TimeoutError):
        return False, "failed"


async def open_loop(
    port: int,
    rate: float,
    seconds: float,
    right: list[list[float]],
    until: Callable[[list[Answer]], bool] | None = None,
) -> list[Answer]:
    """Requests at fixed times; `until` may end it before."""
    begin, answers, tasks = time.perf_counter(), [], []

    async def one(number: int) -> None:
        due = number / rate
        seed = number % len(right)
        ok, state = await ask(port, seed, right[seed])
        answers.append(Answer(due, time.perf_counter() - begin - due, ok, state))

    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
        if until is not None and not number % 20 and until(answers):
            break
    await asyncio.gather(*tasks)
    return answers


async def closed_loop(port: int, callers: int, seconds: float, right: list[list[float]]) -> float:
    """Answers a second with so many callers that ask again at once."""
    end = time.perf_counter() + seconds
    counts = [0] * callers

    async def caller(me: int) -> None:
        while time.perf_counter() < end:
            await ask(port, me % len(right), right[me % len(right)])
            counts[me] += 1

    await asyncio.gather(*map(caller, range(callers)))
    return sum(counts) / seconds


def quantile(values: list[float], share: float) -> float:
    rows = sorted(values)
    return rows[min(len(rows) - 1, math.ceil(share * len(rows)) - 1)] if rows else math.nan


# ------------------------------------------------------------------------------------------------------------- server


@contextlib.contextmanager
def server(mode: str, folder: Path) -> Iterator[tuple[int, float]]:
    """A server in a process of its own with an empty cache; its port, and the seconds until its first answer."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="serving-cache-") as cache, (folder / f"{mode}.log").open("wb") as log:
        env = {
            **os.environ,
            "COMPILOT_BENCH_SERVING": mode,
            "COMPILOT_BENCH_LOG": str(folder / f"{mode}-events.jsonl"),
            "COMPILOT_BENCH_PLAN": str((folder / "plan").absolute()),
            "COMPILOT_CACHE": cache,
        }
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "serving_app:app", "--port", str(port), "--log-level", "warning"],
            cwd=BENCH,
            env=env,
            stdout=log,
            stderr=log,
        )
        try:
            yield port, _first_answer(port, process) - begin
        finally:
            process.terminate()
            process.wait(30)


def _first_answer(port: int, process: subprocess.Popen[bytes]) -> float:
    end = time.perf_counter() + START_S
    while time.perf_counter() < end and process.poll() is None:
        try:
            asyncio.run(_state(port, "POST /predict?seed=0"))
            return time.perf_counter()
        except (OSError, ValueError):
            time.sleep(0.02)
    raise SystemExit("the server did not start; see its log")


async def _state(port: int, what: str = "GET /state") -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{what} {HEAD}".encode())
    data = await reader.read()
    writer.close()
    return dict(json.loads(data.partition(b"\r\n\r\n")[2]))


def right_answers() -> list[list[float]]:
    """The model's own answers."""
    sys.path[:0] = [str(BENCH)]
    import serving_app  # type: ignore[import-not-found]

    plain = serving_app.model()
    return [serving_app.scores(plain, seed) for seed in range(SEEDS)]


# -------------------------------------------------------------------------------------------------------------- parts


def capacity(folder: Path, right: list[list[float]], args: argparse.Namespace) -> dict[str, Any]:
    """Eager alone."""
    with server("eager", folder) as (port, first_s):
        asyncio.run(closed_loop(port, 2, WARM_S, right))
        rate = asyncio.run(closed_loop(port, 4, args.part, right))
        answers = asyncio.run(open_loop(port, args.share * rate, args.part, right))
    return {"rate": rate, "first_s": first_s, **_summary(answers)}


def swap(folder: Path, right: list[list[float]], args: argparse.Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """A server with nothing to start from, until it is live and for a while after."""
    live_since: list[float] = []

    def enough(answers: list[Answer]) -> bool:
        if not live_since and answers and answers[-1].state == "live":
            live_since.append(answers[-1].due_s)
        return bool(live_since) and answers[-1].due_s > live_since[0] + 2 * args.part

    with server("swap", folder) as (port, first_s):
        rate = args.share * known["capacity"]["rate"]
        answers = asyncio.run(open_loop(port, rate, args.seconds, right, enough))
        told = asyncio.run(_state(port))
    live = [one for one in answers if one.state == "live"]
    return {
        "first_s": first_s,
        "state": told["state"],
        "reason": told["reason"],
        **_summary(answers),
        "live": _summary(live),
        "curve": _by_second(answers),
    }


def beside(
    folder: Path, right: list[list[float]], args: argparse.Namespace, known: dict[str, Any], mode: str
) -> dict[str, Any]:
    """p95 of a server whose own child is continued and stopped in turns."""
    ratios, rows, failed = [], [], 0
    with server(mode, folder) as (port, _):
        rate = args.share * known["capacity"]["rate"]
        asyncio.run(open_loop(port, rate, WARM_S, right))
        for number in range(args.alternations):
            p95 = {}
            for stopped in (False, True) if number % 2 else (True, False):
                asyncio.run(_state(port, f"POST /hold?on={int(stopped)}"))
                answers = asyncio.run(open_loop(port, rate, args.period, right))
                failed += sum(not one.ok for one in answers)
                p95[stopped] = quantile([one.latency_s for one in answers], 0.95)
            told = asyncio.run(_state(port))
            if told["reason"]:
                raise SystemExit(f"what was measured beside the child means nothing: {told['reason']}")
            rows.append([p95[False], p95[True]])
            ratios.append(p95[False] / p95[True])
    found = {"ratio": statistics.median(ratios), "ratios": ratios, "p95_s": rows, "failed": failed}
    return {**found, "builds": told["builds"]}


def starts(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Who answers first: a server with a Swap, or eager alone?"""
    seconds: dict[str, list[float]] = {"eager": [], "swap": []}
    for _ in range(args.alternations):
        for mode, found in seconds.items():
            with server(mode, folder) as (_port, first_s):
                found.append(first_s)
    pairs = zip(seconds["swap"], seconds["eager"], strict=True)
    return {**seconds, "ratio": statistics.median(swapped / alone for swapped, alone in pairs)}


def speed(folder: Path, right: list[list[float]], args: argparse.Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """A live Swap against the plan that it serves."""
    plan = folder / "plan"
    if not (plan / "plan.json").exists():
        target = f"{BENCH / 'serving_app.py'}:target"
        tune = ["-m", "compilot", "tune", target, "--engines", "onnxruntime", "--budget", "90s", "--out", str(plan)]
        subprocess.run([sys.executable, *tune], check=True)
    rate = args.share * known["capacity"]["rate"]
    ratios, rows, failed = [], [], 0
    with server("plan", folder) as (port, _), server("promised", folder) as (promised, _):
        answers = asyncio.run(open_loop(promised, rate, args.seconds, right, _is_live))
        failed += sum(not answer.ok for answer in answers)
        told = asyncio.run(_state(promised))
        if told["state"] != "live":
            raise SystemExit(f"the Swap is {told['state']}: {told['reason']}")
        asyncio.run(open_loop(port, rate, WARM_S, right))
        for number in range(args.alternations):
            p50 = {}
            for one in (port, promised) if number % 2 else (promised, port):
                answers = asyncio.run(open_loop(one, rate, args.period / 2, right))
                failed += sum(not answer.ok for answer in answers)
                p50[one] = quantile([answer.latency_s for answer in answers], 0.5)
            rows.append([p50[promised], p50[port]])
            ratios.append(p50[promised] / p50[port])
    return {"ratio": statistics.median(ratios), "ratios": ratios, "p50_s": rows, "failed": failed}


def _is_live(answers: list[Answer]) -> bool:
    return bool(answers) and answers[-1].state == "live"


def _summary(answers: list[Answer]) -> dict[str, Any]:
    times = [one.latency_s for one in answers]
    return {
        "answers": len(answers),
        "failed": sum(not one.ok for one in answers),
        **{f"p{share}_s": quantile(times, share / 100) for share in (50, 95, 99)},
    }


def _by_second(answers: list[Answer]) -> list[dict[str, Any]]:
    rows: dict[int, list[Answer]] = {}
    for one in answers:
        rows.setdefault(int(one.due_s), []).append(one)
    return [
        {
            "second": second,
            "p50_s": quantile([one.latency_s for one in found], 0.5),
            "p95_s": quantile([one.latency_s for one in found], 0.95),
            "state": found[-1].state,
        }
        for second, found in sorted(rows.items())
    ]


# --------------------------------------------------------------------------------------------------------------- runs


def read(folder: Path) -> dict[str, Any]:
    """The parts that are done, the newest of each."""
    path = folder / "serving.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line.pop("part"): line for line in lines}


def run(folder: Path, args: argparse.Namespace) -> None:
    """The parts that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    right = right_answers()
    parts: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "capacity": lambda known: capacity(folder, right, args),
        "swap": lambda known: swap(folder, right, args, known),
        "beside": lambda known: beside(folder, right, args, known, "building"),
        "idle": lambda known: beside(folder, right, args, known, "sleeping"),
        "starts": lambda known: starts(folder, args),
        "speed": lambda known: speed(folder, right, args, known),
    }
    wanted = args.only.split(",") if args.only else list(parts)
    for name, part in parts.items():
        known = read(folder)
        if name in wanted and name not in known:
            found = {"part": name, **part(known)}
            with (folder / "serving.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{name}: done", flush=True)
    if set(parts) <= set(read(folder)):
        table(folder)


def table(folder: Path) -> None:
    """What was found, and whether it is what is claimed."""
    known = read(folder)
    alone, swapped = known["capacity"], known["swap"]
    print(f"eager alone     {alone['rate']:.0f} requests/s; at the load {_tail(alone)}")
    failed = alone["failed"] + swapped["failed"] + sum(known[name]["failed"] for name in ("beside", "idle", "speed"))
    print(f"failed or wrong {failed} ({'held' if not failed else 'NOT held'})")
    first = known["starts"]
    swapped_s, alone_s = (statistics.median(first[mode]) for mode in ("swap", "eager"))
    held = "held" if first["ratio"] <= SAME_START else "NOT held"
    print(f"first answer    {swapped_s:.2f} s, eager alone {alone_s:.2f} s, median ratio {first['ratio']:.3f} ({held})")
    held = "held" if swapped["live"]["answers"] else "NOT held: it did not go live in the time given"
    print(f"after the swap  {swapped['state']}; {_tail(swapped['live'])} ({held})")
    ratio = known["speed"]["ratio"]
    held = "held" if ratio <= SAME_SPEED else "NOT held"
    print(f"p50 live / the plan without a Swap: median {ratio:.3f} over {len(known['speed']['ratios'])} ({held})")
    for name, words in (("beside", "p95 with the building child / without"), ("idle", "the same with an idle child")):
        ratio = known[name]["ratio"]
        held = "" if name == "idle" else f" ({'held' if ratio <= 1.3 else 'NOT held'}: at most 1.3)"
        print(f"{words}: median {ratio:.2f} over {len(known[name]['ratios'])} alternations{held}")


def _tail(found: dict[str, Any]) -> str:
    if not found["answers"]:
        return "no answers"
    return f"p50 {found['p50_s'] * 1e3:.1f} ms, p95 {found['p95_s'] * 1e3:.1f} ms"


def picture(folder: Path, out: Path) -> None:
    """The whole curve: latency by second, with the states."""
    import altair

    rows = read(folder)["swap"]["curve"]
    flat = [
        {"second": row["second"], "ms": row[key] * 1e3, "quantile": key[:3]}
        for row in rows
        for key in ("p50_s", "p95_s")
    ]
    begins = [
        {"second": row["second"], "state": row["state"]}
        for before, row in zip([{"state": ""}, *rows[:-1]], rows, strict=True)
        if row["state"] != before["state"]
    ]
    lines = (
        altair.Chart(altair.Data(values=flat))
        .mark_line()
        .encode(
            x=altair.X("second:Q", title="seconds since the first request"),
            y=altair.Y("ms:Q", title="latency (ms)", scale=altair.Scale(type="log")),
            color=altair.Color("quantile:N", title=None),
        )
    )
    begun = altair.Chart(altair.Data(values=begins)).encode(x="second:Q")
    chart = lines + begun.mark_rule(strokeDash=[4, 3], color="#888")
    for row in range(3):  # one below the other: some states last a second
        some = altair.Chart(altair.Data(values=begins[row::3])).encode(x="second:Q", text="state:N", y=altair.value(0))
        chart += some.mark_text(align="left", dx=4, dy=8 + 14 * row, fontWeight="bold")
    title = "Latency of a server, second by second: eager answers until the plan is live"
    chart.properties(width=720, height=280, title=title).save(str(out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "picture"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="parts, with commas between them; default: all that are missing")
    parser.add_argument("--seconds", type=float, default=900.0, help="the longest that a swap is waited for")
    parser.add_argument("--part", type=float, default=20.0, help="seconds of the shorter measurements")
    parser.add_argument("--alternations", type=int, default=10)
    parser.add_argument("--period", type=float, default=20.0)
    parser.add_argument("--share", type=float, default=0.5, help="of eager's capacity")
    parser.add_argument("-o", "--out", type=Path, default=Path("serving.svg"))
    args = parser.parse_args()
    args.folder = args.folder.absolute()  # the server runs elsewhere
    if args.what == "run":
        run(args.folder, args)
    elif args.what == "table":
        table(args.folder)
    else:
        picture(args.folder, args.out)


if __name__ == "__main__":
    main()
