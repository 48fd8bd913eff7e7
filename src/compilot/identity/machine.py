"""What a measurement or an artifact depends on, as far as the machine goes.

In: which engines are asked about. Out: MachineFingerprint. What cannot change within a process (CPU, compiler,
installed packages) is looked up once; cores and threads are read each time.
Covered: Linux on x86-64 and ARM (with the length of its scalable vectors), CUDA devices by name. Not covered: clock
frequency, load, container limits.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from compilot._cores import usable_cores
from compilot.engines import registry
from compilot.identity import isa
from compilot.records import MachineFingerprint

_GET_VECTOR_LENGTH = 51  # Linux: prctl(PR_SVE_GET_VL)
_VECTOR_BYTES = 0xFFFF  # the part of its answer that is the length; the rest are flags
_COMPILER_TIMEOUT_S = 10  # a compiler that takes longer to say its version cannot be used


def machine_fingerprint(*, compiler: bool = True, engines: Collection[str] | None = None) -> MachineFingerprint:
    """The fingerprint of this machine and process; compiler=False: whoever asks needs none, so none is run.

    engines: whose versions are looked up; None: every known one's, for which all installed packages are looked at.
    """
    import torch  # here: `installed_machine` does without

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
        engines=_versions(registry.names() if engines is None else engines),
        gpu=gpu,
        gpu_driver=driver,
    )


def installed_machine(like: MachineFingerprint, *, compiler: bool, engines: Collection[str]) -> MachineFingerprint:
    """The same from what is installed, without importing torch; its threads and the GPU are taken over from `like`."""
    from importlib import metadata

    try:
        torch_version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch_version = "none"
    return msgspec.structs.replace(
        like,
        torch=torch_version,
        python=platform.python_version(),
        platform=f"{platform.system()}-{platform.machine()}",
        glibc=" ".join(platform.libc_ver()).strip() or "unknown",
        cpu_model=_cpu()[0],
        cpu_isa=_cpu()[1],
        cores=usable_cores(),
        compiler=_compiler(os.environ.get("CXX", "g++")) if compiler else None,
        engines=_versions(engines),
    )


def parse_cpuinfo(lines: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Model name and instructions from the lines of /proc/cpuinfo."""
    first: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        first.setdefault(name.strip(), value.strip())
        if not line.strip() and {"flags", "Features"} & first.keys():
            break  # the first core has been told, and a large machine has hundreds
    part = f"ARM part {first['CPU part']}" if "CPU part" in first else ""
    model = first.get("model name") or first.get("Processor") or part or platform.processor() or "unknown"
    arm = "flags" not in first
    return model, isa.recorded((first.get("Features", "") if arm else first["flags"]).split(), arm=arm)


def parse_compiler(command: str, output: str) -> str:
    """ "g++ 12.2.0" from the first line that a compiler prints about itself."""
    line = output.splitlines()[0].strip() if output.strip() else ""
    numbers = re.findall(r"\b\d+\.\d+(?:\.\d+)?\b", re.sub(r"\(.*?\)", "", line)) or re.findall(r"\d+\.\d+\S*", line)
    return f"{Path(command).name} {numbers[0] if numbers else 'of unknown version'}"


@functools.cache
def _cpu() -> tuple[str, tuple[str, ...]]:
    try:
        with open("/proc/cpuinfo", errors="replace") as lines:
            model, flags = parse_cpuinfo(lines)
    except OSError:
        return platform.processor() or "unknown", ()
    return model, tuple(sorted([*flags, *_vector_length()])) if "sve" in flags else flags


def _vector_length() -> list[str]:
    """The length of a scalable vector in this process: code for it is compiled for one length."""
    try:
        told = ctypes.CDLL(None, use_errno=True).prctl(_GET_VECTOR_LENGTH, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return []
    return [isa.vector_length(told & _VECTOR_BYTES)] if told > 0 else []


@functools.cache
def _compiler(command: str) -> str | None:
    import shlex  # here: no start of a bundle asks for the compiler

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


def _versions(engines: Collection[str]) -> dict[str, str]:
    """Of those that have a version of their own here, sorted."""
    found = {name: registry.version(name) for name in sorted(engines)}
    return {name: version for name, version in found.items() if version is not None}


def _gpu() -> tuple[str | None, str | None]:
    import torch

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
