"""Engines written by hand, each the way its own documentation shows, and the arms beside them.

    python bench/by_hand.py MODEL ARM --work DIR      builds one arm, checks it against eager, prints one JSON line

In: a model of engines_models.py and an arm: eager, compile (plain torch.compile), tuned (max-autotune with true
freezing), onnxruntime, openvino, aoti, compilot (the plan that `compilot tune` left in DIR/tune/MODEL, or in the folder
that COMPILOT_BENCH_TUNE names). Out: files in DIR/arms/MODEL/ARM, and targets `bench/by_hand.py:MODEL__ARM` that load
them: what a worker then times. Every arm has the same weights, inputs and precision; the plan has its own threads and
allocator, and so has an arm whose name ends in `_given`. A hand-written arm gives back a list of tensors and rebuilds
no output structure, checks no inputs: what people write. Its face adds no cost: the type's call *is* the hand-written
function.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import engines_models

WORK = "COMPILOT_BENCH_WORK"  # names the working folder to worker processes: a target takes no arguments
TUNE = "COMPILOT_BENCH_TUNE"  # names the folder of the tune runs, where it is another one
GIVEN = "_given"  # an arm with the plan's threads and allocator
THREADLESS = ("onnxruntime", "openvino")  # their files do not depend on threads: both forms of the arm share them
TOLERANCE = 1e-3  # of the largest value of each output, and relative

Run = Callable[..., Any]


class Job(NamedTuple):
    """A model, its example call, and the arm's own folder."""

    name: str
    model: nn.Module
    args: tuple[torch.Tensor, ...]
    kwargs: dict[str, torch.Tensor]
    folder: Path

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [*self.args, *self.kwargs.values()]


# ------------------------------------------------------------------------------------------------------ the engines


def eager(job: Job) -> nn.Module:
    return job.model


def compile_(job: Job) -> nn.Module:
    """https://docs.pytorch.org/docs/stable/generated/torch.compile.html: one line."""
    return faced(torch.compile(job.model), job)


def tuned(job: Job) -> nn.Module:
    """Autotuned kernels over frozen weights. The config is what counts: as an option freezing is silently ignored."""
    import torch._inductor.config

    torch._inductor.config.freezing = True
    return faced(torch.compile(job.model, mode="max-autotune-no-cudagraphs"), job)


