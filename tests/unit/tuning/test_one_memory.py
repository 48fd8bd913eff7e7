"""Memory is one figure: the largest of all fresh processes, in the plan, the table, JSON and CSV alike."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from stories import MIB, Story, told

from compilot.records import Trial
from compilot.report.data import read_run
from compilot.report.files import write_csv
from compilot.report.results import results_of
from compilot.report.terminal import summary
from compilot.testing.runner import FakeRunner, Fate
from compilot.trials.runner import FreshSet, SetRules
from compilot.tuning.measured import measured

PEAKS = (300, 340, 320)  # MiB, in three sets of fresh processes
STEADY = (200, 210, 230)


class Varying(FakeRunner):
    """Its fresh processes use another amount of memory in each set."""

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        found = super().confirm(trials, rules)
        peak, steady = PEAKS[rules.number] * MIB, STEADY[rules.number] * MIB
        warm = {
            name: msgspec.structs.replace(one, peak_rss_bytes=peak, steady_rss_bytes=steady)
            for name, one in found.warm.items()
        }
        return found._replace(warm=warm)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setattr("stories.FakeRunner", Varying)
    return told(tmp_path, {"good": Fate(speed=2.0)})


def test_the_plan_has_the_largest_of_all_sets(story: Story) -> None:
    evidence = story.plan.entries[0].evidence
    assert (evidence.peak_rss_bytes, evidence.steady_rss_bytes) == (max(PEAKS) * MIB, max(STEADY) * MIB)


def test_rows_and_files_have_the_plans_figures(story: Story) -> None:
    evidence, folder = story.plan.entries[0].evidence, story.run_dir.path
    assert evidence.peak_rss_bytes is not None
    peak = evidence.peak_rss_bytes / MIB
    [row] = [row for row in read_run(folder).rows if row["chosen"]]
    assert (row["peak_rss_mib"], row["steady_rss_mib"]) == (peak, (evidence.steady_rss_bytes or 0) / MIB)
    [shown] = [
        row for row in msgspec.to_builtins(results_of(folder, story.plan), enc_hook=str)["rows"] if row["chosen"]
    ]
    assert shown["peak_rss_mib"] == peak
    with write_csv(folder).open(newline="") as file:
        assert [float(line["peak_rss_mib"]) for line in csv.DictReader(file) if line["chosen"] == "True"] == [peak]


def test_the_printed_table_has_it(story: Story) -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(summary(read_run(story.run_dir.path), story.plan, width=120))
    [line] = [line for line in console.file.getvalue().splitlines() if line.startswith("►")]  # type: ignore[attr-defined]
    assert f"{max(PEAKS)}" in line
    assert not any(f"{peak}" in line for peak in PEAKS if peak != max(PEAKS))


def test_a_run_that_is_resumed_after_its_confirmation_has_the_same(story: Story) -> None:
    confirmed = measured(story.run_dir.lines(), finished=False).confirmed
    assert confirmed is not None
    assert {one.peak_rss_bytes for one in confirmed[1].values()} == {max(PEAKS) * MIB}
