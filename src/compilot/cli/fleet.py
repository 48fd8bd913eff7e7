"""`compilot fleet MANIFEST.toml --store URL`: many models for many machines. Prints what `compilot.fleet.run` did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compilot.cli import common

if TYPE_CHECKING:
    from compilot.fleet import FleetReport


def fleet(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="A TOML file: models, and kinds of machines.")],
    store: Annotated[
        str, typer.Option(metavar="URL", help="Where bundles go: /folder, s3://bucket/path, gs://, sftp://.")
    ],
    on: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Ray cluster: auto, HOST:PORT, ray://HOST:PORT. Default: this machine."),
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Sign with this private key (see 'compilot keys').")
    ] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Push bundles that nobody signed.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="For runs, bundles and the report.")] = Path(
        "compilot-fleet"
    ),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, and how long it may take.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Do again what the store has already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Tune, pack, sign and push many models for many kinds of machines."""
    hint = "what was done is in the store; run the same command again to go on."
    with common.guarded(debug=debug, as_json=json, hint=lambda: hint):
        from compilot import fleet as fleets

        report = fleets.run(
            manifest,
            store,
            on=on,
            sign=sign,
            unsigned=unsigned,
            out=out,
            dry_run=dry_run,
            again=again,
            progress=not quiet,
        )
        show(report, as_json=json)
        if not report.ok:
            raise typer.Exit(common.FAILED)


def show(report: FleetReport, *, as_json: bool) -> None:
    """The result: a table, or the report as it is."""
    if as_json:
        return common.print_json({**common.document(report), "sentence": report.sentence})
    from rich.console import Console

    from compilot.fleet.terminal import summary

    console = Console()
    console.print(summary(report, console.width))
    if report.page is not None:
        where = common.nearby(report.page)
        console.print(f"\n{where}: all of it, for any browser", soft_wrap=True, highlight=False)
    return None
