"""The addresses. In: requests that came through the door. Out: pages, and a stream of news of a run under way.

/                  runs and filters              /run/ID/report   the run's report, drawn from its journal
/run/ID            one run, live while it runs   /run/ID/doctor/report.html   the doctor's page of the run
/compare           what changed between two      /run/ID/events   news of a run under way (server-sent events)
/model             one model over time           /ui.css, /ui.js
Nothing is served as a file: what a run directory holds is read as records and drawn here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError, InputError
from compilot.ledger import history
from compilot.ledger.changes import compare_runs, read
from compilot.ledger.entries import RunEntry, RunState
from compilot.pages import drawing
from compilot.pages.following import Follower
from compilot.pages.listing import RESULTS, Asked, listed
from compilot.pages.trend import trend_of
from compilot.report.doctor_html import doctor_page
from compilot.report.page import page_of, read_examination
from compilot.report.page_html import page_html

LOOK_S = 1.0  # between two looks at a run under way
QUIET_S = 15.0  # after which a stream without news says that it is still there
MOST_STREAMS = 16  # browsers keep six connections to a host; more than some windows is a mistake
REPORTS_MAY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"


class Site:
    """The pages over the ledger of this user."""

    def __init__(self, base: str) -> None:
        """base: the address that everything lies below, "/TOKEN"."""
        self._base = base
        self._streams = 0

    def app(self) -> Starlette:
        """For a server."""
        pages: dict[str, Callable[[Request], Response]] = {
            "/": self.runs,
            "/run/{id}": self.run,
            "/run/{id}/report": self.report,
            "/run/{id}/doctor/report.html": self.doctor,
            "/compare": self.compare,
            "/model": self.model,
            "/ui.css": lambda _: PlainTextResponse(drawing.style(), media_type="text/css"),
            "/ui.js": lambda _: PlainTextResponse(drawing.script(), media_type="text/javascript"),
        }
        routes = [Route(path, _guarded(page, self._page), methods=["GET"]) for path, page in pages.items()]
        return Starlette(routes=[*routes, Route("/run/{id}/events", self.events, methods=["GET"])])

    def runs(self, request: Request) -> Response:
        """The list, as it is asked for."""
        known, _ = history.entries()
        found = listed(known, Asked.of(request.query_params))
        states = sorted({run.state.value for run in known})
        return self._page("runs", title="Runs", found=found, states=states, results=RESULTS)

    def run(self, request: Request) -> Response:
        """One run: the verdict, what it is about, where to go from here."""
        entry, run_dir = _found(request)
        shown = page_of(run_dir.path)
        known, _ = history.entries()
        before = next((one for one in _of_model(known, entry) if one.created < entry.created), None)
        table = next((one for section in shown.sections if section.id == "candidates" for one in section.tables), None)
        return self._page(
            "run",
            title=entry.model,
            entry=entry,
            head=shown.head,
            table=table,
            before=before,
            live=entry.state is RunState.RUNNING,
        )

    def report(self, request: Request) -> Response:
        """The report, as `compilot report` writes it."""
        _, run_dir = _found(request)
        return HTMLResponse(page_html(page_of(run_dir.path)), headers={"content-security-policy": REPORTS_MAY})

    def doctor(self, request: Request) -> Response:
        """The doctor's page of the run."""
        _, run_dir = _found(request)
        examined = read_examination(run_dir)
        if examined is None:
            raise InputError("this run has no examination that can be read; 'compilot doctor' makes one.")
        return HTMLResponse(doctor_page(examined), headers={"content-security-policy": REPORTS_MAY})

    def compare(self, request: Request) -> Response:
        """What changed from the older of two runs to the newer one."""
        names = request.query_params.getlist("run")
        if len(set(names)) != 2:
            words = f"choose two runs to compare; {len(set(names))} were chosen."
            return self._page("problem", status=400, title="Compare", problem=words)
        both = sorted((_readable(name) for name in set(names)), key=lambda found: found[0].created)
        return self._page("compare", title="Compare", found=compare_runs(*(read(*one) for one in both)))

    def model(self, request: Request) -> Response:
        """One model over time."""
        name, known = request.query_params.get("name", ""), history.entries()[0]
        if not name:
            models: dict[str, list[RunEntry]] = {}
            for run in known:
                models.setdefault(run.model, []).append(run) if run.id else None
            return self._page("models", title="Models", models=models)
        found = trend_of(known, name)
        if not found.runs:
            raise InputError(f"there is no run of a model '{name}'.")
        return self._page("model", title=f"{name} over time", found=found)

    async def events(self, request: Request) -> Response:
        """What a run under way writes, as it comes; ends with the run."""
        try:
            _, run_dir = await run_in_threadpool(_found, request)
        except CompilotError as problem:
            return PlainTextResponse(f"{problem}\n", 404)
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many windows look at runs under way; close some.\n", 503)
        return StreamingResponse(self._news(run_dir), media_type="text/event-stream")

    async def _news(self, run_dir: RunDir) -> AsyncIterator[str]:
        follower, said_at = Follower(run_dir), time.monotonic()
        self._streams += 1
        try:
            while True:
                news = await run_in_threadpool(follower.news)
                if news is not None:
                    yield f"event: news\ndata: {msgspec.json.encode(news).decode()}\n\n"
                    said_at = time.monotonic()
                    if not news.live:
                        return
                elif time.monotonic() - said_at > QUIET_S:
                    yield ": still here\n\n"
                    said_at = time.monotonic()
                await anyio.sleep(LOOK_S)
        finally:
            self._streams -= 1

    def _page(self, name: str, status: int = 200, **what: Any) -> Response:
        return HTMLResponse(drawing.page(name, self._base, **what), status)


def _guarded(page: Callable[[Request], Response], draw: Callable[..., Response]) -> Callable[[Request], Response]:
    """The page; what is wrong with an address or a journal is one sentence on a page of its own."""

    def guarded(request: Request) -> Response:
        try:
            return page(request)
        except CompilotError as problem:
            return draw("problem", status=404, title="Not found", problem=str(problem))

    return guarded


def _found(request: Request) -> tuple[RunEntry, RunDir]:
    return _readable(request.path_params["id"])


def _readable(wanted: str) -> tuple[RunEntry, RunDir]:
    """The run of this id; nothing else counts: an address must not name other places."""
    known = history.entries()[0]
    run = next((one for one in known if one.id == wanted != "" and one.state is not RunState.GONE), None)
    if run is None:
        raise InputError(f"there is no run '{wanted}' in the list of your runs.")
    return history.readable(run.run_dir)


def _of_model(known: list[RunEntry], entry: RunEntry) -> list[RunEntry]:
    """Runs of the same model that can be read, the newest first."""
    return [one for one in known if one.id and one.id != entry.id and one.model == entry.model]
