"""Fast: the user's model, made fast, still the user's model.

In: a model, a candidate, a guard. Out: an object of a subclass of the model's own class over the model's own
attributes: `parameters()`, `state_dict()`, `train()`, `to()`, `generate()` and everything else act on the real model,
and calls go through the generated hot path; with hooks that came later the model itself answers, and runs them. The
model itself is not changed. With `inplace=True` the model's class is exchanged for that subclass (same name) and
nothing else; `restore(model)` puts the class back. Names that shadow the model's own: `stats`, `prepare`, `refresh`,
`frozen_weights`, `startup`. With `keep_model=False` it stands over a copy without weights (meta tensors), so that the
real ones are freed when the user lets go of the model. Not covered: what happens inside a call (dispatch.py), plans and
files (apply.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import msgspec
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.baked import compared
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.errors import InputError, NoFallback
from compilot.records import Candidate, Guard, Settings
from compilot.runtime.chain import Chain
from compilot.runtime.clone import alias, has_weights, skeleton
from compilot.runtime.dispatch import Dispatcher
from compilot.runtime.eager import EagerCore
from compilot.runtime.guards import without_indices
from compilot.runtime.notices import Stats, warn
from compilot.runtime.unreadable import Unreadable, unreadable_in


class Core(Protocol):
    """What stands behind a Fast."""

    call: Callable[..., Any]

    @property
    def frozen_weights(self) -> bool: ...
    def prepare(self, call: Call) -> None: ...
    def refresh(self) -> None: ...
    def stats(self) -> Stats: ...


class Part(NamedTuple):
    """One plan entry as the run plane applies it."""

    candidate: Candidate
    guard: Guard
    artifacts: Path | None
    weights_sha256: str | None = None  # of the weights in the artifacts, as the plan says
    caveats: tuple[str, ...] = ()  # as the plan says


class Terms(NamedTuple):
    """How a model is made fast, whatever the plan says."""

    keep_model: bool = True  # False: no fallback, a typed error instead
    stand_in: bool = False  # the model is a stand-in without weights and code
    plain_outputs: bool = False  # output classes that are not imported become plain containers
    before_refresh: Callable[[], None] | None = None  # raises where the files must not be loaded once more
    check_indices: bool = True  # False: values of inputs are not looked at before they are used as indices
    strict_weights: bool = False  # every weight is looked at in every call


_USUAL = Terms()


class Fast(nn.Module):
    """Base of every made-fast model; each one has its own subclass with its own generated `__call__`."""

    _compilot_core: ClassVar[Core]
    _compilot_entries: ClassVar[dict[int, Core]] = {}  # by number in the plan; without those that eager answers
    _compilot_plain: ClassVar[nn.Module]
    _compilot_rebuild: ClassVar[tuple[Any, ...]]
    _compilot_frozen: ClassVar[bool] = False
    _compilot_startup: ClassVar[dict[str, float]]

    def stats(self) -> Stats:
        """Calls, how many were fast, fallbacks by reason, compiles; what the plan says of its fast answers."""
        return self._compilot_core.stats()

    def prepare(self, call: Call) -> None:
        """Build now what this call needs, instead of at the first call."""
        self._compilot_core.prepare(call)

    def refresh(self) -> None:
        """Build anew at the next call, with the weights as they are now.

        StalePlan: the weights are in the plan's files, and the model has others now: run 'compilot tune' again.
        """
        self._compilot_core.refresh()

    @property
    def frozen_weights(self) -> bool:
        """True when weight values are baked in: after an update eager answers until `refresh()`, or a new plan."""
        return type(self)._compilot_frozen

    @property
    def startup(self) -> dict[str, float]:
        """Seconds of each step of the start, for models that came from a bundle."""
        return type(self)._compilot_startup

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        make, plain, *rest = self._compilot_rebuild
        return make(copy.deepcopy(plain, memo), *rest)

    def __reduce_ex__(self, protocol: Any) -> Any:
        make, *rest = self._compilot_rebuild
        if make is _cannot_copy:
            _cannot_copy()
        return make, tuple(rest)


def attach(
    model: nn.Module,
    candidate: Candidate,
    guard: Guard,
    artifacts: Path | None,
    *,
    keep_model: bool = True,
    inplace: bool = False,
    strict_weights: bool = False,
) -> Fast:
    """The model run as the candidate says, for the calls the guard takes; eager for all others."""
    part = Part(candidate, guard, artifacts)
    terms = Terms(keep_model=keep_model, strict_weights=strict_weights)
    return attach_parts(model, (part,), terms=terms, inplace=inplace)


def attach_parts(model: nn.Module, parts: tuple[Part, ...], *, terms: Terms = _USUAL, inplace: bool = False) -> Fast:
    """The model run as several plan entries say, each for the calls its guard takes; eager for all others."""
    refuse_compiled(model)
    for part in parts:
        _refuse_unknown(part.candidate)
    if inplace:
        refuse_both(terms.keep_model)
    refuse_nothing_to_watch(terms)
    real = {number: part for number, part in enumerate(parts) if not _is_plain(part.candidate.settings)}
    if not real and not terms.keep_model:
        raise InputError("this plan keeps the model eager, so keep_model=False has nothing to run instead.")
    if not real:
        return attach_eager(model, inplace=inplace)
    plain = alias(model, type(model)) if inplace else model
    bones = None if terms.keep_model else _remains(plain)
    unreadable = _named_unreadable(plain) if terms.keep_model else None
    links = {number: _dispatcher(plain, part, terms, bones, unreadable) for number, part in real.items()}
    core: Core = Chain(list(links.values())) if len(links) > 1 else next(iter(links.values()))
    if bones is not None:
        fast = _put_on(bones, core, (_cannot_copy, bones), inplace)
    else:
        fast = _put_on(model, core, (_reattach, plain, parts, terms), inplace)
    type(fast)._compilot_entries = dict(links)
    return fast


def refuse_compiled(model: nn.Module) -> None:
    """InputError for a model that is a Fast already."""
    if isinstance(model, Fast):
        raise InputError("this model is compiled already; restore it first, or pass the original model.")


def refuse_both(keep_model: bool) -> None:
    """InputError where inplace=True meets keep_model=False."""
    if not keep_model:
        raise InputError("inplace=True keeps the model, keep_model=False drops it; choose one of them.")


def refuse_nothing_to_watch(terms: Terms) -> None:
    """InputError where strict_weights=True meets keep_model=False."""
    if terms.strict_weights and not terms.keep_model:
        raise InputError("strict_weights=True watches the model's weights, keep_model=False drops them; choose one.")


def _named_unreadable(plain: nn.Module) -> Unreadable:
    """What of the model nobody can read, said once."""
    found = unreadable_in(plain)
    if found:
        warn(found.sentence())
    return found


def _is_plain(settings: Settings) -> bool:
    """Eager as it is: nothing stands before the model."""
    return settings == Settings(shapes=settings.shapes)


def entry_core(fast: Fast, number: int) -> Core | None:
    """What answers for one entry of the plan, whichever come before it; None: eager, behind the other entries."""
    kind = type(fast)
    return kind._compilot_entries.get(number, kind._compilot_core if not kind._compilot_entries else None)


def _reattach(model: nn.Module, parts: tuple[Part, ...], terms: Terms) -> Fast:
    """What copies and pickles of a Fast are made with; the files may have changed since."""
    if terms.before_refresh is not None:
        terms.before_refresh()
    return attach_parts(model, parts, terms=terms)


def _dispatcher(
    plain: nn.Module, part: Part, terms: Terms, bones: nn.Module | None, unreadable: Unreadable | None
) -> Dispatcher:
    settings = part.candidate.settings
    # without a model there is no eager whose numbers a default could change: the files answer as they were made
    guard = msgspec.structs.replace(part.guard, default_dtype="") if terms.stand_in else part.guard
    half = registry.load_half(settings.engine)
    request = LoadRequest(plain, guard, settings, part.artifacts, terms.stand_in, terms.plain_outputs)

    def load() -> Loaded:
        return compared(half.load(request), request, part.weights_sha256)

    return Dispatcher(
        plain,
        guard if terms.check_indices else without_indices(guard),
        load,
        remains=bones,
        stand_in=terms.stand_in,
        strict_weights=terms.strict_weights,
        unreadable=unreadable,
        before_refresh=terms.before_refresh,
        notes=part.caveats,
    )


def _remains(plain: nn.Module) -> nn.Module:
    """The model without its weights, one for all entries of a plan; a stand-in that has none stays as it is."""
    return skeleton(plain) if has_weights(plain) else plain


def _cannot_copy(*_: Any) -> Fast:
    raise NoFallback("a model compiled with keep_model=False cannot be copied: its weights are gone; compile again.")


def attach_eager(model: nn.Module, because: str | None = None, *, inplace: bool = False) -> Fast:
    """The model as it is, behind the same face; because: why the plan is not applied."""
    plain = alias(model, type(model)) if inplace else model
    return _put_on(model, EagerCore(plain, because), (attach_eager, plain, because), inplace)


def copied_by(fast: Fast, make: Callable[..., Fast], *rest: Any) -> None:
    """Have copies and pickles made by `make(copied model, *rest)`, which is found by its name when they are opened."""
    kind = type(fast)
    kind._compilot_rebuild = (make, kind._compilot_plain, *rest)


def put_in_place(model: nn.Module, fast: Fast) -> Fast:
    """Exchange the model's class for one like that of a Fast which stands over an alias of the model."""
    old = type(fast)
    made = _put_on(model, old._compilot_core, old._compilot_rebuild, inplace=True)
    type(made)._compilot_entries = old._compilot_entries
    return made


