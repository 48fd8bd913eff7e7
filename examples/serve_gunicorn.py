"""gunicorn with a plain WSGI application: `gunicorn -c serve_gunicorn.py serve_gunicorn:application`.

The Swap is made after the fork. Never call a model before it (with --preload): torch's threads do not survive a fork.
"""

import json

import torch

import compilot
from serving_model import example, load

workers = 2
threads = 2
worker_class = "gthread"
timeout = 30  # a worker that is silent for so long is ended; building happens in a process of its own
swap = None


def post_fork(server, worker):
    """Runs in every new worker; gunicorn reads its configuration apart from the application, which has the Swap."""
    import serve_gunicorn

    serve_gunicorn.begin()


def begin():
    global swap
    swap = compilot.serve.Swap(load())
    with torch.inference_mode():
        swap.warm([example()])


def application(environ, start_response):
    """POST an image as JSON to /; GET / says the state."""
    if environ["REQUEST_METHOD"] == "GET":
        body = {"state": str(swap.state), "ready": swap.ready()}
    else:
        image = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        with torch.inference_mode():
            scores = swap(torch.tensor(image)[None])
        body = {"label": int(scores.argmax()), "scores": scores[0].tolist(), "state": str(swap.state)}
    data = json.dumps(body).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]
