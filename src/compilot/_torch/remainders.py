"""Does a call compute `%` of floats, and where? Checked on torch 2.13.0.

In: a function to run. Out: file and line of the first such operator, "" for none. Inductor computes
x - floor(x / y) * y, whose digits are gone where the quotient is large: 1e10 % 3 is off by thousands, where eager is
exact.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from compilot._torch.inner_code import INNER_CODE


def remainder_of_floats(run: Callable[[], Any]) -> str:
    """Where, such as "model.py:12"; "an unknown place" where no line of the user's is on the way."""
    watch = _Watch()
    with watch:
        run()
    return watch.where


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.where = ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Dynamo compiles nothing here; keeping it away would import all of it, seconds of work."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and look whether it is one."""
        answer = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__.removesuffix("_")
        if name == "remainder" and not self.where and answer.is_floating_point():
            self.where = _line()
        return answer


def _line() -> str:
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(INNER_CODE):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown place"
