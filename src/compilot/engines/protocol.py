"""What an engine is: one small protocol, in two halves.

The build half (tuning plane, NAME/build.py) says whether the engine is there and what is worth trying, and makes files.
The load half (run plane, NAME/load.py) turns files and the user's model into a callable with the model's own signature.
Not covered: guards and fallback (runtime/), measuring (measure/): an engine may assume that its guard has passed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from compilot.records import ArtifactFile, Candidate, Diagnosis, Guard, Settings

if TYPE_CHECKING:
    from torch import nn

    from compilot._tree import Call
    from compilot.engines.shared_forms import SharedForms
    from compilot.engines.space import Space  # the run plane needs none


class Availability(NamedTuple):
    """Is the engine usable here? If not: why, and the command that would make it so."""

    ok: bool
    version: str = ""
    why: str = ""
    install: str = ""


class Infeasible(Exception):
    """This engine cannot run this model with these settings; the text is the first cause, with its source line."""


class NotTaken(Exception):
    """Raised by a loaded callable: the guard took this call, the artifact does not (sizes it needs equal are not)."""


class BuildRequest(NamedTuple):
    """What an engine gets to build from. It must not change the model."""

    model: nn.Module
    call: Call  # the first example
    guard: Guard
    candidate: Candidate
    workspace: Path  # the candidate's own folder; files made here are the artifact
    shared: SharedForms | None = None  # forms of the model that several candidates of a run start from; None: alone

    def form(self, name: str, make: Callable[[Path], None]) -> None:
        """Have a form of the model in the workspace that depends on the guard only, made once where it is shared."""
        if self.shared is None:
            make(self.workspace)
        else:
            self.shared.once(name, self.guard, self.workspace, make)


class Alike:
    """Modules of one region that are alike and are called alike: an engine may make one program for all of them."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = modules
        self._kept: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What they share by this name; the first that asks makes it."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]


class Part(Protocol):
    """One part of a model that has an engine of its own, and eager behind it."""

    def stats(self) -> Any: ...

    def forget_calls(self) -> None: ...

    def watch(self, watcher: Any) -> None: ...

    def seal(self, why: str) -> None: ...


class LoadRequest(NamedTuple):
    """What an engine gets to load from."""

    model: nn.Module  # a structural clone where the engine needs to change modules is the engine's own business
    guard: Guard
    settings: Settings
    artifacts: Path | None  # the candidate's folder, None: build at the first call
    stand_in: bool = False  # the model is only a stand-in without weights and code: the files are all there is
    plain_outputs: bool = False  # output classes that are not imported become plain containers, not a refusal
    alike: Alike | None = None  # the model is one of these; None: it stands for itself


class Baked(enum.StrEnum):
    """When the weight values of a callable with frozen weights were read. Only those of the build cannot be renewed."""

    AT_BUILD = "at-build"  # they are in the files
    AT_LOAD = "at-load"  # load made copies of them
    AT_PREPARE = "at-prepare"  # the first preparation reads them


class Follows(enum.StrEnum):
    """What of the model's code and attributes a callable follows by itself; the runtime watches the rest."""

    NOTHING = "nothing"  # it runs a program that was made once
    GUARDED = "guarded"  # torch.compile's own guards see everything but a method replaced in a class
    EVERYTHING = "everything"  # it runs the model's own Python code each time


class Loaded(NamedTuple):
    """A callable with the model's own signature and output structure.

    `prepare(args, kwargs)` is run once per variant and shape of a call (see runtime), in the calling thread and under a
    lock, before `call` may serve that variant; it is where compiling happens. It answers that call too: none is run
    twice. None: nothing to prepare.
    """

    call: Callable[..., Any]
    prepare: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None
    frozen_weights: bool = False  # weight values were baked in: updates must invalidate this callable
    concurrent: bool = True  # several threads may be inside `call` at once
    needs_model: bool = True  # False: everything is in the files, and the model's weights may be freed
    builds: Callable[[], int] | None = None  # programs built so far; None: one per preparation
    baked: Baked = Baked.AT_BUILD  # when the model's weights and code were read
    weights_sha256: str | None = None  # of the weights in the files, where load compared it; None: the runtime does
    follows: Follows = Follows.NOTHING  # of the model's code; only means something where frozen_weights is not set
    parts: Mapping[str, Part] = {}  # by path, where the model runs in parts; {}: it is one whole
    is_built: Callable[[tuple[Any, ...], dict[str, Any]], bool] | None = None  # whether `call` may answer a call of a
    # new shape without `prepare`, so that no thread waits for another; may raise NotTaken; None: each shape is prepared

    @property
    def in_files(self) -> bool:
        """Whether the weights are in the engine's files, so that loading again brings back the same ones."""
        return self.frozen_weights and self.baked is Baked.AT_BUILD


class BuildHalf(Protocol):
    """engines/NAME/build.py implements this as module-level functions."""

    def available(self) -> Availability: ...

    def space(self, diagnosis: Diagnosis) -> Space:
        """What can be set for such a model, and what it would try first; an empty one: it cannot run it."""
        ...

    def validate(self, settings: Settings) -> str | None:
        """Why these settings make no sense for this engine; None: they do."""
        ...

    def build(self, request: BuildRequest) -> Sequence[ArtifactFile]: ...


class LoadHalf(Protocol):
    """engines/NAME/load.py implements this as a module-level function.

    `TRAITS = EngineTraits(...)` beside it is what the rest of compilot needs to know (traits.py). An optional
    function `import_engine()` imports the engine's package; it is run beside the checking of a bundle's digests.
    """

    def load(self, request: LoadRequest) -> Loaded: ...
