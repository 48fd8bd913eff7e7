"""A run in MLflow: a local store in SQLite has the same params, metrics and files, once for each journal."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import compilot
from compilot.ledger import mlflow_export
from compilot.records import SourceCommit, VerdictLine
from compilot.report.data import read_run

pytestmark = pytest.mark.filterwarnings(  # of what MLflow itself uses
    "default::DeprecationWarning",
    "default::FutureWarning",
    "default::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make its tables."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(empty_store: Path, tmp_path: Path) -> str:
    (tmp_path / "there").mkdir()
    shutil.copy(empty_store, tmp_path / "there" / "mlflow.db")
    return f"sqlite:///{tmp_path}/there/mlflow.db"


def stored(uri: str, run_id: str) -> tuple[Any, set[str], dict[int, float]]:
    """A run as MLflow has it, its files, and the speed-ups by step."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    speed_ups = {one.step: one.value for one in client.get_metric_history(run_id, "trial.speedup")}
    return client.get_run(run_id), {file.path for file in client.list_artifacts(run_id)}, speed_ups


def test_a_run_is_there_with_its_params_figures_and_files(make_run: Any, uri: str, tmp_path: Path) -> None:
    run = make_run("one", source=SourceCommit(commit="ab" * 20))
    compilot.write_report(run.path, format="md")
    written = compilot.write_report(run.path, mlflow=uri, experiment="nets")
    assert written.mlflow is not None
    assert (written.mlflow.uri, written.mlflow.experiment, written.mlflow.was_there) == (uri, "nets", False)
    found, files, speed_ups = stored(uri, written.mlflow.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.params["chosen"] == "inductor freezing"
    assert (found.data.params["torch"], found.data.params["cpu"]) == ("2.13.0", "Some CPU")
    assert found.data.params["commit"] == found.data.tags["mlflow.source.git.commit"] == "ab" * 20
    rows = read_run(run.path).rows
    [chosen] = [row for row in rows if row["chosen"]]
    for name in ("speedup", "speedup_low", "speedup_high", "p50_ms", "eager_p50_ms", "cold_s", "warm_s"):
        assert found.data.metrics[name] == pytest.approx(chosen[name]), name
    assert found.data.metrics["candidates"] == len(rows)
    assert found.data.metrics["candidates_failed"] == 1
    assert speed_ups == pytest.approx({n: row["speedup"] for n, row in enumerate(rows) if row["speedup"] is not None})
    assert files == {"report.html", "plan.json", "journal.jsonl"}
    assert (tmp_path / "there" / "mlruns").is_dir()
    assert not (tmp_path / "mlruns").exists()


def test_the_same_journal_is_exported_once_and_one_that_went_on_again(make_run: Any, small_run: Any, uri: str) -> None:
    run = make_run("one")
    first = compilot.write_report(run.path, mlflow=uri).mlflow
    again = compilot.write_report(run.path, mlflow=uri).mlflow
    assert first is not None
    assert again is not None
    assert (again.run_id, again.was_there) == (first.run_id, True)
    with run.open_journal() as journal:
        journal.append(VerdictLine(verdict=small_run.verdict, at_s=99.0))
    later = compilot.write_report(run.path, mlflow=uri).mlflow
    assert later is not None
    assert later.run_id != first.run_id
    assert not later.was_there


def test_what_was_cut_short_is_exported_again(make_run: Any, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("one")
    with monkeypatch.context() as patch:
        patch.setattr(mlflow_export, "metrics_of", lambda data: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compilot.write_report(run.path, mlflow=uri)
    assert not compilot.write_report(run.path, mlflow=uri).mlflow.was_there  # type: ignore[union-attr]


def test_the_command_says_where_it_is(make_run: Any, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from compilot.cli.main import app

    run = make_run("one", finished=False)
    result = CliRunner().invoke(app, ["report", str(run.path), "--mlflow", uri])
    assert result.exit_code == 0, result.output
    assert f"was written: experiment 'compilot' at {uri}" in result.stderr
    run_id = result.stderr.split("MLflow run ")[1].split()[0]
    assert stored(uri, run_id)[0].info.status == "KILLED"  # interrupted before a verdict


def test_without_mlflow_it_is_one_sentence(make_run: Any, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    run = make_run("one")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(compilot.EnvironmentProblem, match=r"pip install 'compilot\[mlflow\]'"):
        compilot.write_report(run.path, mlflow=uri)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("", "address of MLflow is empty"), ("sqlite:////no/such/folder/x.db", "there is no folder /no/such/folder")],
)
def test_wrong_addresses_are_refused_at_once(make_run: Any, wrong: str, said: str) -> None:
    with pytest.raises(compilot.InputError, match=said):
        compilot.write_report(make_run("one").path, mlflow=wrong)


def test_an_address_that_mlflow_does_not_know_is_one_sentence(make_run: Any) -> None:
    with pytest.raises(compilot.StoreError, match="MLflow could not take the run at nonsense://x"):
        compilot.write_report(make_run("one").path, mlflow="nonsense://x")
