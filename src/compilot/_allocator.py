"""The C library's allocator: does this process keep freed memory for the next call? Setting it, and whether it was set.

glibc maps every large block anew and gives it back when it is freed, so that each call of a model pays for fresh pages:
large activations cost page faults each time. The price is memory: torch's aligned blocks do not fit into the gaps
that they leave at first, so the process grows by several times its largest block before it needs no more. Switching it
off gives back what was kept; blocks that fit into the gaps of the heap go on using them. Other C libraries have no such
switch. It cannot be read back: what is known is what this process set here.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_NEVER = -1  # as an unsigned size: more than there can be
_DEFAULT_TRIM_BYTES, _DEFAULT_MMAP_MAX = 128 * 1024, 65536  # of glibc; setting one switches off its own adjusting

_kept = False


def can_keep_memory() -> bool:
    """Whether this C library has the switch."""
    return platform.libc_ver()[0] == "glibc"


def keeps_memory() -> bool:
    """Whether this process was told to, by `keep_memory`."""
    return _kept


def keep_memory(wanted: bool) -> None:
    """Keep freed blocks of any size in the process, or give large ones back as glibc usually does."""
    global _kept
    if wanted == _kept or not can_keep_memory():
        return
    library = ctypes.CDLL(None)
    library.mallopt(_M_MMAP_MAX, 0 if wanted else _DEFAULT_MMAP_MAX)
    library.mallopt(_M_TRIM_THRESHOLD, _NEVER if wanted else _DEFAULT_TRIM_BYTES)
    if not wanted:
        library.malloc_trim(0)
    _kept = wanted
