"""The golden call: a call whose answer is known, run before the first answer is served.

In: a guard and two safetensors files. Out: the call, eager's answer to it, and whether another answer is that answer.
The call is rebuilt from the guard, which has every leaf and container of it, so no pickle is needed. An answer passes
when it has the same leaves, shapes and dtypes, the same pattern of non-finite numbers, and an RMSE within the limit
that was set when the bundle was packed; for a model that was trained since, eager's answer now takes the place of the
kept one, and the limits grow and shrink with it. A model that draws random numbers draws the same ones each time: the
call is made with torch seeded (on the CPU). Not covered: containers that are no plain list, tuple or dict.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from compilot._tree import Call, call_leaves, output_leaves
from compilot.errors import BundleError, EnvironmentProblem, InputError
from compilot.inputs.paths import parse
from compilot.records import Golden, GoldenOutput, Guard

ROOM = 4.0  # times the error seen at packing: another CPU rounds differently
FLOORS = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}  # of the answer's own RMS
SEED = 0  # of the random numbers that a golden call may draw
_CONTAINERS = {"list": list, "tuple": tuple, "dict": dict}


def save(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors by name; safetensors wants each to own its memory."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    owned = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        save_file(owned, path)
    except SafetensorError as error:
        raise EnvironmentProblem(
            f"cannot write {path.name} ({error}); free some space, or choose another place."
        ) from error


def read(path: Path) -> dict[str, torch.Tensor]:
    """Tensors by name; what is not a safetensors file is refused, and never tried as a pickle."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        loaded: dict[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise BundleError(f"{path.name} is not a safetensors file ({error}); pack the bundle again.") from error
    return loaded


@contextmanager
def seeded() -> Iterator[None]:
    """The random numbers of a golden call, the same at every start; the process's own go on as if it had not been."""
    kept = torch.get_rng_state()
    torch.default_generator.manual_seed(SEED)
    try:
        yield
    finally:
        torch.set_rng_state(kept)


def input_tensors(call: Call) -> dict[str, torch.Tensor]:
    """The tensors of a call by path."""
    return {leaf.path: leaf.value for leaf in call_leaves(call) if isinstance(leaf.value, torch.Tensor)}


def output_tensors(output: Any) -> dict[str, torch.Tensor]:
    """The tensors of an answer by path."""
    return {leaf.path: leaf.value for leaf in output_leaves(output) if isinstance(leaf.value, torch.Tensor)}


def rebuild_call(guard: Guard, tensors: Mapping[str, torch.Tensor]) -> Call:
    """The call that the guard was made from, with these tensors in it."""
    nodes: dict[str, Any] = {}
    for one in guard.tensors:
        nodes[one.path] = _as_guarded(one.stride, one.device, tensors[one.path])
    for value in guard.values:
        nodes[value.path] = _value(value.path, value.value)
    for container in sorted(guard.containers, key=lambda c: -len(parse(c.path).steps)):  # the inner ones first
        if container.type not in _CONTAINERS:
            text = f"input {container.path} is a {container.type}"
            raise InputError(f"{text}; a bundle can hold lists, tuples and dicts only: pass one of those.")
        nodes[container.path] = _container(container.path, container.type, container.keys, container.length, nodes)
    args = tuple(nodes[f"args[{i}]"] for i in range(guard.positional))
    return Call(args, {key: nodes[f"kwargs[{key!r}]"] for key in guard.keywords})


def _as_guarded(stride: tuple[int, ...] | None, device: str, tensor: torch.Tensor) -> torch.Tensor:
    if stride is not None and tensor.stride() != stride:
        strided = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
        tensor = strided.copy_(tensor)
    return tensor.to(device)


