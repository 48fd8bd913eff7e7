"""Is the roofline right? Our peaks beside a plain product and a plain copy of 1 GiB, taken in turns in the same run."""

from __future__ import annotations

import torch

from compilot.diagnose.machine_peaks import best_of, measure_peaks

ROUNDS = 5
SIZE = 2048


def main() -> None:
    a, b = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    source = torch.ones(2**28)
    target = torch.zeros_like(source)
    ratios = []
    for number in range(ROUNDS):
        peaks = measure_peaks()
        flops = 2 * SIZE**3 / best_of(lambda: a @ b, 3)
        bandwidth = 2**31 / best_of(lambda: target.copy_(source), 3)
        ratios.append((peaks.flops_per_s / flops, peaks.bandwidth_bytes_per_s / bandwidth))
        ours = f"{peaks.flops_per_s / 1e9:.1f} GFLOP/s, {peaks.bandwidth_bytes_per_s / 1e9:.1f} GB/s"
        plain = f"{flops / 1e9:.1f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s"
        print(f"round {number + 1}: ours {ours}; plain {plain}; ratios {ratios[-1][0]:.3f}, {ratios[-1][1]:.3f}")
    worst = max(abs(ratio - 1) for pair in ratios for ratio in pair)
    print(f"{torch.get_num_threads()} threads; largest difference {worst:.1%} (limit 20 %)")


if __name__ == "__main__":
    main()
