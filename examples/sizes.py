"""A plan for the sizes that a program really sees: record them, tune over them, look at what was chosen.

    python examples/sizes.py --budget 2m

The model tags short texts; most calls are short, a few are long. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import torch
from torch import nn

import compilot


class Tagger(nn.Module):
    """A word's class from the word alone: positions do not see each other, so calls may be padded."""

    def __init__(self, words: int = 500, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.out = nn.Linear(width, 12)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The scores of each word's classes."""
        x = self.embed(ids)
        for layer in self.layers:
            x = x + nn.functional.gelu(layer(x))
        return self.out(x)


def lengths(calls: int, seed: int = 0) -> list[int]:
    """Heavy-tailed: half of them below 30 words."""
    draw = random.Random(seed)
    return [max(1, min(256, round(draw.lognormvariate(3.4, 0.8)))) for _ in range(calls)]


def record(model: nn.Module, path: Path, calls: int = 300) -> None:
    """What your program does, with its sizes counted."""
    with compilot.record(model, path) as served, torch.no_grad():
        for length in lengths(calls):
            served(torch.randint(0, 500, (1, length)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--engines", default=None, help="only these: a,b")
    parser.add_argument("--out", type=Path, default=None, help="run directory")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Tagger().eval()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "sizes.jsonl"
        record(model, trace)
        example = (torch.randint(0, 500, (1, 32)),)
        plan = compilot.tune(
            model,
            example,
            trace=trace,
            padding={"ids": 0},
            budget=options.budget,
            engines=options.engines,
            out=options.out,
        )
    print(plan)
    sizes = compilot.results(plan).sizes
    for row in sizes.rows if sizes is not None else ():
        versus = row.versus_eager
        print(f"{row.policy}: {'baseline' if versus is None else f'{versus.ratio:.2f}x'}, {len(row.programs)} programs")
    fast = compilot.compile(model, plan)
    with torch.no_grad():
        for length in (3, 57, 200):
            ids = torch.randint(0, 500, (1, length))
            torch.testing.assert_close(fast(ids), model(ids), rtol=1e-4, atol=1e-5)
    print(f"answers are eager's; fast share {fast.stats().fast_share:.0%}")


if __name__ == "__main__":
    main()
