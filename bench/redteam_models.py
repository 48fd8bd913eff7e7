"""Random small models from a grammar: the programs that bench/redteam.py attacks engines with.

In: a number. Out: `make(number)`: an nn.Module and an example call, the same ones in every process. A model is a list
of steps over a pool of tensors of one size; each step takes earlier tensors of the kinds it needs and adds one. Kinds:
f (floats), a (a float mask: 0 or the lowest number), i (64-bit integers), n (narrow integers), x (64-bit integers that
are looked up with as they come), m (booleans).
With `noise` set, every float result is disturbed by a few roundings: the spread of such runs in double precision says
how far two honest float32 programs may be apart, also behind floor, sort or argmax.
Not covered: sizes that vary, training, convolutions over more than one dimension.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, COLUMNS = 3, 8
CLASSES = 11  # rows of a table that x looks up in
NARROW = (torch.int32, torch.int16, torch.int8, torch.uint8)
LOWEST = torch.finfo(torch.float32).min
INPUTS = ("f", "f", "i", "m", "f", "n", "x", "a")  # the first is always a float; the others are drawn from all


class Step(NamedTuple):
    """One operation: which tensors of the pool it takes."""

    name: str
    sources: tuple[int, ...]
    value: int  # a small number that some operations use


class Op(NamedTuple):
    """What an operation takes and gives; `layer` makes the module it needs."""

    takes: str
    gives: str
    run: Callable[..., Tensor]
    layer: Callable[[], nn.Module] | None = None


class Program(nn.Module):
    """The steps as a model."""

    def __init__(self, inputs: str, steps: list[Step], outputs: tuple[int, ...], shape: str) -> None:
        super().__init__()
        self.inputs, self.steps, self.outputs, self.shape = inputs, steps, outputs, shape
        made = {str(n): OPS[step.name].layer for n, step in enumerate(steps)}
        self.layers = nn.ModuleDict({n: make() for n, make in made.items() if make is not None})
        self.register_buffer("like", torch.zeros(()))  # its dtype is the one that floats have here
        self.noise = 0.0

    def forward(self, *inputs: Tensor) -> Any:
        pool = list(inputs)
        for number, step in enumerate(self.steps):
            op = OPS[step.name]
            extra = {"layer": self.layers[str(number)]} if op.layer else {}
            found = op.run(self, step.value, *[pool[source] for source in step.sources], **extra)
            pool.append(self._disturbed(found))
        found = [pool[number] for number in self.outputs]
        if self.shape == "dict":
            return {f"out{n}": tensor for n, tensor in enumerate(found)}
        return found[0] if self.shape == "one" else tuple(found)

    def _disturbed(self, tensor: Tensor) -> Tensor:
        if not self.noise or not tensor.is_floating_point():
            return tensor
        return tensor * (1 + self.noise * torch.randn_like(tensor))

    def text(self) -> str:
        """The program, for people."""
        names = [f"{kind}{n}" for n, kind in enumerate(self.inputs)]
        lines = []
        for step in self.steps:
            names.append(f"{OPS[step.name].gives}{len(names)}")
            lines.append(f"{names[-1]} = {step.name}({', '.join(names[s] for s in step.sources)}; {step.value})")
        return "; ".join([*lines, f"return {', '.join(names[n] for n in self.outputs)}"])


# ---- operations ------------------------------------------------------------------------------------------------------


def _unary(function: Callable[[Tensor], Tensor], kind: str = "f") -> Op:
    return Op(kind, kind, lambda model, value, a: function(a))


def _binary(function: Callable[[Tensor, Tensor], Tensor], kind: str = "f", gives: str = "") -> Op:
    return Op(kind * 2, gives or kind, lambda model, value, a, b: function(a, b))


def _row(function: Callable[[Tensor], Tensor], kind: str = "f", gives: str = "") -> Op:
    """A reduction along the row, spread over the row again."""
    return Op(kind, gives or kind, lambda model, value, a: function(a).expand(a.shape).clone())


def _attention(model: Program, value: int, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    q4, k4 = (t[:, None, :, None] * torch.ones(4, dtype=t.dtype) for t in (q, k))
    return F.scaled_dot_product_attention(q4, k4, k4, attn_mask=mask[:, None, None, :]).mean(-1).squeeze(1)


def _by_hand(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    scores = (q[:, :, None] * k[:, None, :]).masked_fill(~mask[:, None, :], float("-inf"))
    return (torch.softmax(scores, -1) @ k[:, :, None]).squeeze(-1)


def _masked_mean(model: Program, value: int, x: Tensor, mask: Tensor) -> Tensor:
    return ((x * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)).expand(x.shape).clone()


def _narrow(model: Program, value: int, x: Tensor) -> Tensor:
    return x.to(NARROW[value % len(NARROW)])


def _pooled(function: Callable[[Tensor], Tensor]) -> Op:
    return Op("f", "f", lambda model, value, a: function(a[:, None, :]).squeeze(1))


OPS: dict[str, Op] = {
    # floats, one at a time
    "relu": _unary(F.relu),
    "gelu": _unary(F.gelu),
    "gelu_tanh": _unary(lambda a: F.gelu(a, approximate="tanh")),
    "sigmoid": _unary(torch.sigmoid),
    "tanh": _unary(torch.tanh),
    "exp": _unary(lambda a: torch.exp(a.clamp(-60, 60))),
    "log1p": _unary(lambda a: torch.log1p(a.abs())),
    "expm1": _unary(lambda a: torch.expm1(a.clamp(-60, 60))),
    "erf": _unary(torch.erf),
    "erfc": _unary(torch.erfc),
    "sqrt": _unary(lambda a: a.abs().sqrt()),
    "rsqrt": _unary(lambda a: torch.rsqrt(a.abs() + 1e-3)),
    "sin": _unary(lambda a: torch.sin(a.clamp(-100, 100))),
    "floor": _unary(torch.floor),
    "ceil": _unary(torch.ceil),
    "round": _unary(torch.round),
    "trunc": _unary(torch.trunc),
    "frac": _unary(torch.frac),
    "abs": _unary(torch.abs),
    "neg": _unary(torch.neg),
    "square": _unary(torch.square),
    "softplus": _unary(F.softplus),
    "silu": _unary(F.silu),
    "hardswish": _unary(F.hardswish),
    "elu": _unary(F.elu),
    "mish": _unary(F.mish),
    "logsigmoid": _unary(F.logsigmoid),
    "log": _unary(lambda a: torch.log(a.abs() + 1e-12)),
    "atan": _unary(torch.atan),
    "sign": _unary(torch.sign),
    "clamp": _unary(lambda a: a.clamp(-0.5, 2.0)),
    "mod_three": _unary(lambda a: a % 3.0),
    # floats, two at a time
    "add": _binary(torch.add),
    "sub": _binary(torch.sub),
    "mul": _binary(torch.mul),
    "div": _binary(lambda a, b: a / (b.abs() + 0.1)),
    "maximum": _binary(torch.maximum),
    "minimum": _binary(torch.minimum),
    "pow": _binary(lambda a, b: (a.abs() + 0.1).clamp(max=50) ** b.clamp(-3, 3)),
    "atan2": _binary(torch.atan2),
    "fmod": _binary(lambda a, b: torch.fmod(a, b.abs() + 0.5)),
    "remainder": _binary(lambda a, b: torch.remainder(a, b.sign() * (b.abs() + 0.5) + (b == 0))),
    "copysign": _binary(torch.copysign),
    "floor_div": _binary(lambda a, b: torch.div(a, b.abs() + 0.5, rounding_mode="floor")),
    "outer": _binary(lambda a, b: a @ b.T @ b),
    # floats along a row
    "sum": _row(lambda a: a.sum(-1, keepdim=True)),
    "mean": _row(lambda a: a.mean(-1, keepdim=True)),
    "var": _row(lambda a: a.var(-1, keepdim=True)),
    "std": _row(lambda a: a.std(-1, keepdim=True, correction=0)),
    "amax": _row(lambda a: a.amax(-1, keepdim=True)),
    "logsumexp": _row(lambda a: torch.logsumexp(a, -1, keepdim=True)),
    "norm": _row(lambda a: torch.linalg.vector_norm(a, dim=-1, keepdim=True)),
    "softmax": _unary(lambda a: torch.softmax(a, -1)),
    "log_softmax": _unary(lambda a: torch.log_softmax(a, -1)),
    "cumsum": _unary(lambda a: torch.cumsum(a, -1)),
    "sort": _unary(lambda a: torch.sort(a, -1).values),
    "top": _unary(lambda a: torch.topk(a, COLUMNS, -1).values),
    "flip": _unary(lambda a: a.flip(-1)),
    "roll": _unary(lambda a: a.roll(3, -1)),
    "normalize": _unary(lambda a: F.normalize(a, dim=-1)),
    "layer_norm": _unary(lambda a: F.layer_norm(a, (COLUMNS,))),
    "max_pool": _pooled(lambda a: F.max_pool1d(a, 3, 1, 1)),
    "avg_pool": _pooled(lambda a: F.avg_pool1d(a, 3, 1, 1)),
    "avg_pool_inside": _pooled(lambda a: F.avg_pool1d(a, 3, 1, 1, count_include_pad=False)),
    # layers
    "linear": Op("f", "f", lambda m, v, a, layer: layer(a), lambda: nn.Linear(COLUMNS, COLUMNS)),
    "batch_norm": Op("f", "f", lambda m, v, a, layer: layer(a), lambda: nn.BatchNorm1d(COLUMNS)),
    "conv": Op("f", "f", lambda m, v, a, layer: layer(a[:, None]).mean(1), lambda: nn.Conv1d(1, 4, 3, padding=1)),
    "embedding": Op("x", "f", lambda m, v, a, layer: layer(a).mean(-1), lambda: nn.Embedding(CLASSES, 4)),
    # masks
    "where": Op("mff", "f", lambda m, v, a, b, c: torch.where(a, b, c)),
    "masked_fill": Op("fm", "f", lambda m, v, a, b: a.masked_fill(b, -1.5)),
    "masked_mean": Op("fm", "f", _masked_mean),
    "attention": Op("ffm", "f", _attention),
    "attention_added": Op("ffa", "f", _attention),
    "attention_by_hand": Op("ffm", "f", lambda m, v, q, k, mask: _by_hand(q, k, mask)),
    "masked_softmax": Op("fm", "f", lambda m, v, a, b: torch.softmax(a.masked_fill(~b, LOWEST), -1)),
    "added_softmax": Op("fa", "f", lambda m, v, a, b: torch.softmax(a + b, -1)),
    "and": _binary(torch.logical_and, "m"),
    "xor": _binary(torch.logical_xor, "m"),
    "not": _unary(torch.logical_not, "m"),
    "greater": _binary(torch.gt, "f", "m"),
    "int_less": _binary(torch.lt, "i", "m"),
    "int_equal": _binary(torch.eq, "i", "m"),
    # integers
    "int_add": _binary(torch.add, "i"),
    "int_sub": _binary(torch.sub, "i"),
    "int_mul": _binary(torch.mul, "i"),
    "int_floor_div": _binary(lambda a, b: a // torch.where(b == 0, 3, b), "i"),
    "int_trunc_div": _binary(lambda a, b: torch.div(a, torch.where(b == 0, 3, b), rounding_mode="trunc"), "i"),
    "int_mod": _binary(lambda a, b: a % torch.where(b == 0, 3, b), "i"),
    "int_halved": _unary(lambda a: a // 2, "i"),
    "int_mod_seven": _unary(lambda a: a % 7, "i"),
    "int_abs": _unary(torch.abs, "i"),
    "int_neg": _unary(torch.neg, "i"),
    "int_min": _binary(torch.minimum, "i"),
    "int_and": _binary(torch.bitwise_and, "i"),
    "int_not": _unary(torch.bitwise_not, "i"),
    "int_clamp": _unary(lambda a: a.clamp(-50, 60), "i"),
    "int_shift": _unary(lambda a: a >> 1, "i"),
    "int_sum": _row(lambda a: a.sum(-1, keepdim=True), "i"),
    "int_cumsum": _unary(lambda a: torch.cumsum(a, -1), "i"),
    "int_sort": _unary(lambda a: torch.sort(a, -1).values, "i"),
    "int_where": Op("mii", "i", lambda m, v, a, b, c: torch.where(a, b, c)),
    "int_float": Op("i", "f", lambda m, v, a: a.to(m.like.dtype) / 16),
    "count": Op("m", "i", lambda m, v, a: torch.cumsum(a, -1)),
    "float_int": Op("f", "i", lambda m, v, a: a.clamp(-1000, 1000).to(torch.int64)),
    "argmax": _row(lambda a: a.argmax(-1, keepdim=True), "f", "i"),
    "narrow": Op("i", "n", lambda m, v, a: _narrow(m, v, a)),
    "narrow_add": Op("n", "n", lambda m, v, a: a + a),
    "narrow_mul": Op("n", "n", lambda m, v, a: a * 3),
    "narrow_neg": Op("n", "n", lambda m, v, a: -a),
    "narrow_half": Op("n", "n", lambda m, v, a: a // 2),
    "narrow_float": Op("n", "f", lambda m, v, a: a.to(m.like.dtype)),
    "wide": Op("n", "i", lambda m, v, a: a.to(torch.int64)),
    # looking up
    "gather": Op("fx", "f", lambda m, v, a, b: a.gather(1, b)),
    "gather_safe": Op("fi", "f", lambda m, v, a, b: a.gather(1, b.clamp(0, COLUMNS - 1))),
    "gather_mod": Op("fi", "f", lambda m, v, a, b: a.gather(1, b % COLUMNS)),
    "index": Op("fx", "f", lambda m, v, a, b: a[:, b[0]]),
    "scatter_add": Op("fx", "f", lambda m, v, a, b: torch.zeros_like(a).scatter_add(1, b, a)),
    "one_hot": Op("x", "f", lambda m, v, a: F.one_hot(a, CLASSES)[..., :2].sum(-1).to(m.like.dtype)),
    "ids_int": Op("x", "i", lambda m, v, a: a * 2 - 1),
}


# ---- drawing ---------------------------------------------------------------------------------------------------------


def make(number: int) -> tuple[Program, tuple[Tensor, ...]]:
    """The model of this number and its example inputs."""
    draw = random.Random(f"redteam {number}")
    inputs = "".join(["f", *(draw.choice(INPUTS) for _ in range(draw.randint(1, 3)))])
    kinds, steps = list(inputs), list[Step]()
    for _ in range(draw.randint(3, 9)):
        about = draw.choice(sorted(set(kinds)))  # every kind as often as floats, which have the most operations
        name = draw.choice([n for n, op in OPS.items() if about in op.takes and set(op.takes) <= set(kinds)])
        op = OPS[name]
        sources = tuple(_source(draw, kinds, kind) for kind in op.takes)
        steps.append(Step(name, sources, draw.randint(0, 11)))
        kinds.append(op.gives)
    with torch.random.fork_rng():
        torch.manual_seed(number)
        model = Program(inputs, steps, _outputs(draw, inputs, steps), draw.choice(["one", "tuple", "dict"])).eval()
        example = tuple(usual(kind, number * 10 + i) for i, kind in enumerate(inputs))
    return model, example


def _source(draw: random.Random, kinds: list[str], kind: str) -> int:
    """Mostly what was made last: long chains rather than many short ones."""
    found = [n for n, other in enumerate(kinds) if other == kind]
    return found[-1] if draw.random() < 0.6 else draw.choice(found)


def _outputs(draw: random.Random, inputs: str, steps: list[Step]) -> tuple[int, ...]:
    """The last result, and every one that no step takes."""
    taken = {source for step in steps for source in step.sources}
    first = len(inputs)
    loose = [n for n in range(first, first + len(steps)) if n not in taken]
    return tuple(sorted(set(loose) | {first + len(steps) - 1}))


def usual(kind: str, seed: int) -> Tensor:
    """An ordinary input of this kind."""
    g, shape = torch.Generator().manual_seed(seed), (ROWS, COLUMNS)
    if kind == "f":
        return torch.randn(shape, generator=g)
    if kind == "m":
        return torch.rand(shape, generator=g) < 0.7
    if kind == "a":
        return torch.where(torch.rand(shape, generator=g) < 0.7, 0.0, LOWEST)
    if kind == "n":
        return torch.randint(1, 9, shape, generator=g, dtype=NARROW[seed % len(NARROW)])
    high = COLUMNS if kind == "x" else 20  # x fits every table
    return torch.randint(0, high, shape, generator=g)
