"""Fast: the user's model, made fast, still the user's model.

In: a model, a candidate, a guard. Out: an object of a subclass of the model's own class over the model's own
attributes: `parameters()`, `state_dict()`, `train()`, `to()`, `generate()` and everything else act on the real model,
and calls go through the generated hot path; with hooks that came later the model itself answers, and runs them. The
model itself is not changed. With `inplace=True` the model's class is exchanged for that subclass (same name) and
nothing else; `restore(model)` puts the class back. Names that shadow the model's own: `stats`, `prepare`, `refresh`,
`frozen_weights`, `startup`; a model's own `close` stays, unless its calls are recorded. With `keep_model=False` it
stands over a copy without weights (meta tensors), so that the real ones are freed when the user lets go of the model.
Not covered: what happens inside a call (dispatch.py), plans and files (apply.py).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import msgspec
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.baked import compared
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.errors import InputError, NoFallback
from compilot.modules.clone import alias, has_weights, skeleton
from compilot.records import Candidate, Guard, Settings
from compilot.runtime.chain import Chain
from compilot.runtime.dispatch import Dispatcher
from compilot.runtime.eager import EagerCore
from compilot.runtime.gate import BEING_BUILT
from compilot.runtime.guards import without_indices
from compilot.runtime.notices import Stats, warn
from compilot.runtime.sources import ApplyOptions, EntryParts
from compilot.runtime.unreadable import Unreadable, unreadable_in


class Core(Protocol):
    """What stands behind a Fast."""

    call: Callable[..., Any]

    @property
    def frozen_weights(self) -> bool: ...
    def prepare(self, call: Call) -> None: ...
    def refresh(self) -> None: ...
    def stats(self) -> Stats: ...
    def forget_calls(self) -> None: ...


USUAL = ApplyOptions()


class Fast(nn.Module):
    """Base of every made-fast model; each one has its own subclass with its own generated `__call__`."""

    _compilot_core: ClassVar[Core]
    _compilot_entries: ClassVar[dict[int, Dispatcher]] = {}  # by number in the plan; without those that eager answers
    _compilot_plain: ClassVar[nn.Module]
    _compilot_rebuild: ClassVar[tuple[Any, ...]]
    _compilot_startup: ClassVar[dict[str, float]]

    def stats(self) -> Stats:
        """Calls, how many were fast, fallbacks by reason, compiles; what the plan says of its fast answers."""
        return self._compilot_core.stats()

    def prepare(self, call: Call) -> None:
        """Build now what this call needs, instead of at the first call."""
        self._compilot_core.prepare(call)

    def refresh(self) -> None:
        """Build again at the next call, with the weights as they are now.

        StalePlan: the weights are in the plan's files, and the model has others now: run 'compilot tune' again.
        """
        self._compilot_core.refresh()

    def close(self) -> None:
        """Write what is left of the trace and stop counting; without record=FILE there is nothing to do."""

    @property
    def frozen_weights(self) -> bool:
        """True when weight values are baked in: after an update eager answers until `refresh()`, or a new plan."""
        return type(self)._compilot_core.frozen_weights

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
    options = ApplyOptions(keep_model=keep_model, inplace=inplace, strict_weights=strict_weights)
    fast = attach_parts(beside(model, options), (EntryParts(candidate, guard, artifacts),), options)
    return put_in_place(model, fast) if inplace else fast


def attach_parts(
    model: nn.Module,
    parts: tuple[EntryParts, ...],
    options: ApplyOptions = USUAL,
    *,
    check_again: Callable[[], None] | None = None,
    stand_in: bool = False,
) -> Fast:
    """The model run as several plan entries say, each for the calls its guard takes; eager for all others.

    check_again: raises where the files must not be loaded once more. stand_in: the model has neither weights nor code.
    """
    refuse_compiled(model)
    for part in parts:
        _refuse_unknown(part)
    _refuse_nothing_to_watch(options)
    real = {number: part for number, part in enumerate(parts) if not _is_plain(part.candidate)}
    if not real and not options.keep_model:
        raise InputError("this plan keeps the model eager, so keep_model=False has nothing to run instead.")
    if not real:
        return attach_eager(model)
    bones = None if options.keep_model else _remains(model)
    unreadable = _named_unreadable(model) if options.keep_model else None
    links = {
        number: Dispatcher(
            model,
            _guard(part, options, stand_in),
            _loader(model, part, options, stand_in),
            remains=bones,
            stand_in=stand_in,
            strict_weights=options.strict_weights,
            unreadable=unreadable,
            before_refresh=check_again,
            notes=part.caveats,
        )
        for number, part in real.items()
    }
    rebuild = (_reattach, model, parts, options, check_again) if bones is None else (_cannot_copy, bones)
    return _behind(model if bones is None else bones, links, rebuild, [part.name for part in real.values()])


def attach_closed(
    model: nn.Module, guards: Sequence[Guard], because: str = BEING_BUILT, options: ApplyOptions = USUAL
) -> Fast:
    """The model with entries whose engines are still to come: eager answers, and is counted with the reason.

    `open_entry` puts an engine behind one. Copies and pickles are eager.
    """
    unreadable = _named_unreadable(model)
    guards = [guard if options.check_indices else without_indices(guard) for guard in guards]
    links = {
        number: Dispatcher(
            model, guard, None, strict_weights=options.strict_weights, unreadable=unreadable, closed=because
        )
        for number, guard in enumerate(guards)
    }
    return _behind(model, links, (attach_eager, model, because))


def open_entry(
    fast: Fast,
    part: EntryParts,
    options: ApplyOptions = USUAL,
    *,
    number: int = 0,
    check_again: Callable[[], None] | None = None,
) -> None:
    """Have this engine answer the calls of one entry from now on, in place of the one before it."""
    _refuse_unknown(part)
    link = type(fast)._compilot_entries[number]
    if _guard(part, options, stand_in=False) != link.guard:
        raise InputError(f"entry {number} takes other calls than {part.candidate.label} was built for.")
    load = _loader(fast._compilot_plain, part, options, stand_in=False)
    link.open(load, before_refresh=check_again, notes=part.caveats)


def close_entry(fast: Fast, reason: str, *, number: int = 0) -> None:
    """Have eager answer the calls of one entry from now on, counted with the reason."""
    type(fast)._compilot_entries[number].close(reason)


def _behind(
    model: nn.Module, links: dict[int, Dispatcher], rebuild: tuple[Any, ...], names: Sequence[str] = ()
) -> Fast:
    """The model with its entries before it; names: of the entries, as the plan says."""
    core: Core = Chain(list(links.values()), names) if len(links) > 1 else next(iter(links.values()))
    fast = _put_on(model, core, rebuild, inplace=False)
    type(fast)._compilot_entries = dict(links)
    return fast


def beside(model: nn.Module, options: ApplyOptions) -> nn.Module:
    """What a Fast is made over: the model, or what stays eager when the model's own class is exchanged."""
    if not options.inplace:
        return model
    if not options.keep_model:
        raise InputError("inplace=True keeps the model, keep_model=False drops it; choose one of them.")
    return alias(model, type(model))


