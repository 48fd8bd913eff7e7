"""The list of runs as the first page shows it. In: entries of the ledger and what is asked of them. Out: a `Listing`.

Covered: text, state, result, torch and machine; pages of many runs. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from compilot.ledger.entries import RunEntry, RunState
from compilot.records import Decision

ON_A_PAGE = 100
FASTER, KEPT = "faster", "kept"
RESULTS = {FASTER: "a plan", KEPT: "kept eager"}


class Asked(NamedTuple):
    """What is asked of the list; "": everything."""

    text: str = ""  # in the model, target, folder or commit
    state: str = ""
    result: str = ""  # "faster" or "kept"
    torch: str = ""
    machine: str = ""
    page: int = 1

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Asked:
        """From an address; what makes no sense counts as not given."""
        words = {name: given.get(name, "").strip()[:200] for name in cls._fields if name != "page"}
        number = given.get("page", "")
        return cls(**words, page=max(1, int(number)) if number.isascii() and number.isdigit() else 1)

    def at(self, page: int) -> str:
        """The address of another page of the same list."""
        words = {name: value for name, value in self._asdict().items() if value and name != "page"}
        return "?" + urlencode({**words, "page": page})

    def fits(self, run: RunEntry) -> bool:
        """Whether a run is asked for."""
        about = f"{run.model}\n{run.target or ''}\n{run.run_dir}\n{run.commit or ''}\n{run.chosen}".lower()
        result = {Decision.KEEP_EAGER: KEPT, None: ""}.get(run.decision, FASTER)
        return (
            self.text.lower() in about
            and self.state in ("", run.state)
            and self.result in ("", result)
            and self.torch in ("", run.torch)
            and self.machine in ("", run.machine)
        )


class Listing(NamedTuple):
    """One page of the list."""

    asked: Asked
    runs: tuple[RunEntry, ...]
    found: int  # that fit
    known: int
    pages: int
    torches: tuple[str, ...]  # to choose from
    machines: tuple[tuple[str, str], ...]  # id, words
    under_way: tuple[RunEntry, ...]  # whatever is asked


def listed(runs: Sequence[RunEntry], asked: Asked) -> Listing:
    """The page that is asked for; one behind the last is the last."""
    fitting = [run for run in runs if asked.fits(run)]
    pages = max(1, -(-len(fitting) // ON_A_PAGE))
    page = min(asked.page, pages)
    return Listing(
        asked=asked._replace(page=page),
        runs=tuple(fitting[(page - 1) * ON_A_PAGE : page * ON_A_PAGE]),
        found=len(fitting),
        known=len(runs),
        pages=pages,
        torches=tuple(sorted({run.torch for run in runs if run.torch}, reverse=True)),
        machines=tuple({run.machine: f"{run.cpu} ({run.machine[:6]})" for run in runs if run.machine}.items()),
        under_way=tuple(run for run in runs if run.state is RunState.RUNNING),
    )
