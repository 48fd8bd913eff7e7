"""The model that the serving examples share: small, so that a build takes seconds."""

import torch
from torch import nn


class Classifier(nn.Module):
    """An image of 3 x 32 x 32 to ten scores."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()
        )
        self.scores = nn.Linear(32, 10)

    def forward(self, image):
        return self.scores(self.features(image).mean((2, 3)))


def load():
    """The model as a server loads it: in every process the same weights."""
    torch.manual_seed(0)
    return Classifier().eval()


def example():
    """A call to build for and to warm up with; its values are nobody's."""
    return torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def classifier():
    """A target: `compilot serve examples/serving_model.py:classifier`."""
    return load(), (example(),)