def refuse_compiled(model: nn.Module) -> None:
    """InputError for a model that is a Fast already."""
    if isinstance(model, Fast):
        raise InputError("this model is compiled already; restore it first, or pass the original model.")


def _refuse_nothing_to_watch(options: ApplyOptions) -> None:
    if options.strict_weights and not options.keep_model:
        raise InputError("strict_weights=True watches the model's weights, keep_model=False drops them; choose one.")


def _named_unreadable(plain: nn.Module) -> Unreadable:
    """What of the model nobody can read, said once."""
    found = unreadable_in(plain)
    if found:
        warn(found.sentence())
    return found


def _is_plain(candidate: Candidate) -> bool:
    """Eager as it is: nothing stands before the model."""
    return candidate.settings == Settings(shapes=candidate.settings.shapes) and not candidate.regions


def entry_core(fast: Fast, number: int) -> Core | None:
    """What answers for one entry of the plan, whichever come before it; None: eager, behind the other entries."""
    kind = type(fast)
    return kind._compilot_entries.get(number, kind._compilot_core if not kind._compilot_entries else None)


def _reattach(
    model: nn.Module, parts: tuple[EntryParts, ...], options: ApplyOptions, check_again: Callable[[], None] | None
) -> Fast:
    """What copies and pickles of a Fast are made with; the files may have changed since."""
    if check_again is not None:
        check_again()
    return attach_parts(model, parts, options, check_again=check_again)


def _guard(part: EntryParts, options: ApplyOptions, stand_in: bool) -> Guard:
    """The calls that are taken."""
    guard = _made_for(part, stand_in)
    return guard if options.check_indices else without_indices(guard)


def _made_for(part: EntryParts, stand_in: bool) -> Guard:
    """The calls that the engine's files are made for.

    Without a model there is no eager whose numbers a default could change: the files answer as they were made.
    """
    return msgspec.structs.replace(part.guard, default_dtype="") if stand_in else part.guard


def _loader(plain: nn.Module, part: EntryParts, options: ApplyOptions, stand_in: bool) -> Callable[[], Loaded]:
    """What loads the entry's engine."""
    candidate, guard = part.candidate, _made_for(part, stand_in)
    if part.padding is not None or part.split is not None:
        from compilot.runtime.split_guards import engine_guard  # here, as below: other plans start without it

        guard = engine_guard(guard, part.padding, part.split)
    request = LoadRequest(plain, guard, candidate.settings, part.artifacts, stand_in, options.plain_outputs)
    load = registry.load_half(candidate.settings.engine).load
    if candidate.regions:
        from compilot.runtime.regions import load_regions

        load = partial(load_regions, candidate=candidate)

    def loaded() -> Loaded:
        engine = compared(load(request), request, part.weights_sha256)
        return _in_front(engine, part)

    return loaded


def _in_front(engine: Loaded, part: EntryParts) -> Loaded:
    """The engine with what makes its calls from the user's: parts first, then their padding."""
    if part.padding is not None:
        from compilot.runtime.padding import padded

        engine = padded(engine, part.padding)
    if part.split is not None:
        from compilot.runtime.splitting import in_parts

        engine = in_parts(engine, part.split)
    return engine


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
    """Undo `inplace=True`: the model has its own class, and its calls are its own again."""
    if any(module._compiled_call_impl is not None for module in model.modules()):
        from compilot.runtime.model_part import take_out  # here: only plans of a training put something there

        take_out(model)
    if isinstance(model, Fast):
        object.__setattr__(model, "__class__", type(model._compilot_plain))
    return model


def _refuse_unknown(part: EntryParts) -> None:
    if part.module:
        what = f"has an entry for a part of the model, {part.module}"
        raise InputError(f"this plan {what}, which this version of compilot cannot apply yet.")


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
    }
    if hasattr(kind, "close"):
        body["close"] = inspect.getattr_static(kind, "close")
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
