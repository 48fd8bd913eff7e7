"""Ray Serve: `serve run serve_ray:app`. The Swap lives in the replica, and is made in `__init__`.

`check_health` never fails because eager still answers: Ray would restart the replica, and it would begin again.
"""

import ray.serve
import torch

import compilot
from serving_model import example, load


@ray.serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 1})
class Classify:
    """One replica."""

    def __init__(self):
        self.swap = compilot.serve.Swap(load())
        with torch.inference_mode():
            self.swap.warm([example()])

    def reconfigure(self, user_config):
        """A new plan without new replicas: {"plan": URL}."""
        if "plan" in user_config:
            self.swap.promote(user_config["plan"])

    async def __call__(self, request):
        image = torch.tensor(await request.json())[None]
        with torch.inference_mode():
            scores = self.swap(image)
        return {"label": int(scores.argmax()), "scores": scores[0].tolist(), "state": str(self.swap.state)}


app = Classify.bind()