def _value(path: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    if text.startswith("torch.") and isinstance(
        found := getattr(torch, text.removeprefix("torch."), None), torch.dtype
    ):
        return found
    raise InputError(f"input {path} has the value {text}, which a bundle cannot hold; pass numbers, texts or tensors.")


def _container(path: str, kind: str, keys: tuple[str, ...] | None, length: int | None, nodes: Mapping[str, Any]) -> Any:
    if kind == "dict":
        return {ast.literal_eval(key): nodes[f"{path}[{key}]"] for key in keys or ()}
    return _CONTAINERS[kind](nodes[f"{path}[{i}]"] for i in range(length or 0))


def expected(eager: Any, packed: Any) -> tuple[GoldenOutput, ...]:
    """What an answer is held to: eager's, with room for the error that the packed callable itself has."""
    theirs = {leaf.path: leaf.value for leaf in output_leaves(packed)}
    found = []
    for leaf in output_leaves(eager):
        if not isinstance(leaf.value, torch.Tensor):
            found.append(GoldenOutput(path=leaf.path, text=repr(leaf.value)))
            continue
        seen = rmse(theirs[leaf.path], leaf.value)
        floor = FLOORS.get(leaf.value.dtype, 0.0) * _rms(leaf.value)
        found.append(GoldenOutput(path=leaf.path, rmse_limit=max(ROOM * seen, floor)))
    return tuple(found)


def as_judged(known: Golden, outputs: Mapping[str, torch.Tensor], eager: Any) -> tuple[Golden, dict[str, torch.Tensor]]:
    """The golden call of a model whose weights may be others by now: its own answer, and limits in proportion to it."""
    limits = {one.path: one.rmse_limit for one in known.expected}
    found = []
    for leaf in output_leaves(eager):
        if isinstance(leaf.value, torch.Tensor):
            limit = _in_proportion(limits.get(leaf.path, 0.0), outputs.get(leaf.path), leaf.value)
            found.append(GoldenOutput(path=leaf.path, rmse_limit=limit))
        else:
            found.append(GoldenOutput(path=leaf.path, text=repr(leaf.value)))
    return msgspec.structs.replace(known, expected=tuple(found)), output_tensors(eager)


def _in_proportion(limit: float, then: torch.Tensor | None, now: torch.Tensor) -> float:
    """Other weights round differently too, so there is room once more."""
    before, size = 0.0 if then is None else _rms(then), _rms(now)
    return ROOM * max(limit * size / before if before else limit, FLOORS.get(now.dtype, 0.0) * size)


def difference(golden: Golden, answer: Any, outputs: Mapping[str, torch.Tensor]) -> str | None:
    """In what way an answer is not the golden one; None: it is."""
    leaves = {leaf.path: leaf.value for leaf in output_leaves(answer)}
    wanted = {one.path for one in golden.expected}
    if leaves.keys() != wanted:
        odd = sorted(leaves.keys() ^ wanted)[0]
        return f"{odd} is {'missing' if odd in wanted else 'unexpected'}"
    for one in golden.expected:
        if problem := _leaf_difference(one, leaves[one.path], outputs.get(one.path)):
            return f"{one.path} {problem}"
    return None


def _leaf_difference(one: GoldenOutput, answer: Any, right: torch.Tensor | None) -> str | None:
    if one.text is not None:
        return None if repr(answer) == one.text else f"is {answer!r} instead of {one.text}"
    if not isinstance(answer, torch.Tensor) or right is None:
        return "is not a tensor"
    if answer.shape != right.shape or answer.dtype != right.dtype:
        now, was = (f"{t.dtype} {tuple(t.shape)}" for t in (answer, right))
        return f"is {now} instead of {was}"
    error = rmse(answer, right)
    return None if error <= one.rmse_limit else f"has an RMSE of {error:.3g}, more than {one.rmse_limit:.3g}"


def rmse(answer: torch.Tensor, right: torch.Tensor) -> float:
    """Root mean square error; infinite where the non-finite numbers are not the same."""
    a, b = (_real(tensor.detach().cpu()).double() for tensor in (answer, right))
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, a - b)
    if not gap.isfinite().all():
        return float("inf")
    return float(gap.square().mean().sqrt()) if gap.numel() else 0.0


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _rms(tensor: torch.Tensor) -> float:
    finite = _real(tensor.detach()).double()
    finite = finite[finite.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
