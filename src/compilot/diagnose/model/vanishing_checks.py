"""Checks inside a model that are not part of its compiled forms, found in its byte code.

In: a model. Out: the places, and what to say of them for the whole model (a Finding) or for one engine (a sentence).
Two kinds vanish: what is raised only while nothing compiles (`if not torch.compiler.is_compiling() and ...: raise`)
vanishes everywhere but in eager; operators that check values (`torch._assert_async`, `torch._check` of an `.item()`)
vanish where an engine's own format has no such operator. Covered: the methods of the model's classes and the functions
of the same package that they call by name. Not covered: torch's own classes; checks that a compiler refuses or keeps by
itself; whether a call ever reaches the check (the judge tries the cases on which eager raises, measure/raising.py).
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

from torch import nn

from compilot.diagnose.edits import Edit
from compilot.engines import registry
from compilot.records import Finding

# True while a compiler or exporter looks; the last two are transformers' own names for it.
COMPILING = frozenset(
    {
        "is_compiling",
        "is_exporting",
        "is_dynamo_compiling",
        "is_tracing",
        "is_scripting",
        "is_in_onnx_export",
        "is_torchdynamo_compiling",
        "is_tracing_or_compiling",
    }
)
CHECKS_OF_ITEMS = frozenset({"_check", "_check_value", "_check_index", "_check_is_size"})


class VanishingCheck(NamedTuple):
    """One check that vanishes."""

    where: str  # "file.py:12"
    operator: bool = False  # an operator that checks, which some engines keep


def vanishing_checks(model: nn.Module) -> list[VanishingCheck]:
    """Every check in the model's code that some compiled form of it leaves out, each once."""
    found = (check for function in _functions(model) for check in _checks(function.__code__))
    return list(dict.fromkeys(found))


def findings(model: nn.Module) -> tuple[Finding, ...]:
    """One finding for all of them, at the first place."""
    lost = vanishing_checks(model)
    if not lost:
        return ()
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    explanation = f"the model checks values in a way that compiled forms of it leave out (at {lost[0].where}{more})"
    return (Finding(kind="checks-vanish", where=lost[0].where, explanation=explanation, advice=Edit.CHECK_BEFORE()),)


def caveats(model: nn.Module, engine: str) -> tuple[str, ...]:
    """What is to be said of an engine that leaves checks out; nothing where it leaves none."""
    if engine == "eager":
        return ()
    keeps = registry.traits(engine).keeps_checks
    lost = [check.where for check in vanishing_checks(model) if not (check.operator and keeps)]
    return (f"checks inside the model are not part of its compiled form: {', '.join(lost)}",) if lost else ()


def _functions(model: nn.Module) -> Iterator[FunctionType]:
    """The model's own methods and what they call by name in the same package."""
    seen: set[FunctionType] = set()
    for kind in dict.fromkeys(kind for module in model.modules() for kind in type(module).__mro__):
        if _package(kind.__module__) not in ("torch", "builtins"):
            waiting = [method for method in vars(kind).values() if isinstance(method, FunctionType)]
            while waiting:
                function = waiting.pop()
                if function not in seen:
                    seen.add(function)
                    yield function
                    waiting += _called(function)


def _called(function: FunctionType) -> list[FunctionType]:
    own, names = function.__globals__, _all_names(function.__code__)
    found = [own[name] for name in names if isinstance(own.get(name), FunctionType)]
    return [one for one in found if _package(one.__module__) == _package(function.__module__)]


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _all_names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*map(_all_names, _inner(code)))


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _checks(code: CodeType) -> Iterator[VanishingCheck]:
    for inner in _inner(code):
        yield from _checks(inner)
    names = set(code.co_names)
    if names & COMPILING:
        yield from (VanishingCheck(_where(code, line)) for line in _guarded_raises(code))
    operators = {"_assert_async"} | (CHECKS_OF_ITEMS if "item" in names else frozenset())
    if names & operators:
        yield from (VanishingCheck(_where(code, line), operator=True) for line in _lines_of(code, operators))


def _where(code: CodeType, line: int) -> str:
    return f"{Path(code.co_filename).name}:{line}"


class _Step(NamedTuple):
    """One instruction."""

    name: str
    value: object
    offset: int
    line: int

    @property
    def jump(self) -> int:
        """Where it jumps to, further down; 0: it does not."""
        is_jump = "JUMP" in self.name and isinstance(self.value, int) and self.value > self.offset
        return int(str(self.value)) if is_jump else 0


def _steps(code: CodeType) -> list[_Step]:
    found, line = [], code.co_firstlineno
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions else None) or line
        found.append(_Step(one.opname, one.argval, one.offset, line))
    return found


def _lines_of(code: CodeType, names: frozenset[str] | set[str]) -> list[int]:
    return [step.line for step in _steps(code) if step.value in names and step.name.startswith("LOAD_")]


def _guarded_raises(code: CodeType) -> list[int]:
    """Lines that raise, and are reached or left out by a question whether something compiles."""
    steps = _steps(code)
    found: list[int] = []
    for number, step in enumerate(steps):
        if step.value not in COMPILING:
            continue
        branch = next((later for later in steps[number + 1 :] if later.jump and "IF" in later.name), None)
        if branch is None:
            continue
        end = _end_of_both(steps, branch)
        found += [s.line for s in steps if s.name == "RAISE_VARARGS" and branch.offset < s.offset < end]
    return list(dict.fromkeys(found))


def _end_of_both(steps: list[_Step], branch: _Step) -> int:
    """Where the two ways of a branch meet again: after its `else`, or the end of the function if the first returns."""
    body = [s for s in steps if branch.offset < s.offset < branch.jump]
    last = body[-1] if body else branch
    if last.name.startswith("RETURN"):
        return steps[-1].offset + 1
    if last is not branch and last.jump and "IF" in last.name:  # `or`: the next question decides
        return _end_of_both(steps, last)
    return max(branch.jump, last.jump) if last is not branch else branch.jump
