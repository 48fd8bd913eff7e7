"""Puts the pages of the documentation site into build/docs. In: the repository. Out: build/docs, made anew.

Covered: docs/, pages that lie outside of it (README.md and others), examples/ as files to download, and every link
between them. A link that leads nowhere is left as it is: the strict build (`make docs`) fails on it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
    "SECURITY.md": "security.md",
    "bench/LOG.md": "bench-log.md",
}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")


def stage(out: Path) -> None:
    """Make the folder anew."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "examples").mkdir(parents=True)
    for path in [*sorted((ROOT / "docs").iterdir()), ROOT / "LICENSE"]:
        if path.suffix == ".md":
            write(path, out / path.name)
        elif path.suffix != ".py" and path.is_file():
            shutil.copy(path, out)
    for source, name in PAGES.items():
        write(ROOT / source, out / name)
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.ipynb")]:
        shutil.copy(path, out / "examples")


def write(path: Path, page: Path) -> None:
    """One page, with its links leading to their places on the site."""
    folder = path.parent.relative_to(ROOT).as_posix()
    text = path.read_text()
    page.write_text(LINK.sub(lambda link: f"{link[1]}{place(link[2], folder)}{link[3] or ''})", text))


def place(link: str, folder: str) -> str:
    """Where a link of a page in this folder of the repository leads on the site."""
    if "://" in link:
        return link
    path = posixpath.normpath(posixpath.join(folder, link))
    return PAGES.get(path, path.removeprefix("docs/"))


if __name__ == "__main__":
    stage(ROOT / "build" / "docs")
