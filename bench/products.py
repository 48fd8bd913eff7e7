"""Matrix products of fp32 by torch's math library and by oneDNN, side by side in one process.

    python bench/products.py [--rounds 30]

For the shapes of a training step (forward, gradient of the input, gradient of the weights, as they lie in memory
there): the two libraries in turns, the median time of each over the rounds, and the median ratio. Nothing else should
run meanwhile. Answers are compared.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch

from compilot._torch.products import by_onednn, onednn_gain

SHAPES = [(256, 256, 768), (256, 1024, 256), (512, 192, 576), (64, 512, 512), (256, 256, 5000), (1024, 768, 3072)]
BATCH_S = 0.02
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LIBRARIES: tuple[Product, Product] = (torch.mm, by_onednn)


def operands(rows: int, inner: int, outer: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What a linear layer of a training step multiplies."""
    x, weight, gradient = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(rows, outer)
    return {"forward": (x, weight.t()), "input": (gradient, weight), "weights": (gradient.t(), x)}


def per_call(product: Product, pair: tuple[torch.Tensor, torch.Tensor], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        product(*pair)
    return (time.perf_counter() - begin) / calls


def raced(pair: tuple[torch.Tensor, torch.Tensor], rounds: int) -> list[tuple[float, ...]]:
    """Seconds of a product by each library, round after round in random order."""
    found = []
    per_call(torch.mm, pair, 3)
    calls = max(1, round(BATCH_S / per_call(torch.mm, pair, 3)))
    for number in range(rounds):
        order = random.Random(number).sample(LIBRARIES, 2)
        took = {product: per_call(product, pair, calls) for product in order}
        found.append(tuple(took[product] for product in LIBRARIES))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} threads; the short look of a run says {onednn_gain():.2f}x\n")
    print("| rows x inner x outer | product | math library us | oneDNN us | oneDNN as fast (quartiles) |")
    print("|---|---|--:|--:|--:|")
    for shape in SHAPES:
        for name, pair in operands(*shape).items():
            torch.testing.assert_close(by_onednn(*pair), torch.mm(*pair), atol=1e-3, rtol=1e-4)
            samples = raced(pair, rounds)
            plain, other = (statistics.median(column) * 1e6 for column in zip(*samples, strict=True))
            low, middle, high = statistics.quantiles([a / b for a, b in samples], n=4)
            size = " x ".join(map(str, shape))
            print(f"| {size} | {name} | {plain:.0f} | {other:.0f} | {middle:.2f}x ({low:.2f}-{high:.2f}) |")


if __name__ == "__main__":
    with torch.no_grad():
        main()
