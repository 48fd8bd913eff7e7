"""Draw a run's result as the terminal shows it: `python bench/picture.py RUN_DIR docs/demo.svg`."""

import io
import sys
from pathlib import Path

from rich.console import Console

from compilot.artifacts.planfile import load_plan
from compilot.report import data, terminal

WIDTH = 94


def main(run_dir: str, picture: str) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    plan = load_plan(Path(run_dir) / "plan.json")
    console.print(terminal.summary(data.read_run(Path(run_dir)), plan, width=WIDTH))
    console.save_svg(picture, title="compilot tune")


if __name__ == "__main__":
    main(*sys.argv[1:])
