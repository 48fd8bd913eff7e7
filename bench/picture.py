"""Draw a run's result as the terminal shows it: `python bench/picture.py RUN_DIR docs/demo.svg`.

The picture asks nothing of other hosts: readers without the font that rich names see their own monospace font.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from compilot.artifacts.planfile import load_plan
from compilot.report import data, terminal

WIDTH = 150  # names of candidates and their notes have room
FONTS = re.compile(r"\s*@font-face\s*\{[^}]*\}")  # rich fetches them from a host of its choice
ORIGIN = re.compile(r"\s*<!--.*?-->", re.DOTALL)  # an address, too


def main(run_dir: str, picture: str) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    plan = load_plan(Path(run_dir) / "plan.json")
    console.print(terminal.summary(data.read_run(Path(run_dir)), plan, width=WIDTH))
    Path(picture).write_text(without_hosts(console.export_svg(title="compilot tune")))


def without_hosts(svg: str) -> str:
    """The same picture without fonts and remarks that name another host."""
    return ORIGIN.sub("", FONTS.sub("", svg))


if __name__ == "__main__":
    main(*sys.argv[1:])
