"""Report, doctor's page and web pages in headless Chromium: axe-core, console, network, keyboard, dark, 390 pixels.

axe-core must find nothing serious or critical. A page that is broken on purpose shows that it would.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import chromium
import msgspec
import pages_of_runs
import pytest
from chromium import Browser, Tab
from page_runs import listed

import compilot
from compilot.artifacts import progress_file
from compilot.artifacts.progress_file import Doing
from compilot.artifacts.rundir import RunDir
from compilot.pages import site
from compilot.pages.serving import Server
from compilot.records import TrialLine, VerdictLine
from compilot.report.page import page_of
from compilot.report.page_files import write_page

BAD = ("serious", "critical")
LOOKS = [(1200, False), (390, True)]
REACHABLE = "a[href], summary, input, select, button, [tabindex='0']"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium.found() is None and not os.environ.get("COMPILOT_CI"):
        pytest.skip("no Chromium here; install Debian's package `chromium` to see pages in a real browser")
    with chromium.browser() as made:
        yield made


def checked(tab: Tab, host: str = "", expected: str = "nothing is") -> None:
    """What holds for every page: no complaint, nothing from elsewhere, no sideways scrolling, axe-core is content."""
    assert [said for said in tab.complaints if expected not in said] == []
    assert {urlsplit(address).netloc for address in tab.asked_for if not address.startswith("data:")} <= {host}
    assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert tab.findings(*BAD) == []


def reached_by_tab(tab: Tab) -> int:
    """How many elements the Tab key reaches, in their order; everything that can be used must be among them."""
    tab.evaluate("document.activeElement && document.activeElement.blur(); window.scrollTo(0, 0)")
    tab.evaluate(
        f"window.wanted = [...document.querySelectorAll({REACHABLE!r})].filter((one) => one.checkVisibility());"
        "window.reached = new Set()"
    )
    number = tab.evaluate("wanted.length")
    for _ in range(number + 5):
        tab.press("Tab")
        tab.evaluate("reached.add(document.activeElement)")
    missed = tab.evaluate("wanted.filter((one) => !reached.has(one)).map((one) => one.outerHTML.slice(0, 120))")
    assert missed == []
    assert (
        tab.evaluate("wanted.at(-1).focus(), getComputedStyle(wanted.at(-1), ':focus-visible').outlineStyle") != "none"
    )
    return int(number)


# -------------------------------------------------------------------------------------------------------------- reports


@pytest.fixture
def reports(small_run: Any, tmp_path: Path) -> dict[str, Path]:
    """Runs with everything, with one candidate, with sixty, with failures only."""
    full = pages_of_runs.full(small_run, tmp_path / "full")
    return {
        "full": full,
        "one": pages_of_runs.one(tmp_path / "one"),
        "sixty": pages_of_runs.sixty(small_run, tmp_path / "sixty"),
        "failures": pages_of_runs.failures(tmp_path / "failures"),
    }


@pytest.mark.slow
def test_reports_of_every_kind_of_run(browser: Browser, reports: dict[str, Path]) -> None:
    for name, run in reports.items():
        path = write_page(run).path
        for width, dark in LOOKS if name == "full" else LOOKS[:1] if name == "sixty" else LOOKS[1:]:
            tab = browser.open(path.as_uri(), width=width, dark=dark)
            assert tab.evaluate("[...document.querySelectorAll('main > section')].map((one) => one.id)") == [
                section.id for section in page_of(run).sections
            ], name
            tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            checked(tab)
            tab.close()


@pytest.mark.slow
def test_the_keyboard_reaches_everything_on_a_report_and_opens_its_graphs(
    browser: Browser, reports: dict[str, Path]
) -> None:
    tab = browser.open(write_page(reports["full"]).path.as_uri())
    assert reached_by_tab(tab) > 20
    opened = "[...document.querySelectorAll('.graphs details')].filter((one) => one.open).length"
    assert tab.evaluate(opened) == 0
    tab.evaluate("document.querySelector('.graphs summary').focus()")
    tab.press("Enter")
    assert tab.evaluate(opened) == 1
    assert "linear(x, first.weight" in tab.evaluate("document.querySelector('.graphs pre').innerText")
    tab.close()


@pytest.mark.slow
def test_the_doctors_page(browser: Browser, reports: dict[str, Path]) -> None:
    for width, dark in ((1200, False), (1200, True), (390, True)):
        tab = browser.open((reports["full"] / "doctor" / "report.html").as_uri(), width=width, dark=dark)
        checked(tab)
        tab.close()


def test_a_broken_page_is_found(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<html><title>x</title><body><img src="data:,"><input><p style="color:#ccc;background:#fff">pale</p>'
        '<div style="width:3000px">wide</div><a href="#" tabindex="-1">never</a>'
        '<script>console.error("no");</script><img alt="" src="http://example.invalid/x.png"></body></html>'
    )
    tab = browser.open(page.as_uri())
    found = " ".join(tab.findings(*BAD))
    for rule in ("html-has-lang", "image-alt", "label", "color-contrast"):
        assert rule in found
    assert "no" in tab.complaints
    assert any(address.startswith("http://example.invalid") for address in tab.asked_for)
    assert any("ERR_NAME_NOT_RESOLVED" in said for said in tab.complaints)  # the network is cut
    assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") > 0
    with pytest.raises(AssertionError, match="never"):
        reached_by_tab(tab)
    tab.close()


# ------------------------------------------------------------------------------------------------------------ web pages


def opened(browser: Browser, server: Server, address: str, width: int = 1200, dark: bool = False) -> Tab:
    return browser.open(server.url + address, width=width, dark=dark)


def dated(small_run: Any, day: int) -> Any:
    """The small run as one of its own: a run is known by its first line."""
    small_run.header = msgspec.structs.replace(small_run.header, created=f"2026-01-{day:02}T00:00:00+00:00")
    return small_run


@pytest.mark.slow
def test_every_web_page(browser: Browser, server: Server, runs: list[RunDir], small_run: Any, tmp_path: Path) -> None:
    full = listed(RunDir(pages_of_runs.full(dated(small_run, 5), tmp_path / "full")))
    sixty = listed(RunDir(pages_of_runs.sixty(dated(small_run, 6), tmp_path / "sixty")))
    failures = listed(RunDir(pages_of_runs.failures(tmp_path / "failures")))
    ids = {run.run_dir: run.id for run in compilot.history(limit=0).runs}
    first, second = (ids[str(run.path)] for run in runs[:2])
    addresses = ["", "?text=nobody", "model", "model?name=Net", f"compare?run={first}&run={second}", "run/none"]
    addresses += [f"run/{ids[str(run.path)]}" for run in (full, sixty, failures)]
    addresses += [f"run/{ids[str(full.path)]}/report", f"run/{ids[str(full.path)]}/doctor/report.html"]
    for address in addresses:
        for width, dark in LOOKS if "none" not in address and "report" not in address else LOOKS[1:]:
            tab = opened(browser, server, address, width, dark)
            colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert colour == ("rgb(18, 21, 27)" if dark else "rgb(246, 247, 249)"), address
            expected = "404" if address == "run/none" else "nothing is"  # the browser says itself what is not there
            checked(tab, f"127.0.0.1:{server.port}", expected)
            tab.close()


@pytest.mark.slow
def test_two_runs_are_compared_by_keyboard_alone(browser: Browser, server: Server, runs: list[RunDir]) -> None:
    tab = opened(browser, server, "")
    assert reached_by_tab(tab) > 12
    for number in (0, 1):
        tab.evaluate(f"document.querySelectorAll('input[type=checkbox]')[{number}].focus()")
        tab.press(" ")
    tab.evaluate("[...document.querySelectorAll('button')].find((one) => one.innerText.includes('Compare')).focus()")
    tab.press("Enter")
    tab.wait_until("document.querySelector('h1').innerText.includes('what changed')")
    assert "2.13.1" in tab.evaluate("document.querySelector('main').innerText")
    tab.close()


@pytest.mark.slow
def test_a_run_under_way_is_seen_as_it_goes_on(
    browser: Browser, server: Server, small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "LOOK_S", 0.05)
    run = RunDir.make(tmp_path / "live")
    journal = run.create_journal(small_run.header)
    listed(run, ended=False)
    tab = opened(browser, server, f"run/{compilot.history().runs[0].id}", 390)
    doing = Doing(what="trying 2: inductor", step="compiling", why="the yardstick", elapsed_s=5.0)
    progress_file.write(run.path, doing)
    tab.wait_until("document.getElementById('now').innerText === 'trying 2: inductor'")
    assert tab.evaluate("document.getElementById('step').innerText") == "compiling; the yardstick"
    for trial in small_run.trials:
        journal.append(TrialLine(trial=trial, at_s=3.0))
    tab.wait_until("document.querySelectorAll('#trials tr').length === 5")
    assert "~2.00x" in tab.evaluate("document.getElementById('trials').innerText")
    assert tab.evaluate("document.getElementById('spent').value") >= 5.0
    checked(tab, f"127.0.0.1:{server.port}")
    journal.append(VerdictLine(verdict=small_run.verdict, at_s=40.0))
    journal.close()
    decided = "document.querySelector('.verdict')?.innerText.includes('Use inductor freezing')"
    tab.wait_until(decided)  # it loads itself anew
    time.sleep(0.2)
    tab.evaluate("1")
    assert tab.complaints == []
    tab.close()
