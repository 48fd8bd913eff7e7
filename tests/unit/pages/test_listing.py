"""What is asked of the list of runs, and the pages of a long one."""

from __future__ import annotations

from typing import Any

import pytest

from compilot.ledger.entries import RunEntry, RunState
from compilot.pages.listing import ON_A_PAGE, Asked, listed
from compilot.records import Decision


def entry(number: int, **more: Any) -> RunEntry:
    usual = {"model": "Net", "torch": "2.13.0", "machine": "m1", "cpu": "CPU", "state": RunState.DECIDED}
    return RunEntry(run_dir=f"/runs/{number}", id=f"{number:012x}", **{**usual, **more})


RUNS = [
    entry(1, model="ResNet", decision=Decision.USE, speedup=2.0, speedup_low=1.9, speedup_high=2.1, chosen="openvino"),
    entry(2, model="Bert", decision=Decision.KEEP_EAGER, torch="2.12.0", commit="abcdef12"),
    entry(3, model="Bert", state=RunState.RUNNING, machine="m2"),
]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, [1, 2, 3]),
        ({"text": "resnet"}, [1]),
        ({"text": "OpenVINO"}, [1]),
        ({"text": "ABCDEF"}, [2]),
        ({"text": "/runs/3"}, [3]),
        ({"state": "running"}, [3]),
        ({"result": "faster"}, [1]),
        ({"result": "kept"}, [2]),
        ({"torch": "2.12.0"}, [2]),
        ({"machine": "m2", "text": "bert"}, [3]),
        ({"text": "nobody"}, []),
        ({"state": "<script>"}, []),
        ({"page": "-3"}, [1, 2, 3]),
        ({"page": "²"}, [1, 2, 3]),
        ({"page": "99"}, [1, 2, 3]),
    ],
)
def test_filters(asked: dict[str, str], found: list[int]) -> None:
    shown = listed(RUNS, Asked.of(asked))
    assert [int(run.id, 16) for run in shown.runs] == found
    assert (shown.found, shown.known) == (len(found), 3)
    assert [run.model for run in shown.under_way] == ["Bert"]
    assert shown.torches == ("2.13.0", "2.12.0")


def test_long_lists_have_pages_whose_addresses_keep_the_filter() -> None:
    many = [entry(number) for number in range(2 * ON_A_PAGE + 1)]
    last = listed(many, Asked.of({"text": "n&t", "page": "3"})._replace(text="net"))
    assert (len(last.runs), last.pages, last.asked.page) == (1, 3, 3)
    assert Asked(text="a&b", page=2).at(3) == "?text=a%26b&page=3"
    seen = [run.id for page in (1, 2, 3) for run in listed(many, Asked(page=page)).runs]
    assert seen == [run.id for run in many]