def restore(model: nn.Module) -> nn.Module:
    """Undo `inplace=True`: the model has its own class again."""
    if isinstance(model, Fast):
        object.__setattr__(model, "__class__", type(model._compilot_plain))
    return model


def _refuse_unknown(candidate: Candidate) -> None:
    if candidate.regions:
        raise InputError("this plan compiles regions of the model, which this version of compilot cannot apply yet.")


def _put_on(model: nn.Module, core: Core, rebuild: tuple[Any, ...], inplace: bool) -> Fast:
    refuse_compiled(model)
    kind = _fast_class(type(model), core, rebuild, inplace)
    if inplace:
        object.__setattr__(model, "__class__", kind)
        return cast(Fast, model)
    return cast(Fast, alias(model, kind))


def _fast_class(kind: type[nn.Module], core: Core, rebuild: tuple[Any, ...], inplace: bool) -> type[nn.Module]:
    """A subclass of the model's class with the generated `__call__`."""
    name, qualified = (kind.__name__, kind.__qualname__) if inplace else (f"Fast{kind.__name__}",) * 2
    body = {
        "__call__": core.call,
        "__module__": kind.__module__,
        "__qualname__": qualified,
        "__doc__": kind.__doc__,
        "_compilot_core": core,
        "_compilot_plain": rebuild[1],
        "_compilot_rebuild": rebuild,
        "_compilot_startup": {},
        "_compilot_frozen": core.frozen_weights,
    }
    metaclass: Any = _stand_in_for(kind) if inplace else type(kind)
    return cast(type[nn.Module], metaclass(name, (Fast, kind), body))


def _stand_in_for(kind: type[nn.Module]) -> type:
    """A metaclass for the class that a model shows in place of its own: writes to it go to the model's own class."""

    def write(cls: type, name: str, value: Any) -> None:
        setattr(kind, name, value) if _is_users(name) else type.__setattr__(cls, name, value)

    def delete(cls: type, name: str) -> None:
        delattr(kind, name) if _is_users(name) else type.__delattr__(cls, name)

    base = type(kind)
    return type(base.__name__, (base,), {"__setattr__": write, "__delattr__": delete})


def _is_users(name: str) -> bool:
    return not name.startswith(("__", "_abc_", "_compilot_"))
