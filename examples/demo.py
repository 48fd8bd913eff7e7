"""What `make demo` runs: tune a convolutional network and a transformer with varying lengths, on a stated budget."""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from compilot.cli.main import app

HERE = Path(__file__).parent
RUNS = (
    ("ResNet-18, one image of 224 x 224", HERE / "resnet.py", "resnet18", "5m"),
    ("a small BERT, sequence length 8 to 128", HERE / "bert.py", "bert", "2m30s"),
)


def main() -> int:
    print("compilot demo: two models, budgets of 5 min and 2 min 30 s. Each candidate runs in a process of its own;")
    print("the winner is measured again in fresh processes before a plan is written.")
    begun = time.time()
    for title, file, factory, budget in RUNS:
        print(f"\n=== {title}: budget {budget} ===", flush=True)
        code = tune(f"{os.path.relpath(file)}:{factory}", budget)
        if code:
            return code
    print("\nEach run directory above holds plan.json (the decision), journal.jsonl (raw samples) and trials.csv.")
    print("To look at with a browser:", *(f"\n  {page}" for page in reports(begun)))
    return 0


def reports(since: float) -> list[str]:
    """The pages of the runs that were made since then."""
    pages = Path("compilot-runs").glob("*/report.html")
    return sorted(str(page) for page in pages if page.stat().st_mtime >= since)


def tune(target: str, budget: str) -> int:
    """The same as `compilot tune TARGET --budget BUDGET` in a shell."""
    try:
        app(["tune", target, "--budget", budget])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
