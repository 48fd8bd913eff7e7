"""The Python API from end to end: tune a live model, apply the plan, compare the answers.

python examples/python_api.py --budget 90s
"""

import argparse

import torch
from torch import nn

import compilot


class Scorer(nn.Module):
    """A small model defined right here: live objects travel to the worker processes by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(128, 512)
        self.norm = nn.LayerNorm(512)
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor, *, temperature: float = 1.0) -> torch.Tensor:
        hidden = nn.functional.gelu(self.norm(self.embed(x)))
        return torch.softmax(self.head(hidden) / temperature, dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--out", default=None, help="run directory")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Scorer().eval()
    x = torch.randn(32, 128)

    plan = compilot.tune(model, (x,), {"temperature": 0.7}, budget=options.budget, out=options.out)
    print("because:", plan.because)
    for entry in plan.entries:
        print("chosen:", entry.candidate.label)
        print(entry.sentence)

    compilot.apply_process(plan)  # threads and the like, where the plan names them
    fast = compilot.compile(model, plan)
    with torch.no_grad():
        for _ in range(10):
            answer = fast(x, temperature=0.7)
        expected = model(x, temperature=0.7)
    torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-5)
    print("same answers as eager;", fast.stats())


if __name__ == "__main__":  # worker processes import this file: keep the work out of the import
    main()
