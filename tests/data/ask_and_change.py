"""A serving process that is asked odd things, or whose model is updated; prints what it saw as JSON.

Run as `python ask_and_change.py odd BUNDLE` (calls that the bundle was not built for, with a model and without one) or
`python ask_and_change.py updates PLAN ...` (bundles or plan files; the model is updated after each was applied).
"""

import copy
import json
import sys
import warnings

import torch
from torch import nn

import compilot

sys.path.insert(0, __file__.rpartition("/")[0])
import bundling

CALLS = 5  # after each update
TENSORS = 4  # of the model: two layers' weights and biases
LONGEST_OLD = 8 * (TENSORS // 2)  # calls: each eighth looks at the next two tensors (docs/bundles.md)
BIAS = torch.arange(32.0) / 32


def usual(model):
    with torch.no_grad():
        return model(bundling.batch(1), extra={"bias": BIAS})["logits"]


# ---- calls -----------------------------------------------------------------------------------------------------------


def with_gradients(model):
    with torch.enable_grad():
        return model(bundling.batch(1).requires_grad_(), extra={"bias": BIAS})["logits"]


def under_autocast(model):
    with torch.autocast("cpu", torch.bfloat16):
        return plain(model)


def plain(model, x=None, bias=BIAS):
    with torch.no_grad():
        return model(bundling.batch(1) if x is None else x, extra={"bias": bias})["logits"]


ODD = {
    "larger batch": lambda model: plain(model, bundling.batch(3)),
    "empty batch": lambda model: plain(model, bundling.batch(0)),
    "strides": lambda model: plain(model, bias=(torch.arange(64.0) / 64)[::2]),
    "dtype": lambda model: plain(model, bias=BIAS.half()),
    "dtype that eager refuses": lambda model: plain(model, bundling.batch(1).double()),
    "device": lambda model: plain(model, bundling.batch(1).to("meta")),
    "gradients": with_gradients,
    "autocast": under_autocast,
}


def outcome(ask, model):
    """The answer, or the kind and text of what was raised."""
    try:
        return ask(model)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(a, b):
    """Bit for bit, or the same kind of error."""
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a.partition(":")[0] == b.partition(":")[0]
    return a.dtype == b.dtype and a.requires_grad == b.requires_grad and torch.equal(a, b)


def odd(bundle):
    model = bundling.model()
    fast, alone = compilot.compile(model, bundle, strict=True), compilot.load(bundle)
    told = {}
    for name, ask in ODD.items():
        before = fast.stats()
        is_right = same(outcome(ask, fast), outcome(ask, model))
        reasons = [why for why, n in fast.stats().fallbacks.items() if n > before.fallbacks.get(why, 0)]
        without = outcome(ask, alone)
        without = without if isinstance(without, str) else "answered"
        told[name] = {"right": is_right, "fast": fast.stats().fast - before.fast, "why": reasons, "alone": without}
    error = max(float((usual(one) - usual(model)).abs().max()) for one in (fast, alone))
    return {**told, "usual": {"error": error, "fast": [fast.stats().fast, alone.stats().fast]}}


# ---- updates ---------------------------------------------------------------------------------------------------------


class Adapter(nn.Module):
    """A layer with a low-rank update beside it, as LoRA puts them into models."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.down, self.up = layer, nn.Linear(32, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def load_state_dict(model, fast):
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})


def optimizer_step(model, fast):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(bundling.batch(1), extra={"bias": BIAS})["logits"].sum().backward()
    optimizer.step()


def to_and_back(model, fast):
    model.to(torch.bfloat16).to(torch.float32)


def adapter(model, fast):
    model.outer = Adapter(model.outer)


def edit_in_place(model, fast):
    with torch.no_grad():
        model.outer.bias.add_(1.0)


def edit_another_in_place(model, fast):
    """A weight that is not the one that every call looks at: it is seen when its turn comes."""
    with torch.no_grad():
        model.inner.weight.add_(0.5)


def merge_and_refresh(model, fast):
    with torch.no_grad():
        model.inner.weight.add_(0.5)
    try:
        fast.refresh()
    except compilot.StalePlan as refused:
        return str(refused)


UPDATES = [
    load_state_dict,
    optimizer_step,
    to_and_back,
    adapter,
    edit_in_place,
    edit_another_in_place,
    merge_and_refresh,
]


def updated(plan, update):
    model = bundling.model()
    fast = compilot.compile(model, plan, strict=True)
    old, eager = usual(fast), usual(copy.deepcopy(model))
    usual(fast)  # the turn of the first weights is over
    served = fast.stats().fast
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told = update(model, fast)
        right = usual(model)
        answers = [usual(fast) for _ in range(LONGEST_OLD + CALLS if update is edit_another_in_place else CALLS)]
    return {
        "before": float((old - eager).abs().max()),
        "changed": not torch.equal(right, eager),
        "right": [torch.equal(answer, right) for answer in answers],
        "served": [served, fast.stats().fast],
        "limit": LONGEST_OLD,
        "said": [*([told] if told else []), *(str(one.message) for one in caught)],
    }


def updates(*plans):
    return {update.__name__: [updated(plan, update) for plan in plans] for update in UPDATES}


print(json.dumps({"odd": odd, "updates": updates}[sys.argv[1]](*sys.argv[2:])))
