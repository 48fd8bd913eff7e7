"""Plain threads: `python serve_threads.py`. No web server: a program that calls a model from several threads."""

from concurrent.futures import ThreadPoolExecutor

import torch

import compilot
from serving_model import example, load


def main(seconds=120.0):
    model = load()
    images = [torch.randn(1, 3, 32, 32) for _ in range(64)]
    swap = compilot.serve.Swap(model, shadow=0.2, shadow_calls=16, canary_calls=16)
    with swap, ThreadPoolExecutor(4) as pool:

        @torch.inference_mode()
        def ask(image):
            return torch.allclose(swap(image), model(image), atol=1e-4)

        with torch.inference_mode():
            swap.warm([example()])
        right = list(pool.map(ask, images))  # answered at once, by eager
        while swap.state not in ("live", "rolled-back") and seconds > 0:
            right += pool.map(ask, images)
            swap.wait(0.2)
            seconds -= 0.2
        right += pool.map(ask, images)
        print(f"{len(right)} answers, {right.count(False)} wrong, {swap.state}: {swap.reason}")
    return right.count(False)


if __name__ == "__main__":
    raise SystemExit(main())
