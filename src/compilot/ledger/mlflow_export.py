"""A run in MLflow. In: a run directory and the address of a tracking store. Out: an MLflow run with the same figures.

Params: what was asked for, of which model and machine, what was chosen. Metrics: the chosen candidate's figures as the
report has them, and `trial.*` for each candidate, with its number as the step. Artifacts: the report's page, plan.json,
trials.csv and the journal with its raw samples. Exported once: the same journal is found again by its digest, a run
that went on is exported anew. Journals stay the truth: nothing is ever read back from MLflow.
Needs mlflow-skinny (the extra `mlflow`); a local store needs what MLflow itself asks for. Not covered: its registry of
models.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from compilot.artifacts.rundir import RunDir
from compilot.errors import EnvironmentProblem, InputError, StoreError
from compilot.ledger.entries import RunEntry, RunState, read_entry
from compilot.report.data import Row, RunData, read_run
from compilot.report.page_files import MlflowRun

EXPERIMENT = "compilot"
INSTALL = "the export needs MLflow; install it with: pip install 'compilot[mlflow]'"
RUN_TAG, JOURNAL_TAG = "compilot.run", "compilot.journal_sha256"
LONGEST = 500  # letters of a param: what every store takes
_FIGURES = (
    *("speedup", "speedup_low", "speedup_high", "p50_ms", "eager_p50_ms", "p95_ms", "p99_ms", "samples_per_s"),
    *("cold_s", "warm_s", "break_even_calls", "peak_rss_mib", "steady_rss_mib", "relative_error"),
)
_OF_TRIALS = ("speedup", "p50_ms", "cold_s", "warm_s", "peak_rss_mib")
_SQLITE = "sqlite:///"


def export(run_dir: RunDir, page: Path, uri: str, experiment: str = EXPERIMENT) -> MlflowRun:
    """Write the run into the store; page: its report, to be kept beside the figures."""
    entry = read_entry(run_dir)
    if entry.state is RunState.UNREADABLE:
        raise InputError(entry.problem)
    _check(uri)
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ModuleNotFoundError as missing:
        raise EnvironmentProblem(f"{INSTALL}.") from missing
    try:
        return _exported(MlflowClient(tracking_uri=uri), run_dir, entry, page, uri, experiment)
    except ModuleNotFoundError as missing:
        raise EnvironmentProblem(f"MLflow needs {missing.name} for {uri}; install it with pip.") from missing
    except (MlflowException, ImportError, OSError) as problem:
        why = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise StoreError(f"MLflow could not take the run at {uri}: {why.rstrip('.')}; check the address.") from problem


def _check(uri: str) -> None:
    """What MLflow would try again and again for minutes."""
    if not uri.strip():
        raise InputError("the address of MLflow is empty; give one such as sqlite:///mlflow.db or https://host:5000.")
    folder = Path(uri.removeprefix(_SQLITE)).absolute().parent
    if uri.startswith(_SQLITE) and not folder.is_dir():
        raise InputError(f"there is no folder {folder} for {uri}; make it, or name another place.")


def _exported(client: Any, run_dir: RunDir, entry: RunEntry, page: Path, uri: str, experiment: str) -> MlflowRun:
    digest = hashlib.sha256(run_dir.journal.read_bytes()).hexdigest()
    number = _experiment(client, uri, experiment)
    same = client.search_runs([number], filter_string=f"tags.`{JOURNAL_TAG}` = '{digest}'", max_results=1)
    if same:
        return MlflowRun(uri=uri, experiment=experiment, run_id=same[0].info.run_id, was_there=True)
    data = read_run(run_dir.path)
    begun_ms = round(datetime.fromisoformat(entry.created).timestamp() * 1000)
    run = client.create_run(number, start_time=begun_ms, tags=_tags(entry), run_name=f"{entry.model} {entry.id}")
    run_id = run.info.run_id
    try:
        _write(client, run_id, entry, data, begun_ms)
        for path in (page, run_dir.plan, run_dir.trials_csv, run_dir.batches_csv, run_dir.journal):
            if path.is_file():
                client.log_artifact(run_id, str(path))
        client.set_tag(run_id, JOURNAL_TAG, digest)  # last: what was cut short is exported again
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id, "FINISHED" if entry.state is not RunState.UNFINISHED else "KILLED")
    return MlflowRun(uri=uri, experiment=experiment, run_id=run_id, was_there=False)


def _experiment(client: Any, uri: str, name: str) -> str:
    """Its number; made where it is missing, the files of a local store beside its database."""
    known = client.get_experiment_by_name(name)
    if known is not None:
        if known.lifecycle_stage != "active":
            raise StoreError(f"MLflow's experiment '{name}' is deleted; restore it, or name another one.")
        return str(known.experiment_id)
    place = Path(uri.removeprefix(_SQLITE)).absolute().parent / "mlruns" if uri.startswith(_SQLITE) else None
    return str(client.create_experiment(name, artifact_location=place.as_uri() if place is not None else None))


def _write(client: Any, run_id: str, entry: RunEntry, data: RunData, begun_ms: int) -> None:
    from mlflow.entities import Metric, Param

    params = [Param(name, str(value)[:LONGEST]) for name, value in params_of(entry, data).items()]
    metrics = [Metric(name, value, begun_ms, step) for name, value, step in metrics_of(data)]
    client.log_batch(run_id, params=params)
    for first in range(0, len(metrics), 900):  # 1,000 are the most that MLflow takes at once
        client.log_batch(run_id, metrics=metrics[first : first + 900])


def _tags(entry: RunEntry) -> dict[str, str]:
    tags = {
        RUN_TAG: entry.id,
        "compilot.state": entry.state.value,
        "compilot.verdict": entry.because[:LONGEST],
        "mlflow.source.name": entry.target or entry.model,
        "mlflow.source.git.commit": entry.commit or "",
    }
    return {name: value for name, value in tags.items() if value}


def params_of(entry: RunEntry, data: RunData) -> dict[str, object]:
    """What the run was asked for, about which model and machine, and what it chose."""
    machine, model, asked = data.header.fingerprint.machine, data.header.fingerprint.model, data.asked
    chosen = next((row for row in data.rows if row["chosen"]), None)
    found = {
        "model": entry.model,
        "target": entry.target,
        "objective": str(asked.objective),
        "budget_s": f"{asked.budget_s:g}",
        "preset": asked.preset,
        "decision": entry.decision,
        "chosen": entry.chosen,
        "engine": chosen["engine"] if chosen is not None else None,
        "precision": chosen["precision"] if chosen is not None else None,
        "cpu": machine.cpu_model,
        "cores": machine.cores,
        "threads": machine.threads,
        "torch": machine.torch,
        "python": machine.python,
        "compilot": entry.compilot,
        "parameters": model.parameter_count,
        "commit": entry.commit,
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def metrics_of(data: RunData) -> Iterator[tuple[str, float, int]]:
    """(name, figure, step): of the chosen candidate, or of eager where it stays; then of every trial by its number."""
    chosen = next((row for row in data.rows if row["chosen"]), None)
    yield from ((name, value, 0) for name, value in _figures(chosen, _FIGURES)) if chosen is not None else ()
    yield "candidates", float(len(data.rows)), 0
    yield "candidates_failed", float(sum(row["state"] not in ("ok", "pruned") for row in data.rows)), 0
    for number, row in enumerate(data.rows):
        yield from ((f"trial.{name}", value, number) for name, value in _figures(row, _OF_TRIALS))


def _figures(row: Row, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name in names:
        value = row[name]  # type: ignore[literal-required]
        if value is not None and math.isfinite(value):
            yield name, float(value)
