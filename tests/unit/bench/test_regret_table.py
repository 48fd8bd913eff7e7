"""The figures of bench/regret.py's table, from journals made by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench.regret_fakes import DIAGNOSIS, RULES, journal_at, quick, samples_of, trial, two_engines

import regret_table as table
from compilot.engines.eager.build import EAGER
from compilot.records import Comparison, Outcome
from regret_journal import DIRECT, RERACE, Journal, Looked, Raced, Searched, Tried
from regret_space import space
from regret_table import Regret, Row
from tune_runs import Story
from tune_runs import Tried as InSearch

pytestmark = pytest.mark.usefixtures(two_engines.__name__)
FAST, CHOSEN = quick(a=True, b=True), quick(b=True)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Everything tried at 10 s each; the search spent 15 s until it had one that is 5 % slower than the best."""
    found = journal_at(tmp_path)
    found.append(Looked(model="mlp", diagnosis=DIAGNOSIS, eager=trial(EAGER, 1.0, 5.0)))
    speeds = {FAST.id: 2.10, CHOSEN.id: 2.0}
    while (one := space(DIAGNOSIS, found.trials("mlp")).next(found.trials("mlp"))) is not None:
        speed = speeds.get(one.candidate.id, 1.9 if one.candidate.settings.options.get("a") else 1.2)
        found.append(Tried(model="mlp", stage=one.stage, trial=trial(one.candidate, speed)))
    tried = (InSearch(id=CHOSEN.id, label=CHOSEN.label, state="ok", wall_s=10.0, at_s=40.0),)
    story = Story(tried=tried, chosen=CHOSEN.id, spent_s=15.0, found_s=40.0)
    found.append(Searched(model="mlp", budget="5m", wall_s=300.0, chosen=CHOSEN, story=story))
    return found


def raced(journal: Journal, race: str, arms: tuple[str, ...], speeds: list[float]) -> None:
    for process in range(RULES.processes):
        samples = samples_of(speeds, 40, process)
        journal.append(Raced(model="mlp", race=race, process=process, arms=arms, samples=samples))


def test_the_figures_of_a_row(journal: Journal) -> None:
    raced(journal, RERACE, (FAST.id, FAST.id, CHOSEN.id), [2.1, 2.1, 2.0])
    row = table.row(journal, "mlp", RULES)
    assert row.regret is None
    assert row.state == "not done, next: raceset"
    raced(journal, DIRECT, (FAST.id, FAST.id, CHOSEN.id), [2.1, 2.1, 2.0])
    row = table.row(journal, "mlp", RULES)
    assert row.state == "done"
    assert row.regret is not None
    assert row.regret.value == pytest.approx(0.05, abs=0.002)
    assert row.regret.low < 0.05 < row.regret.high
    assert row.tried == len(journal.tried("mlp")) == row.offered
    assert row.exhaustive_s == 5.0 + 10.0 * row.tried
    assert row.until_s == 15.0
    assert row.share == pytest.approx(15.0 / row.exhaustive_s)
    assert [one.ratio for one in row.aa] == pytest.approx([1.0, 1.0], abs=0.002)


def test_a_busy_machine_and_two_versions_of_the_code_are_said(journal: Journal) -> None:
    arms = (FAST.id, FAST.id, CHOSEN.id)
    later = Journal(journal.path, code="def")
    samples = samples_of([2.1, 2.1, 2.0], 40, 0)
    later.append(Raced(model="mlp", race=RERACE, process=0, arms=arms, samples=samples, load="another used a core"))
    row = table.row(later, "mlp", RULES)
    assert row.doubts == ("lines of 2 versions of the code: abc, def", "another used a core")


def test_a_journal_with_nothing_has_a_row(tmp_path: Path) -> None:
    row = table.row(journal_at(tmp_path), "mlp", RULES)
    assert (row.tried, row.regret, row.share, row.state) == (0, None, None, "not done, next: look")


def aa(low: float, high: float) -> Comparison:
    return Comparison(
        candidate_id="x",
        baseline_id="x",
        ratio=(low + high) / 2,
        low=low,
        high=high,
        outcome=Outcome.NO_DIFFERENCE,
        margin=0.01,
        mde=0.02,
        aa_noise=0.01,
        processes=3,
        pairs=160,
    )


def made(model: str, regret: Regret | None, until_s: float = 10.0, exhaustive_s: float = 100.0, **more: Any) -> Row:
    usual: dict[str, Any] = {
        "offered": 9,
        "tried": 9,
        "left_out": (),
        "close": 1,
        "raced": 0,
        "best": "b",
        "chosen": "c",
    }
    usual |= {"search_tried": 3, "aa": (aa(0.99, 1.01),), "state": "done", "doubts": ()}
    return Row(**{"model": model, "regret": regret, "until_s": until_s, "exhaustive_s": exhaustive_s, **usual, **more})


SAME = Regret(0.0, 0.0, 0.0, raced=False)


def test_totals_of_a_search_that_does_well() -> None:
    rows = [made(f"m{n}", SAME) for n in range(6)] + [made("m6", Regret(0.02, 0.01, 0.03))]
    rows.append(made("m7", Regret(0.05, 0.02, 0.08), until_s=90.0))  # its interval begins below 3 %
    assert table.totals(rows) == [
        "models done: 8 of 8; aim at least 8: met",
        "median regret 0.00 %; aim at most 1 %: met",
        "shown above 3 %: none; aim none: met",
        "trial seconds until the winner was first tried, over 8 models: 160 of 800 s = 20.0 % of the exhaustive trial "
        "time; aim at most 30 %: met",
        "A/A arms that win: 0 of 8; aim none: met",
    ]


def test_totals_of_one_that_does_not() -> None:
    rows = [
        made("good", SAME, until_s=10.0),
        made("bad", Regret(0.06, 0.04, 0.08), until_s=70.0, aa=(aa(1.02, 1.05), aa(0.98, 0.985))),
        made("open", None, until_s=100.0),
        made("half", SAME, until_s=100.0, state="not done, next: try"),  # the space has grown since its race
    ]
    assert table.totals(rows) == [
        "models done: 2 of 4; aim at least 8: not met",
        "median regret 3.00 %; aim at most 1 %: not met",
        "shown above 3 %: bad; aim none: not met",
        "trial seconds until the winner was first tried, over 2 models: 80 of 200 s = 40.0 % of the exhaustive trial "
        "time; aim at most 30 %: not met",
        "A/A arms that win: 2 of 5; aim none: not met",
    ]


def test_rows_become_markdown_and_csv() -> None:
    rows = [made("m0", SAME), made("m1", Regret(0.05, 0.04, 0.06), left_out=("x", "y"), close=7, raced=5)]
    lines = table.markdown(rows).splitlines()
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert "0 (same candidate)" in lines[2]
    assert "5.0 % (4.0 to 6.0)" in lines[3]
    first, second = csv.DictReader(io.StringIO(table.as_csv(rows)))
    assert (first["regret_raced"], second["regret_value"], second["share"]) == ("False", "0.05", "0.1")
    assert table.notes(rows) == [
        "m1: the cap left out 2: x, y",
        "m1: 7 candidates within noise of the best at the trial, 5 raced again",
    ]
