"""The documentation site builds without a warning, asks nothing of other hosts, and documents every public name."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import compilot

ROOT = Path(__file__).parents[2]
STAGE = runpy.run_path(str(ROOT / "docs" / "_stage.py"))
PROGRAM = Path(sys.executable).with_name("zensical")
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
    r"""|<(?:image|use|feImage)\b[^>]*\bhref=["']?(?:https?:)?//"""  # in SVG
)
READ = (".html", ".css", ".svg")  # what a browser may fetch more for


class Site:
    """A staged copy of the documentation that a test may change, and its build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "mkdocs.yml", folder)
        (folder / "src").symlink_to(ROOT / "src")
        STAGE["stage"](folder / "build" / "docs")

    def build(self) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, "build", "--strict", "--clean"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def page(self, name: str) -> Path:
        return self.folder / "build" / "docs" / name


@pytest.fixture
def site(tmp_path: Path) -> Site:
    if not PROGRAM.exists():
        pytest.fail("zensical is not installed; run 'make setup'")
    return Site(tmp_path)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_nothing_of_other_hosts(site: Site) -> None:
    done = site.build()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()
    built = site.folder / "build" / "site"
    pages = {path.name for path in built.glob("*.html")}
    assert {f"{path.stem}.html" for path in site.page("").glob("*.md")} <= pages
    files = [path for path in built.rglob("*") if path.suffix in READ]
    assert "demo.svg" in {path.name for path in files}
    fetched = {path.name: FETCHED.findall(path.read_text()) for path in files}
    assert {name: found for name, found in fetched.items() if found} == {}
    reference = (built / "reference.html").read_text()
    assert 'id="compilot.tune"' in reference
    assert "Find the fastest correct way to run the model" in reference  # the docstring is there


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["\n[gone](nowhere.md)\n", "\n[gone](tune.md#no-such-heading)\n", "\n::: compilot.no_such_name\n"]
)
def test_a_page_that_leads_nowhere_would_be_found(site: Site, text: str) -> None:
    with site.page("index.md").open("a") as file:
        file.write(text)
    assert site.build().returncode != 0


@pytest.mark.parametrize(
    ("link", "folder", "place"),
    [
        ("../README.md", "docs", "readme.md"),
        ("../bench/LOG.md", "docs", "bench-log.md"),
        ("docs/tune.md", ".", "tune.md"),
        ("tune.md", "docs", "tune.md"),
        ("../examples/tiny.py", "docs", "examples/tiny.py"),
        ("https://example.org/a.md", "docs", "https://example.org/a.md"),
    ],
)
def test_links_are_led_to_their_places_on_the_site(link: str, folder: str, place: str) -> None:
    assert STAGE["place"](link, folder) == place


def test_the_pictures_of_the_documentation_ask_nothing_of_other_hosts() -> None:
    pictures = list((ROOT / "docs").rglob("*.svg"))
    assert [path.name for path in pictures if FETCHED.search(path.read_text())] == []
    assert pictures


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.b/c.js">',
        "@import url(//a.b/c)",
        '<link href="//fonts.x">',
        '@font-face { src: local("F"), url("https://a.b/f.woff2") }',
        '<image xlink:href="https://a.b/c.png"/>',
    ],
)
def test_something_from_another_host_would_be_found(text: str) -> None:
    assert FETCHED.search(text)


def test_the_reference_has_every_public_name_once() -> None:
    names = re.findall(r"^::: compilot\.(\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    assert sorted(names) == sorted(set(compilot.__all__) - {"__version__"})


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    STAGE["stage"](tmp_path / "docs")
    listed = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (tmp_path / "docs").glob("*.md"))
