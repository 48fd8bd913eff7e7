"""One side of a check in a process of its own: a target's model, as it is or with plain torch.compile.

In: requests of the worker protocol, one JSON line each, on a pipe of its own. Out: one reply per request.
Run as `python arm.py IN_FD OUT_FD`, by any Python from 3.9 on that has torch: this one file needs nothing but the
standard library and torch, so that an old environment can be measured without installing anything into it. Only a
plan's own engines need compilot, and are asked for in environments that have it (plan_arm.py). Where both sides have
the same interpreter, it is forked from a process that has imported torch already (forking.py).
Covered: opening a target, building, counting what a build made, the other side's weights and inputs, answers, timing.
Not covered: what any of it means (judging.py).
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file: its neighbours are none of the target's modules

import contextlib
import copy
import ctypes
import dataclasses
import errno
import gc
import hashlib
import importlib
import importlib.util
import json
import math
import os
import platform
import random
import resource
import signal
import statistics
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
FOREIGN = "COMPILOT_FOREIGN_ROOT"  # in the environment: code below this folder is the other side's
OWN = "COMPILOT_OWN_ROOT"  # the same of this side: its project must be imported from here
MACHINE = "MachineProblem"  # error of a failure that the machine may have caused, and not the code
PROTOCOL = 1
PLAIN_COMPILE = "torch.compile"  # label of the candidate that is the model behind torch.compile, and nothing else
BATCH_S = 0.02  # what a timed batch of calls lasts at least
WARM_S = 1.0
WARM_CALLS = 3
MOST_CALLS_PER_BATCH = 10_000
MAX_SLOPE = 0.02  # of the last third of a warm-up
DRIVES = 2  # times that every example is called after the first call: what is compiled then is compiled again
SEEDED_CASES = 2
COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
PROJECT_FILES, INIT = ("pyproject.toml", "setup.py", "setup.cfg"), "__init__.py"  # of what can be installed
NOT_OURS = (".gch", ".pch", ".lock")  # in a cache folder: the header that all models of a machine share, and locks


OUT_OF = (errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
OUT_OF_WORDS = (  # of torch's allocator, of threads, and of a compiler that the system has killed
    "can't allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
    "No space left on device",
    "Killed signal terminated program",
)


class Refused(Exception):
    """The user's mistake, in one sentence; error: the class that it is for the parent."""

    def __init__(self, text: str, error: str = "TargetError") -> None:
        super().__init__(text)
        self.error = error


# ------------------------------------------------------------------------------------------------------- the target


class Work:
    """The model with the calls that it is judged by."""

    def __init__(self, made: Any, target: str) -> None:
        import torch

        self.whole = made if hasattr(made, "examples") and hasattr(made, "unit") else None  # a compilot.Workload
        if self.whole is not None:
            self.model, self.grad = made.model, bool(made.grad)
            self.calls = [(tuple(call.args), dict(call.kwargs)) for call in made.examples]
            self.label = made.label
        elif isinstance(made, (tuple, list)) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module):
            self.model, self.grad = made[0], False
            args = made[1] if isinstance(made[1], (tuple, list)) else (made[1],)
            self.calls = [(tuple(args), dict(made[2]) if len(made) == 3 else {})]
            self.label = type(made[0]).__name__
        else:
            what = "return (model, args), (model, args, kwargs) or compilot.Workload(...)"
            raise Refused(f"'{target}' returned a {type(made).__name__}; it must {what}.")

    def unit(self, fn: Callable[..., Any]) -> tuple[Callable[[], None], int]:
        """What the clock sees, and how many calls that is."""
        import torch

        if self.whole is not None:
            whole = self.whole.unit(fn)
            return whole.call, whole.calls
        calls, grad = self.calls, self.grad

        def once() -> None:
            with torch.set_grad_enabled(grad):
                for args, kwargs in calls:
                    fn(*args, **kwargs)

        return once, len(calls)

    def use(self, number: int, call: Any) -> None:
        """Another call in place of an example."""
        self.calls[number] = call
        examples = getattr(self.whole, "examples", None)
        if isinstance(examples, list):
            examples[number] = type(examples[number])(*call)

    def samples(self) -> int | None:
        """The size of the batch dimension, where the inputs agree on one."""
        sizes = {t.shape[0] for _, t in leaves(self.calls[0]) if is_tensor(t) and t.dim() > 1}
        return sizes.pop() if len(sizes) == 1 else None


