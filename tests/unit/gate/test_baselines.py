"""Stored figures: what is compared here, what elsewhere, and files that are none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from tests.unit.gate.fake_races import FakeRaces

from compilot.errors import InputError
from compilot.gate import baselines
from compilot.gate.baselines import make_baseline, read_baseline, why_no_costs, why_no_times, write_baseline
from compilot.gate.checking import Checked, CheckOptions, Stored, check_sides, run_race
from compilot.gate.judging import overall
from compilot.gate.races import Failure
from compilot.gate.report_records import Baseline, GateVerdict, MetricResult
from compilot.gate.sides import Side
from compilot.identity.machine import machine_fingerprint
from compilot.records import Shipment

ARMS = ("eager", "torch.compile")
HEAD = Side("head", "the working tree", Shipment(target="m.py:net", cwd="/", sys_path=()))


def answers(tmp_path: Path, times: float = 1.0) -> dict[str, Path]:
    path = tmp_path / f"answers{times}.pt"
    answer = torch.arange(1.0, 9.0) * times
    torch.save({"answers": {"example 1": {"": answer}}, "double": {"example 1": {"": answer.double()}}}, path)
    return {"head eager": path}


@pytest.fixture
def stored(tmp_path: Path) -> Baseline:
    given = answers(tmp_path)
    sets = run_race(FakeRaces(arms=ARMS, sides=("head",)), 0, CheckOptions(), clock=lambda: 0.0)
    made = make_baseline(HEAD, sets, ARMS, machine_fingerprint(), answers=given["head eager"])
    write_baseline(made, tmp_path / "baseline.json")
    assert read_baseline(tmp_path / "baseline.json") == made
    return made


def check(baseline: Baseline, tmp_path: Path, *, elsewhere: str = "", times: float = 1.0, **head: object) -> Checked:
    races = FakeRaces(arms=ARMS, sides=("head",), answers=answers(tmp_path, times), seed=1, **head)  # type: ignore[arg-type]
    stored = Stored(baseline, elsewhere, tmp_path)
    return check_sides(races, ARMS, CheckOptions(), stored=stored, clock=lambda: 0.0)


def metric(found: Checked, name: str, arm: str = "eager") -> MetricResult:
    return next(one for one in found.metrics if (one.metric, one.arm) == (name, arm))


def test_the_same_model_passes(stored: Baseline, tmp_path: Path) -> None:
    found = check(stored, tmp_path)
    assert {one.verdict for one in found.metrics} <= {GateVerdict.PASS}
    assert metric(found, "numbers").verdict is GateVerdict.PASS
    assert metric(found, "latency").mde is not None


def test_on_the_same_machine_a_slow_down_is_red_after_two_races(stored: Baseline, tmp_path: Path) -> None:
    latency = metric(check(stored, tmp_path, slower=1.4), "latency")
    assert latency.verdict is GateVerdict.SLOWER
    assert latency.races == 2
    assert metric(check(stored, tmp_path, slower=1.06), "latency").verdict is not GateVerdict.SLOWER  # other days


def test_an_arm_that_the_baseline_does_not_have_is_not_measured(stored: Baseline, tmp_path: Path) -> None:
    """It failed then, or was not asked for; it is no fault of the head."""
    alone = msgspec.structs.replace(stored, facts={"eager": stored.facts["eager"]})
    broken = {"head torch.compile": Failure("no C++ compiler")}
    for failures in ({}, broken):
        found = check(alone, tmp_path, failures=failures)
        runs = metric(found, "runs", "torch.compile")
        assert runs.verdict is GateVerdict.NOT_MEASURED
        assert runs.because == "the baseline has no such arm; make it again with 'compilot baseline'"
        assert not any(one.verdict.is_red for one in found.metrics)
        assert overall(found.metrics)[0] is GateVerdict.PASS
    assert metric(check(stored, tmp_path, failures=broken), "runs", "torch.compile").verdict is GateVerdict.WORSE


def test_a_baseline_with_none_of_the_arms_measures_nothing(stored: Baseline, tmp_path: Path) -> None:
    other = msgspec.structs.replace(stored, facts={}, call_s={})
    found = check(other, tmp_path)
    said, because = overall(found.metrics)
    assert said is GateVerdict.NOT_MEASURED
    assert because == "the baseline has no such arm; make it again with 'compilot baseline'"


def test_answers_that_the_baseline_does_not_hold_make_no_red(stored: Baseline, tmp_path: Path) -> None:
    """Whether torch.compile was as far off when the baseline was made is not known."""
    good, off = answers(tmp_path)["head eager"], answers(tmp_path, 1.01)["head eager"]
    races = FakeRaces(arms=ARMS, sides=("head",), answers={"head eager": good, "head torch.compile": off})
    found = check_sides(races, ARMS, CheckOptions(), stored=Stored(stored, "", tmp_path), clock=lambda: 0.0)
    assert metric(found, "numbers").verdict is GateVerdict.PASS
    other = metric(found, "numbers", "torch.compile")
    assert other.verdict is GateVerdict.INCONCLUSIVE
    assert other.because.endswith("the baseline has no answers of torch.compile, so that may be as it was")


def test_a_machine_that_is_a_quarter_slower_today_is_no_slower_model(stored: Baseline, tmp_path: Path) -> None:
    found = [check(stored, tmp_path, slower=1.25, head={"first_s": 3.0 * 1.4}) for _ in range(5)]
    assert not any(one.verdict.is_red for checked in found for one in checked.metrics)


def test_elsewhere_no_time_is_compared_but_counts_and_numbers_are(stored: Baseline, tmp_path: Path) -> None:
    found = check(
        stored, tmp_path, elsewhere="another machine", slower=2.0, times=1.01, head_compiled={"graph_breaks": 2}
    )
    assert metric(found, "latency").verdict is GateVerdict.NOT_MEASURED
    assert not [one for one in found.metrics if one.metric in ("startup", "compile-cpu")]
    assert metric(found, "graph-breaks", "torch.compile").verdict is GateVerdict.WORSE
    assert metric(found, "numbers").verdict is GateVerdict.WORSE


COSTS = ("memory", "kernels", "compiler-runs", "artifact-bytes")


def test_with_another_processor_or_torch_only_what_is_the_same_everywhere_is_compared(
    stored: Baseline, tmp_path: Path
) -> None:
    why = "another processor or torch than the baseline's: torch was 2.12.0, here it is 2.13.0"
    more = {"kernels": 30, "compiler_runs": 9, "artifact_bytes": 900_000, "peak_rss_bytes": 900_000_000}
    races = FakeRaces(arms=ARMS, sides=("head",), answers=answers(tmp_path), seed=1, head_compiled=more)
    kept = Stored(stored, "another machine", tmp_path, no_costs=why)
    found = check_sides(races, ARMS, CheckOptions(), stored=kept, clock=lambda: 0.0)
    for name in COSTS:
        assert (metric(found, name, ARMS[1]).verdict, metric(found, name, ARMS[1]).because) == (
            GateVerdict.NOT_MEASURED,
            why,
        )
    for name in ("graph-breaks", "recompiles", "left-to-eager"):
        assert metric(found, name, ARMS[1]).verdict is GateVerdict.PASS
    assert metric(found, "numbers").verdict is GateVerdict.PASS
    elsewhere = check(stored, tmp_path, elsewhere="another machine", head_compiled=more)
    assert {metric(elsewhere, name, ARMS[1]).verdict for name in COSTS} == {GateVerdict.WORSE}


def test_what_makes_a_processor_or_torch_another_one(stored: Baseline) -> None:
    here = machine_fingerprint()
    assert why_no_costs(stored, here) == ""
    assert why_no_costs(stored, msgspec.structs.replace(here, cpu_model="another name", python="3.99")) == ""
    for other in ({"torch": "2.99"}, {"threads": here.threads + 1}, {"cpu_isa": (*here.cpu_isa, "avx1024")}):
        why = why_no_costs(stored, msgspec.structs.replace(here, **other))
        assert why.startswith("another processor or torch than the baseline's: ")
        assert next(iter(other)) in why or "avx1024" in why


def test_stored_answers_leave_no_file(stored: Baseline, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    assert metric(check(stored, tmp_path), "numbers").verdict is GateVerdict.PASS
    assert set(tmp_path.iterdir()) == before


def test_other_weights_have_no_numbers(stored: Baseline, tmp_path: Path) -> None:
    found = check(stored, tmp_path, times=2.0, head={"weights_sha256": "other"})
    assert metric(found, "numbers").because == "the weights or the inputs are others than the baseline's"


def test_other_inputs_are_other_work(stored: Baseline, tmp_path: Path) -> None:
    found = check(stored, tmp_path, slower=2.0, head={"inputs": "[0][0] 16x64 float32"})
    latency = metric(found, "latency")
    assert latency.verdict is GateVerdict.NOT_MEASURED
    assert "not the same work: none before, [0][0] 16x64 float32 now" in latency.because
    assert len(found.races) == 1
    assert metric(found, "startup").verdict is GateVerdict.PASS  # is none of the inputs' business


def test_another_number_of_callers_or_target_is_other_work(stored: Baseline, tmp_path: Path) -> None:
    assert baselines.why_other_work(stored, "/another/checkout/m.py:net", 1) == ""
    assert "the baseline is of m.py:net" in baselines.why_other_work(stored, "m.py:other", 1)
    why = baselines.why_other_work(stored, "m.py:net", 4)
    assert "called by 1 at once, here it is 4" in why
    races = FakeRaces(2.0, arms=ARMS, sides=("head",), answers=answers(tmp_path), seed=1)
    kept = Stored(stored, "", tmp_path, why)
    latency = metric(check_sides(races, ARMS, CheckOptions(), stored=kept, clock=lambda: 0.0), "latency")
    assert (latency.verdict, latency.because) == (GateVerdict.NOT_MEASURED, why)


def test_another_machine_is_known(stored: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine_fingerprint()
    assert why_no_times(stored, here) == ""
    assert "torch" in why_no_times(stored, msgspec.structs.replace(here, torch="2.99"))
    monkeypatch.setattr(baselines.platform, "node", lambda: "elsewhere")
    assert "another machine" in why_no_times(stored, here)


@pytest.mark.parametrize("mark", ["a file", "a variable", "a cgroup"])
def test_containers_of_one_image_are_known_by_the_boot_of_their_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    boot, marked, cgroup = (tmp_path / name for name in ("boot_id", ".dockerenv", "cgroup"))
    for name, place in (("BOOT_ID", boot), ("FIRST_CGROUP", cgroup)):
        monkeypatch.setattr(baselines, name, str(place))
    monkeypatch.setattr(baselines, "CONTAINER_FILES", (str(marked),))
    for name in baselines.CONTAINER_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def ids() -> set[str]:
        found = set()
        for text in ("one\n", "two\n"):
            boot.write_text(text)
            found.add(baselines.machine_id())
        return found

    cgroup.write_text("0::/init.scope\n")
    assert len(ids()) == 1  # a machine of its own is the same one after a start
    if mark == "a file":
        marked.touch()
    elif mark == "a variable":
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    else:
        cgroup.write_text("0::/kubepods/pod1/abc\n")
    assert len(ids()) == 2
    boot.unlink()
    assert len(baselines.machine_id()) == 16  # a system without one


def test_files_that_are_none_are_named(tmp_path: Path, stored: Baseline) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_baseline(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match="is no baseline"):
        read_baseline(tmp_path / "bad.json")
    newer = msgspec.structs.replace(stored, schema=99)
    write_baseline(newer, tmp_path / "newer.json")
    with pytest.raises(InputError, match="schema 99"):
        read_baseline(tmp_path / "newer.json")


def test_large_answers_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_ANSWER_BYTES", 10)
    assert baselines.stored(answers(tmp_path)["head eager"], "w") is None
