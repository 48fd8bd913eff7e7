"""bench/regret.py on a laboratory that runs nothing: its steps, its exit codes, and going on after a cut."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.bench.regret_fakes import RULES, FakeLab, by_knobs, journal_at, quick, two_engines

import regret
import regret_table as table
from compilot.engines.eager.build import EAGER
from compilot.records import IndexFacts
from regret import Bench
from regret_journal import DIRECT, RERACE, Lost, Raced, Rebuilt, Searched, Tried
from regret_steps import Look, RaceSet, Search, Try, next_step, rerace_arms
from stepping import DONE, MORE, Steps

pytestmark = pytest.mark.usefixtures(two_engines.__name__)
BEST = {"a": True, "b": True}


def bench_at(folder: Path, lab: FakeLab | None = None) -> Bench:
    return Bench(journal_at(folder), lab or FakeLab(), RULES)  # type: ignore[arg-type]


def done(folder: Path, lab: FakeLab | None = None, models: tuple[str, ...] = ("mlp",)) -> Bench:
    bench = bench_at(folder, lab)
    assert regret.work(bench, models, Steps()) == DONE
    return bench


def test_the_order_of_the_steps(tmp_path: Path) -> None:
    bench = bench_at(tmp_path)
    seen = []
    while (step := next_step(bench.journal, "mlp", RULES)) is not None:
        seen.append(type(step))
        regret.do(bench, "mlp", step)
    tries = seen.count(Try)
    races = seen.count(RaceSet)
    assert seen == [Look, *[Try] * tries, Search, *[RaceSet] * races]
    assert tries == len(bench.journal.tried("mlp"))


def test_the_best_and_the_chosen_are_the_same_candidate_so_nothing_is_raced_directly(tmp_path: Path) -> None:
    bench = done(tmp_path, FakeLab(chosen=BEST))
    row = table.row(bench.journal, "mlp", RULES)
    assert row.regret is not None
    assert (row.regret.value, row.regret.raced) == (0.0, False)
    assert "same candidate" in row.regret.text
    assert [x for x in bench.journal.lines if isinstance(x, Raced) and x.race == DIRECT] == []
    assert row.state == "done"


def test_a_program_that_the_exhaustive_trials_know_under_another_name_is_the_same(tmp_path: Path) -> None:
    bench = done(tmp_path, FakeLab(chosen=BEST))
    lines = list(bench.journal.lines)
    best = next(x.trial for x in lines if isinstance(x, Tried) and x.trial.candidate.id == quick(**BEST).id)

    other = quick(a=True, b=True, d=True)
    searched = next(x for x in lines if isinstance(x, Searched))
    tried = tuple(
        msgspec.structs.replace(one, id=other.id, code="same") if not one.eager else one for one in searched.story.tried
    )
    story = msgspec.structs.replace(searched.story, tried=tried, chosen=other.id)
    changed = msgspec.structs.replace(searched, chosen=other, story=story)
    coded = [
        msgspec.structs.replace(x, trial=msgspec.structs.replace(best, code_sha256="same"))
        if isinstance(x, Tried) and x.trial is best
        else x
        for x in lines
    ]
    bench.journal.lines[:] = [changed if x is searched else x for x in coded]
    found = table.regret(bench.journal, "mlp", RULES)
    assert found is not None
    assert not found.raced


def test_regret_is_measured_in_a_direct_race_with_an_aa_arm(tmp_path: Path) -> None:
    bench = done(tmp_path, FakeLab(chosen={"b": True}))
    direct = [x for x in bench.journal.lines if isinstance(x, Raced) and x.race == DIRECT]
    assert [x.process for x in direct] == list(range(RULES.processes))
    best = quick(**BEST).id
    assert direct[0].arms == (best, best, quick(b=True).id)
    found = table.regret(bench.journal, "mlp", RULES)
    assert found is not None
    assert found.value == pytest.approx(0.10, abs=0.005)
    assert found.low < found.value < found.high
    assert found.low > 0.03


def test_the_chosen_one_is_raced_again_with_the_best_trials_although_nobody_else_tried_it(tmp_path: Path) -> None:
    other = {"a": True, "b": True, "c": True, "d": True}
    bench = done(tmp_path, FakeLab(chosen=other))
    arms = rerace_arms(bench.journal, "mlp", RULES)
    assert arms[0] == arms[1]
    assert arms[-1].id == quick(**other).id
    assert quick(**other).id not in bench.journal.trials("mlp")


def test_the_re_race_decides_who_is_the_best(tmp_path: Path) -> None:
    """At the trial nothing seems to help; in fresh processes b does."""

    class Turning(FakeLab):
        def race(self, model: str, step: RaceSet, indices: IndexFacts) -> Raced:
            self.speed = lambda c: 2.6 if c.settings.options.get("b") else 2.0
            return super().race(model, step, indices)

    bench = done(tmp_path, Turning(lambda c: 2.0 if c.settings.engine == "quick" else 1.0, chosen={"a": True}))
    row = table.row(bench.journal, "mlp", RULES)
    assert row.best == "quick a, b = True"
    assert row.regret is not None
    assert row.regret.value == pytest.approx(0.3, abs=0.02)
    assert row.close > RULES.finalists  # and the table says so
    assert any("within noise" in note for note in table.notes([row]))


def test_steps_are_counted_and_the_exit_code_says_that_more_is_left(tmp_path: Path) -> None:
    whole = len(done(tmp_path / "whole").journal.lines)
    count, code = 0, MORE
    while code == MORE:
        bench = bench_at(tmp_path / "stepped")
        before = len(bench.journal.lines)
        code = regret.work(bench, ["mlp"], Steps(1))
        assert len(bench.journal.lines) - before <= 1
        count += 1
        assert bench.lab.closed  # type: ignore[attr-defined]
        assert count < 100
    assert code == DONE
    assert len(journal_at(tmp_path / "stepped").lines) == whole


def test_a_line_that_was_cut_off_is_done_again_and_nothing_else(tmp_path: Path) -> None:
    bench = bench_at(tmp_path)
    assert regret.work(bench, ["mlp"], Steps(4)) == MORE
    path = bench.journal.path
    cut = path.read_bytes()[:-40]
    path.write_bytes(cut)
    lab = FakeLab()
    done(tmp_path, lab)
    again = journal_at(tmp_path)
    labels = [x.trial.candidate.label for x in again.tried("mlp")]
    assert len(set(labels)) == len(labels)
    assert lab.tried == labels[2:]  # the third trial, whose line was cut, is the first of the second part


def test_an_arm_that_fails_is_out_and_the_race_begins_anew(tmp_path: Path) -> None:
    lab = FakeLab(chosen={"b": True})
    lab.fails.add(quick(**BEST).id)
    bench = done(tmp_path, lab)
    assert [x.candidate_id for x in bench.journal.lines if isinstance(x, Lost)] == [quick(**BEST).id]
    row = table.row(bench.journal, "mlp", RULES)
    assert row.state == "done"
    assert any("failed in a race" in doubt for doubt in row.doubts)
    raced = [x for x in bench.journal.lines if isinstance(x, Raced) and x.race == RERACE]
    assert all(quick(**BEST).id not in x.arms for x in raced)


def test_a_chosen_one_that_fails_has_no_regret_and_ends_the_model(tmp_path: Path) -> None:
    lab = FakeLab(chosen={"b": True})
    lab.fails.add(quick(b=True).id)
    row = table.row(done(tmp_path, lab).journal, "mlp", RULES)
    assert row.regret is None
    assert "died" in row.state


def test_files_that_are_gone_are_built_again_before_a_race(tmp_path: Path) -> None:
    class Losing(FakeLab):
        """Its disk was emptied between the trials and the races."""

        def search(self, model: str) -> Searched:
            self.gone.add(quick(**BEST).id)
            return super().search(model)

    bench = done(tmp_path, Losing(chosen={"b": True}))
    assert [x.trial.candidate.id for x in bench.journal.lines if isinstance(x, Rebuilt)] == [quick(**BEST).id]
    row = table.row(bench.journal, "mlp", RULES)
    assert row.exhaustive_s == 5.0 + 10.0 * row.tried  # the second build counts for nothing


def test_a_model_that_cannot_be_opened_or_tuned_does_not_stop_the_others(tmp_path: Path) -> None:
    class Failing(FakeLab):
        def look(self, model: str):  # type: ignore[no-untyped-def]
            found = super().look(model)

            return msgspec.structs.replace(found, reason="no such file") if model == "lstm" else found

        def search(self, model: str) -> Searched:
            if model == "resnet18":
                return Searched(model=model, budget="5m", wall_s=1.0, problem="compilot tune ended with code 1")
            return super().search(model)

    bench = done(tmp_path, Failing(), ("lstm", "resnet18", "mlp"))
    states = {name: table.row(bench.journal, name, RULES).state for name in ("lstm", "resnet18", "mlp")}
    assert states["lstm"] == "cannot be tuned: no such file"
    assert states["resnet18"] == "no plan: compilot tune ended with code 1"
    assert states["mlp"] == "done"


def test_a_search_that_keeps_eager_is_raced_as_eager(tmp_path: Path) -> None:
    class Keeping(FakeLab):
        def search(self, model: str) -> Searched:

            return msgspec.structs.replace(super().search(model), chosen=EAGER)

    bench = done(tmp_path, Keeping())
    row = table.row(bench.journal, "mlp", RULES)
    assert row.chosen == "eager"
    assert row.regret is not None
    assert row.regret.value == pytest.approx(by_knobs(quick(**BEST)) - 1, rel=0.02)


def test_every_line_says_which_code_made_it(tmp_path: Path) -> None:
    bench = done(tmp_path)
    assert {line.code for line in bench.journal.lines} == {"abc"}
    assert bench.journal.codes("mlp") == ["abc"]


def test_the_table_only_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done(tmp_path, FakeLab(chosen={"b": True}))
    before = (tmp_path / "journal.jsonl").read_bytes()

    def never(*given: object) -> None:
        raise AssertionError("nothing may be started")

    for name in ("look", "attempt", "search", "race"):
        monkeypatch.setattr(regret.Lab, name, never)
    assert regret.main(["--table", "--only", "mlp", "--out", str(tmp_path), "--processes", "2"]) == DONE
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    assert "| mlp |" in capsys.readouterr().out
    assert (tmp_path / "table.csv").exists()


def test_main_hands_the_exit_codes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret, "Lab", lambda work, budget: FakeLab())
    argv = ["--only", "mlp", "--out", str(tmp_path), "--processes", "2"]
    assert regret.main([*argv, "--steps", "2"]) == MORE
    assert regret.main(argv) == DONE
    assert regret.main([*argv, "--steps", "0"]) == DONE  # nothing is left
