"""What to do about a recompile. In: the `Change` behind it and the line of source. Out: one sentence.

Covered: every category of change; sizes 0 and 1, sizes beyond what a dynamic dimension was compiled for, and values in
the middle of a model that only graph breaks make torch.compile look at. Not covered: graph breaks (graphs/advice.py).
"""

from __future__ import annotations

import re

from compilot.diagnose.recompiles import guards
from compilot.diagnose.recompiles.guards import Change
from compilot.diagnose.report_records import Category


def fix(change: Change, source: str, *, inner: bool) -> str:
    """The edit to make; inner: it is a value in the middle of a model that graph breaks cut."""
    return _inner_fix(change) if inner and change.category in _TENSORS else _whole_fix(change, source)


def _whole_fix(change: Change, source: str) -> str:
    if change.category is Category.SHAPE and change.dim is not None:
        return _shape_fix(change)
    if change.name.endswith(".training"):
        return "do not switch between train and eval mode with one compiled model: compile one for each"
    if change.category in _NUMBERS and not change.old.lstrip("-").replace(".", "", 1).isdigit():
        return (
            f"keep {change.name} the same for one compiled model: fix it in __init__ and compile one model per value; "
            "if there are many values, do what depends on it before the call and pass the result as a tensor"
        )
    if change.category is Category.CONTAINER_LENGTH and ".append(" in source:
        return f"do not let {change.name} grow inside forward: return the value and append it outside"
    if change.name == "kwargs":
        return "pass the same keyword arguments in every call (None counts as another kind)"
    if change.category is Category.CONTAINER_LENGTH and "keys" in change.what:
        return f"give {change.name} the same keys in every call (zeros for what is missing)"
    if change.what.startswith("the type of ") and "None" not in change.old + change.new:
        return f"give {change.name} the same type in every call, and compile one model for each type if there are two"
    return _FIXES[change.category].format(name=change.name, old=change.old, new=change.new)


def _shape_fix(change: Change) -> str:
    if change.own_code:
        return _own_code_fix(change)
    if re.search(r"past_key_values|cache", change.name):
        return "use a cache of fixed size (transformers: StaticCache), so that its shape does not grow with every token"
    if change.dynamic:
        return _RELATION.format(what=change.what, old=change.old)
    mark = f"torch._dynamo.mark_dynamic({change.name}, {change.dim})"
    if guards.STACK_VALUE in change.name:
        return "mend the graph break first, or mark the input dimension it comes from as dynamic"
    return f"call {mark} before the first call; if only a few sizes occur, pad to those instead"


def _own_code_fix(change: Change) -> str:
    """Marking the dimension dynamic does not help sizes 0 and 1."""
    if change.new not in guards.OWN_CODE:  # and nothing but code for 0 or 1 is there
        return (
            f"make the first call with size 2 or more if that is what most calls have; where both occur, each has its "
            f"code: warm up with one call of each, or pad {change.name} to 2"
        )
    unbacked = f"torch._dynamo.decorators.mark_unbacked({change.name}, {change.dim})"
    return (
        f"let size {change.new} have its own code (one more compile, once), or pad {change.name} to 2; if nothing in "
        f"the model asks for this size, {unbacked} before the first call lets one program serve it, too"
    )


def _inner_fix(change: Change) -> str:
    """Of a value in the middle of the model, which only graph breaks make torch.compile guard."""
    return _BREAK_FIRST if change.own_code or change.dynamic else f"{_BREAK_FIRST}; {_THEN_MARK}"


_RELATION = (
    "keep {what} within what the code was made for ({old}): pad, or warm up with one call of each kind; two sizes that "
    "are only by chance the same must differ in the first call"
)
_TENSORS = (Category.SHAPE, Category.STRIDE, Category.DTYPE)
_BREAK_FIRST = "mend the graph breaks first: they make torch.compile guard this value in the middle of the model"
_THEN_MARK = "then mark the input's dimension with torch._dynamo.mark_dynamic"
_NUMBERS = (Category.ATTRIBUTE, Category.ARGUMENT_VALUE, Category.GLOBAL_VALUE, Category.CLOSURE_VALUE)
_FIXES = {
    Category.SHAPE: "give {name} always the same number of dimensions (unsqueeze or flatten before the call)",
    Category.STRIDE: "call .contiguous() on {name} before the model, so that its layout is always the same",
    Category.DTYPE: "convert {name} to one dtype before the call: {name}.to({old})",
    Category.DEVICE: "keep {name} on one device",
    Category.REQUIRES_GRAD: "detach {name} before the call, or let it need gradients in every call",
    Category.ATTRIBUTE: "make {name} a buffer (self.register_buffer with a tensor), or a constant set once in __init__",
    Category.GLOBAL_VALUE: "pass {name} to forward as a tensor argument instead of reading the global",
    Category.CLOSURE_VALUE: "pass {name} as an argument, or capture a tensor and change its content",
    Category.ARGUMENT_VALUE: "pass {name} as a tensor: torch.tensor({new})",
    Category.ARGUMENT_KIND: "always pass {name} (an all-ones mask or an empty tensor stands for None)",
    Category.CONTAINER_LENGTH: "stack the items into one tensor with a dynamic dimension, or pad {name} to one make-up",
    Category.OBJECT_IDENTITY: "reuse the same object for {name} instead of making a new one for each call",
    Category.GRAD_MODE: "make all calls in the same grad mode, or warm up both before serving",
    Category.THREADS: "set the number of threads once, before the first call",
    Category.GLOBAL_STATE: "set it once, before the first call, and keep it",
    Category.OTHER: "keep it the same between calls",
}
