"""Charts as files. In: a run directory. Out: one SVG per chart, or one HTML page with all of them; the record of both.

Neither asks anything of another host. A picture follows the reader's light or dark setting by itself, and the same
records give the same bytes. The page draws with scripts that are part of it, shows details under the pointer, and
forbids the browser to load anything. altair and vl-convert are imported when they are used: a missing one is one
sentence. Not covered: what is drawn (charts.py).
"""

from __future__ import annotations

import enum
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot.errors import EnvironmentProblem, cannot_write
from compilot.files import atomic
from compilot.records import Record

if TYPE_CHECKING:
    from compilot.report.chart_colours import Theme
    from compilot.report.charts import RunCharts

INSTALL = "charts need altair and vl-convert-python; install them with: pip install altair vl-convert-python"
PAGE = "charts"
_COUNTED = re.compile(r'(?:\bid="|url\(#|href="#)([\w-]+)')  # names that Vega counts up over the life of the process
# `draw` once more when the reader's setting changes; `ast`: no code is made from text, which the page forbids
_SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const page = JSON.parse(document.getElementById("charts").textContent);
  for (const [name, spec] of Object.entries(page.charts)) {
    spec.config = dark.matches ? page.dark : page.light;
    vegaEmbed(document.getElementById(name), spec, {actions: false, ast: true, renderer: "svg"});
  }
}
draw();
dark.addEventListener("change", draw);
"""


class ChartFormat(enum.StrEnum):
    """What charts are written as."""

    SVG = "svg"  # a picture for each
    HTML = "html"  # one page with all of them


class ChartFile(Record, frozen=True, kw_only=True):
    """One file."""

    path: Path
    charts: tuple[str, ...]  # names of those that are in it


class Charts(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The charts of a run, as files."""

    run_dir: Path
    format: ChartFormat
    files: tuple[ChartFile, ...]
    left_out: dict[str, str]  # name of a chart that the run has no figures for -> why


def write_charts(run_dir: Path, out: Path, form: ChartFormat) -> Charts:
    """Draw what the run has figures for; a reader sees an old file or a new one, whole."""
    drawn = _drawn(run_dir)
    if form is ChartFormat.HTML:
        texts = {PAGE: html_page(drawn)} if drawn.charts else {}
        files = [ChartFile(path=out / f"{PAGE}.html", charts=tuple(drawn.charts))] if drawn.charts else []
    else:
        texts = {name: svg(chart.to_dict()) for name, chart in drawn.charts.items()}
        files = [ChartFile(path=out / f"{name}.svg", charts=(name,)) for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        _write(file.path, text)
    return Charts(run_dir=run_dir, format=form, files=tuple(files), left_out=drawn.left_out)


def _drawn(run_dir: Path) -> RunCharts:
    try:
        import vl_convert  # noqa: F401  # before the work

        from compilot.report.charts import run_charts
    except ModuleNotFoundError as missing:
        if missing.name not in ("altair", "vl_convert"):
            raise
        raise EnvironmentProblem(f"{INSTALL}.") from missing
    return run_charts(run_dir)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, text.encode())
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem


# ----------------------------------------------------------------------------------------------------------- pictures


def svg(spec: dict[str, Any]) -> str:
    """The picture of a chart: light, and dark for readers whose system is."""
    import vl_convert

    from compilot.report.chart_colours import DARK, LIGHT
    from compilot.report.chart_style import configuration

    whole = {**spec, "config": configuration(LIGHT)}
    drawn = vl_convert.vegalite_to_svg(whole, vl_version=_version(), allowed_base_urls=[])
    return _with_style(_counted_anew(drawn), _exchanged(LIGHT, DARK)) + "\n"


def _counted_anew(drawn: str) -> str:
    """With names that depend on the picture alone."""
    names = {name: f"c{number}" for number, name in enumerate(dict.fromkeys(_COUNTED.findall(drawn)))}
    return _COUNTED.sub(lambda found: found[0].removesuffix(found[1]) + names[found[1]], drawn)


def _exchanged(light: Theme, dark: Theme) -> str:
    """Style rules that put each colour of a dark page in the place of the light one."""
    pairs = zip(light, dark, strict=True)
    rules = (f'[{what}="{old}"]{{{what}:{new}}}' for old, new in pairs for what in ("fill", "stroke"))
    return f"@media (prefers-color-scheme: dark){{{''.join(rules)}}}"


def _with_style(drawn: str, style: str) -> str:
    first, end, rest = drawn.partition(">")
    return f"{first}{end}<style>{style}</style>{rest}"


def _version() -> str:
    """Of Vega-Lite: the one that the charts are made for, where the converter has it."""
    import altair as alt
    import vl_convert

    wanted = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    known = vl_convert.get_vegalite_versions()
    return wanted if wanted in known else known[-1]


# --------------------------------------------------------------------------------------------------------------- page


def html_page(drawn: RunCharts) -> str:
    """All charts on one page, with the scripts that draw them."""
    import jinja2
    import vl_convert
    from markupsafe import Markup

    from compilot.report.chart_colours import DARK, LIGHT
    from compilot.report.chart_style import configuration

    data = {
        "charts": {name: chart.to_dict() for name, chart in drawn.charts.items()},
        "light": configuration(LIGHT),
        "dark": configuration(DARK),
    }
    environment = jinja2.Environment(loader=jinja2.PackageLoader("compilot.report"), autoescape=True)
    return environment.get_template("charts.html.j2").render(
        label=drawn.label,
        names=list(drawn.charts),
        left_out=drawn.left_out,
        light=LIGHT,
        dark=DARK,
        data=Markup(json.dumps(data).replace("<", "\\u003c")),  # a model's name ends no script
        script=Markup(vl_convert.javascript_bundle(_SCRIPT, vl_version=_version())),
    )
