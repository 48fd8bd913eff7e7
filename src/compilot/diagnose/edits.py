"""Every edit that the doctor advises, in one place. In: what the edit is about. Out: `Advice`, one sentence.

Each of them is kept as a pair of programs in tests/data: one that has the finding and gets this advice, and one after
the edit, in which the finding is gone. Where no edit is known, the sentence says so. Covered: the words. Not covered:
which edit fits a finding (`graphs.advice`, `recompiles.fixes`, `timing.findings`, `model.inspection`).
"""

from __future__ import annotations

import enum
from typing import NewType

Advice = NewType("Advice", str)  # made by an `Edit` only, so that no advice comes without its pair of programs
TRAIN_MODE = "train-mode"  # the kind of finding that is said once, however many have a reason to
NONE_KNOWN = "no edit is known"
_CAPTURE = "set torch._dynamo.config.capture_scalar_outputs = True"
_CAPTURE_SHAPES = "set torch._dynamo.config.capture_dynamic_output_shape_ops = True"
_CUSTOM_OP = "wrap it with torch.library.custom_op"


class Edit(enum.Enum):
    """One edit each; the names in braces are filled in from the user's code."""

    def __call__(self, **values: object) -> Advice:
        """The sentence for this code."""
        return Advice(str(self.value).format(**values))

    # graph breaks: which way the code goes
    CHOOSE = (
        "compute both sides and choose: torch.where({test}, {a}, {b}) if both have the same shape; torch.cond if a "
        "side is costly"
    )
    CHOOSE_PART = (
        "let Python decide what needs no tensor, in an `if` of its own; for the rest compute both sides and choose "
        "with torch.where(test, a, b)"
    )
    CHOOSE_LATER = (
        "keep `{tensor}` a tensor; where it decides, compute both sides and choose with torch.where(test, a, b), or "
        "use torch.cond"
    )
    CHOOSE_ANY = (
        "write the test with torch (torch.logical_and, torch.logical_or, torch.logical_not) and choose with "
        "torch.where(test, a, b), or use torch.cond"
    )
    LEAVE_LOOP = (
        "run the loop to its end and change nothing once it is done: x = torch.where(done, x, new), then "
        "done = done | ({test})"
    )
    SKIP_STEP = (
        "compute the step in any case and keep the old value where it is skipped: x = torch.where({test}, x, new)"
    )
    AFTER_CALL = "return `{test}` from forward, and do what follows from it after the call"
    CHECK = "check it outside of forward, or write torch._assert_async({test}), which raises a RuntimeError"
    KEEP_ALL = (
        "keep all items and set those that do not count to zero: torch.where(test, item, 0), if what follows allows "
        f"it; otherwise {NONE_KNOWN}"
    )
    WHILE = "replace the loop with torch.while_loop, its condition being `{test}`"

    # graph breaks: a number read from a tensor
    KEEP_TENSOR = f"keep the tensor: `{{line}}` and go on with tensor arithmetic; or {_CAPTURE}"
    KEEP_LIST = "keep the tensor: `{line}` and go on with tensor arithmetic"
    BOUND = (
        "keep `{tensor}` a tensor (as a bound: compare torch.arange(...) with it and mask), or pass it to forward as a "
        f"Python number; or {_CAPTURE}"
    )
    COUNT = (
        "run the loop a fixed number of times, the most that can occur, and keep the old value in the rest of them: "
        "x = {keep}; or pass the number to forward as a Python number"
    )
    SIZE = f"pass `{{tensor}}` to forward as a Python number; or {_CAPTURE}"
    INDEX = (
        "pick with the tensor: stack all that `{container}` may give, then "
        "torch.stack(...).index_select(0, {tensor}.view(1))[0]"
    )
    SORT = (
        "let torch compare: order = torch.stack([{key} for {name} in {items}]).argsort({descending}), then "
        "torch.stack({items})[order] in place of the sorted list, if all items have the same shape"
    )
    PICK = (
        "let torch compare: best = torch.stack([{key} for {name} in {items}]).{best}(), then "
        "torch.stack({items}).index_select(0, best.view(1))[0], if all items have the same shape"
    )
    TORCH_MATH = f"use torch's function in place of Python's: `{{function}}({{tensor}})`; or {_CAPTURE}"
    SPLIT_SIZES = f"{_CAPTURE}, or pass `{{tensor}}` to forward as a list of Python numbers"
    READ_UNSEEN = f"{_CAPTURE}, if the number decides no branch and no loop; otherwise {NONE_KNOWN}"
    HANDED_OVER = f"{NONE_KNOWN} from this line alone: it depends on what `{{function}}` does with the number"
    COMPARED = (
        f"{NONE_KNOWN} for this line: the number decides an order in Python, and only torch may compare in a graph"
    )

    # graph breaks: everything else
    MASK = (
        "keep the full size: torch.where({test}, {tensor}, 0) in place of `{selection}`, if what follows allows it; or "
        f"{_CAPTURE_SHAPES}"
    )
    CAPTURE_SHAPES = _CAPTURE_SHAPES
    GUARD_LINE = "delete the line, or write `if not torch.compiler.is_compiling(): {line}`"
    GUARD = "delete the statement, or put it under `if not torch.compiler.is_compiling():`"
    MOVE_OUT = "move the call out of forward (into __init__, or before the model is called)"
    OUT_OF_FORWARD = f"{NONE_KNOWN} that keeps it in forward; move it to __init__, or before or after the model's call"
    COMPUTE_BEFORE = (
        "compute it once in __init__ or before the call and pass the result in, or wrap it with "
        "torch.library.custom_op so that the graph can hold it"
    )
    OUTSIDE_LIBRARY = (
        "the code is {package}'s: call it outside of the compiled part (before the model, or compile only the model "
        "that it calls)"
    )
    USE_TORCH = f"write it with torch functions, or {_CUSTOM_OP} so that the graph can hold it"
    NEXT_VALUE = "turn the generator into a list in __init__, or pass the next value as an argument"
    WITH_AROUND = "put {managers} around the model's call instead of inside forward, or drop it"
    AROUND_CALL = "do it before or after the model's call, or return the value and store it there"
    GRADIENTS_OUTSIDE = "take gradients outside of forward, or set torch._dynamo.config.trace_autograd_ops = True"
    GRADIENT_OF_FUNCTION = "write the custom gradient with forward and backward only"
    HOOK = "put what the hook does into forward, or take the hook away when not debugging"
    TEST_FIRST = "test the condition first (shapes and types are known while tracing) instead of catching"
    REMOVE_STOP = "remove torch.compiler.disable or graph_break here, if its reason is gone"
    TRACEABLE = (
        "use operators that can be traced, or put it into a function that takes and returns plain tensors, wrapped "
        "with torch.library.custom_op"
    )
    CLONE = "write tensor.clone() instead of copy.deepcopy(tensor)"
    ALLOW_RNN = "set torch._dynamo.config.allow_rnn = True"
    PACKED = f"{NONE_KNOWN} that keeps packed sequences: torch.compile never traces them; run the padded batch and mask"
    DRAW_WITH_TORCH = "draw it with torch (torch.rand, torch.randn): those numbers are made within the graph"
    RESHAPE = "make a tensor of the new shape with reshape() instead of resizing in place"

    # recompiles because of sizes
    MARK_DYNAMIC = (
        "call torch._dynamo.mark_dynamic({name}, {dim}) before the first call; if only one larger size is needed, pad "
        "to it"
    )
    FIXED_CACHE = (
        "use a cache of fixed size (transformers: StaticCache), so that its shape does not grow with every token"
    )
    WITHIN = (
        "pad or split {name} so that its size stays within what the code was made for ({old}); otherwise "
        f"{NONE_KNOWN}: each kind of size has its own code"
    )
    PAD_TO_TWO = (
        "pad {name} to 2; or call torch._dynamo.decorators.mark_unbacked({name}, {dim}) before the first call, if "
        f"nothing in the model asks for this size; otherwise {NONE_KNOWN}: size {{new}} has its own code, compiled once"
    )
    FIRST_OF_TWO = (
        "pad {name} to 2; or make the first call with size 2 or more, if no later call has size 0 or 1; otherwise "
        f"{NONE_KNOWN}: both have their own code, compiled once each"
    )
    SAME_RANK = "give {name} always the same number of dimensions (unsqueeze or flatten before the call)"
    BREAKS_FIRST = "remove the graph breaks first: they make torch.compile check this value in the middle of the model"
    BREAK_FIRST = "remove the graph break at {place} first: the value that changes is made there"

    # recompiles because of anything else
    CONTIGUOUS = "call .contiguous() on {name} before the model, so that its layout is always the same"
    ONE_DTYPE = "convert {name} to one dtype before the call: {name}.to({old})"
    SAME_KIND = "keep {name} on one device, and make all calls in torch.inference_mode() or none of them"
    SAME_GRADIENTS = "detach {name} before the call, or let it need gradients in every call"
    BUFFER = "make {name} a buffer (self.register_buffer with a tensor), or a constant set once in __init__"
    IN_INIT = "set {name} in __init__, as a tensor if its value changes"
    PASS_GLOBAL = "pass {name} to forward as a tensor argument instead of reading the global"
    CAPTURE_TENSOR = "pass {name} as a tensor argument, or capture a tensor and change its content"
    AS_TENSOR = (
        f"pass {{name}} as a tensor, torch.tensor({{new}}), where it is computed with; where it is a size, "
        f"{NONE_KNOWN}: torch.compile compiles once more and then takes any size"
    )
    ONE_PER_VALUE = (
        "keep {name} the same for one compiled model: fix it in __init__ and compile one model per value; if there are "
        "many values, do what depends on it before the call and pass the result as a tensor"
    )
    ONE_PER_MODE = "do not switch between train and eval mode with one compiled model: compile one for each"
    ALWAYS_PASS = "always pass {name} (an all-ones mask or a tensor of zeros stands for None)"
    SAME_TYPE = "give {name} the same type in every call, and compile one model for each type if there are two"
    APPEND_OUTSIDE = "do not let {name} grow inside forward: return the value and append it outside"
    SAME_KEYWORDS = "pass the same keyword arguments in every call (None counts as another kind)"
    SAME_KEYS = "give {name} the same keys in the same order in every call (zeros for what is missing)"
    SAME_LENGTH = "do not change {name} after the first call: build it in __init__, one compiled model per length"
    STACK_ITEMS = (
        "stack the items into one tensor with a dynamic dimension, or always pass the same number of items in {name} "
        "(zeros for what is missing)"
    )
    OWN_TENSORS = "pass a tensor of its own for each argument: {name}.clone()"
    SAME_OBJECT = (
        "pass the same {name} in every call instead of a new one; if it must differ, compile one model for each"
    )
    SAME_GRAD_MODE = "make all calls in the same grad mode, or compile one model for each"
    SAME_THREADS = "set the number of threads once, before the first call"
    SAME_STATE = "set it once, before the first call, and keep it"
    UNKNOWN_CHECK = f"{NONE_KNOWN} for this check of torch.compile; each change of what it names costs a compile"

    # the model as a whole
    EVAL = "call model.eval() before tuning for inference"
    LARGER_CALLS = "expect eager to stay; batch the work to give a compiler something to do"
    READABLE_STATE = (
        "keep plain values, tensors or objects with readable attributes instead; otherwise tune again whenever what is "
        "in them changes"
    )
    NO_RANDOM = (
        "candidates that draw other numbers than eager are refused; if none are wanted, switch off what draws them"
    )
    CHECK_BEFORE = "where eager raises they would answer: check such inputs before the call"

    # where the time goes
    FASTER_LOADER = (
        "{first}: give the DataLoader more workers (num_workers), cache or precompute the transforms, or store decoded "
        "data"
    )
    BATCH_CALLS = "tiny work: leave it eager, or batch several calls into one"
    LESS_OVERHEAD = (
        "Python and dispatch cost more than the work: compiling helps (fewer, larger kernels), and so do larger "
        "batches; an ahead-of-time engine takes Python out altogether"
    )
    FEWER_BYTES = (
        "memory-bound: fusion (any compiler) and lower precision help, because both move fewer bytes; faster matrix "
        "kernels do not"
    )
    BETTER_KERNELS = (
        "compute-bound: the matrix kernels decide; constant weights with autotuning, another engine or lower precision "
        "help, fusion alone gains little"
    )
    NEAR_ROOF = f"{NONE_KNOWN} at this precision: only less work (a smaller model, lower precision) is faster"
    COMPILE_LESS = "compile less: {savings}"
    SHIP_ARTIFACT = "ship an ahead-of-time artifact instead of compiling at the start"
