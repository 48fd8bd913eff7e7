"""What an exported model takes and returns, as a file beside the engine's own files.

In: a Structure record from the tuning plane. Out: the same record in the run plane, or Infeasible when the file is
not one. Covered: flat tensor inputs with named sizes, flat tensor outputs, and the tree of containers around the
outputs. Not covered: how a tree becomes code (marshal.py), how its classes are found (classes.py). Nothing here is
evaluated.
"""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec

from compilot.engines.protocol import Infeasible
from compilot.records import Record

FILE_NAME = "structure.json"

Size = int | str  # a number, or an expression over the names of varying sizes: "_n0", "_n0*8 + 1", "(_n1 - 1)//2"


class Kind(enum.StrEnum):
    """What a node of the output tree is."""

    TENSOR = "tensor"  # number `index` of the flat outputs
    INPUT = "input"  # the very object that came in as flat input `index`
    CONSTANT = "constant"  # a plain value, the same in every call
    LIST = "list"
    TUPLE = "tuple"
    SIZE = "size"  # torch.Size
    DICT = "dict"
    ORDERED_DICT = "ordered-dict"
    NAMED_TUPLE = "named-tuple"
    DATACLASS = "dataclass"
    MAPPING = "mapping"  # a dict subclass built by keyword: Hugging Face outputs


class Node(Record, frozen=True, kw_only=True):
    """One node of the output tree."""

    kind: Kind
    index: int = 0  # of a tensor or an input
    value: str = ""  # of a constant, as a Python literal
    type: str = ""  # of a constant: "literal", "dtype", "device"; of a class: "module to import:qualified name"
    keys: tuple[str, ...] = ()  # of parts: literals for dicts, field names for classes
    parts: tuple[Node, ...] = ()


class InputTensor(Record, frozen=True, kw_only=True):
    """One flat input, in the order the engine takes them."""

    path: str  # in the call, as in the guard
    dtype: str
    shape: tuple[Size, ...]  # a varying size is a bare name; one name at several places means they must be equal
    dense: bool = True  # row-major as it comes; False: the engine needs a contiguous copy
    limit: int | None = None  # largest absolute integer that the engine computes with correctly


class OutputTensor(Record, frozen=True, kw_only=True):
    """One flat output. shape None: only known after the call."""

    dtype: str
    shape: tuple[Size, ...] | None


class Structure(Record, frozen=True, kw_only=True):
    """Everything the run plane needs besides the engine's own files."""

    inputs: tuple[InputTensor, ...]
    outputs: tuple[OutputTensor, ...]
    tree: Node
    weights_sha256: str  # of the model whose weights were baked in


def write(structure: Structure, folder: Path) -> None:
    """Write the structure into the candidate's folder."""
    (folder / FILE_NAME).write_bytes(msgspec.json.encode(structure))


def read(folder: Path) -> Structure:
    """Read the structure back; unknown or missing fields are refused by name."""
    path = folder / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Structure)
    except OSError as error:
        raise Infeasible(f"{path.name} is missing next to the plan; run 'compilot tune' again") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Infeasible(f"{path.name} is damaged ({error}); run 'compilot tune' again") from error