def load_target(target: str) -> Work:
    """The workload that a target's factory makes, from a fixed seed."""
    import torch

    place, _, name = target.rpartition(":")
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy").random.seed(0)
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except SystemExit:
        raise Refused(f"{place} ended the program on import; move what it does under 'if __name__ ...'.") from None
    except Exception as error:
        raise Refused(f"importing {_short(place)} failed with {describe(error)} ({where(error)}); fix that.") from error
    factory: Any = module
    for part in name.split("."):
        if not hasattr(factory, part):
            raise Refused(f"{_short(place)} has no '{name}'; check the target.")
        factory = getattr(factory, part)
    try:
        made = factory()
    except FileNotFoundError as error:
        text = f"factory '{name}' failed with {describe(error)} ({where(error)})"
        raise Refused(f"{text}; name a file that git does not track as a link.") from error
    except Exception as error:
        raise Refused(f"factory '{name}' failed with {describe(error)} ({where(error)}); fix that line.") from error
    return Work(made, target)


def _import_file(path: Path) -> Any:
    if not path.exists():
        raise Refused(f"there is no {path.name} in {path.parent}; check the target.")
    sys.path.insert(0, str(path.parent))
    name = f"_compilot_side_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _short(place: str) -> str:
    return Path(place).name if place.endswith(".py") else place


def causes(error: BaseException) -> list[BaseException]:
    """An error and what it was raised for, the innermost last."""
    found = [error]
    while (inner := getattr(found[-1], "inner_exception", None) or found[-1].__cause__) is not None:
        found.append(inner)
    return found


def describe(error: BaseException) -> str:
    """Type and first line of the innermost cause: what compilers wrap around it says less."""
    error = causes(error)[-1]
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__


def where(error: BaseException) -> str:
    """The innermost line outside of installed packages."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen ")]
    mine = [f for f in frames if "site-packages" not in f.filename and f.filename != __file__] or frames
    return f"{Path(mine[-1].filename).name}:{mine[-1].lineno}" if mine else "no line known"


def installed_roots() -> list[str]:
    """Folders of installed code: a virtual environment may lie inside of a project."""
    return [os.path.realpath(place) for place in {sys.prefix, sys.base_prefix, sys.exec_prefix}]


def is_below(path: str, root: str) -> bool:
    """Whether a path is the folder or something in it."""
    return path == root or path.startswith(root + os.sep)


def is_foreign(path: str, root: str) -> bool:
    """Whether a file is the other side's own code."""
    real = os.path.realpath(path)
    if not is_below(real, root) or "site-packages" in real.split(os.sep):
        return False
    return not any(is_below(real, place) and not is_below(root, place) for place in installed_roots())


def leave_foreign_paths() -> None:
    """Nothing of the other side can be imported by name; an editable install would find it otherwise."""
    if root := os.environ.get(FOREIGN):
        sys.path[:] = [entry for entry in sys.path if not is_foreign(entry or os.getcwd(), root)]


def refuse_foreign() -> None:
    """Refused where code of the other side was imported all the same."""
    root = os.environ.get(FOREIGN)
    for name, module in list(sys.modules.items()) if root else ():
        file = getattr(module, "__file__", None)
        if root and isinstance(file, str) and name.partition(".")[0] != "compilot" and is_foreign(file, root):
            text = f"this side imported {file} of the other side; make the target import the package by its own path"
            raise Refused(f"{text}, or uninstall the editable install of '{name.partition('.')[0]}'.")


def refuse_installed_copy() -> None:
    """Refused where the project's own package is an installed copy: both sides would run the same code."""
    root = os.environ.get(OWN)
    if not root or not any(os.path.exists(os.path.join(root, name)) for name in PROJECT_FILES):
        return
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name == "compilot" or not isinstance(file, str):
            continue
        if "site-packages" in os.path.realpath(file).split(os.sep) and own_copy(root, name):
            text = f"'{name}' was imported from {os.path.dirname(file)}, a copy that both sides have in common"
            raise Refused(f"{text}; make it an editable install, or uninstall it.", "EnvironmentProblem")


