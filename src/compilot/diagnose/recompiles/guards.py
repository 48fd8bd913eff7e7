"""What changed between two calls, from torch's guard text. In: "0/0: tensor 'x' size mismatch ...". Out: `Change`.

Covered: tensors (size, stride, dtype, device, rank, gradients), plain values (arguments, attributes, globals,
closures), containers, None, object identity, the global state of torch. What no rule knows is "other" and keeps
torch's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from compilot.diagnose.frames import CodeSpot
from compilot.diagnose.report_records import Category


class Change(NamedTuple):
    """One thing that is not as it was compiled for."""

    category: Category
    what: str  # plain words
    name: str  # the variable, attribute or argument, as written in the source
    old: str
    new: str
    dim: int | None = None
    dynamic: bool = False  # the dimension is dynamic already: what failed is a relation that the code was made for

    @property
    def own_code(self) -> bool:
        """Size 0 or 1 is in play: torch.compile never makes these part of a range."""
        return self.category is Category.SHAPE and self.dim is not None and bool(OWN_CODE & {self.old, self.new})

    @property
    def kind(self) -> str:
        """Changes of the same thing that need different fixes differ in this."""
        return "0 or 1" if self.own_code else "dynamic already" if self.dynamic else ""


STACK_VALUE = "a value from before a graph break"
OWN_CODE = {"0", "1"}  # sizes that torch.compile gives code of their own
AS_COMPILED = "as compiled"  # an old value that torch does not give
SET = ("set", "not set")  # of an attribute
KIND = "the kind (device, inference mode)"
SAME_TENSOR = "are the same tensor"
_NO_STATE: Mapping[str, str] = {}
_STACK_NAME = re.compile(r"^___stack\d+$")
_DTYPES = {
    "Float": "torch.float32",
    "Double": "torch.float64",
    "Half": "torch.float16",
    "BFloat16": "torch.bfloat16",
    "Long": "torch.int64",
    "Int": "torch.int32",
    "Bool": "torch.bool",
}
_STATES = {
    "grad_mode": (Category.GRAD_MODE, "the grad mode"),
    "num_threads": (Category.THREADS, "the number of threads"),
    "default_dtype": (Category.GLOBAL_STATE, "the default dtype"),
    "deterministic_algorithms": (Category.GLOBAL_STATE, "the determinism setting"),
    "torch_function": (Category.GLOBAL_STATE, "a torch function mode"),
}


def text_of(guard: str) -> str:
    """The guard alone, without its number, comment and stack."""
    return re.sub(r"^\d+/\d+(_\d+)?: ", "", guard).partition("\n")[0].partition("  #")[0].strip()


def place_of(guard: str) -> CodeSpot | None:
    """The innermost line of the stack that torch appends, where there is one."""
    found = re.findall(r'File "(.+?)", line (\d+), in (\S+)', guard)
    return CodeSpot(found[-1][0], int(found[-1][1]), found[-1][2]) if found else None


def compile_of(guard: str) -> str:
    """Which earlier compile the guard belongs to: "0/0"."""
    match = re.match(r"(\d+/\d+)(?:_\d+)?: ", guard)
    return match[1] if match else ""


def read(guard: str, value: str = "", old: Mapping[str, str] = _NO_STATE, new: Mapping[str, str] = _NO_STATE) -> Change:
    """What changed; value is what this call has, where it could be read; old and new are torch's global state."""
    text = text_of(guard)
    state = re.search(r"GLOBAL_STATE changed: (?P<name>\S+)", text)
    if state is not None:
        return _state(state["name"], old, new)
    for pattern, make in _RULES:
        match = re.search(pattern, text)
        if match is not None:
            return make(match, guard, value)
    return Change(Category.OTHER, f"torch.compile's check `{text}`", "", text, value or "changed")


def plain(source: str) -> str:
    """A guard's name for something as the user wrote it: L['x'] -> x, self._modules['a'] -> self.a."""
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", source)
    text = re.sub(r"\._(?:modules|buffers|parameters)\['(\w+)'\]", r".\1", text)
    text = re.sub(r"^kwargs\['(\w+)'\]", r"\1", text)  # a decorator's **kwargs: the user wrote input_ids=...
    text = re.sub(r"\.(?:__code__|_modules)$", "", text)  # of a function; of a ModuleList
    return STACK_VALUE if _STACK_NAME.match(text) else text


