"""Memory limits are told with their figures; denormals are found, and every engine's threads flush them alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from compilot._denormals import flushes_denormals
from compilot.diagnose.model.denormals import count, meets_denormals
from compilot.records import Candidate, Goal, Measurement, Objective, ProcessSettings, Settings, State, Trial
from compilot.runtime.process import apply_settings
from compilot.trials.attempt import too_large
from compilot.trials.limits import Limits
from compilot.verdict.finalists import best_under_the_rule
from compilot.workload import Workload

MIB = 2**20
TINY = torch.finfo(torch.float32).tiny


def test_a_candidate_above_the_limit_is_refused_with_its_figures():
    measured = Measurement(cold_s=1.0, cold_cache=True, peak_rss_bytes=812 * MIB, steady_rss_bytes=640 * MIB)
    assert too_large(measured, 700 * MIB) == "peak memory 812 MiB (640 MiB steady) is above the limit of 700 MiB"
    assert too_large(measured, 900 * MIB) == ""
    assert too_large(measured, None) == ""


def test_the_memory_objective_races_the_smallest_whatever_its_build_took():
    def tried(name: str, peak: int, steady: int) -> Trial:
        measured = Measurement(cold_s=1.0, cold_cache=True, peak_rss_bytes=peak * MIB, steady_rss_bytes=steady * MIB)
        candidate = Candidate(settings=Settings(engine=name), label=name, rationale="")
        return Trial(candidate=candidate, state=State.OK, reason="", measurement=measured)

    trials = [tried("a", 500, 450), tried("b", 900, 300), tried("c", 700, 400)]
    best = best_under_the_rule(Goal(objective=Objective.MEMORY), trials)
    assert best is not None
    assert best.candidate.label == "b"
    assert best_under_the_rule(Goal(), trials) is None


def test_eager_is_limited_by_the_machine_and_not_by_the_user():
    limits = Limits(memory_bytes=1, machine_bytes=2).capped(10.0)
    assert (limits.memory_bytes, limits.machine_bytes) == (1, 2)


class Fading(nn.Module):
    """Its weights are normal, its inner numbers are not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Softplus()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x - 95.0)


def test_denormals_are_found_in_weights_inputs_and_layers():
    x = torch.rand(4, 8) + 1.0
    small = nn.Linear(8, 8).eval()
    with torch.no_grad():
        assert not meets_denormals(Workload(nn.Linear(8, 8).eval(), (x,)))
        small.weight.fill_(TINY / 8)
        assert meets_denormals(Workload(small, (x,)))
        assert meets_denormals(Workload(nn.Linear(8, 8).eval(), (x * TINY / 8,)))
        assert meets_denormals(Workload(Fading().eval(), (x,)))


def test_zeros_and_other_kinds_of_numbers_are_no_denormals():
    assert count(torch.zeros(9)) == count(torch.ones(9, dtype=torch.int64)) == count(torch.tensor([TINY])) == 0
    assert count(torch.tensor([TINY / 2, -TINY / 4, 1.0])) == 2


@pytest.fixture
def flushing() -> Iterator[None]:
    changed = apply_settings(ProcessSettings(flush_denormals=True))
    assert changed == {"flush_denormals": (False, True)}
    yield
    apply_settings(ProcessSettings(flush_denormals=False))
    assert not flushes_denormals()


def test_onnxruntime_does_as_the_process_does(flushing):
    pytest.importorskip("onnxruntime")
    from compilot.engines.onnxruntime.load import session_options

    key = "session.set_denormal_as_zero"
    assert session_options(Settings()).get_session_config_entry(key) == "1"
    assert session_options(Settings(options={"denormals_as_zero": False})).get_session_config_entry(key) == "0"
    apply_settings(ProcessSettings(flush_denormals=False))
    assert session_options(Settings()).get_session_config_entry(key) == "0"


def test_openvino_does_as_the_process_does(flushing):
    from compilot.engines.openvino.load import properties

    assert properties(Settings())["CPU_DENORMALS_OPTIMIZATION"] is True
    apply_settings(ProcessSettings(flush_denormals=False))
    assert "CPU_DENORMALS_OPTIMIZATION" not in properties(Settings())
