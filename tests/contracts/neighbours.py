"""Another library in the same process that uses torch.compile, and a user with settings of their own.

A class that uses this has a fixture `fresh` (a Fast over Sink that no other test uses). Covered: torch's configuration,
environment, modes, hooks and log levels are afterwards what they were; the other library's functions are not compiled
again, and what it compiles later sees the user's settings.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hostile import close, sink

from compilot.runtime.fast import Fast
from compilot.testing.settings import changed, settings_now

OWN = {  # what the user set: none of it is torch's default
    "torch._dynamo.config.recompile_limit": 21,
    "torch._dynamo.config.capture_scalar_outputs": True,
    "torch._inductor.config.epilogue_fusion": False,
    "torch._inductor.config.max_fusion_size": 17,
}
_numbers = itertools.count(2)


@contextlib.contextmanager
def own_configuration() -> Iterator[None]:
    """What the user set in torch's configuration, which each thread has of its own."""
    import torch._dynamo.config
    import torch._inductor.config

    configs = (torch._dynamo.config, torch._inductor.config)
    with contextlib.ExitStack() as stack:
        for config in configs:
            prefix = f"{config.__name__}."
            mine = {key.removeprefix(prefix): value for key, value in OWN.items() if key.startswith(prefix)}
            stack.enter_context(config.patch(mine))
        yield


class Library:
    """One that compiles functions of its own; notes what every compile saw of the user's settings."""

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []

    def function(self) -> tuple[Callable[[torch.Tensor], torch.Tensor], int]:
        """A compiled function, and the number that it multiplies by."""
        number, names = next(_numbers), dict[str, Any]()
        exec(f"def multiply(x): return x * {number}", names)  # its own code: dynamo keeps its programs by code
        return torch.compile(names["multiply"], backend=self._compile), number

    def _compile(self, graph: Any, _: Any) -> Any:
        now = settings_now()
        self.seen.append({key: now[key] for key in OWN} | {"freezing": now["torch._inductor.config.freezing"]})
        return graph.forward


class Neighbours:
    """Tests of one engine beside other users of torch."""

    @pytest.fixture
    def own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
        """The user's settings."""
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        with own_configuration():
            yield
        torch.set_float32_matmul_precision(precision)

    def test_another_library_and_the_users_settings_are_left_alone(self, fresh: Fast, own: None) -> None:
        library, x = Library(), torch.randn(3)
        first, number = library.function()
        assert torch.equal(first(x), x * number)
        before = settings_now()
        for seed in range(3):
            close(fresh, fresh._compilot_plain, sink(seed))
        assert changed(before) == {}
        assert torch.equal(first(x), x * number)
        assert len(library.seen) == 1
        second, number = library.function()
        assert torch.equal(second(x), x * number)
        assert library.seen == [OWN | {"freezing": False}] * 2
        built = fresh.stats().compiles
        close(fresh, fresh._compilot_plain, sink(4))
        assert fresh.stats().compiles == built

    def test_first_calls_in_two_threads_leave_nothing_behind(self, fresh: Fast, own: None) -> None:
        library, x, before = Library(), torch.randn(3), settings_now()
        pairs, problems = [library.function() for _ in range(4)], list[BaseException]()

        def compiles_its_own() -> None:
            with own_configuration():
                for function, number in pairs:
                    assert torch.equal(function(x), x * number)

        def calls_ours() -> None:
            with torch.no_grad():
                close(fresh, fresh._compilot_plain, sink(1))

        def kept(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    problems.append(error)

            return run

        threads = [threading.Thread(target=kept(work)) for work in (compiles_its_own, calls_ours)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert library.seen == [OWN | {"freezing": False}] * len(pairs)
        assert changed(before) == {}
