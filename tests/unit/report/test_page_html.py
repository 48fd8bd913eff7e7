"""The report's page: nothing from outside, what a run contains stays text, readable by everybody and in a browser.

axe-core is an npm package and is not vendored: the checks that matter here are made directly, on the text and in a real
browser: headings in order, names of pictures and tables, contrast, what the keyboard reaches, no sideways scrolling.
"""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pages_of_runs
import pytest
from browsing import open_page
from doctor_fakes import NASTY

from compilot.report.page import page_of
from compilot.report.page_files import write_page
from compilot.report.page_html import page_html
from compilot.report.page_markdown import block, page_markdown, plain
from compilot.report.svg import Axis, round_ticks, ticks_of

TEMPLATES = Path(__file__).parents[3] / "src" / "compilot" / "report" / "templates"
MOST_BYTES = 2_000_000


@pytest.fixture
def full_run(small_run: Any, tmp_path: Path) -> Path:
    return pages_of_runs.full(small_run, tmp_path / "run")


class Elements(HTMLParser):
    """Every element with its attributes, and the text of headings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]


def test_the_page_loads_nothing_and_runs_nothing(full_run: Path) -> None:
    page = page_html(page_of(full_run))
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+", page) == []
    assert re.findall(r"""(?:src|href)=["']?(?!data:|#|doctor/)[^"'\s>]+""", page) == []


def test_what_a_run_contains_stays_text(small_run: Any, tmp_path: Path) -> None:
    trials = [
        msgspec.structs.replace(trial, candidate=msgspec.structs.replace(trial.candidate, label=NASTY + str(number)))
        for number, trial in enumerate(small_run.trials)
    ]
    small_run.trials = tuple(msgspec.structs.replace(trial, reason=NASTY) for trial in trials)
    small_run.finding = msgspec.structs.replace(small_run.finding, explanation=NASTY, where=NASTY, snippet=NASTY)
    page = page_of(small_run.write(tmp_path / "run"))
    assert "<script>" not in page_html(page)
    assert "<img" not in page_html(page)
    assert re.search(r"(?<!\\)<(?:script|img)", page_markdown(page)) is None


def test_everybody_can_read_it(full_run: Path) -> None:
    elements = Elements(page_html(page_of(full_run)))
    levels = [int(tag[1]) for tag, _ in elements.found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert [tag for tag, _ in elements.found if tag in ("header", "nav", "main", "footer")] == [
        *("header", "nav", "main", "footer")
    ]
    assert all(one["role"] == "img" and one["aria-label"] for one in elements.named("svg"))
    assert len(elements.named("caption")) == len(elements.named("table")) > 5
    assert all(one.get("scope") in ("col", "row") for one in elements.named("th"))
    assert all(one.get("tabindex") == "0" for one in elements.named("pre"))
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {(one["href"] or "")[1:] for one in elements.named("a") if (one["href"] or "").startswith("#")}
    assert targets <= set(ids)
    assert elements.named("html")[0]["lang"] == "en"


def test_pages_stay_small(small_run: Any, tmp_path: Path) -> None:
    path = write_page(pages_of_runs.sixty(small_run, tmp_path / "run")).path
    assert path.stat().st_size < MOST_BYTES / 2


# -------------------------------------------------------------------------------------------------------------- colours


def colours(theme: str) -> dict[str, str]:
    """The page's own colours by name."""
    text = "".join((TEMPLATES / name).read_text() for name in ("doctor.css", "report.css"))
    dark = "".join(re.findall(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", text, re.DOTALL))
    light = "".join(re.findall(r"^:root \{(.*?)\}", text, re.DOTALL | re.MULTILINE))
    return dict(re.findall(r"--(\w+): (#\w{6})", light)) | dict(
        re.findall(r"--(\w+): (#\w{6})", dark if theme == "dark" else "")
    )


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_contrast_is_computed_as_it_should_be() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_what_is_behind_them(theme: str) -> None:
    found = colours(theme)
    assert (found["card"] == "#ffffff") == (theme == "light")
    words = [(ink, back) for ink in ("text", "soft") for back in ("page", "card")]
    words += [("accent", "page"), ("accent", "card"), ("good", "card"), ("bad", "card"), ("text", "fix")]
    assert {pair: contrast(found[pair[0]], found[pair[1]]) for pair in words if _low(found, pair, 4.5)} == {}
    marks = [(name, "card") for name in ("cn", "c0", "c1", "c2", "c3", "c4", "c5")]
    assert {pair: contrast(found[pair[0]], found[pair[1]]) for pair in marks if _low(found, pair, 3.0)} == {}


def _low(found: dict[str, str], pair: tuple[str, str], least: float) -> bool:
    return contrast(found[pair[0]], found[pair[1]]) < least


# -------------------------------------------------------------------------------------------------------------- browser

HARNESS = """<!doctype html><title>looks at pages</title>
%s
<pre id="found"></pre>
<script>
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const seen = (one) => one.checkVisibility() && one.getBoundingClientRect().width > 0;
    const reached = [...page.querySelectorAll("a, summary, [tabindex]")].filter(seen);
    found[frame.name] = {
      sideways: root.scrollWidth - root.clientWidth,
      pictures: [...page.querySelectorAll("svg")].filter(seen).length,
      sections: [...page.querySelectorAll("main > section")].filter(seen).map((one) => one.id),
      unreached: reached.filter((one) => { one.focus(); return page.activeElement !== one; }).length,
      reached: reached.length,
      unreachable_scroll: [...page.querySelectorAll("*")].filter(
        (one) => seen(one) && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "auto"
          && one.tabIndex < 0).length,
      dark: getComputedStyle(page.body).backgroundColor,
    };
  }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""
LOOK = ("--dump-dom", "--virtual-time-budget=10000", "--allow-file-access-from-files", "--window-size=1400,1000")


def looked_at(folder: Path, pages: dict[str, tuple[Path, int]], *options: str) -> dict[str, Any]:
    """What a browser sees of pages in frames of these widths; it must not complain about any."""
    frames = [
        f'<iframe name="{name}" src="{path.as_uri()}" width="{width}" height="900" style="border:0"></iframe>'
        for name, (path, width) in pages.items()
    ]
    (folder / "look.html").write_text(HARNESS % "\n".join(frames))
    seen = open_page(folder / "look.html", *LOOK, *options)
    assert "CONSOLE" not in seen.stderr, seen.stderr
    [text] = re.findall(r'<pre id="found">(.*?)</pre>', seen.stdout)
    answer: dict[str, Any] = json.loads(text)
    return answer


def test_a_real_browser_shows_every_section_at_every_width_and_the_keyboard_reaches_all(
    small_run: Any, full_run: Path, tmp_path: Path
) -> None:
    runs = {
        "full": full_run,
        "one": pages_of_runs.one(tmp_path / "one"),
        "sixty": pages_of_runs.sixty(small_run, tmp_path / "sixty"),
        "failures": pages_of_runs.failures(tmp_path / "failures"),
    }
    written = {name: write_page(run) for name, run in runs.items()}
    pages = {f"{name} {width}": (one.path, width) for name, one in written.items() for width in (1200, 390)}
    found = looked_at(tmp_path, pages)
    for name, seen in found.items():
        page = page_of(runs[name.split()[0]])
        assert seen["sections"] == [one.id for one in page.sections], name
        assert seen["pictures"] == sum(one.picture is not None for one in page.sections), name  # one for this width
        assert (seen["sideways"], seen["unreached"], seen["unreachable_scroll"]) == (0, 0, 0), name
        assert seen["reached"] > 10
        assert seen["dark"] == "rgb(246, 247, 249)"


def test_it_is_dark_for_readers_who_want_it_so_and_the_look_would_find_what_is_wrong(
    full_run: Path, tmp_path: Path
) -> None:
    good = write_page(full_run).path
    bad = tmp_path / "bad.html"
    text = good.read_text().replace('tabindex="0" role="region"', 'role="region"')
    bad.write_text(text.replace("<main", '<div style="width:3000px">wide</div><main', 1))
    dark = "--blink-settings=preferredColorScheme=0"
    found = looked_at(tmp_path, {"good": (good, 390), "bad": (bad, 390)}, dark)
    assert found["good"]["dark"] == "rgb(18, 21, 27)"
    assert found["good"]["sideways"] == found["good"]["unreachable_scroll"] == 0
    assert found["bad"]["sideways"] > 0
    assert found["bad"]["unreachable_scroll"] > 0


# ------------------------------------------------------------------------------------------------------------- Markdown


def test_markdown_has_the_verdict_first_and_whole_tables(full_run: Path) -> None:
    page = page_of(full_run)
    text = page_markdown(page)
    assert text.splitlines()[2] == f"**{page.head.verdict}**"
    assert "```python\nimport compilot\n" in text
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        rows = [re.split(r"(?<!\\)\|", line.strip()) for line in table.strip().splitlines()]
        assert len({len(row) for row in rows}) == 1
    assert text.count("<details>") == text.count("</details>") > 3
    for row in page.sections[0].tables[0].rows:
        assert plain(row[0]) in text


def test_text_cannot_break_out_of_markdown() -> None:
    assert plain("a | b\n# <b> `c` [d](e)") == r"a \| b \# \<b\> \`c\` \[d\](e)"
    assert block("sh", "a ``` b") == "````sh\na ``` b\n````"


# ----------------------------------------------------------------------------------------------------------------- axes


@pytest.mark.parametrize(
    ("axis", "number", "ticks"),
    [
        (Axis(0.0, 300.0, 700), 6, [0, 50, 100, 150, 200, 250, 300]),
        (Axis(0.63, 1.81, 700), 6, [0.8, 1.0, 1.2, 1.4, 1.6, 1.8]),
        (Axis(0.017, 0.024, 700), 4, [0.018, 0.02, 0.022, 0.024]),
    ],
)
def test_ticks_are_round(axis: Axis, number: int, ticks: list[float]) -> None:
    assert round_ticks(axis, number) == pytest.approx(ticks)


@pytest.mark.parametrize("low", [1e-5, 0.0123, 0.9, 47.0])
@pytest.mark.parametrize("times", [1.05, 2.0, 30.0, 1e6])
@pytest.mark.parametrize("length", [200, 700])
def test_every_logarithmic_axis_has_some_ticks_and_room_for_their_words(low: float, times: float, length: int) -> None:
    found = ticks_of(Axis(low, low * times, length, log=True))
    assert 1 <= len(found) <= length / 70 + 2
    assert all(low * 0.999 <= tick <= low * times * 1.001 for tick in found)
