"""What every command shares: errors as one sentence, interruption, names of run directories, option spellings.

In: a command's body. Out: exit codes and what stands on stderr. Light to import.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from compilot._bytes import parse_size as parse_size
from compilot.errors import CompilotError
from compilot.files.naming import nearby as nearby
from compilot.showing import is_terminal as is_terminal

if TYPE_CHECKING:
    from compilot.records import DynamicDim

FAILED = 2
INTERRUPTED = 130  # 128 + SIGINT, what shells expect


@contextmanager
def guarded(*, debug: bool, as_json: bool, hint: Callable[[], str] = str) -> Iterator[None]:
    """Run a command's body; whatever goes wrong becomes one sentence on stderr and an exit code."""
    previous = signal.signal(signal.SIGTERM, _interrupt)  # SIGTERM ends workers the way Ctrl-C does
    try:
        yield
    except KeyboardInterrupt:
        tell(f"interrupted; {hint()}" if hint() else "interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except CompilotError as error:
        _fail(error, str(error), debug=debug, as_json=as_json)
    except typer.Exit:
        raise
    except Exception as error:
        text = f"compilot itself failed, {type(error).__name__}: {error}; run again with --debug for the traceback."
        _fail(error, text, debug=debug, as_json=as_json)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(error: Exception, text: str, *, debug: bool, as_json: bool) -> None:
    if debug:
        traceback.print_exception(error)
    if as_json:
        print_json({"error": {"type": type(error).__name__, "message": text}})
    tell(f"error: {text}")
    raise typer.Exit(FAILED) from None


def tell(text: str) -> None:
    """Say something to the person; stdout belongs to the result."""
    print(text, file=sys.stderr, flush=True)


def document(record: Any) -> Any:
    """A record, or some, as plain data: what the function returns is what the command prints."""
    import msgspec

    return msgspec.to_builtins(record, enc_hook=os.fspath)


def print_json(document: Any) -> None:
    """One document on stdout and nothing else."""
    print(json.dumps(document, indent=2, allow_nan=False), flush=True)


def factory_name(target: str) -> str:
    """The factory's name, for people: "resnet18" of "examples/resnet.py:resnet18"."""
    return target.rpartition(":")[2] or "run"


def size_text(size_bytes: int) -> str:
    """A size for people: 46.8 MB."""
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:.1f} kB"


def parse_dims(spellings: Sequence[str] | None) -> tuple[DynamicDim, ...] | None:
    """The dimensions of --dynamic, in their order; None where there are none."""
    from compilot.workload.dynamic import parse_dynamic

    return tuple(parse_dynamic(text) for text in spellings) if spellings else None


def parse_pads(spellings: Sequence[str] | None) -> dict[str, bool | int | float] | None:
    """The values of --pad by input; None where there are none."""
    from compilot.workload.pad_spelling import parse_pad

    return dict(parse_pad(text) for text in spellings) if spellings else None


def parse_names(text: str | None) -> tuple[str, ...]:
    """Names from "a,b"."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
