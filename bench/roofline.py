"""Is the roofline right? Our peaks beside a plain product and a plain copy of 1 GiB, taken in turns in the same run."""

from __future__ import annotations

import torch

from compilot.diagnose.timing.machine_peaks import best_of, measure_peaks

ROUNDS = 5
SIZE = 2048


def main() -> None:
    a, b = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    source = torch.ones(2**28)
    target = torch.zeros_like(source)
    ours: list[tuple[float, float]] = []
    plain: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        peaks = measure_peaks()
        ours.append((peaks.flops_per_s, peaks.bandwidth_bytes_per_s))
        product_s, copy_s = best_of(lambda: a @ b, 3), best_of(lambda: target.copy_(source), 3)
        plain.append((2 * SIZE**3 / product_s, 2**31 / copy_s))
        print(f"round {number + 1}: {_compared(ours[-1], plain[-1])}")
    best = [tuple(map(max, zip(*side, strict=True))) for side in (ours, plain)]
    print(f"best of {ROUNDS} rounds, {torch.get_num_threads()} threads: {_compared(*best)} (limit 20 %)")


def _compared(ours: tuple[float, ...], plain: tuple[float, ...]) -> str:
    words = [f"{flops / 1e9:.1f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s" for flops, bandwidth in (ours, plain)]
    return f"ours {words[0]}; plain {words[1]}; ratios {ours[0] / plain[0]:.3f}, {ours[1] / plain[1]:.3f}"


if __name__ == "__main__":
    main()
