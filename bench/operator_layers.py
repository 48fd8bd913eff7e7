"""Rows of whole layers: attention and masks, images, reductions with ties and zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from operator_rows import INF, NAN, Row, row


def _attention(q: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, q + 0.1, q * 2, attn_mask=mask)


def _by_hand(q: Tensor, mask: Tensor) -> Tensor:
    return (q @ q.transpose(-1, -2) + mask).softmax(-1) @ q


def masks() -> Iterator[Row]:
    q = torch.linspace(-2, 2, 2 * 2 * 4 * 8).reshape(2, 2, 4, 8)
    keep = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    some, none = keep.clone(), torch.zeros_like(keep)
    some[0, 0, 1] = False
    for name, mask in {"row": some, "all": none}.items():
        example = (q.clone(), keep)
        yield row(f"attention bool mask {name}", _attention, q, mask, example=example)
        for kind, low in {"inf": -INF, "finfo.min": torch.finfo(torch.float32).min, "1e9": -1e9}.items():
            floats = torch.zeros(mask.shape).masked_fill(~mask, low)
            example = (q.clone(), torch.zeros(mask.shape))
            yield row(f"attention float mask {kind} {name}", _attention, q, floats, example=example)
            yield row(f"softmax by hand {kind} {name}", _by_hand, q, floats, example=example)
        ints = mask.long()
        yield row(
            f"attention int mask {name}",
            lambda q, m: _by_hand(q, (1.0 - m.float()) * torch.finfo(torch.float32).min),
            q,
            ints,
            example=(q.clone(), keep.long()),
        )
        yield row(
            f"masked_fill inf {name}",
            lambda q, m: (q @ q.transpose(-1, -2)).masked_fill(~m, -INF).softmax(-1) @ q,
            q,
            mask,
            example=(q.clone(), keep),
        )
        yield row(
            f"masked mean {name}",
            lambda q, m: (q * m[..., :1]).sum(2) / m[..., :1].sum(2),
            q,
            mask,
            example=(q.clone(), keep),
        )
        yield row(
            f"masked mean clamped {name}",
            lambda q, m: (q * m[..., :1]).sum(2) / m[..., :1].sum(2).clamp(min=1e-9),
            q,
            mask,
            example=(q.clone(), keep),
        )
    yield row(
        "attention causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q, example=(q + 1,)
    )
    rows_of_inf = torch.full((2, 4), -INF)
    rows_of_inf[0, 1] = 1.0
    for name, fn in {
        "softmax": lambda a: a.softmax(-1),
        "log_softmax": lambda a: a.log_softmax(-1),
        "logsumexp": lambda a: a.logsumexp(-1),
    }.items():
        yield row(f"{name} of a row of -inf", fn, rows_of_inf)


def images() -> Iterator[Row]:
    x = torch.sin(torch.arange(2 * 3 * 7 * 9.0)).reshape(2, 3, 7, 9)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for align in (False, True) if mode in ("bilinear", "bicubic") else (None,):
            for how in ({"scale_factor": 1.7}, {"size": (5, 13)}, {"scale_factor": 2.0}, {"size": (3, 4)}):
                name = f"interpolate {mode} align={align} {how}"
                yield row(name, lambda a, m=mode, c=align, h=how: F.interpolate(a, mode=m, align_corners=c, **h), x)
    yield row("interpolate antialias", lambda a: F.interpolate(a, size=(3, 4), mode="bilinear", antialias=True), x)
    yield row(
        "interpolate recompute",
        lambda a: F.interpolate(a, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        x,
    )
    for name, pool in {"avg": F.avg_pool2d, "max": F.max_pool2d}.items():
        for ceil in (False, True):
            for padding in (0, 1):
                kinds: list[dict[str, Any]] = [{}]
                if name == "avg":
                    kinds = [{"count_include_pad": True}, {"count_include_pad": False}]
                for extra in kinds:
                    yield row(
                        f"{name}_pool ceil={ceil} padding={padding} {extra}",
                        lambda a, p=pool, c=ceil, d=padding, e=extra: p(a, 3, stride=2, padding=d, ceil_mode=c, **e),
                        x,
                    )
    yield row("max_pool indices", lambda a: F.max_pool2d(a.round(), 2, return_indices=True), x)
    yield row("max_pool nan", lambda a: F.max_pool2d(a, 2), x.masked_fill(x > 0.9, NAN))
    yield row("max_pool -inf", lambda a: F.max_pool2d(a, 2, padding=1), torch.full_like(x, -INF))
    yield row("avg_pool divisor", lambda a: F.avg_pool2d(a, 2, divisor_override=3), x)
    for size in (1, 3, (2, 5)):
        yield row(f"adaptive_avg_pool {size}", lambda a, s=size: F.adaptive_avg_pool2d(a, s), x)
        yield row(f"adaptive_max_pool {size}", lambda a, s=size: F.adaptive_max_pool2d(a, s), x)
    for mode in ("reflect", "replicate", "circular"):
        yield row(f"pad {mode}", lambda a, m=mode: F.pad(a, (1, 2, 2, 1), mode=m), x)
    yield row("pad constant", lambda a: F.pad(a, (1, -2, -1, 3), value=1.5), x)
    yield row("pad constant int", lambda a: F.pad((a * 10).to(torch.int32), (1, 2), value=-7), x)
    yield row("pixel_shuffle", lambda a: F.pixel_shuffle(a.reshape(1, 6, 7, 9)[:, :4], 2), x)
    yield row("pixel_unshuffle", lambda a: F.pixel_unshuffle(a[..., :6, :8], 2), x)
    grid = torch.stack(torch.meshgrid(torch.linspace(-1.3, 1.3, 5), torch.linspace(-1.2, 1.2, 4), indexing="ij"), -1)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                yield row(
                    f"grid_sample {mode} {padding} {align}",
                    lambda a, g, m=mode, p=padding, c=align: F.grid_sample(
                        a, g, mode=m, padding_mode=p, align_corners=c
                    ),
                    x,
                    torch.stack([grid, grid.flip(0)]),
                )
    yield row("unfold", lambda a: F.unfold(a, 3, padding=1, stride=2), x)
    yield row("fold", lambda a: F.fold(F.unfold(a, 3), (7, 9), 3), x)
    yield row("group_norm of zeros", lambda a: F.group_norm(a, 3), torch.zeros_like(x))
    yield row("instance_norm", lambda a: F.instance_norm(a), x)
    yield row("instance_norm of constants", lambda a: F.instance_norm(a), torch.full_like(x, 1000.0))
    yield row("local_response_norm", lambda a: F.local_response_norm(a, 2), x)
    yield row("layer_norm of zero images", lambda a: F.layer_norm(a, (9,)), torch.zeros_like(x))
    yield row("layer_norm small", lambda a: F.layer_norm(a, (9,), eps=1e-12), x * 1e-4)
    yield row("rms_norm of zero images", lambda a: F.rms_norm(a, (9,)), torch.zeros_like(x))
    yield row("affine_grid", lambda a: F.affine_grid(a[:, 0, :2, :3], [2, 3, 4, 5], align_corners=False), x)
    yield row("channel_shuffle", lambda a: F.channel_shuffle(a.reshape(1, 6, 7, 9), 3), x)
    yield row("glu", lambda a: F.glu(a[..., :8]), x)
    yield row("dropout in eval", lambda a: F.dropout(a, 0.5, training=False), x)


REDUCING: dict[str, Callable[[Tensor], Any]] = {
    "normalize": lambda a: F.normalize(a, dim=-1),
    "normalize_1": lambda a: F.normalize(a, p=1.0, dim=-1),
    "cosine_similarity": lambda a: F.cosine_similarity(a, a + 1.0, dim=-1),
    "cosine_similarity_self": lambda a: F.cosine_similarity(a, a, dim=-1),
    "norm_2": lambda a: a.norm(dim=-1),
    "norm_1": lambda a: a.norm(p=1, dim=-1),
    "norm_inf": lambda a: a.norm(p=INF, dim=-1),
    "norm_0": lambda a: a.norm(p=0, dim=-1),
    "cdist": lambda a: torch.cdist(a, a + 1),
    "pairwise_distance": lambda a: F.pairwise_distance(a, a),
    "std": lambda a: a.std(-1),
    "std_biased": lambda a: a.std(-1, correction=0),
    "var_mean": lambda a: torch.var_mean(a, -1),
    "std_of_one": lambda a: a[:, :1].std(-1),
    "mean": lambda a: a.mean(-1),
    "nanmean": lambda a: a.nanmean(-1),
    "median": lambda a: a.median(-1),
    "mode": lambda a: a.mode(-1).values,
    "argmax": lambda a: a.argmax(-1),
    "argmin": lambda a: a.argmin(-1),
    "max": lambda a: a.max(-1),
    "min": lambda a: a.min(-1),
    "topk": lambda a: a.topk(3, dim=-1).values,
    "topk_indices": lambda a: a.topk(3, dim=-1).indices,
    "sort": lambda a: a.sort(dim=-1, stable=True),
    "sort_descending": lambda a: a.sort(dim=-1, stable=True, descending=True),
    "kthvalue": lambda a: a.kthvalue(2, -1).values,
    "prod": lambda a: a.prod(-1),
    "logsumexp": lambda a: a.logsumexp(-1),
    "softmax": lambda a: a.softmax(-1),
    "softmin": lambda a: F.softmin(a, dim=-1),
    "log_softmax": lambda a: a.log_softmax(-1),
    "cumsum": lambda a: a.cumsum(-1),
    "cumprod": lambda a: a.cumprod(-1),
    "einsum": lambda a: torch.einsum("ij,kj->ik", a, a),
    "layer_norm": lambda a: F.layer_norm(a, (6,)),
    "rms_norm": lambda a: F.rms_norm(a, (6,)),
    "amax": lambda a: a.amax(-1),
    "aminmax": lambda a: torch.aminmax(a, dim=-1),
    "diff": lambda a: a.diff(dim=-1),
    "tril": lambda a: a.tril(),
    "outer": lambda a: torch.outer(a[0], a[1]),
    "renorm_weights": lambda a: a / a.sum(-1, keepdim=True),
    "searchsorted": lambda a: torch.searchsorted(a.sort(-1).values, a),
    "quantile": lambda a: a.quantile(0.3, dim=-1),
    "histc_like": lambda a: (a[..., None] > torch.tensor([-1.0, 0.0, 1.0])).sum(1),
    "gather": lambda a: a.gather(-1, a.argsort(-1)),
    "cross_entropy": lambda a: F.cross_entropy(a, torch.tensor([1, 2, 3, 0]), reduction="none"),
    "kl_div": lambda a: F.kl_div(a.log_softmax(-1), a.softmax(-1), reduction="none"),
    "huber": lambda a: F.huber_loss(a, a.flip(0), reduction="none"),
    "bce_logits": lambda a: F.binary_cross_entropy_with_logits(a, (a > 0).to(a.dtype), reduction="none"),
}


def reductions() -> Iterator[Row]:
    zeros, ties = torch.zeros(4, 6), torch.tensor([[1.0, 3.0, 3.0, -2.0, 3.0, 1.0]] * 4)
    large = torch.linspace(-1, 1, 24).reshape(4, 6) * 1e3
    odd = ties.clone()
    odd[0, 2], odd[1, 4], odd[2, 1], odd[3] = NAN, INF, -INF, -INF
    tiny = torch.linspace(-1, 1, 24).reshape(4, 6) * 1e-6
    for kind, values in {"zeros": zeros, "ties": ties, "large": large, "odd": odd, "tiny": tiny}.items():
        for name, fn in REDUCING.items():
            yield row(f"{name} of {kind}", fn, values)
