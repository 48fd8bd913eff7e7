"""Screenshots for the documents: `python bench/screens.py RUN_DIR FOLDER` with the runs of this user.

The first screen of the run's report and its captured graphs, and the web pages over the list of runs ($COMPILOT_STATE):
light and dark, on a desk and 390 pixels wide. A run that is under way is shown, too, if there is one. Needs Chromium.
"""

import sys
import threading
import time
from pathlib import Path

import compilot
from compilot.ledger.entries import RunState
from compilot.pages.serving import Server
from compilot.report.page_files import write_page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "data"))
import chromium

LOOKS = {"light": (1200, 860, False), "dark": (1200, 860, True), "narrow": (390, 844, True)}
LISTENS_S = 3.0  # a page needs a moment to hear of a run under way


def main(run_dir: str, folder: str) -> None:
    page = write_page(Path(run_dir), Path(folder).absolute() / "report.html").path
    with chromium.browser() as browser:
        report_screens(browser, page, Path(folder))
        page.unlink()
        page_screens(browser, Path(run_dir), Path(folder))


def report_screens(browser: chromium.Browser, page: Path, folder: Path) -> None:
    for name, (width, height, dark) in LOOKS.items():
        tab = browser.open(page.as_uri(), width=width, height=height, dark=dark)
        tab.picture(folder / f"report-{name}.png")
        if name != "narrow":
            tab.evaluate("document.querySelector('.graphs details').open = true")
            tab.evaluate("document.querySelector('#modules').scrollIntoView()")
            tab.picture(folder / f"report-graphs-{name}.png")
        tab.close()


def page_screens(browser: chromium.Browser, run_dir: Path, folder: Path) -> None:
    server = Server(0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.is_ready:
            time.sleep(0.05)
        for name, address in addresses(run_dir).items():
            for look, (width, height, dark) in LOOKS.items():
                tab = browser.open(server.url + address, width=width, height=height, dark=dark)
                time.sleep(LISTENS_S if name == "live" else 0.0)
                tab.evaluate("1")
                tab.picture(folder / f"ui-{name}-{look}.png")
                tab.close()
    finally:
        server.stop()
        thread.join()


def addresses(run_dir: Path) -> dict[str, str]:
    """What is worth a picture."""
    run = compilot.show(run_dir).run
    known = compilot.history(limit=0).runs
    others = [one.id for one in known if one.model == run.model and one.id not in ("", run.id)]
    found = {"runs": "", "run": f"run/{run.id}", "trend": f"model?name={run.model}"}
    found |= {"compare": f"compare?run={others[0]}&run={run.id}"} if others else {}
    live = [one.id for one in known if one.state is RunState.RUNNING]
    return found | ({"live": f"run/{live[0]}"} if live else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
