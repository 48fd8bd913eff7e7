"""A model that checks its values, run by real engines: that they leave the checks out is said from trial to stats()."""

import csv
from pathlib import Path

import deciding
import pytest
import torch
from one_trial import try_one

import compilot
from compilot import report
from compilot.artifacts.journal import Journal
from compilot.artifacts.rundir import RunDir
from compilot.engines import registry
from compilot.progress import Observer
from compilot.records import Candidate, Settings, State, Trial, TrialLine
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning import comparing
from compilot.tuning.journal import make_header
from compilot.tuning.options import TuneOptions
from compilot.workload.dispatch import ship_target

TARGET = f"{deciding.__file__}:checked"
ASSERTING = f"{deciding.__file__}:asserting"
ZEROS = "eager raises ValueError on case 'zeros' (nothing but zeros); this candidate answers instead"
VANISH = "checks inside the model are not part of its compiled form: deciding.py:"


@pytest.fixture(params=["onnxruntime", "openvino"])
def engine(request: pytest.FixtureRequest) -> str:
    if not registry.build_half(request.param).available().ok:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_an_exporters_candidate_says_what_it_leaves_out(engine: str, tmp_path: Path):
    shipment = ship_target(TARGET)
    runner = LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=1.0), observer=Observer())
    try:
        opened, inspected = runner.open(shipment), runner.inspect()
        eager = comparing.try_eager(runner, 60.0)
        candidate = Candidate(settings=Settings(engine=engine), label=engine, rationale="test")
        trial = comparing.try_one(runner, candidate, 120.0)
    finally:
        runner.close()
    assert "checks-vanish" in [finding.kind for finding in inspected.diagnosis.findings]
    assert trial.state is State.OK, trial.reason
    assert trial.check is not None
    assert any(caveat.startswith(ZEROS) for caveat in trial.check.caveats)
    assert any(caveat.startswith(VANISH) for caveat in trial.check.caveats)
    assert "output[2] has memory of its own; eager's shares it with output[0]" in trial.check.caveats
    assert not any("output[1] has memory" in caveat for caveat in trial.check.caveats)  # the same tensor twice
    header = make_header(opened.ref, inspected.fingerprint, TuneOptions(budget_s=1.0))
    _reports_say_so(header, [eager, trial], tmp_path)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "keeps"),
    [
        ("onnxruntime", False),
        ("openvino", False),
        pytest.param("inductor", True, marks=pytest.mark.compiles),
        pytest.param("aoti", True, marks=pytest.mark.compiles),
    ],
)
def test_a_checking_operator_is_kept_or_left_out_as_documented(name: str, keeps: bool, tmp_path: Path):
    """docs/measuring.md says which engine does what with torch._assert_async; what is left out is said to the end."""
    if not registry.build_half(name).available().ok:
        pytest.skip(f"{name} is not installed")
    tried = try_one(ASSERTING, name, tmp_path)
    assert tried.trial.state is State.OK, tried.trial.reason
    assert tried.trial.check is not None
    assert "checks-vanish" in [finding.kind for finding in tried.diagnosis.findings]
    model, (x,) = deciding.asserting()
    fast = compilot.compile(model, tried.plan(), folder=tmp_path, strict=True)
    assert torch.allclose(fast(x), model(x), atol=1e-5)
    assert fast.stats().notes == tried.trial.check.caveats
    if keeps:
        assert fast.stats().notes == ()
        with pytest.raises(RuntimeError, match="nothing but zeros"):
            fast(torch.zeros_like(x))
        return
    raised, named = fast.stats().notes
    assert raised.startswith("eager raises RuntimeError on case 'zeros' (nothing but zeros); this candidate answers")
    assert named.startswith(VANISH)
    assert torch.allclose(fast(torch.zeros_like(x)), model.linear(torch.zeros_like(x)), atol=1e-5)
    assert fast.stats().fast == 2


def _reports_say_so(header: object, trials: list[Trial], folder: Path) -> None:
    with Journal.create(folder / "journal.jsonl", header) as journal:  # type: ignore[arg-type]
        for trial in trials:
            journal.append(TrialLine(trial=trial, at_s=0.0))
    with report.write_csv(folder).open() as file:
        [row] = [row for row in csv.DictReader(file) if row["engine"] == trials[1].candidate.settings.engine]
    assert ZEROS in row["caveats"]
    [told] = [r for r in report.results_of(folder).rows if r["id"] == trials[1].candidate.id]
    assert ZEROS in told["caveats"]
