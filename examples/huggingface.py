"""A Hugging Face model from end to end: tune it, compare the answers, pack it, load the bundle without the model.

python examples/huggingface.py --budget 90s
compilot tune examples/huggingface.py:classifier --budget 90s

The model is made from a small configuration with random weights, so nothing is downloaded. With a model of your own,
write `AutoModelForSequenceClassification.from_pretrained(NAME)` in its place.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification
from transformers.utils import logging

import compilot

logging.set_verbosity_error()

LENGTHS = (4, 64)  # what a tokenizer may give


def tokens(batch, length):
    """What a tokenizer returns: ids and a mask, as keyword arguments."""
    ids = torch.randint(5, 1000, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def classifier():
    """The target for the command line: the model, one call, and the dimension that varies."""
    config = DistilBertConfig(vocab_size=1000, dim=64, hidden_dim=128, n_layers=2, n_heads=2)
    model = DistilBertForSequenceClassification(config).eval()
    varies = {1: LENGTHS}
    return compilot.Workload(model, kwargs=tokens(1, 16), dynamic={"input_ids": varies, "attention_mask": varies})


def main():
    parser = argparse.ArgumentParser(description="Tune a Hugging Face model, and pack what was found.")
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--engines", default="", help="only these engines, such as onnxruntime")
    parser.add_argument("--out", default="compilot-runs/huggingface", help="run directory")
    options = parser.parse_args()

    torch.manual_seed(0)
    workload = classifier()
    plan = compilot.tune(workload, budget=options.budget, engines=options.engines, out=options.out)
    print(plan)

    fast = compilot.compile(workload.model, plan)
    with torch.no_grad():
        for length in (8, 16, 50):  # any length of the declared range stays on the fast path
            inputs = tokens(1, length)
            torch.testing.assert_close(fast(**inputs).logits, workload.model(**inputs).logits, rtol=1e-3, atol=1e-4)
    print("same answers as eager;", fast.stats())
    print("pack it: compilot pack", Path(options.out), "-o model.cpbundle")


if __name__ == "__main__":  # worker processes import this file: keep the work out of the import
    main()