def own_copy(root: str, name: str) -> str:
    """The file of a project that is this package or module; "": it has none."""
    places = [os.path.join(root, *part, *file) for part in ((), ("src",)) for file in ((name, INIT), (f"{name}.py",))]
    return next((place for place in places if os.path.isfile(place)), "")


# ----------------------------------------------------------------------------------------------- tensors in structures


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor."""
    import torch

    return isinstance(value, torch.Tensor)


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every leaf of a nested structure with its path."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], f"{path}[{key!r}]")]
    if isinstance(value, (tuple, list)):
        return [leaf for number, one in enumerate(value) for leaf in leaves(one, f"{path}[{number}]")]
    return [leaf for n in field_names(value) for leaf in leaves(getattr(value, n), f"{path}.{n}")] or [(path, value)]


def field_names(value: Any) -> list[str]:
    """Of a dataclass's object; none of anything else."""
    is_one = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)] if is_one else []


def tensors(value: Any) -> dict[str, Any]:
    """The tensors of a structure by path; numbers as tensors of their own."""
    import torch

    found = {}
    for path, leaf in leaves(value):
        if is_tensor(leaf):
            found[path] = leaf.detach()
        elif isinstance(leaf, (bool, int, float)):
            found[path] = torch.tensor(leaf, dtype=torch.float64)
    return found


def plain_leaves(value: Any) -> dict[str, str]:
    """What is no tensor in a structure, as text by path: another number or word is other work."""
    kinds = (bool, int, float, str, type(None))
    return {path: repr(leaf) for path, leaf in leaves(value) if isinstance(leaf, kinds)}


def first_other_value(theirs: dict[str, str], mine: dict[str, str]) -> str:
    """The first plain value that is not alike; "": all are."""
    paths = [path for path in {**theirs, **mine} if theirs.get(path) != mine.get(path)]
    return f"'{paths[0]}' was {theirs.get(paths[0], 'not there')} and is {mine.get(paths[0], 'gone')}" if paths else ""


def named_state(model: Any) -> dict[str, Any]:
    """Parameters and buffers by name."""
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def shape_of(tensor: Any) -> str:
    """For people: "8x16 float32"."""
    return f"{'x'.join(map(str, tensor.shape)) or 'scalar'} {str(tensor.dtype).replace('torch.', '')}"


def first_difference(theirs: dict[str, Any], mine: dict[str, Any]) -> str:
    """What is not alike by name, shape and type; "": all is."""
    for name in theirs:
        if name not in mine:
            return f"'{name}' is gone"
    for name, tensor in mine.items():
        if name not in theirs:
            return f"'{name}' is new"
        if shape_of(tensor) != shape_of(theirs[name]):
            return f"'{name}' was {shape_of(theirs[name])} and is {shape_of(tensor)}"
    return ""


def load_kept(path: str) -> Any:
    """A file of `keep_state`, mapped: its weights are no second copy in memory."""
    import torch

    try:
        return torch.load(path, weights_only=True, mmap=True)
    except TypeError:  # a torch that cannot map
        return torch.load(path, weights_only=True)


def put_back(mine: dict[str, Any], kept: dict[str, Any]) -> None:
    """Copy what is not equal: a copy of equal values would still count as a change of the tensor."""
    import torch

    for name, tensor in mine.items():
        if not torch.equal(tensor, kept[name].to(tensor.device)):
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.copy_(kept[name])


def fresh(leaf: Any, values: Any) -> Any:
    """A new tensor with these values and the layout of an old one, which may be expanded or not be written to."""
    import torch

    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in leaf.stride())
    made = torch.empty_like(leaf[once], requires_grad=False).copy_(values[once]).expand(leaf.shape)
    if not torch.equal(made, values.to(made.device)):
        made = torch.empty_like(leaf, requires_grad=False, memory_format=torch.contiguous_format).copy_(values)
    return made.requires_grad_(leaf.requires_grad)


