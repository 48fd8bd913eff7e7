"""A small BERT whose sequence length varies: `compilot tune examples/bert.py:bert --budget 3m`."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is made from its configuration; nothing is downloaded

import torch
from transformers import BertConfig, BertModel
from transformers.utils import logging

import compilot

logging.set_verbosity_error()

SHORTEST, LONGEST = 8, 128


def bert():
    """Tokens and mask of length 64; any length from 8 to 128 must be served."""
    config = BertConfig(
        vocab_size=8192, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    model = BertModel(config).eval()
    tokens = torch.randint(0, config.vocab_size, (1, 64))
    varies = {1: (SHORTEST, LONGEST)}
    return compilot.Workload(
        model,
        kwargs={"input_ids": tokens, "attention_mask": torch.ones_like(tokens)},
        dynamic={"input_ids": varies, "attention_mask": varies},
    )
