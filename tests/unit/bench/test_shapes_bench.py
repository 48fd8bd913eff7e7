"""bench/shapes.py: its traces, the order of its steps, and when its aims are met; nothing is run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

import shapes
import shapes_lab
import shapes_models
import shapes_table
from compilot.records import ProcessSamples
from shapes_journal import ARMS, FirstAnswers, Journal, Raced, Tuned
from shapes_lab import Case
from stepping import DONE, MORE, Steps

CASES = [Case("bert", "lengths"), Case("conv", "bursts")]
GOOD = {"eager": 1.0, "compile": 1.2, "dynamic": 1.1, "powers": 1.3, "plan": 2.0}


class FakeLab:
    """Gives what it was told, and remembers what it was asked for."""

    def __init__(self, speeds: dict[str, float], forecast: float | None = 2.0, **odd: object) -> None:
        self.speeds, self.forecast, self.odd, self.asked = speeds, forecast, odd, list[str]()
        self.known = list[dict[str, str]]()  # arms that were lost before, at each race

    def tune(self, case: Case) -> Tuned:
        self.asked.append(f"tune {case.name}")
        told = Tuned(case=case.name, budget="1m", wall_s=1.0, policy="buckets", entries=("64", "512"))
        return msgspec.structs.replace(told, forecast=self.forecast, replayed=2.0)

    def race(self, case: Case, process: int, known: Mapping[str, str]) -> Raced:
        self.asked.append(f"race {case.name} {process}")
        self.known.append(dict(known))
        draw = random.Random(f"{case} {process}")
        sizes = [draw.lognormvariate(0.0, 1.0) for _ in range(64)]
        rows = [tuple(s / self.speeds[arm] * draw.lognormvariate(0, 0.01) for arm in ARMS) for s in sizes]
        return Raced(
            case=case.name,
            process=process,
            arms=ARMS,
            samples=ProcessSamples(rounds=tuple(rows)),
            answers={arm: FirstAnswers(first_s=0.1 + process, ten_s=1.0 + process) for arm in ARMS},
            recompiles={"plan": int(str(self.odd.get("recompiles", 0)))},
            fast_share=float(str(self.odd.get("fast_share", 1.0))),
            lost={"powers": "it crashed"} if self.odd.get("loses") else {},
        )


def done(tmp_path: Path, lab: FakeLab, steps: int | None = None) -> tuple[Journal, int]:
    journal = Journal(tmp_path / "journal.jsonl", code="test")
    return journal, shapes.work(CASES, journal, lab, 2, Steps(steps))  # type: ignore[arg-type]


def problems(tmp_path: Path, lab: FakeLab) -> list[str]:
    journal, code = done(tmp_path, lab)
    assert code == DONE
    return shapes_table.problems(shapes_table.seen(CASES, journal), len(CASES))


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = FakeLab(GOOD)
    _, code = done(tmp_path, first, steps=2)
    assert (code, first.asked) == (MORE, ["tune bert-lengths", "race bert-lengths 0"])
    second = FakeLab(GOOD)
    _, code = done(tmp_path, second)
    wanted = ["race bert-lengths 1", "tune conv-bursts", "race conv-bursts 0", "race conv-bursts 1"]
    assert (code, second.asked) == (DONE, wanted)


def test_aims_that_are_met_and_both_tables(tmp_path: Path) -> None:
    journal, _ = done(tmp_path, FakeLab(GOOD))
    found = shapes_table.seen(CASES, journal)
    assert shapes_table.problems(found, 2) == []
    text = shapes_table.tables(found)
    assert "| bert-lengths | buckets | 2 | 2.0" in text
    assert "| conv-bursts | 0.10 / 1.00 |" in text  # of the first set alone: the second has its caches
    assert "one process with an empty compile cache" in text


@pytest.mark.parametrize(
    ("lab", "said"),
    [
        (FakeLab({**GOOD, "plan": 1.0}, forecast=1.0), "slower than powers"),
        (FakeLab({**GOOD, "powers": 1.9}), "cases are 1.3x over the best torch.compile policy, not 2"),
        (FakeLab(GOOD, forecast=2.6), "the forecast was off by +30%"),
        (FakeLab(GOOD, forecast=None), "bert-lengths: what was chosen has no forecast"),
        (FakeLab(GOOD, recompiles=3), "3 programs were compiled after the warm-up"),
        (FakeLab(GOOD, fast_share=0.99), "99.00% of the calls were fast"),
    ],
)
def test_aims_that_are_missed(tmp_path: Path, lab: FakeLab, said: str) -> None:
    assert any(said in problem for problem in problems(tmp_path, lab))


def test_traces_are_the_same_each_time_and_heavy_tailed_or_in_bursts() -> None:
    lengths = [call["input_ids:1"] for call in shapes_models.calls_of("bert", "lengths")]
    assert lengths == [call["input_ids:1"] for call in shapes_models.calls_of("bert", "lengths")]
    assert max(lengths) == 512
    assert sorted(lengths)[len(lengths) // 2] == pytest.approx(35, abs=4)
    assert sum(lengths) / len(lengths) == pytest.approx(66, abs=6)  # 69.5 before the cut
    rows = Counter(call["input_ids:0"] for call in shapes_models.calls_of("gpt2", "bursts"))
    assert rows[1] > sum(rows.values()) / 2
    assert max(rows) > 16
    sides = {call["image:2"] for call in shapes_models.calls_of("conv", "lengths")}
    assert min(sides) == 64
    assert max(sides) == 256


def test_an_arm_that_was_lost_is_not_tried_again(tmp_path: Path) -> None:
    lab = FakeLab(GOOD, loses=True)
    done(tmp_path, lab)
    assert lab.known == [{}, {"powers": "it crashed"}] * 2  # two sets of each case
    assert shapes_models.cannot_run("conv") == {"powers": "this model cannot be padded by hand"}
    assert shapes_models.cannot_run("bert") == {}


class FakeArm:
    """Answers at once, and remembers what happened; its threads spin on until somebody waits for them."""

    def __init__(self, name: str, log: list[str], request_s: float = 0.01, requests: int = 7) -> None:
        self.name, self.log, self.request_s, self.requests, self.passes = name, log, request_s, requests, 0

    def ask(self, first: int, count: int, passes: int) -> dict[str, list[float]]:
        self.log.append(f"ask {self.name}")
        self.passes = passes
        return {
            "seconds": [self.request_s * (number + 1) for number in range(first, min(first + count, self.requests))]
        }

    def settle(self) -> bool:
        self.log.append(f"idle {self.name}")
        return self.name != "b"


def test_every_window_has_every_arm_and_rows_are_requests() -> None:
    log: list[str] = []
    samples = shapes_lab.windows([FakeArm("a", log), FakeArm("b", log)], 7, seed=1)
    assert list(samples.rounds) == [(pytest.approx(0.01 * n), pytest.approx(0.01 * n)) for n in range(1, 8)]
    asked = [words.split()[1] for words in log if words.startswith("ask")]
    assert asked[:2] == ["a", "b"]  # how long requests are
    assert all(set(pair) == {"a", "b"} for pair in zip(asked[2::2], asked[3::2], strict=True))


def test_every_arm_is_idle_before_the_next_one_begins() -> None:
    log: list[str] = []
    samples = shapes_lab.windows([FakeArm("a", log), FakeArm("b", log)], 7, seed=1)
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert all(first == f"ask {second.removeprefix('idle ')}" for first, second in pairs)
    assert samples.settle_timeouts == 7  # b never was, in seven windows of one request


def test_short_requests_have_wide_windows_of_which_the_samples_know() -> None:
    arms = [FakeArm("a", [], 1e-6, 96), FakeArm("b", [], 1e-5, 96)]
    samples = shapes_lab.windows(arms, 96, seed=1)
    assert (samples.window, len(samples.rounds)) == (8, 96)
    assert arms[0].passes > arms[1].passes > 1  # each turn is long enough for a clock


def test_what_people_write_by_hand_pads_to_powers_of_two_and_cuts_back() -> None:
    torch = pytest.importorskip("torch")
    hand = shapes_models.by_hand("gpt2")
    assert hand is not None
    padded = hand.pad({"input_ids": torch.ones(3, 9, dtype=torch.long)})
    assert padded["input_ids"].shape == (4, 16)
    assert shapes_models.by_hand("conv") is None
