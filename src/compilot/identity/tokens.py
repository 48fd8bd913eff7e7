"""Plain values as bytes that are equal in every process for equal values, and different for different ones.

In: a value of a plain type (its exact type, not a subclass). Out: its token; `joined` puts tokens together so that no
two lists of them give the same bytes. Not covered: containers and objects (values.py).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from types import EllipsisType, NotImplementedType
from typing import Any

INLINE_BYTES = 48  # a token that is not much longer than its digest stays as it is: one hash less
SHORT = 8  # hexadecimal digits of a digest that is only there to name what changed


def joined(kind: str, parts: Iterable[bytes]) -> bytes:
    """One token of many; each part has its length in front."""
    found = [struct.pack("<q", len(part)) + part for part in parts]
    whole = b"".join([kind.encode("utf-8", "surrogatepass"), b"\0", *found])
    return whole if len(whole) <= INLINE_BYTES else b"#" + hashlib.sha256(whole).digest()


def digest(parts: Iterable[bytes]) -> str:
    """The digest of some tokens, as it is written down."""
    result = hashlib.sha256()
    for part in parts:
        result.update(struct.pack("<q", len(part)) + part)
    return result.hexdigest()


def text(value: str) -> bytes:
    """The token of a string."""
    return b"s" + value.encode("utf-8", "surrogatepass")


def _float(value: float) -> bytes:
    return b"f" + struct.pack("<d", value)  # by its bits: -0.0 is not 0.0, and NaN is itself


def _complex(value: complex) -> bytes:
    return b"c" + struct.pack("<dd", value.real, value.imag)


SCALARS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"None",
    EllipsisType: lambda _: b"...",
    NotImplementedType: lambda _: b"NotImplemented",
    bool: lambda value: b"True" if value else b"False",
    int: lambda value: b"i%x" % value,  # hexadecimal: decimal digits are limited to 4,300
    float: _float,
    complex: _complex,
    str: text,
    bytes: lambda value: b"b" + value,
    bytearray: lambda value: b"bytearray" + bytes(value),
}
