"""Racing with fake arms: no process, no clock."""

from compilot.measure.racing import DISCARDED_ROUNDS, race


class FakeArm:
    """An arm whose batches take a fixed time; writes down when it ran and settled."""

    def __init__(self, name: str, per_call_s: float, diary: list[str], idle: bool = True) -> None:
        self.name, self.per_call_s, self.diary, self.idle = name, per_call_s, diary, idle

    def time_batch(self) -> float:
        self.diary.append(self.name)
        return self.per_call_s

    def settle(self) -> bool:
        self.diary.append(f"{self.name} idle")
        return self.idle


def never(rounds: object) -> bool:
    return False


def test_every_round_has_every_arm_once_and_rows_keep_the_arms_order():
    diary: list[str] = []
    arms = [FakeArm("eager", 2.0, diary), FakeArm("a", 1.0, diary), FakeArm("b", 3.0, diary)]
    samples = race(arms, looks=(20,), stop=never, seed=1)
    assert len(samples.rounds) == 20
    assert set(samples.rounds) == {(2.0, 1.0, 3.0)}
    runs = [entry for entry in diary if not entry.endswith("idle")]
    for start in range(0, len(runs), 3):
        assert sorted(runs[start : start + 3]) == ["a", "b", "eager"]


def test_the_previous_arm_is_idle_before_the_next_one_runs():
    diary: list[str] = []
    race([FakeArm("a", 1.0, diary), FakeArm("b", 1.0, diary)], looks=(20,), stop=never, seed=0)
    for first, second in zip(diary[::2], diary[1::2], strict=True):
        assert second == f"{first} idle"


def test_the_order_within_a_round_is_random():
    diary: list[str] = []
    race([FakeArm("a", 1.0, diary), FakeArm("b", 1.0, diary)], looks=(80,), stop=never, seed=0)
    runs = [entry for entry in diary if not entry.endswith("idle")]
    firsts = runs[::2]
    assert 20 < firsts.count("a") < 62


def test_it_stops_only_at_a_look():
    asked: list[int] = []

    def stop(rounds: object) -> bool:
        asked.append(len(rounds))  # type: ignore[arg-type]
        return len(rounds) >= 40  # type: ignore[arg-type]

    diary: list[str] = []
    samples = race([FakeArm("a", 1.0, diary)], looks=(20, 40, 80), stop=stop, seed=0)
    assert asked == [20, 40]
    assert len(samples.rounds) == 40


def test_the_first_rounds_are_run_but_not_kept():
    diary: list[str] = []
    samples = race([FakeArm("a", 1.0, diary)], looks=(20,), stop=never, seed=0)
    runs = [entry for entry in diary if not entry.endswith("idle")]
    assert len(runs) == len(samples.rounds) + DISCARDED_ROUNDS


def test_arms_that_do_not_settle_are_counted():
    diary: list[str] = []
    samples = race([FakeArm("a", 1.0, diary, idle=False)], looks=(20,), stop=never, seed=0)
    assert samples.settle_timeouts == 20
