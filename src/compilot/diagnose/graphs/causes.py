"""Why a graph breaks, in plain words. In: torch's own text about a break. Out: a category, and a sentence.

Covered: the families of torch's registry that user code meets; what none of the rules knows is "unsupported-python"
and keeps torch's own explanation. Not covered: what to do about it (advice.py).
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from compilot.diagnose.report_records import Category

_ANOTHER = "*** While handling this graph break"  # torch appends what followed; the first part is the cause
_OPERATION = re.compile(r"aten\.(\w+)")


class Message(NamedTuple):
    """The parts of torch's message about a break."""

    title: str
    explanation: str
    context: str


def read(message: str) -> Message:
    """The parts of torch's text; of several breaks in one text the first, which caused the others."""
    first = message.partition(_ANOTHER)[0].strip()
    explanation = re.search(r"Explanation: (.*?)(?=\n  Hint:|\n\n  Developer|\Z)", first, re.DOTALL)
    context = re.search(r"Developer debug context: (.*?)(?=\n\n|\Z)", first, re.DOTALL)
    return Message(
        title=first.splitlines()[0].strip() if first else "",
        explanation=" ".join(explanation[1].split()) if explanation else "",
        context=" ".join(context[1].split()) if context else "",
    )


_BY_TITLE: tuple[tuple[str, Category], ...] = (
    (r"data-dependent (branching|assertion)|guard_scalar branch|symbolic shapes", Category.DATA_DEPENDENT_BRANCH),
    (r"tensor\.item\(\)|tolist\(\)|data dependent operator|index\(tensor\)", Category.SCALAR_READ),
    (r"non-scalar tensor|nb_(int|float)_impl", Category.SCALAR_READ),
    (r"dynamic shape operator|data-dependent output shape|dynamic slicing", Category.DYNAMIC_OUTPUT_SHAPE),
    (r"reorder a debugging function", Category.PRINT),
    (r"logging\.logger", Category.LOGGING),
    (r"numpy|ndarray", Category.NUMPY),
    (r"generator|send with bad type", Category.GENERATOR),
    (r"context ?manager|contextlib|contextwrapping", Category.CONTEXT_MANAGER),
    (r"disable\(\)`d|graph_break\(\)|skip_frame\(\)|step_unsupported|forced graph break", Category.EXPLICIT),
    (r"hook|removablehandle", Category.HOOK),
    (r"error when making fake tensor call", Category.EXCEPTION),
    (
        r"sparse|nestedtensor|rnn, gru|fake ?tensors?|fx node|resize|share_memory|tensor\.set_|jit\.",
        Category.UNSUPPORTED_OPERATOR,
    ),
    (r"pt2-compliant|backend compiler", Category.UNSUPPORTED_OPERATOR),
    (r"backward|autograd|jvp|grad_fn|requires_grad|retain_grad", Category.AUTOGRAD),
    (r"mutat|side effect|immutable cell|store_attr", Category.SIDE_EFFECT),
    (r"exception|raise", Category.EXCEPTION),
    (r"builtin", Category.UNSUPPORTED_BUILTIN),
)
_CALLS = re.compile(r"marked as skipped|not implemented in python|unsupported function call", re.IGNORECASE)
_SCREEN_OR_LOG = {"print": Category.PRINT, "warn": Category.LOGGING}


def categorise(said: Message, source: str) -> Category:
    """What kind of code this is."""
    name = called(said)
    if "os.environ" in source or name.endswith("putenv"):
        return Category.SIDE_EFFECT
    if name.rpartition(".")[2] in _SCREEN_OR_LOG:
        return _SCREEN_OR_LOG[name.rpartition(".")[2]]
    if "next() on generator" in said.explanation:
        return Category.GENERATOR
    if _CALLS.search(said.title):
        return _whose(name)
    found = (category for pattern, category in _BY_TITLE if re.search(pattern, said.title.lower()))
    return next(found, Category.UNSUPPORTED_PYTHON)


def called(said: Message) -> str:
    """Dotted name of the function the tracer could not follow, "" where it is not about one."""
    builtin = re.search(r"builtin operator `(\w+)`", said.explanation)
    if builtin:
        return builtin[1]
    module = re.search(r"module: ([\w.<> ]+), qualname: ([\w.]+)", said.context)
    if module:
        known = module[1] if "<" not in module[1] else ""
        return f"{known}.{module[2]}".lstrip(".")
    function = re.search(r"<(?:built-in |c)?function (\w+)", said.context + said.explanation)
    return function[1] if function else ""


def _whose(name: str) -> Category:
    top = name.partition(".")[0]
    if top == "numpy":
        return Category.NUMPY
    if top == "torch":
        return Category.UNSUPPORTED_OPERATOR
    if top == "logging":
        return Category.LOGGING
    return (
        Category.UNSUPPORTED_BUILTIN if top in sys.stdlib_module_names or "." not in name else Category.THIRD_PARTY_CALL
    )


_WORDS = {
    Category.DATA_DEPENDENT_BRANCH: "which way the code goes depends on a tensor's value, unknown while tracing",
    Category.SCALAR_READ: "a tensor's value is read into a Python number, so the graph must run up to here first",
    Category.DYNAMIC_OUTPUT_SHAPE: "the size of {operation}'s result depends on tensor values, not on shapes",
    Category.PRINT: "printing is Python's work, not the graph's",
    Category.LOGGING: "writing a log message or a warning is Python's work, not the graph's",
    Category.UNSUPPORTED_BUILTIN: "the tracer cannot follow Python's own {name}",
    Category.THIRD_PARTY_CALL: "{name} is compiled code of another package; the tracer cannot look inside",
    Category.NUMPY: "numpy's {name} has no counterpart in torch, so the tensor must leave the graph",
    Category.GENERATOR: "a generator that lives outside the graph is advanced here",
    Category.CONTEXT_MANAGER: "the tracer does not know this context manager{manager}",
    Category.SIDE_EFFECT: "the code changes something outside of the graph that the tracer cannot replay",
    Category.AUTOGRAD: "gradients are computed or arranged for inside the traced code",
    Category.HOOK: "a hook runs Python code in the middle of the graph",
    Category.EXCEPTION: "an exception is raised or caught in traced code{error}",
    Category.EXPLICIT: "the code itself asks torch.compile to stop here",
    Category.UNSUPPORTED_OPERATOR: "{operation_note}",
}


def explain(said: Message, category: Category) -> str:
    """The cause in plain words."""
    if category not in _WORDS:
        return _first_sentence(said.explanation) or f"torch.compile cannot trace this: {said.title}"
    operation = _OPERATION.search(said.explanation + said.context)
    manager = re.search(r"enter a `(.+?)` context", said.explanation)
    error = re.search(r"got (\w+)\(", said.explanation)
    return _WORDS[category].format(
        name=called(said).replace(".Random.", ".") or "function",  # random() is a method of a hidden instance
        error=f" ({error[1]})" if error else "",
        operation=operation[1] if operation else "the operator",
        operation_note=_never_traced(said) or _first_sentence(said.explanation) or said.title,
        manager=f" ({manager[1]})" if manager else "",
    )


def _never_traced(said: Message) -> str:
    name = called(said)
    return f"torch.compile never traces {name}" if name.startswith("torch.") else ""


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".").replace("Dynamo", "torch.compile")
