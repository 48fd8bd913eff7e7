"""The replay of trials over nodes: the loop of `tune` on a clock of its own."""

from __future__ import annotations

import json
from pathlib import Path

import fleet as bench


def test_a_node_takes_the_next_trial_as_soon_as_it_is_free() -> None:
    seconds = [5.0, 3.0, 8.0]
    assert bench.trials_s(seconds, 1) == 16.0
    assert bench.trials_s(seconds, 2) == 11.0  # 5 beside 3, then 8 from 3 on
    assert bench.trials_s(seconds, 64) == 8.0
    assert bench.trials_s(seconds, 2, rounds=True) == 13.0  # 8 waits for 5
    assert bench.ideal_s(seconds, 2) == 8.0


def test_the_table_has_every_way_beside_the_ideal(tmp_path: Path) -> None:
    lines = [{"type": "begun"}]
    for model, took in (("a", 4.0), ("a", 2.0), ("b", 6.0)):
        trial = {"candidate": {"settings": {"engine": "inductor"}}, "wall_s": took}
        lines.append({"type": "tried", "model": model, "trial": trial})
    lines.append({"type": "tried", "model": "a", "trial": {"candidate": {"settings": {}}, "wall_s": 99.0}})  # eager
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    models = bench.read(path)
    assert models == {"a": [4.0, 2.0], "b": [6.0]}
    one, two = bench.table(models, [1, 2])
    assert (one.ideal_s, one.spread_s, one.models_s) == (12.0, 12.0, 12.0)
    assert (two.ideal_s, two.spread_s, two.models_s) == (10.0, 10.0, 6.0)
    assert bench.shown([two]).splitlines()[-1].startswith("| 2 | 10 s | 10 s | 1.00x |")
