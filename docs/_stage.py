"""Puts the pages of the documentation site into build/docs. In: the repository. Out: build/docs, made anew.

Covered: docs/, pages that lie outside of it (ARCHITECTURE.md and others), examples/ as files to download, and every link
between them. A link that leads nowhere is left as it is: the strict build (`make docs`) fails on it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "docs"
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/LOG.md": "bench-log.md",
}
STANDS_IN = {"README.md": "index.md"}  # the site's first page is written in docs/
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")


def stage() -> None:
    """Make build/docs anew."""
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir(parents=True)
    for path in sorted((ROOT / "docs").iterdir()):
        if path.suffix == ".md":
            write(path, path.name)
        elif path.suffix != ".py" and path.is_file():
            shutil.copy(path, STAGE)
    for source, name in PAGES.items():
        write(ROOT / source, name)
    (STAGE / "examples").mkdir()
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.ipynb")]:
        shutil.copy(path, STAGE / "examples")


def write(path: Path, name: str) -> None:
    """One page, with its links leading to their places on the site."""
    folder = path.parent.relative_to(ROOT).as_posix()
    text = path.read_text()
    (STAGE / name).write_text(LINK.sub(lambda link: f"{link[1]}{place(link[2], folder)}{link[3] or ''})", text))


def place(link: str, folder: str) -> str:
    """Where a link of a page in this folder of the repository leads on the site."""
    if "://" in link:
        return link
    path = posixpath.normpath(posixpath.join(folder, link))
    return (PAGES | STANDS_IN).get(path, path.removeprefix("docs/"))


if __name__ == "__main__":
    stage()
