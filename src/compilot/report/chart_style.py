"""The house style of charts: colours, fonts, the numbered key beside a chart. Needs altair.

In: engines, rows of a key. Out: colours by engine, a Vega-Lite configuration for light and for dark pages, a view.
Not covered: which colours there are (chart_colours.py), the charts (charts.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from compilot.report.chart_colours import KeyRow, Theme, engine_colours

FONT = "Arial, Helvetica, Liberation Sans, sans-serif"  # one width of letters on every system; none is fetched
WIDTH = 620
KEY_WIDTH = 350
KEY_TEXT = 300  # longer names end with an ellipsis; readers may have a wider font than the one measured here
KEY_ROW = 36  # pixels: two lines of text


def engine_colour(engines: Iterable[str], *, field: str = "engine", title: str = "engine") -> alt.Color:
    """The encoding of an engine as a colour."""
    colours = engine_colours(engines)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(f"{field}:N", title=title, scale=scale, sort=list(colours))


def title(text: str, below: str) -> alt.TitleParams:
    """What a chart shows, and a line below it."""
    return alt.TitleParams(text=text, subtitle=below)


def plot(values: Iterable[Any]) -> alt.Chart:
    """A chart of these named tuples or dicts, which become part of it."""
    plain = [one if isinstance(one, dict) else dict(one._asdict()) for one in values]
    return alt.Chart({"values": plain})


def layered(layers: Sequence[alt.Chart], height: int, width: int = WIDTH) -> alt.LayerChart:
    """Charts on top of each other, with the same axes."""
    return alt.LayerChart(layer=list(layers), width=width, height=height)


def with_key(chart: Any, key: Sequence[KeyRow]) -> alt.HConcatChart:
    """A chart with what its numbers stand for beside it."""
    return alt.hconcat(chart, *([key_view(key)] if key else []), spacing=24)


def key_view(key: Sequence[KeyRow]) -> alt.LayerChart:
    """Number, name, and figures below the name: one row for each."""
    y = alt.Y("number:O", sort=None, axis=None, scale=alt.Scale(type="band", padding=0))
    base = plot(key).encode(y=y)
    number = base.mark_text(style="number", align="left", dy=-7).encode(x=alt.value(0), text="number:N")
    name = base.mark_text(style="name", dy=-7, limit=KEY_TEXT).encode(x=alt.value(24), text="name:N")
    figures = base.mark_text(style="figures", dy=8, limit=KEY_TEXT).encode(x=alt.value(24), text="figures:N")
    return layered([number, name, figures], KEY_ROW * len(key), KEY_WIDTH)


def configuration(theme: Theme) -> dict[str, Any]:
    """Vega-Lite's `config`: everything that is not data."""
    small = {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
    inked = {"labelColor": theme.quiet, "titleColor": theme.ink}
    return {
        "background": theme.page,
        "font": FONT,
        "padding": 14,
        "view": {"stroke": None},
        "axis": {
            **small,
            **inked,
            "labelFlush": False,
            "domainColor": theme.quiet,
            "tickColor": theme.quiet,
            "gridColor": theme.grid,
        },
        "legend": {
            **small,
            **inked,
            "labelLimit": 220,
            "symbolOpacity": 1,
            "orient": "bottom",
            "direction": "horizontal",
            "columns": 8,
            "columnPadding": 18,
            "layout": {"bottom": {"anchor": "start", "margin": 32}},
        },
        "title": {
            "anchor": "start",
            "fontSize": 15,
            "fontWeight": "bold",
            "color": theme.ink,
            "offset": 14,
            "subtitleColor": theme.quiet,
            "subtitleFontSize": 12,
            "subtitlePadding": 5,
        },
        "style": _styles(theme),
    }


def _styles(theme: Theme) -> dict[str, Any]:
    """Marks that follow the page; charts name them and have no colour of their own for them."""
    text = {"font": FONT, "fontSize": 12, "align": "left", "color": theme.ink}
    return {
        "number": {**text, "fontWeight": "bold", "align": "center"},
        "name": text,
        "figures": {**text, "fontSize": 11, "color": theme.quiet},
        "caption": {**text, "fontSize": 11, "align": "center", "color": theme.quiet},
        "eager": {"color": theme.quiet, "strokeDash": [4, 3]},
        "border": {"color": theme.grid, "strokeWidth": 1.5},
        "band": {"color": theme.grid},
        "best": {"color": theme.ink, "strokeWidth": 1.5},
        "ring": {"color": theme.ink, "strokeWidth": 2},
        "proof": {"color": theme.ink, "strokeWidth": 2},
    }