def with_tensors(value: Any, given: dict[str, Any], path: str = "") -> Any:
    """The same structure with other tensors at the given paths."""
    if isinstance(value, dict):
        return {key: with_tensors(one, given, f"{path}[{key!r}]") for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        made = [with_tensors(one, given, f"{path}[{number}]") for number, one in enumerate(value)]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if names := field_names(value):
        whole = copy.copy(value)
        for name in names:  # a frozen one, too, and without its own __init__
            object.__setattr__(whole, name, with_tensors(getattr(value, name), given, f"{path}.{name}"))
        return whole
    return given.get(path, value)


# ------------------------------------------------------------------------------------------------------ what it cost


class CompilerRuns:
    """C++ compiler processes that this process started."""

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: Any) -> None:
        if event != "subprocess.Popen":
            return
        words = args[1].split() if isinstance(args[1], str) else [str(word) for word in args[1]]
        name = os.path.basename(words[0]) if words else ""
        known = any(name == c or name.startswith(f"{c}-") for c in COMPILERS)
        if not known or "-o" not in words or "-E" in words:
            return
        made = words[words.index("-o") + 1 :][:1]
        self.count += not any(one.endswith(NOT_OURS) for one in made)  # the shared header is no model's cost


def cpu_s() -> float:
    """CPU seconds of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_rss_bytes() -> int:
    """Highest resident memory of this process so far: of its own program, not of the one that started it.

    Linux carries `ru_maxrss` over an exec: a child of a program that holds 1 GB says 1 GB before it has done anything.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024


def forget_peak() -> None:
    """Let the highest memory be that of now; where the system does not allow it, it stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def rss_bytes() -> int:
    """Resident memory now; the highest so far where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_rss_bytes()


def dynamo_counts() -> dict[str, int]:
    """What torch.compile has done so far; nothing where it was never used."""
    utils, metrics = sys.modules.get("torch._dynamo.utils"), sys.modules.get("torch._inductor.metrics")
    if utils is None:
        return {"frames": 0, "left": 0, "breaks": 0, "kernels": 0}
    frames = utils.counters["frames"]
    return {
        "frames": int(frames["ok"]),
        "left": int(frames["total"]) - int(frames["ok"]),
        "breaks": int(sum(utils.counters["graph_break"].values())),
        "kernels": int(getattr(metrics, "generated_kernel_count", 0)) if metrics is not None else 0,
    }


def trust_vector_isa() -> None:
    """No trial builds for every vector extension of the processor: they take seconds, and are no model's cost.

    What the user has decided stays (TORCHINDUCTOR_VEC_ISA_OK); a torch that does not know the setting does as it does.
    """
    with contextlib.suppress(ImportError, AttributeError):
        cpp = importlib.import_module("torch._inductor.config").cpp
        if cpp.vec_isa_ok is None:
            cpp.vec_isa_ok = True


