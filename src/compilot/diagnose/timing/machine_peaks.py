"""What this machine can do at best: floating-point operations per second and memory bandwidth.

In: a dtype. Out: `Peaks`, measured once per machine, thread count and dtype, then kept in compilot's cache folder.
The peak is a big matrix product, the bandwidth a copy of 1 GiB (reads and writes counted), both the best of several:
whatever else the machine does can only make them look lower. A measurement that did not have its cores for itself is
marked, used once and not kept. Not covered: GPUs; a program on other cores that only takes memory bandwidth away.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import torch

from compilot.files.atomic import write_bytes
from compilot.files.private import cache_home
from compilot.identity.machine import machine_fingerprint
from compilot.records import Record, encode

COPY_BYTES = 2**30  # last-level caches of servers hold hundreds of MiB; a smaller copy would measure the cache
REPEATS = 5
OURS = 0.9  # on a quiet machine a large product has its cores for itself nearly all of the time
OURS_COPYING = 0.8  # a copy's threads also wait for one another: 0.91 to 0.97 when quiet, 0.5 with one other program
LONG_ENOUGH_S = 0.05  # a product that takes less is dominated by waking the threads
SMALLEST, LARGEST = 1024, 8192  # rows of the matrices


class Peaks(Record, frozen=True, kw_only=True):
    """The two roofs of a machine."""

    flops_per_s: float
    bandwidth_bytes_per_s: float
    dtype: str
    threads: int
    copy_bytes: int = COPY_BYTES  # less where memory is short; the bandwidth may then be a cache's
    busy: bool = False  # other programs held the cores meanwhile: the machine can do more than this


def machine_peaks(dtype: torch.dtype = torch.float32, folder: Path | None = None) -> Peaks:
    """The peaks from the cache folder, or measured now and kept there."""
    path = (folder or cache_home() / "peaks") / f"{_key(dtype)}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Peaks)
    except (OSError, msgspec.DecodeError):
        peaks = measure_peaks(dtype)
        if not peaks.busy:  # a figure from a bad moment must not stay for ever
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, encode(peaks))
        return peaks


def measure_peaks(dtype: torch.dtype = torch.float32) -> Peaks:
    """Measure both roofs now; takes a few seconds and up to 2 GiB."""
    copied, bandwidth, copy_share = measure_bandwidth()
    flops, product_share = measure_flops(dtype)
    return Peaks(
        flops_per_s=flops,
        bandwidth_bytes_per_s=bandwidth,
        dtype=str(dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        copy_bytes=copied,
        busy=copy_share < OURS_COPYING or product_share < OURS,
    )


def measure_flops(dtype: torch.dtype, repeats: int = REPEATS) -> tuple[float, float]:
    """Operations per second of a large matrix product, and which share of its cores it got."""
    size = SMALLEST
    while True:
        a, b = (torch.rand(size, size).to(dtype) for _ in range(2))
        out = torch.empty(size, size, dtype=dtype)
        cpu, wall = time.process_time(), time.perf_counter()
        with torch.no_grad():
            best_s = best_of(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), repeats)  # type: ignore[misc]
        if best_s >= LONG_ENOUGH_S or size >= LARGEST:
            share = (time.process_time() - cpu) / (time.perf_counter() - wall) / torch.get_num_threads()
            return 2 * size**3 / best_s, share
        size *= 2


def measure_bandwidth(repeats: int = REPEATS) -> tuple[int, float, float]:
    """Size of the copy, bytes per second read and written by it, and which share of the time it had its core."""
    size = min(COPY_BYTES, psutil.virtual_memory().available // 4)  # two buffers, and room for others
    source = torch.ones(size // 4, dtype=torch.float32)
    target = torch.zeros_like(source)
    cpu, wall = time.thread_time(), time.perf_counter()
    best_s = best_of(lambda: target.copy_(source), repeats)
    return size, 2 * size / best_s, (time.thread_time() - cpu) / (time.perf_counter() - wall)


def best_of(work: Callable[[], object], repeats: int) -> float:
    """The shortest of several runs after one that does not count."""
    work()
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        samples.append(time.perf_counter() - begin)
    return min(samples)


def _key(dtype: torch.dtype) -> str:
    """Of what decides the peaks; compilers and engines do not."""
    machine = machine_fingerprint()
    parts = (machine.torch, machine.platform, machine.cpu_model, machine.cpu_isa, machine.cores, machine.threads, dtype)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
