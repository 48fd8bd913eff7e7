"""The environment of a node's workers: that of the user, not what Ray makes of it.

In: the driver's settings. Out: this process's environment, which its children inherit. Ray gives a worker without CPUs
of its own OMP_NUM_THREADS=1, no GPUs and a low priority: every timing would be another one than the same run's on the
machine itself. Covered: thread counts as the driver has them, or none, also where Ray started the driver (a job); GPUs
that Ray has hidden; the priority where we may raise it. Not covered: limits of the container that the node runs in; a
job whose command has CPUs of its own: the number of threads that Ray sets there is taken for the user's.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "GOMP_CPU_AFFINITY")
HIDDEN_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
PASSED = (*THREADS, "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "KMP_AFFINITY", "KMP_BLOCKTIME")
JOB_SETTINGS = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of a submitted job, for the command that it runs
BY_RAY = (JOB_SETTINGS, "RAY_JOB_ID", "RAY_RAYLET_PID")  # only processes that Ray started have one of these


def of_driver() -> dict[str, str]:
    """What the nodes take over from the process that started the run."""
    given = {name: os.environ[name] for name in PASSED if name in os.environ}
    if given.get("OMP_NUM_THREADS") == "1" and _ray_chose_threads():
        del given["OMP_NUM_THREADS"]
    return given


def apply(driver: Mapping[str, str]) -> tuple[str, ...]:
    """Make this process's environment the user's; gives what could not be put right, for people."""
    for name in PASSED:
        os.environ.pop(name, None)
    os.environ.update(driver)
    for name in HIDDEN_GPUS:
        if os.environ.get(name) == "":
            del os.environ[name]
    return _usual_priority()


def _ray_chose_threads() -> bool:
    """A job of Ray's whose command has no CPUs gets one thread, unless the job names another number itself."""
    if not any(name in os.environ for name in BY_RAY):
        return False
    try:
        named = json.loads(os.environ.get(JOB_SETTINGS, "{}"))["runtime_env"]["env_vars"]
        return "OMP_NUM_THREADS" not in named
    except (ValueError, KeyError, TypeError):  # it names nothing
        return True


def _usual_priority() -> tuple[str, ...]:
    """Ray's workers have priority 15 behind others; only root may raise it again."""
    with contextlib.suppress(OSError):
        low = os.getpriority(os.PRIO_PROCESS, 0)
        if low <= 0:
            return ()
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            return ()
        return (f"Ray runs its workers at niceness {low}: start its nodes with RAY_worker_niceness=0 for quiet timing",)
    return ()
