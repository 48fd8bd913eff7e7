"""LitServe: `python serve_litserve.py PORT`. The Swap lives in the worker, and is made in `setup`."""

import sys

import litserve
import torch

import compilot
from serving_model import example, load


class Api(litserve.LitAPI):
    """One worker."""

    def setup(self, device):
        self.swap = compilot.serve.Swap(load())
        with torch.inference_mode():
            self.swap.warm([example()])

    def decode_request(self, request):
        return torch.tensor(request["image"])[None]

    def predict(self, image):
        with torch.inference_mode():
            return self.swap(image)

    def encode_response(self, scores):
        return {"label": int(scores.argmax()), "scores": scores[0].tolist(), "state": str(self.swap.state)}


if __name__ == "__main__":
    server = litserve.LitServer(Api(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
