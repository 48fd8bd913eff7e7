"""`compilot report RUN`: a run to look at. Prints what `compilot.write_report` returns: where the file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compilot.api.reporting import write_report
from compilot.cli import common


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another place for it. Default: RUN/report.html.")
    ] = None,
    md: Annotated[
        bool, typer.Option("--md", help="Markdown for a pull request instead of the page: RUN/report.md.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Also export params, metrics and the report to this MLflow tracking store."),
    ] = None,
    experiment: Annotated[str, typer.Option(metavar="NAME", help="MLflow's experiment.")] = "compilot",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write the report of a run: one page with its verdict, pictures and tables, for any browser, offline."""
    with common.guarded(debug=debug, as_json=json):
        written = write_report(run, out=out, format="md" if md else "html", mlflow=mlflow, experiment=experiment)
        common.print_json(common.document(written)) if json else print(common.nearby(written.path))
        if (there := written.mlflow) is not None:
            was = "is there already" if there.was_there else "was written"
            common.tell(f"MLflow run {there.run_id} {was}: experiment '{there.experiment}' at {there.uri}")
        if open_it:
            import webbrowser

            if not webbrowser.open(written.path.as_uri()):
                common.tell(f"no browser could be started here; open {written.path} yourself.")
