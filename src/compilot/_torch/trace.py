"""Listening to torch's structured trace. Checked on torch 2.13.0.

In: a callback. Out: the generated code of each graph, handed over after code generation and before the C++ compiler
runs; of a graph that is compiled ahead of time its kernels and their wrapper, as one text. The trace is emitted only
while its logger has a handler, so listening costs nothing outside the context.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOGGER = "torch.__trace"
# What may differ between equal programs: ids, paths, and checks of inputs, which some modes leave out; ours come first.
_VOLATILE = re.compile(
    r"# AOT ID:.*|(?:/[\w.+-]+)+/[\w.-]+\.(?:py|cpp|h|so)\b|^\s*assert_size_stride\(.*'input'\)\n", re.MULTILINE
)


class _Tap(logging.Handler):
    def __init__(self, on_code: Callable[[str], None]) -> None:
        super().__init__()
        self._on_code = on_code
        self._wrapper = ""

    def emit(self, record: logging.LogRecord) -> None:
        metadata, text = getattr(record, "metadata", {}), getattr(record, "payload", None) or ""
        if "inductor_output_code" in metadata:
            self._on_code(text)
        match metadata.get("graph_dump", {}).get("name"):
            case "inductor_aot_wrapper_code":
                self._wrapper = text  # its kernels follow
            case "inductor_aot_kernel_code":
                self._on_code(self._wrapper + text)


@contextmanager
def generated_code(on_code: Callable[[str], None]) -> Iterator[None]:
    """Call on_code with the text of every graph Inductor generates meanwhile; it may raise to stop the compile."""
    logger = logging.getLogger(_LOGGER)
    tap = _Tap(on_code)
    logger.addHandler(tap)
    try:
        yield
    finally:
        logger.removeHandler(tap)


def normalised(code: str) -> str:
    """The code without what differs between two builds of the same program."""
    return _VOLATILE.sub("", code)
