"""Guard texts as torch 2.13 writes them, read as plain words."""

from __future__ import annotations

import pytest

from compilot.diagnose.recompiles import guards
from compilot.diagnose.report_records import Category

CASES = [
    ("0/0: tensor 'x' size mismatch at index 1. expected 16, actual 2", Category.SHAPE, "the size of x at dimension 1"),
    (
        "0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 1",
        Category.STRIDE,
        "the stride of x at dimension 0",
    ),
    ("3/0: tensor 'kwargs['mask']' rank mismatch. expected 2, actual 3", Category.SHAPE, "the number of dimensions of"),
    ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", Category.DTYPE, "the dtype of x"),
    ("0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0", Category.REQUIRES_GRAD, "requires_grad of x"),
    ("0/0: GLOBAL_STATE changed: grad_mode ", Category.GRAD_MODE, "the grad mode"),
    ("0/0: GLOBAL_STATE changed: num_threads ", Category.THREADS, "the number of threads"),
    ("0/0: GLOBAL_STATE changed: autocast(cpu)_enabled ", Category.GLOBAL_STATE, "autocast"),
    ("0/0: L['x'].size()[0] == 4", Category.SHAPE, "the size of x at dimension 0"),
    ("0/0: 2 <= L['x'].size()[0]", Category.SHAPE, "the size of x at dimension 0"),
    ("0/0: not ___dict_contains('b', batch)   # if 'b' in batch:", Category.CONTAINER_LENGTH, "the keys of batch"),
    ("0/0: len(xs) == 2   # total = xs[0]", Category.CONTAINER_LENGTH, "the length of xs"),
    ("0/0: len(kwargs) != 0", Category.CONTAINER_LENGTH, "the length of kwargs"),
    ("0/0: list(dict.keys(batch))[0] == 'a'", Category.CONTAINER_LENGTH, "the keys of batch"),
    ("0/0: not set.__contains__(options, 3)", Category.ARGUMENT_VALUE, "whether 3 is in options"),
    ("0/0: not hasattr(self, 'scale')", Category.ATTRIBUTE, "whether self.scale is set"),
    ("0/0: x is y", Category.OBJECT_IDENTITY, "whether x and y are the same tensor"),
    ('0/0: Duplicate tensors found: ["x", "y"]', Category.OBJECT_IDENTITY, "whether x and y are the same tensor"),
    ("0/0: (type(k) is float and __math_isnan(k))", Category.ARGUMENT_VALUE, "the value of k"),
    ("0/0: ___check_obj_id(L['fn'].__code__, 14012)", Category.OBJECT_IDENTITY, "the object behind fn"),
    ("0/0: mask is None   # if mask is None", Category.ARGUMENT_KIND, "whether mask is given"),
    ("0/0: ___check_type_id(mask, 94121)", Category.ARGUMENT_KIND, "the type of mask"),
    ("0/0: ___check_obj_id(L['fn'], 14012)", Category.OBJECT_IDENTITY, "the object behind fn"),
    ("0/0: G['SCALE'] == 1   # x * SCALE", Category.GLOBAL_VALUE, "the global SCALE"),
    ("0/0: self.step == 0   # x * self.step", Category.ATTRIBUTE, "self.step"),
    ("0/0: self._modules['block'].step == 0", Category.ATTRIBUTE, "self.block.step"),
    ("0/0: mode == 'sin'   # if mode", Category.ARGUMENT_VALUE, "the value of mode"),
    ("0/0: something torch made up", Category.OTHER, "torch.compile's check `something torch made up`"),
]


@pytest.mark.parametrize(("text", "category", "what"), CASES, ids=[case[0] for case in CASES])
def test_a_guard_says_what_changed(text: str, category: Category, what: str) -> None:
    change = guards.read(text, "new")
    assert change.category is category
    assert change.what.startswith(what)


def test_old_and_new_are_told() -> None:
    change = guards.read("0/0: self.step == 0   # x", "3")
    assert (change.old, change.new) == ("0", "3")
    assert guards.read("0/0: tensor 'x' dtype mismatch. expected Float, actual Double").new == "torch.float64"


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("2 <= L['x'].size()[0]", "2 or more"),
        ("L['x'].size()[0] <= 64", "at most 64"),
        ("2 <= x.size()[0] <= 64", "2 to 64"),
        ("x.size()[0] == 4", "4"),
        ("L['x'].size()[0] == L['y'].size()[1]", "x.size(0) == y.size(1)"),
    ],
)
def test_a_relation_of_sizes_is_told_in_words_and_with_this_calls_size(text: str, old: str) -> None:
    change = guards.read(f"0/1: {text}", "7")
    assert (change.old, change.new, change.dynamic) == (old, "7", True)


def test_another_type_is_told_with_both() -> None:
    change = guards.read("0/0: ___check_type_id(k, 94121), type=<class 'builtins.int'>   # x * k", "float")
    assert (change.old, change.new) == ("int", "float")
    change = guards.read("0/0: expected type of 'k' to be a tensor type, ' but found <class 'int'>")
    assert (change.what, change.old, change.new) == ("the type of k", "a tensor", "int")


def test_global_state_is_told_with_the_values_that_the_guard_leaves_out() -> None:
    text = "0/1: GLOBAL_STATE changed: num_threads "
    change = guards.read(text, old={"num_threads": "2"}, new={"num_threads": "8"})
    assert (change.category, change.old, change.new) == (Category.THREADS, "2", "8")
    assert guards.compile_of(text) == "0/1"
    assert guards.read(text).old == guards.AS_COMPILED
    assert guards.read(text, old={"num_threads": "2"}, new={"num_threads": "2"}).old == guards.AS_COMPILED


def test_a_captured_variable_has_the_name_the_user_gave_it() -> None:
    text = '0/0: self.f.__closure__[0].cell_contents == 1   # x * scale (HINT: guard on "scale")'
    assert guards.read(text, "2").what == "the captured variable scale"


def test_the_place_is_the_innermost_line_of_the_stack() -> None:
    text = (
        '0/0: a == 1\nUser stack trace:\n  File "m.py", line 3, in forward\n    g()\n  File "n.py", line 9, in g\n    a'
    )
    assert guards.place_of(text) == ("n.py", 9, "g")
    assert guards.place_of("0/0: a == 1") is None
