"""The `compilot` command. In: sys.argv. Out: an exit code: 0 done, 1 a gate is red, 2 could not run, 130 interrupted.

Covered: which commands there are. `--help` must stay quick: command modules import the standard library, typer and
records only; everything else is imported inside the command's body.
"""

from __future__ import annotations

import typer

from compilot._version import __version__
from compilot.cli import (
    bench,
    cache,
    charts,
    check,
    doctor,
    env,
    fleet,
    keys,
    pack,
    report,
    reproduce,
    runs,
    sentinel,
    serve,
    status,
    store,
    trace,
    tune,
    ui,
    verify,
    whycold,
)
from compilot.cli.plain_help import PlainTyper

app = PlainTyper(
    name="compilot",
    help="Finds the fastest correct way to run a PyTorch model on this machine, and proves it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("tune")(tune.tune)
app.command("doctor")(doctor.doctor)
app.command("bench")(bench.bench)
app.command("check")(check.check)
app.command("baseline")(check.baseline)
app.command("report")(report.report)
app.command("charts")(charts.charts)
app.command("history")(runs.history)
app.command("show")(runs.show)
app.command("compare")(runs.compare)
app.command("reproduce")(reproduce.reproduce)
app.command("status")(status.status)
app.command("ui")(ui.ui)
app.command("pack")(pack.pack)
app.command("verify")(verify.verify)
app.command("env")(env.env)
app.command("why-cold")(whycold.why_cold)
app.command("push")(store.push)
app.command("pull")(store.pull)
app.command("fleet")(fleet.fleet)
app.command("serve")(serve.serve)
app.add_typer(sentinel.app, name="sentinel")
app.add_typer(trace.app, name="trace")
app.add_typer(store.app, name="store")
app.add_typer(cache.app, name="cache")
app.add_typer(keys.app, name="keys")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"compilot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def run() -> None:
    """Console entry point."""
    app()
