"""What a measurement or an artifact depends on, as far as the machine goes.

In: nothing. Out: MachineFingerprint. What cannot change within a process (CPU, compiler, installed engines) is looked
up once; cores and threads are read each time.
Covered: Linux on x86-64 and ARM, CUDA devices by name. Not covered: clock frequency, load, container limits.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
from pathlib import Path

import torch

from compilot.records import MachineFingerprint

_X86_FLAGS = "avx|avx2|fma|f16c|avx_vnni|avx512(f|bw|dq|vl|_vnni|_bf16|_fp16)|amx_(tile|int8|bf16|fp16)"
_ARM_FLAGS = "asimd|asimddp|asimdhp|bf16|i8mm|sve|sve2|svebf16|svei8mm|sme"
_ENGINES = ("onnxruntime", "openvino")  # torch's own engines go by torch's version
_COMPILER_TIMEOUT_S = 10  # a compiler that takes longer to say its version cannot be used


def machine_fingerprint(*, compiler: bool = True) -> MachineFingerprint:
    """The fingerprint of this machine and process; compiler=False: whoever asks needs none, so none is run."""
    gpu, driver = _gpu()
    return MachineFingerprint(
        torch=str(torch.__version__),
        python=platform.python_version(),
        platform=f"{platform.system()}-{platform.machine()}",
        glibc=" ".join(platform.libc_ver()).strip() or "unknown",
        cpu_model=_cpu()[0],
        cpu_isa=_cpu()[1],
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        compiler=_compiler(os.environ.get("CXX", "g++")) if compiler else None,
        engines=dict(_engines()),
        gpu=gpu,
        gpu_driver=driver,
    )


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Model name and vector extensions from the text of /proc/cpuinfo."""
    fields = re.findall(r"^(model name|Processor|CPU part|flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    first: dict[str, str] = {}
    for name, value in fields:
        first.setdefault(name, value.strip())
    part = f"ARM part {first['CPU part']}" if "CPU part" in first else ""
    model = first.get("model name") or first.get("Processor") or part or platform.processor() or "unknown"
    flags = (first.get("flags") or first.get("Features") or "").split()
    return model, tuple(sorted({flag for flag in flags if re.fullmatch(f"{_X86_FLAGS}|{_ARM_FLAGS}", flag)}))


def parse_compiler(command: str, output: str) -> str:
    """ "g++ 12.2.0" from the first line that a compiler prints about itself."""
    line = output.splitlines()[0].strip() if output.strip() else ""
    numbers = re.findall(r"\b\d+\.\d+(?:\.\d+)?\b", re.sub(r"\(.*?\)", "", line)) or re.findall(r"\d+\.\d+\S*", line)
    return f"{Path(command).name} {numbers[0] if numbers else 'of unknown version'}"


@functools.cache
def _cpu() -> tuple[str, tuple[str, ...]]:
    try:
        return parse_cpuinfo(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        return platform.processor() or "unknown", ()


@functools.cache
def _compiler(command: str) -> str | None:
    words = shlex.split(command)
    if not words:
        return None
    try:
        run = subprocess.run(
            [*words, "--version"], capture_output=True, text=True, timeout=_COMPILER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_compiler(words[-1] if "ccache" in words[0] else words[0], run.stdout)


@functools.cache
def _engines() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _ENGINES:
        try:
            found.append((name, importlib.metadata.version(name)))  # not imported: that costs up to a second
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def _gpu() -> tuple[str | None, str | None]:
    if not torch.cuda.is_available():
        return None, None
    return torch.cuda.get_device_name(), _driver()


@functools.cache
def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    numbers = re.search(r"\d+\.\d+(\.\d+)?", text)
    return numbers[0] if numbers else None
