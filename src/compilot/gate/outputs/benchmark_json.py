"""A check's samples as pytest-benchmark writes them, for dashboards that read that. In: a report. Out: JSON text.

One benchmark per arm and side; its data are the seconds per call of every round. The verdict is in extra_info.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from compilot.gate.report_records import CheckReport

SIDES = ("base", "head")
FIRST = 2  # column of the base; the head's is the next


def benchmark_json(report: CheckReport) -> str:
    """The document."""
    samples: dict[str, list[float]] = {}
    for race in report.races:
        for column in (FIRST, FIRST + 1):
            rows = [row[column] for process in race.processes for row in process.rounds]
            samples.setdefault(race.columns[column], []).extend(rows)
    benchmarks = [_benchmark(report, name, data) for name, data in samples.items() if data]
    document = {
        "machine_info": _machine(report),
        "commit_info": _commit(report),
        "benchmarks": benchmarks,
        "datetime": report.created,
        "version": "5.0.0",
    }
    return json.dumps(document, indent=1) + "\n"


def _machine(report: CheckReport) -> dict[str, Any]:
    machine = report.machine
    if machine is None:
        return {}
    return {
        "python_version": machine.python,
        "cpu": {"brand_raw": machine.cpu_model, "count": machine.cores},
        "system": machine.platform.partition("-")[0],
        "machine": machine.platform.partition("-")[2],
        "torch_version": machine.torch,
    }


def _commit(report: CheckReport) -> dict[str, Any]:
    commit = report.head.commit
    return {} if commit is None else {"id": commit.commit, "dirty": commit.dirty}


def _benchmark(report: CheckReport, name: str, data: list[float]) -> dict[str, Any]:
    arm = name.partition(" ")[2]
    latency = next((one for one in report.metrics if one.metric == "latency" and one.arm == arm), None)
    return {
        "group": report.target,
        "name": name,
        "fullname": f"{report.target}::{name}",
        "params": None,
        "param": None,
        "extra_info": {} if latency is None else {"verdict": str(latency.verdict), "because": latency.because},
        "options": {"disable_gc": True, "timer": "perf_counter", "min_rounds": len(data), "warmup": True},
        "stats": _stats(data),
    }


def _stats(data: list[float]) -> dict[str, Any]:
    mean, deviation = statistics.fmean(data), statistics.stdev(data) if len(data) > 1 else 0.0
    q1, median, q3 = statistics.quantiles(data, n=4) if len(data) > 1 else (mean, mean, mean)
    outliers = sum(abs(one - mean) > deviation for one in data)
    far = sum(one < q1 - 1.5 * (q3 - q1) or one > q3 + 1.5 * (q3 - q1) for one in data)
    return {
        "min": min(data),
        "max": max(data),
        "mean": mean,
        "stddev": deviation,
        "rounds": len(data),
        "median": median,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": far,
        "stddev_outliers": outliers,
        "outliers": f"{outliers};{far}",
        "ld15iqr": min((one for one in data if one >= q1 - 1.5 * (q3 - q1)), default=min(data)),
        "hd15iqr": max((one for one in data if one <= q3 + 1.5 * (q3 - q1)), default=max(data)),
        "ops": 1.0 / mean if mean else math.inf,
        "total": math.fsum(data),
        "iterations": 1,
        "data": data,
    }
