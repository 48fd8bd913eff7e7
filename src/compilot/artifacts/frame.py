"""The frame of a bundle file: its bytes that belong to no member. They have a digest of their own, at the file's end.

In: an open zip file with stored members. Out: the digest over everything outside of the members' data (the headers
before each, the directory behind them all), as the zip's comment; and the question whether it is right. A bundle's
manifest has the digests of its files, but nothing else looks at dates, attributes or checksums in the directory: with
this digest a flipped bit there is found as well, by reading some kilobytes. Files that an earlier version packed, or
that were zipped again by hand, have no comment, and their frame is not checked. Not covered: the members' data
(bundle.py); intent: whoever can write the file can write the digest (trust.py asks who can).
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO

from compilot.files.digests import Span

_LOCAL_HEADER = 30  # bytes before a member's name, which its length and that of the extra field end
_END = b"PK\x05\x06"  # begins the end record, the last 22 bytes of a zip file without a comment
_END_BYTES = 22
_LABEL = b"compilot frame sha256 "
_BLOCK = 1 << 20


def member_span(fd: int, info: zipfile.ZipInfo) -> Span:
    """Where a stored member's data lies."""
    header = os.pread(fd, _LOCAL_HEADER, info.header_offset)
    name_size, extra_size = struct.unpack_from("<HH", header, _LOCAL_HEADER - 4)
    return Span(fd, info.header_offset + _LOCAL_HEADER + name_size + extra_size, info.file_size)


def add_frame_digest(file: IO[bytes]) -> None:
    """Give a finished zip file the digest of its frame as its comment."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        spans = [member_span(file.fileno(), info) for info in archive.infolist()]
    length = struct.pack("<H", len(_LABEL) + hashlib.sha256().digest_size * 2)
    file.seek(size - len(length))  # the end record's last field: the length of the comment
    file.write(length)
    file.flush()
    file.seek(size)
    file.write(_comment(file.fileno(), spans, size))


def is_damaged(file: IO[bytes], archive: zipfile.ZipFile) -> bool:
    """Whether the frame is not what its digest says; a zip file without any comment has none to compare."""
    fd, size = file.fileno(), os.fstat(file.fileno()).st_size
    if not archive.comment and os.pread(fd, len(_END), size - _END_BYTES) == _END:
        return False
    end = size - len(archive.comment)
    try:
        return archive.comment != _comment(fd, [member_span(fd, info) for info in archive.infolist()], end)
    except (ValueError, EOFError, struct.error):
        return True


def _comment(fd: int, spans: Iterable[Span], end: int) -> bytes:
    digest = hashlib.sha256()
    for start, stop in _gaps(spans, end):
        for at in range(start, stop, _BLOCK):
            block = os.pread(fd, min(_BLOCK, stop - at), at)
            if not block:
                raise EOFError("the file ends too early")
            digest.update(block)
    return _LABEL + digest.hexdigest().encode()


def _gaps(spans: Iterable[Span], end: int) -> Iterator[tuple[int, int]]:
    """What lies before, between and behind the members; ValueError if they overlap."""
    at = 0
    for span in sorted(spans, key=lambda span: (span.start, span.size)):
        if span.start < at:
            raise ValueError("members overlap")
        yield at, span.start
        at = span.start + span.size
    if at > end:
        raise ValueError("a member lies behind the end")
    yield at, end
