"""What to do about a recompile. In: the `Change` behind it and the line of source. Out: `Advice`.

Covered: every category of change; sizes 0 and 1, sizes beyond what a dynamic dimension was compiled for, and values in
the middle of a model that only graph breaks make torch.compile look at. Not covered: graph breaks (graphs/advice.py).
"""

from __future__ import annotations

import re

from compilot.diagnose.edits import Advice, Edit
from compilot.diagnose.recompiles import guards
from compilot.diagnose.recompiles.guards import Change
from compilot.diagnose.report_records import Category

_TENSORS = (Category.SHAPE, Category.STRIDE, Category.DTYPE)
_VALUES = (Category.ATTRIBUTE, Category.ARGUMENT_VALUE, Category.GLOBAL_VALUE, Category.CLOSURE_VALUE)
_EDITS = {
    Category.SHAPE: Edit.SAME_RANK,
    Category.STRIDE: Edit.CONTIGUOUS,
    Category.DTYPE: Edit.ONE_DTYPE,
    Category.DEVICE: Edit.SAME_KIND,
    Category.REQUIRES_GRAD: Edit.SAME_GRADIENTS,
    Category.ATTRIBUTE: Edit.BUFFER,
    Category.GLOBAL_VALUE: Edit.PASS_GLOBAL,
    Category.CLOSURE_VALUE: Edit.CAPTURE_TENSOR,
    Category.ARGUMENT_VALUE: Edit.AS_TENSOR,
    Category.ARGUMENT_KIND: Edit.ALWAYS_PASS,
    Category.OBJECT_IDENTITY: Edit.SAME_OBJECT,
    Category.GRAD_MODE: Edit.SAME_GRAD_MODE,
    Category.THREADS: Edit.SAME_THREADS,
    Category.GLOBAL_STATE: Edit.SAME_STATE,
    Category.OTHER: Edit.UNKNOWN_CHECK,
}


def fix(change: Change, source: str, *, inner: bool) -> Advice:
    """The edit to make; inner: it is a value in the middle of a model that graph breaks cut."""
    if (inner and change.category in _TENSORS) or change.name == guards.STACK_VALUE:
        return Edit.BREAKS_FIRST()
    if change.category is Category.SHAPE and change.dim is not None:
        return _shape_edit(change)(name=change.name, dim=change.dim, old=change.old, new=change.new)
    new = change.new if _is_number(change.new) else "..."
    return _edit(change, source)(name=change.name, old=change.old, new=new)


def _shape_edit(change: Change) -> Edit:
    if change.own_code:  # marking the dimension dynamic does not help sizes 0 and 1
        return Edit.PAD_TO_TWO if change.new in guards.OWN_CODE else Edit.FIRST_OF_TWO
    if re.search(r"past_key_values|cache", change.name):
        return Edit.FIXED_CACHE
    if change.dynamic:
        return Edit.WITHIN
    return Edit.MARK_DYNAMIC


def _edit(change: Change, source: str) -> Edit:
    if change.category in _VALUES:
        return _value_edit(change)
    if change.category is Category.CONTAINER_LENGTH:
        return _container_edit(change, source)
    if change.what.startswith("the type of ") and "None" not in change.old + change.new:
        return Edit.SAME_TYPE
    if change.what.startswith(guards.KIND):
        return Edit.SAME_KIND
    return Edit.OWN_TENSORS if change.what.endswith(guards.SAME_TENSOR) else _EDITS[change.category]


def _value_edit(change: Change) -> Edit:
    if change.name.endswith(".training"):
        return Edit.ONE_PER_MODE
    if change.old in guards.SET:
        return Edit.IN_INIT
    if not _is_number(change.old):
        return Edit.ONE_PER_VALUE
    is_own = change.category is not Category.ATTRIBUTE or change.name.startswith("self.")
    return _EDITS[change.category] if is_own else Edit.AS_TENSOR  # an attribute of an argument is passed in


def _container_edit(change: Change, source: str) -> Edit:
    if ".append(" in source:
        return Edit.APPEND_OUTSIDE
    if change.name == "kwargs":
        return Edit.SAME_KEYWORDS
    if "keys" in change.what:
        return Edit.SAME_KEYS
    return Edit.SAME_LENGTH if change.name.startswith("self.") else Edit.STACK_ITEMS


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