def onnxruntime(job: Job) -> nn.Module:
    """https://docs.pytorch.org/tutorials/beginner/onnx/export_simple_model_to_onnx_tutorial.html: numpy in and out."""
    import onnxruntime as ort

    path = job.folder / "model.onnx"
    if not path.exists():
        program = torch.onnx.export(job.model, job.args, kwargs=job.kwargs, dynamo=True, verbose=False)
        program.save(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = matched([i.name for i in session.get_inputs()], job)

    def run(*args: torch.Tensor, **kwargs: torch.Tensor) -> list[torch.Tensor]:
        arrays = (tensor.numpy() for tensor in (*args, *kwargs.values()))
        return [torch.from_numpy(out) for out in session.run(None, dict(zip(names, arrays, strict=True)))]

    return faced(run, job)


def openvino(job: Job) -> nn.Module:
    """https://docs.openvino.ai: convert_model, static shapes, the LATENCY hint; the compiled model is called."""
    import openvino as ov

    path = job.folder / "model.xml"
    if not path.exists():
        converted = convert(job)
        names = matched([port.get_any_name() for port in converted.inputs], job)
        shapes = {at: list(tensor.shape) for at, tensor in zip(places(names, converted), job.tensors, strict=True)}
        converted.reshape(shapes)
        ov.save_model(converted, path, compress_to_fp16=False)
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = ov.Core().compile_model(path, "CPU", {**hints, **threads})
    names = matched([port.get_any_name() for port in compiled.inputs], job)
    outputs = range(len(compiled.outputs))

    def run(*args: torch.Tensor, **kwargs: torch.Tensor) -> list[torch.Tensor]:
        arrays = (tensor.numpy() for tensor in (*args, *kwargs.values()))
        results = compiled(dict(zip(names, arrays, strict=True)))
        return [torch.from_numpy(results[i]) for i in outputs]

    return faced(run, job)


def convert(job: Job) -> Any:
    """By tracing; where that fails from an exported program, which the same page shows."""
    import openvino as ov

    try:
        return ov.convert_model(job.model, example_input=job.kwargs or job.args)
    except Exception as problem:
        print(f"tracing failed, trying torch.export: {problem}", file=sys.stderr)
        return ov.convert_model(torch.export.export(job.model, job.args, job.kwargs))


def aoti(job: Job) -> nn.Module:
    """https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html: the documented Python path."""
    import torch._inductor

    path = job.folder / "model.pt2"
    if not path.exists():
        program = torch.export.export(job.model, job.args, job.kwargs)
        torch._inductor.aoti_compile_and_package(program, package_path=os.fspath(path))
    return faced(torch._inductor.aoti_load_package(os.fspath(path)), job)


def compilot(job: Job) -> nn.Module:
    """The plan as its user applies it; one that does not fit, or cannot be loaded, is an error."""
    import compilot as package

    plan = tune_folder() / job.name
    package.apply_process(plan)
    return package.compile(job.model, plan, strict=True)


def made(arm: str, job: Job) -> nn.Module:
    """The arm; with the plan's process settings first, where its name says so."""
    if arm.endswith(GIVEN):
        import compilot as package

        package.apply_process(tune_folder() / job.name)
    return ARMS[arm.removesuffix(GIVEN)](job)


ARMS: dict[str, Callable[[Job], nn.Module]] = {
    "eager": eager,
    "compile": compile_,
    "tuned": tuned,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "aoti": aoti,
    "compilot": compilot,
}
NAMES = (*ARMS, *(f"{arm}{GIVEN}" for arm in ARMS if arm not in ("eager", "compilot")))


# --------------------------------------------------------------------------------------------------------- the face


def faced(run: Run, job: Job) -> nn.Module:
    """A module whose call is the function itself; the model's weights are not registered with it."""
    kind = type("ByHand", (nn.Module,), {"__call__": staticmethod(run), "forward": staticmethod(job.model.forward)})
    module: nn.Module = kind()
    return module.eval()


def matched(names: list[str], job: Job) -> list[str]:
    """The graph's input names in the order of the call: by name where they are the model's own, else by place."""
    if len(names) != len(job.tensors):
        raise ValueError(f"the graph has inputs {names} for {len(job.tensors)} tensors of the call")
    return list(job.kwargs) if set(names) == set(job.kwargs) else names


def places(names: list[str], converted: Any) -> list[int]:
    """Where each named input stands among the graph's inputs."""
    own = [port.get_any_name() for port in converted.inputs]
    return [own.index(name) for name in names]


# ------------------------------------------------------------------------------------------------------ the targets


def __getattr__(name: str) -> Callable[[], Any]:
    model, _, arm = name.partition("__")
    if arm not in NAMES or not hasattr(engines_models, model):
        raise AttributeError(name)
    return lambda: target(model, arm)


def target(model: str, arm: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """What a worker times."""
    job = prepare(model, arm)
    with torch.no_grad():
        return made(arm, job), job.args, job.kwargs


def prepare(model: str, arm: str) -> Job:
    plain = arm.removesuffix(GIVEN)
    folder = work_folder() / "arms" / model / (plain if plain in THREADLESS else arm)
    folder.mkdir(parents=True, exist_ok=True)
    module, args, kwargs = getattr(engines_models, model)()
    return Job(model, module, args, kwargs, folder)


def work_folder() -> Path:
    """The working folder that the bench named."""
    return Path(os.environ[WORK])


def tune_folder() -> Path:
    """The folder of the tune runs."""
    return Path(os.environ.get(TUNE) or work_folder() / "tune")


# ------------------------------------------------------------------------------------------------------- agreement


def tensors_of(output: Any) -> list[torch.Tensor]:
    """The tensors of an output, in order, whatever is around them."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = output.values()
    elif not isinstance(output, list | tuple):
        return []
    return [tensor for part in output for tensor in tensors_of(part)]


def disagreement(wanted: list[torch.Tensor], got: list[torch.Tensor]) -> tuple[float, str]:
    """Largest error relative to each output's own scale, and why that is not agreement ("" if it is)."""
    if [t.shape for t in wanted] != [t.shape for t in got]:
        return 0.0, f"outputs {[tuple(t.shape) for t in got]} instead of {[tuple(t.shape) for t in wanted]}"
    worst = 0.0
    for number, (want, have) in enumerate(zip(wanted, got, strict=True)):
        scale = float(want.abs().max()) or 1.0
        worst = max(worst, float((want - have).abs().max()) / scale)
        if not torch.allclose(have, want, rtol=TOLERANCE, atol=TOLERANCE * scale):
            return worst, f"output {number} differs from eager's by {worst:.1e} of its largest value"
    return worst, ""


def build(model: str, arm: str) -> dict[str, Any]:
    """Build one arm and compare its second answer with eager's; whatever goes wrong is the arm's story."""
    begin = time.monotonic()
    try:
        job = prepare(model, arm)
        with torch.no_grad():
            run = made(arm, job)
            run(*job.args, **job.kwargs)
            got = tensors_of(run(*job.args, **job.kwargs))
            error, why = disagreement(tensors_of(engines_models_eager(job)), got)
    except Exception as problem:
        text = " ".join(f"{type(problem).__name__}: {problem}".split())[:600]
        return {"ok": False, "reason": text, "error": 0.0, "wall_s": time.monotonic() - begin}
    return {"ok": not why, "reason": why, "error": error, "wall_s": time.monotonic() - begin}


def engines_models_eager(job: Job) -> Any:
    """Eager's answer, from a model made anew: no arm can have changed it."""
    model, args, kwargs = getattr(engines_models, job.name)()
    return model(*args, **kwargs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("arm", choices=NAMES)
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    os.environ[WORK] = options.work
    print(json.dumps(build(options.model, options.arm)), flush=True)
    os._exit(0)  # threads of engines may hang in their own clean-up


if __name__ == "__main__":
    main()
