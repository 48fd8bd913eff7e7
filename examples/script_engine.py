"""A complete engine in forty lines: the model as TorchScript. Import this, and `compilot.tune` tries it like others."""

import hashlib
import sys

import torch

from compilot.engines import registry
from compilot.engines.protocol import Availability, Infeasible, Loaded
from compilot.engines.space import Seed, Space
from compilot.engines.traits import EngineTraits
from compilot.records import ArtifactFile

TRAITS = EngineTraits(version=str(torch.__version__))  # what a plan is bound to


class Build:
    """The tuning plane's half: may be slow, runs in a child process, leaves files in the workspace."""

    def available(self):
        return Availability(ok=True, version=torch.__version__)

    def space(self, diagnosis):
        if diagnosis.dynamic or diagnosis.training:
            return Space()  # a trace is right for one shape and one mode
        return Space(seeds=(Seed("", "no Python between the operators"),))

    def validate(self, settings):
        return "script has no options" if settings.options else None

    def build(self, request):
        if request.call.kwargs:
            raise Infeasible("tracing takes positional arguments only")
        path = request.workspace / "model.ts"
        with torch.no_grad():
            torch.jit.freeze(torch.jit.trace(request.model, request.call.args)).save(str(path))
        data = path.read_bytes()
        return [ArtifactFile(name=path.name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))]


class Load:
    """The run plane's half: files and the user's model in, a callable with the model's own signature out."""

    def load(self, request):
        return Loaded(call=torch.jit.load(str(request.artifacts / "model.ts")), frozen_weights=True)


build, load = Build(), Load().load
registry.register("script", build, sys.modules[__name__])