def _size(match: re.Match[str], guard: str, value: str) -> Change:
    name, kind, dim = plain(match["name"]), match["kind"], int(match["dim"])
    category = Category.SHAPE if kind == "size" else Category.STRIDE
    return Change(category, f"the {kind} of {name} at dimension {dim}", name, match["old"], match["new"], dim)


def _tensor(category: Category, words: str) -> Callable[[re.Match[str], str, str], Change]:
    def make(match: re.Match[str], guard: str, value: str) -> Change:
        name = plain(match["name"])
        old, new = (match[part].rstrip(".") for part in ("old", "new"))
        return Change(category, f"{words} of {name}", name, _DTYPES.get(old, old), _DTYPES.get(new, new))

    return make


def _needs_grad(match: re.Match[str], guard: str, value: str) -> Change:
    name, before = plain(match["name"]), match["old"] == "1"
    return Change(Category.REQUIRES_GRAD, f"requires_grad of {name}", name, str(before), str(not before))


def _state(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Change:
    """torch's guard does not say the values; where they look equal, something else behind the name changed."""
    category, words = _STATES.get(name, (Category.GLOBAL_STATE, f"torch's global state ({name})"))
    if name.startswith("autocast"):
        words = "the dtype of autocast" if name.endswith("_dtype") else "autocast"
    before, now = old.get(name, ""), new.get(name, "")
    if not before or not now or before == now:
        before, now = AS_COMPILED, "changed"
    return Change(category, words, name, before, now)


def _symbolic(match: re.Match[str], guard: str, value: str) -> Change:
    name, kind, dim = plain(match["name"]), match["kind"], int(match["dim"])
    category = Category.SHAPE if kind == "size" else Category.STRIDE
    what = f"the {kind} of {name} at dimension {dim}"
    return Change(category, what, name, _relation(text_of(guard)), value or "another", dim, dynamic=True)


_SIZE = r"([\w.\[\]']+)\.(size|stride)\(\)\[(\d+)\]"


def _relation(text: str) -> str:
    """What the compiled code was made for, in words where the relation is a plain one."""
    for pattern, words in (
        (rf"(\d+) <= {_SIZE}", r"\1 or more"),
        (rf"{_SIZE} <= (\d+)", r"at most \4"),
        (rf"(\d+) <= {_SIZE} <= (\d+)", r"\1 to \5"),
        (rf"{_SIZE} == (\d+)", r"\4"),
    ):
        if re.fullmatch(pattern, text):
            return re.sub(pattern, words, text)
    return re.sub(_SIZE, lambda size: f"{plain(size[1])}.{size[2]}({size[3]})", text)


def _length(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    return Change(Category.CONTAINER_LENGTH, f"the length of {name}", name, match["old"], value or "another")


def _key(match: re.Match[str], guard: str, value: str) -> Change:
    name, had = plain(match["name"]), not match["no"]
    key = f"{match['key']} in it"
    old, new = (key, f"no {key}") if had else (f"no {key}", key)
    return Change(Category.CONTAINER_LENGTH, f"the keys of {name}", name, old, new)


def _keys(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    return Change(Category.CONTAINER_LENGTH, f"the keys of {name}", name, match["old"], value or "others")


def _member(match: re.Match[str], guard: str, value: str) -> Change:
    name, no = plain(match["name"]), text_of(guard).startswith("not ")
    old, new = ("no", "yes") if no else ("yes", "no")
    return Change(Category.ARGUMENT_VALUE, f"whether {match['key']} is in {name}", name, old, new)


def _has(match: re.Match[str], guard: str, value: str) -> Change:
    name, no = f"{plain(match['name'])}.{match['key']}", text_of(guard).startswith("not ")
    old, new = reversed(SET) if no else SET
    return Change(Category.ATTRIBUTE, f"whether {name} is set", name, old, new)


def _same(match: re.Match[str], guard: str, value: str) -> Change:
    name, other = plain(match["name"]), plain(match["other"])
    old, new = ("no", "yes") if "Duplicate" in guard or " is not " in text_of(guard) else ("yes", "no")
    return Change(Category.OBJECT_IDENTITY, f"whether {name} and {other} {SAME_TENSOR}", other, old, new)


def _nan(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    category = Category.ATTRIBUTE if "." in name else Category.ARGUMENT_VALUE
    return Change(category, name if "." in name else f"the value of {name}", name, "nan", value or "another")


def _none(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    old, new = ("given", "None") if match["no"] else ("None", "given")
    return Change(Category.ARGUMENT_KIND, f"whether {name} is given", name, old, new)


def _kind(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    old = re.search(r"type=(?:<class '(?:\w+\.)*(?P<class>\w+)'>|(?P<name>[\w.]+))", text_of(guard))
    before = (old["class"] or old["name"]) if old else AS_COMPILED
    return Change(Category.ARGUMENT_KIND, f"the type of {name}", name, before, value or "another type")


def _no_tensor(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    return Change(Category.ARGUMENT_KIND, f"the type of {name}", name, "a tensor", match["new"] or "another type")


def _identity(match: re.Match[str], guard: str, value: str) -> Change:
    name = plain(match["name"])
    return Change(Category.OBJECT_IDENTITY, f"the object behind {name}", name, "one object", "another object")


def _value(match: re.Match[str], guard: str, value: str) -> Change:
    source, old = match["name"], match["old"]
    name = plain(source)
    if "cell_contents" in source:
        hint = re.search(r'guard on "(\w+)"', guard)
        name = hint[1] if hint else name
        return Change(Category.CLOSURE_VALUE, f"the captured variable {name}", name, old, value or "another")
    if source.startswith("G["):
        return Change(Category.GLOBAL_VALUE, f"the global {name}", name, old, value or "another")
    category = Category.ATTRIBUTE if "." in name else Category.ARGUMENT_VALUE
    is_whole = category is Category.ATTRIBUTE or name == STACK_VALUE
    return Change(category, name if is_whole else f"the value of {name}", name, old, value or "another")


_TENSOR = r"tensor '(?P<name>.+?)' "
_RULES: tuple[tuple[str, Callable[[re.Match[str], str, str], Change]], ...] = (
    (
        _TENSOR + r"(?P<kind>size|stride) mismatch at index (?P<dim>\d+)\. expected (?P<old>\d+), actual (?P<new>\d+)",
        _size,
    ),
    (_TENSOR + r"dtype mismatch\. expected (?P<old>\S+), actual (?P<new>\S+)", _tensor(Category.DTYPE, "the dtype")),
    (
        _TENSOR + r"rank mismatch\. expected (?P<old>\S+), actual (?P<new>\S+)",
        _tensor(Category.SHAPE, "the number of dimensions"),
    ),
    (_TENSOR + r"device index mismatch\D+(?P<old>\S+), actual (?P<new>\S+)", _tensor(Category.DEVICE, "the device")),
    (_TENSOR + r"requires_grad mismatch\. expected requires_grad=(?P<old>\d)", _needs_grad),
    (
        _TENSOR + r"dispatch key set mismatch\. expected (?P<old>.+?), actual (?P<new>.+)",
        _tensor(Category.GLOBAL_STATE, KIND),
    ),
    (
        r"expected type of '(?P<name>.+?)' to be a tensor type(?:.*but found (?:<class ')?(?:\w+\.)*(?P<new>\w+))?",
        _no_tensor,
    ),
    (r"(?P<name>[\w.\[\]']+)\.(?P<kind>size|stride)\(\)\[(?P<dim>\d+)\]", _symbolic),
    (r"(?P<no>not )?___dict_contains\((?P<key>.+?), (?P<name>.+?)\)", _key),
    (r"set\.__contains__\((?P<name>.+?), (?P<key>.+)\)", _member),
    (r"hasattr\((?P<name>.+?), '(?P<key>\w+)'\)", _has),
    (r"(?:len|___dict_length)\((?P<name>.+?)\) [=!]= (?P<old>\d+)", _length),
    (r"list\(dict\.keys\((?P<name>[\w.\[\]']+)\)\)\[\d+\] == (?P<old>.+)", _keys),
    (r"list\((?:dict\.keys\()?(?P<name>[\w.\[\]']+?)(?:\.keys\()?\)+ == (?P<old>.+)", _keys),
    (r"^(?:not )?(?P<name>[\w.\[\]']+) is (?P<no>not )?None", _none),
    (r'Duplicate tensors found: \["(?P<name>.+?)", "(?P<other>.+?)"', _same),
    (r"^(?P<name>[\w.\[\]']+) is (?:not )?(?P<other>[\w.\[\]']+)$", _same),
    (r"__math_isnan\((?P<name>[^()]+)\)", _nan),
    (r"___check_type_id\((?P<name>.+?), ", _kind),
    (r"___check_obj_id\((?P<name>.+?), ", _identity),
    (r"^(?P<name>.+?) == (?P<old>.+)$", _value),
)