def files_bytes(folder: Path) -> int:
    """Bytes of everything that a build left in a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(NOT_OURS)]
    return sum(path.stat().st_size for path in files)


# ---------------------------------------------------------------------------------------------------------- the steps


class Arm:
    """What the process keeps between requests."""

    def __init__(self, import_s: float | None = None) -> None:
        """import_s: forked, and so long did the imports take that it has from its parent."""
        self.compiler = CompilerRuns()
        self.started = STARTED if import_s is None else time.perf_counter() - import_s
        self.work: Work
        self.fn: Callable[..., Any]
        self.once: Callable[[], None]
        self.calls = 1
        self.batch = 1
        self.callers = 1
        self.open_peak = 0
        self.dynamic: list[dict[str, Any]] = []  # of the plan
        self.facts: dict[str, Any] = {}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load the target in its own folder."""
        if request["protocol"] != PROTOCOL:
            raise Refused(f"the parent speaks protocol {request['protocol']}, this arm {PROTOCOL}.", "WorkerError")
        shipment = request["shipment"]
        self.candidate, self.workspace = request["candidate"], Path(request["workspace"])
        self.dynamic = shipment.get("extra_dynamic", [])
        os.chdir(shipment["cwd"])
        leave_foreign_paths()
        sys.path[:0] = [entry for entry in shipment["sys_path"] if entry not in sys.path]
        import torch

        if self.engine != "eager":
            importlib.import_module("torch._dynamo")
        self.work = load_target(shipment["target"])
        refuse_foreign()
        refuse_installed_copy()
        self.open_peak = peak_rss_bytes()  # before the other side's weights are read, which are no cost of the model
        self.facts = {
            "open_s": time.perf_counter() - self.started,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "samples_per_call": self.work.samples(),
        }
        return {"type": "Opened", "ref": {"label": self.work.label, "target": shipment["target"]}}

    @property
    def engine(self) -> str:
        """That the candidate names; eager is what an unnamed one is."""
        return str(self.candidate["settings"].get("engine", "eager"))

    @property
    def is_plan(self) -> bool:
        """Whether it is more than the model as it is, or plain torch.compile."""
        plain = self.candidate["label"] in ("eager", PLAIN_COMPILE)
        return not plain or self.candidate["settings"].keys() > {"engine"}

    def keep_state(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write weights, inputs and the cases to be answered, for everybody else."""
        import torch

        cases = {f"example {number}": tensors(call) for number, call in enumerate(self.work.calls[:4], 1)}
        generator = torch.Generator().manual_seed(1)
        for seed in range(1, SEEDED_CASES + 1):
            cases[f"seed {seed}"] = {p: _varied(t, generator) for p, t in tensors(self.work.calls[0]).items()}
        plain = [plain_leaves(call) for call in self.work.calls[:4]]
        kept = {"state": named_state(self.work.model), "cases": cases, "calls": len(self.work.calls), "plain": plain}
        torch.save(kept, request["path"] + ".part")
        os.replace(request["path"] + ".part", request["path"])  # whole or not at all: a process may be killed here
        return {"type": "Done"}

    def take_state(self, request: dict[str, Any]) -> dict[str, Any]:
        """Copy the first process's weights and inputs, where they fit."""
        import torch

        kept = load_kept(request["path"])
        mine, cases = named_state(self.work.model), kept["cases"]
        inputs = "" if kept["calls"] == len(self.work.calls) else "the number of examples changed"
        for number, call in enumerate(self.work.calls[:4]):
            given = cases.get(f"example {number + 1}", {})
            inputs = inputs or first_difference(given, tensors(call))
            inputs = inputs or first_other_value(kept["plain"][number], plain_leaves(call))
            if not inputs:
                found = {path: leaf for path, leaf in leaves(call) if is_tensor(leaf)}
                other = {p: fresh(leaf, given[p]) for p, leaf in found.items() if not torch.equal(leaf, given[p])}
                self.work.use(number, with_tensors(call, other))
        parameters = first_difference(kept["state"], mine)
        if not parameters:
            put_back(mine, kept["state"])
        return {"type": "StateTaken", "parameters": parameters, "inputs": inputs}

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the callable and answer the first call; then count what later calls compile again."""
        import torch

        cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(self.workspace)))
        cold = not any(cache.glob("*"))
        forget_peak()
        runs, cpu, begin = self.compiler.count, cpu_s(), time.perf_counter()
        if self.is_plan:
            self.fn = importlib.import_module("compilot.gate.plan_arm").callable_of(self)
        elif self.engine == "eager":
            self.fn = self.work.model
        else:
            trust_vector_isa()
            self.fn = torch.compile(self.work.model)
        self.once, self.calls = self.work.unit(self.fn)
        args, kwargs = self.work.calls[0]
        with torch.set_grad_enabled(self.work.grad):
            self.fn(*args, **kwargs)
        cold_s, first = time.perf_counter() - begin, dynamo_counts()
        cost = {"cold_s": cold_s, "cpu_s": cpu_s() - cpu, "compiler_runs": self.compiler.count - runs}
        for _ in range(DRIVES):
            self.once()
        _end_compile_workers()
        now = dynamo_counts()
        self.facts.update(cost, cold_cache=cold, first_s=self.facts["open_s"] + cold_s)
        if self.engine != "eager":
            self.facts.update(
                graph_breaks=first["breaks"],
                recompiles=now["frames"] - first["frames"],
                left_to_eager=now["left"],
                kernels=first["kernels"],
                artifact_bytes=files_bytes(self.workspace),
            )
        stats = getattr(self.fn, "stats", None)
        if self.is_plan and callable(stats):  # now: so far every process has made the same calls
            self.facts["fallbacks"] = int(sum(stats().fallbacks.values()))
        guard = {"positional": len(args), "keywords": sorted(kwargs), "tensors": []}
        return {"type": "Built", **cost, "cold_cache": cold, "guard": guard}

    def keep_answers(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer every case, twice where it is eager, and keep the answers; in double precision too where asked."""
        import torch

        kept = load_kept(request["cases"])
        cases, mine = kept["cases"], named_state(self.work.model)
        if not first_difference(kept["state"], mine):
            put_back(mine, kept["state"])  # a model may change its buffers, and a warm-up has no fixed number of calls
        answers = self._answers(cases)
        cases = {name: cases[name] for name in answers}
        again = {name: self._answer(self.fn, given, name) for name, given in list(cases.items())[:1]}
        repeats = all(_same(answers[name], one) for name, one in again.items())
        exact = self._in_double(cases) if request.get("double") else None
        torch.save({"answers": answers, "double": exact}, request["path"])
        return {"type": "AnswersKept", "repeats": repeats, "cases": list(answers)}

    def _answers(self, cases: dict[str, Any]) -> dict[str, Any]:
        """To the cases that have one: values that we made up may be none that the model takes."""
        answers: dict[str, Any] = {}
        for name, given in cases.items():
            try:
                answers[name] = self._answer(self.fn, given, name)
            except Exception:
                if name.startswith("example "):
                    raise
                traceback.print_exc()
        return answers

    def _answer(self, fn: Any, given: dict[str, Any], name: str, double: bool = False) -> dict[str, Any]:
        import torch

        number = int(name.split()[1]) - 1 if name.startswith("example ") else 0
        call = self.work.calls[number]
        real = {path for path, leaf in leaves(call) if is_tensor(leaf)}
        fitting = {p: t.clone().double() if double and t.is_floating_point() else t.clone() for p, t in given.items()}
        args, kwargs = with_tensors(call, {path: tensor for path, tensor in fitting.items() if path in real})
        model = fn if double else self.work.model
        kept = {key: buffer.clone() for key, buffer in model.named_buffers()}
        torch.manual_seed(0)
        with torch.set_grad_enabled(self.work.grad):
            found = {path: tensor.cpu().clone() for path, tensor in tensors(fn(*args, **kwargs)).items()}
        put_back(dict(model.named_buffers()), kept)
        return found

    def _in_double(self, cases: dict[str, Any]) -> Any:
        """The answers in float64; None where the model cannot do that."""
        try:
            exact = copy.deepcopy(self.work.model).double()
            return {name: self._answer(exact, given, name, double=True) for name, given in cases.items()}
        except Exception:
            return None

    def warm(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call until steady, then choose the batch."""
        self.callers = int(request.get("callers", 1))
        begin, taken = time.perf_counter(), list[float]()
        while True:
            taken.append(_timed(self.once))
            wall = time.perf_counter() - begin
            enough = wall >= min(WARM_S, request["for_s"]) and len(taken) >= WARM_CALLS
            if wall >= request["for_s"] or (enough and abs(slope(taken)) <= MAX_SLOPE):
                break
        usual = max(statistics.median(taken[-max(1, len(taken) // 3) :]), 1e-7)
        self.batch = min(max(1, math.ceil(BATCH_S / usual)), MOST_CALLS_PER_BATCH)
        self.facts.update(peak_rss_bytes=max(self.open_peak, peak_rss_bytes()), steady_rss_bytes=rss_bytes())
        warm_up = {"calls": len(taken), "wall_s": wall, "steady": abs(slope(taken)) <= MAX_SLOPE, "slope": slope(taken)}
        return {
            "type": "Warmed",
            "warm_up": warm_up,
            "calls_per_batch": self.batch,
            "call_s": usual / self.calls,
            "rss_bytes": self.facts["steady_rss_bytes"],
            "peak_rss_bytes": self.facts["peak_rss_bytes"],
        }

    def time_batch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Seconds per call over one batch, of all callers together."""
        collected = gc.isenabled()
        gc.disable()
        try:
            wall = self._together() if self.callers > 1 else _timed(self._batch)
        finally:
            if collected:
                gc.enable()
        return {"type": "BatchTimed", "per_call_s": wall / (self.batch * self.calls * self.callers)}

    def _batch(self) -> None:
        once = self.once
        for _ in range(self.batch):
            once()

    def _together(self) -> float:
        ready, problems = threading.Barrier(self.callers + 1), list[BaseException]()

        def caller() -> None:
            ready.wait()
            try:
                self._batch()
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=caller) for _ in range(self.callers)]
        for thread in threads:
            thread.start()
        ready.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        wall = time.perf_counter() - begin
        if problems:  # a caller that has failed is no quick one
            raise problems[0]
        return wall

    def look(self, request: dict[str, Any]) -> dict[str, Any]:
        """Everything that was counted, and how the model is made up."""
        state = named_state(self.work.model)
        names = "\n".join(f"{name} {shape_of(tensor)}" for name, tensor in sorted(state.items()))
        inputs = "; ".join(f"{path} {shape_of(t)}" for call in self.work.calls for path, t in tensors(call).items())
        self.facts["parameters_sha256"] = hashlib.sha256(names.encode()).hexdigest()
        self.facts["inputs"] = inputs
        if request.get("weights"):
            given = {f"{n}{path}": t for n, call in enumerate(self.work.calls) for path, t in tensors(call).items()}
            self.facts["weights_sha256"] = _digest({**state, **given})
        return {"type": "Looked", "facts": {k: v for k, v in self.facts.items() if v is not None}}


