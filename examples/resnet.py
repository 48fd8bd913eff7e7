"""ResNet-18 with random weights: `compilot tune examples/resnet.py:resnet18 --budget 5m`."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is made from its configuration; nothing is downloaded

import torch
from transformers import ResNetConfig, ResNetForImageClassification
from transformers.utils import logging

logging.set_verbosity_error()


def resnet18():
    """One image of 224 x 224 pixels."""
    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    model = ResNetForImageClassification(config).eval()
    return model, (torch.randn(1, 3, 224, 224),)
