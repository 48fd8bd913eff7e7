"""compilot: finds the fastest correct way to run a PyTorch model on this machine, proves it, and applies it.

    plan = compilot.tune(model, args)
    fast = compilot.compile(model, plan)

Every command is a function here, or in `compilot.store`, `cache`, `keys`, `fleet` and `serve`; all
errors and warnings are here, too. Names load on first use: `import compilot` imports neither torch nor rich.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compilot._version import __version__

if TYPE_CHECKING:
    from compilot import cache, fleet, keys, serve, store
    from compilot.api.benching import bench
    from compilot.api.browsing import ui
    from compilot.api.bundling import PackedBundle, pack
    from compilot.api.charting import charts
    from compilot.api.environs import Environment, environment
    from compilot.api.examining import check_fixes, examine
    from compilot.api.explaining import Explanation, explain
    from compilot.api.gating import baseline, check
    from compilot.api.loading import load
    from compilot.api.plans import load_plan, save_plan
    from compilot.api.reading import results
    from compilot.api.repeating import reproduce
    from compilot.api.reporting import write_report
    from compilot.api.runs import compare, history, show
    from compilot.api.sharing import pull, push
    from compilot.api.standing import Status, status
    from compilot.api.tracing import merge_traces, read_trace
    from compilot.api.tuning import tune
    from compilot.api.verifying import Verified, verify
    from compilot.api.whycold import why_cold
    from compilot.artifacts.store.answers import PulledBundle, PushedBundle
    from compilot.diagnose.cachemiss import ColdCauses
    from compilot.diagnose.fixcheck import FixCheck
    from compilot.diagnose.report_records import DoctorReport
    from compilot.errors import (
        ArtifactError,
        BundleError,
        CompilotError,
        CompilotWarning,
        EnvironmentProblem,
        FallbackWarning,
        ForkedAfterUse,
        IndexOutOfRange,
        InputError,
        KeyProblem,
        ManifestError,
        NodeLost,
        NoFallback,
        NoneFits,
        PlanError,
        PlanNotUsedWarning,
        RunDirError,
        SignatureRefused,
        StaleBundle,
        StalePlan,
        StalePlanWarning,
        StoreError,
        StoreUnreachable,
        TargetError,
        UnpicklableError,
        UnprovenSpeedWarning,
        UntrustedBundle,
        UntrustedPlan,
        UserError,
        WorkerError,
    )
    from compilot.gate.report_records import Baseline, CheckReport
    from compilot.ledger.changes import ComparedRuns
    from compilot.ledger.entries import RunEntry
    from compilot.ledger.history import History
    from compilot.ledger.repeating import Reproduced
    from compilot.ledger.sharing import PushedRun
    from compilot.ledger.shown import ShownRun
    from compilot.progress import Observer
    from compilot.records import Candidate, Finding, Plan, ProcessSettings, Settings, Trace
    from compilot.report.chart_files import Charts
    from compilot.report.page_files import WrittenReport
    from compilot.report.results import Bench, Results
    from compilot.runtime import Fast, Recorded, Stats, apply_process, compile, record  # noqa: A004  # as torch
    from compilot.training import StepStats, TrainStep, train_step
    from compilot.workload import Training, Workload

_NAMES = {  # module -> the names that it has for users
    "compilot.api.benching": "bench",
    "compilot.api.browsing": "ui",
    "compilot.api.bundling": "PackedBundle pack",
    "compilot.api.charting": "charts",
    "compilot.api.environs": "Environment environment",
    "compilot.api.examining": "check_fixes examine",
    "compilot.api.explaining": "Explanation explain",
    "compilot.api.gating": "baseline check",
    "compilot.api.loading": "load",
    "compilot.api.plans": "load_plan save_plan",
    "compilot.api.reading": "results",
    "compilot.api.repeating": "reproduce",
    "compilot.api.runs": "compare history show",
    "compilot.api.reporting": "write_report",
    "compilot.api.sharing": "pull push",
    "compilot.api.tracing": "merge_traces read_trace",
    "compilot.api.standing": "Status status",
    "compilot.api.tuning": "tune",
    "compilot.api.verifying": "Verified verify",
    "compilot.api.whycold": "why_cold",
    "compilot.artifacts.store.answers": "PulledBundle PushedBundle",
    "compilot.diagnose.cachemiss": "ColdCauses",
    "compilot.diagnose.fixcheck": "FixCheck",
    "compilot.diagnose.report_records": "DoctorReport",
    "compilot.errors": (
        "ArtifactError BundleError CompilotError CompilotWarning EnvironmentProblem FallbackWarning "
        "ForkedAfterUse IndexOutOfRange InputError KeyProblem ManifestError NoFallback NodeLost NoneFits PlanError "
        "PlanNotUsedWarning RunDirError SignatureRefused StaleBundle StalePlan StalePlanWarning StoreError "
        "StoreUnreachable TargetError UnpicklableError UnprovenSpeedWarning UntrustedBundle UntrustedPlan UserError "
        "WorkerError"
    ),
    "compilot.gate.report_records": "Baseline CheckReport",
    "compilot.ledger.changes": "ComparedRuns",
    "compilot.ledger.entries": "RunEntry",
    "compilot.ledger.history": "History",
    "compilot.ledger.repeating": "Reproduced",
    "compilot.ledger.sharing": "PushedRun",
    "compilot.ledger.shown": "ShownRun",
    "compilot.progress": "Observer",
    "compilot.records": "Candidate Finding Plan ProcessSettings Settings Trace",
    "compilot.report.chart_files": "Charts",
    "compilot.report.page_files": "WrittenReport",
    "compilot.report.results": "Bench Results",
    "compilot.runtime": "Fast Recorded Stats apply_process compile record",
    "compilot.training": "StepStats TrainStep train_step",
    "compilot.workload": "Training Workload",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ("cache", "fleet", "keys", "serve", "store")

__all__ = [
    "ArtifactError",
    "Baseline",
    "Bench",
    "BundleError",
    "Candidate",
    "Charts",
    "CheckReport",
    "ColdCauses",
    "ComparedRuns",
    "CompilotError",
    "CompilotWarning",
    "DoctorReport",
    "Environment",
    "EnvironmentProblem",
    "Explanation",
    "FallbackWarning",
    "Fast",
    "Finding",
    "FixCheck",
    "ForkedAfterUse",
    "History",
    "IndexOutOfRange",
    "InputError",
    "KeyProblem",
    "ManifestError",
    "NoFallback",
    "NodeLost",
    "NoneFits",
    "Observer",
    "PackedBundle",
    "Plan",
    "PlanError",
    "PlanNotUsedWarning",
    "ProcessSettings",
    "PulledBundle",
    "PushedBundle",
    "PushedRun",
    "Recorded",
    "Reproduced",
    "Results",
    "RunDirError",
    "RunEntry",
    "Settings",
    "ShownRun",
    "SignatureRefused",
    "StaleBundle",
    "StalePlan",
    "StalePlanWarning",
    "Stats",
    "Status",
    "StepStats",
    "StoreError",
    "StoreUnreachable",
    "TargetError",
    "Trace",
    "TrainStep",
    "Training",
    "UnpicklableError",
    "UnprovenSpeedWarning",
    "UntrustedBundle",
    "UntrustedPlan",
    "UserError",
    "Verified",
    "WorkerError",
    "Workload",
    "WrittenReport",
    "__version__",
    "apply_process",
    "baseline",
    "bench",
    "cache",
    "charts",
    "check",
    "check_fixes",
    "compare",
    "compile",
    "environment",
    "examine",
    "explain",
    "fleet",
    "history",
    "keys",
    "load",
    "load_plan",
    "merge_traces",
    "pack",
    "pull",
    "push",
    "read_trace",
    "record",
    "reproduce",
    "results",
    "save_plan",
    "serve",
    "show",
    "status",
    "store",
    "train_step",
    "tune",
    "ui",
    "verify",
    "why_cold",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