def slope(taken: list[float]) -> float:
    """Relative change from the first to the second half of the last third."""
    last = taken[-max(2, len(taken) // 3) :]
    first, second = last[: len(last) // 2], last[len(last) // 2 :]
    return statistics.median(second) / max(statistics.median(first), 1e-9) - 1.0 if first and second else 0.0


def _timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _varied(tensor: Any, generator: Any) -> Any:
    """Other values of the same kind, where it holds numbers that may vary."""
    import torch

    if not tensor.is_floating_point() or tensor.numel() < 2:
        return tensor
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    real = tensor.double().cpu()
    return (drawn * real.std() + real.mean()).to(tensor.dtype).to(tensor.device)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    import torch

    return one.keys() == other.keys() and all(
        torch.equal(one[path].nan_to_num(), other[path].nan_to_num()) for path in one
    )


def _digest(state: dict[str, Any]) -> str:
    made = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        made.update(name.encode())
        whole = tensor.cpu().contiguous()
        made.update(ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()) if whole.numel() else b"")
    return made.hexdigest()


def _end_compile_workers() -> None:
    """Timing starts when torch's own compile workers are gone."""
    compiler = sys.modules.get("torch._inductor.async_compile")
    with contextlib.suppress(Exception):
        if compiler is not None:
            compiler.shutdown_compile_workers()


# ------------------------------------------------------------------------------------------------------------ the pipe

STEPS = {
    "Open": Arm.open,
    "KeepState": Arm.keep_state,
    "TakeState": Arm.take_state,
    "Build": Arm.build,
    "KeepAnswers": Arm.keep_answers,
    "Warm": Arm.warm,
    "TimeBatch": Arm.time_batch,
    "Look": Arm.look,
}


def answer(arm: Arm, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request; whatever goes wrong in it is a reply too."""
    try:
        return STEPS[request["type"]](arm, request)
    except Refused as refused:
        return {"type": "Failed", "state": "infeasible", "reason": str(refused), "error": refused.error}
    except Exception as error:
        traceback.print_exc()
        reason = f"{describe(error)} ({where(error)})"
        machine = MACHINE if is_of_machine(error) else ""
        return {"type": "Failed", "state": "infeasible", "reason": reason, "error": machine}


def is_of_machine(error: BaseException) -> bool:
    """Whether memory, disk or threads ran out, here or in a compiler: it may be the machine, and not the code."""
    return any(
        isinstance(one, MemoryError)
        or getattr(one, "errno", None) in OUT_OF
        or any(words in str(one) for words in OUT_OF_WORDS)
        for one in causes(error)
    )


def main(argv: list[str]) -> None:
    """Serve requests until the parent says quit or goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: no orphans
    arm = Arm(*map(float, argv[2:]))
    with os.fdopen(int(argv[0]), "rb") as requests, os.fdopen(int(argv[1]), "wb", buffering=0) as replies:
        for line in requests:
            request = json.loads(line)
            if request["type"] == "Quit":
                break
            data = memoryview(json.dumps({**answer(arm, request), "id": request.get("id", 0)}).encode() + b"\n")
            while data:
                data = data[replies.write(data) :]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of a model may hang in their own clean-up


if __name__ == "__main__":
    main(sys.argv[1:])
