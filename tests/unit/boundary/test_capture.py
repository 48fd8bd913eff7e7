"""Calls of submodules inside one call of the model, and what is built from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.boundary.build import build
from compilot.boundary.capture import Captured, Takes, captured
from compilot.boundary.observing import ALIGNED_BYTES, kept
from compilot.engines import registry
from compilot.engines.files import artifact_files
from compilot.engines.of_candidate import compiled_settings, engines_of, is_eager_only, needs_compiler, traits_of
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.engines.shared_forms import SharedForms
from compilot.engines.traits import EngineTraits, InstructionSets
from compilot.modules.regions import placed
from compilot.records import ArtifactFile, Candidate, DimRange, ProcessSettings, Region, Settings, Shapes
from compilot.runtime.guards import make_guard
from compilot.runtime.matching import Matcher
from compilot.runtime.regions import read_parts

X = torch.randn(2, 4)


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.linear(x) if mask is None else self.linear(x) * mask


class Twice(nn.Module):
    """Calls its first unit as often as it is told, its second with an expanded mask."""

    def __init__(self, rows: tuple[int, ...] = (2, 2)) -> None:
        super().__init__()
        self.rows = rows
        self.first, self.second, self.never = Unit(), Unit(), Unit()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for rows in self.rows:
            x = torch.cat([self.first(x[:rows]), x[rows:]])
        out = self.second(x, mask=torch.ones(1, 4).expand(2, 4))
        x.fill_(7)
        return out


def capture(model: nn.Module, *selectors: str) -> dict[str, Captured]:
    places = placed(model, [Region(selector=one, settings=Settings(engine="inductor")) for one in selectors])
    takes = {place.path: Takes() for place in places}
    return captured(model, Call((X,), {}), places, takes, {}, grad=False)


def test_calls_are_kept_as_they_were_made() -> None:
    model = Twice().eval()
    found = capture(model, "first", "second")
    torch.testing.assert_close(found["first"].call.args[0], X)
    second = found["second"].call
    assert (second.args[0] != 7).all()  # although it was written over
    assert second.kwargs["mask"].stride() == (0, 1)
    guard = found["second"].guard
    assert (guard.positional, guard.keywords, guard.grad_enabled) == (1, ("mask",), False)
    assert [(tensor.path, tensor.stride) for tensor in guard.tensors] == [
        ("args[0]", (4, 1)),
        ("kwargs['mask']", (0, 1)),
    ]


def test_a_look_at_the_calls_leaves_no_trace() -> None:
    model, given = Twice().eval(), X.clone()
    before = torch.get_rng_state()
    capture(model, "first")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(X, given)
    assert type(model.first) is Unit


def test_a_submodule_that_is_called_twice_in_one_way_is_fine() -> None:
    assert {*capture(Twice((2, 2, 2)).eval(), "first")} == {"first"}


def test_a_submodule_that_is_called_in_several_ways_is_named_with_the_difference() -> None:
    with pytest.raises(
        Infeasible, match=r"^in first: it is called in several ways .*shape of args\[0\]: 1x4, plan has 2x4"
    ):
        capture(Twice((2, 1)).eval(), "first", "second")


class Ways(nn.Module):
    """Calls one unit with its arguments written in several ways."""

    def __init__(self, *ways: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.ways = ways
        self.unit = Unit()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for way in self.ways:
            x = way(self.unit, x)
        return x


def test_arguments_by_position_and_by_name_are_one_way_to_call() -> None:
    found = capture(
        Ways(
            lambda unit, x: unit(x, torch.ones(4)),
            lambda unit, x: unit(x, mask=torch.ones(4)),
            lambda unit, x: unit(mask=torch.ones(4), x=x),
        ).eval(),
        "unit",
    )["unit"]
    assert (found.guard.positional, found.guard.keywords) == (2, ())
    assert capture(Ways(lambda unit, x: unit(x), lambda unit, x: unit(x, mask=None)).eval(), "unit")


def test_other_arguments_are_another_way() -> None:
    ways = Ways(lambda unit, x: unit(x), lambda unit, x: unit(x, torch.ones(4)))
    with pytest.raises(Infeasible, match=r"^in unit: it is called in several ways .*other arguments"):
        capture(ways.eval(), "unit")


BUFFER = torch.arange(1_000_000.0).reshape(1000, 1000)


@pytest.mark.parametrize(
    ("tensor", "most"),
    [
        (BUFFER[3:5, 1:7], 1000 + 6),
        (BUFFER[:, 7][::100], 900 * 1000 + 1),
        (torch.ones(1, 4).expand(2, 4), 4),
        (torch.arange(10)[::3], 10),
        (BUFFER[500:500], 0),
        (BUFFER[2, 5], 1),
        (torch.zeros(3, requires_grad=True), 3),
    ],
)
def test_of_a_view_what_is_in_it_is_copied_and_not_the_buffer(tensor: torch.Tensor, most: int) -> None:
    copy = kept(tensor, "x")
    assert torch.equal(copy, tensor)
    assert (copy.stride(), copy.requires_grad) == (tensor.stride(), tensor.requires_grad)
    aligned = ALIGNED_BYTES // tensor.element_size()
    assert copy.untyped_storage().nbytes() <= (most + aligned) * tensor.element_size()
    assert copy.data_ptr() % ALIGNED_BYTES == tensor.data_ptr() % ALIGNED_BYTES
    assert not copy.numel() or copy.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()


def test_a_submodule_that_is_never_called_is_named() -> None:
    with pytest.raises(Infeasible, match=r"^in never: the example call never calls it"):
        capture(Twice().eval(), "never")


def test_inputs_that_no_guard_takes_are_named() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Unit()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, Cache())

    class Cache:
        def __rmul__(self, other: Any) -> Any:
            return other

    with pytest.raises(Infeasible, match=r"^in inner: input args\[1\] is a .*Cache"):
        capture(Cached().eval(), "inner")


class Notes:
    """An object that the model fills as it goes."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []


class Noting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Unit()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        notes = Notes()
        out = self.inner(x, mask=None, **{"notes": notes} if isinstance(self.inner, Filling) else {})
        return out + len(notes.seen)


class Filling(Unit):
    def forward(self, x: torch.Tensor, mask: Any = None, notes: Any = None) -> torch.Tensor:
        notes.seen.append(x)
        return super().forward(x, mask)


def test_objects_are_taken_by_their_class_where_an_engine_looks_into_them() -> None:
    model = Noting().eval()
    model.inner = Filling()
    places = placed(model, [Region(selector="inner", settings=Settings(engine="inductor"))])
    found = captured(model, Call((X,), {}), places, {"inner": Takes(objects=True)}, {}, grad=False)["inner"]
    own = next(value for value in found.guard.values if value.path == "kwargs['notes']")
    assert (own.type, own.value) == (f"{Notes.__module__}.Notes", "")
    assert found.call.kwargs["notes"].seen == []  # as it was when the call began
    matcher, others = Matcher(found.guard), {**found.call.kwargs, "notes": Notes()}
    with torch.no_grad():
        assert matcher.call_mismatch(Call(found.call.args, others)) is None
        why = matcher.call_mismatch(Call(found.call.args, {**others, "notes": None}))
    assert why == f"type of kwargs['notes']: NoneType, plan has {Notes.__module__}.Notes"
    with pytest.raises(Infeasible, match=r"^in inner: input kwargs\['notes'\] is a Notes.*use_cache=False"):
        capture(model, "inner")


def test_modes_inside_of_the_model_are_those_of_the_guard() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Unit()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
                return self.inner(x)

    guard = capture(Mixed().eval(), "inner")["inner"].guard
    assert (guard.grad_enabled, guard.autocast) == (True, True)


class Short(Unit):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if x.shape[0] > 8:
            raise ValueError("too many rows")
        return super().forward(x, mask)


class Ordered(nn.Module):
    """Its second part raises on sizes that the first one answers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Unit(), Short()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


def test_what_was_seen_before_eager_raised_is_left_out() -> None:
    model = Ordered().eval()
    places = placed(model, [Region(selector="first", settings=Settings(engine="inductor", shapes=Shapes.DYNAMIC))])
    takes, ranges = {"first": Takes(Shapes.DYNAMIC, ranges=True)}, {"args[0]": {0: DimRange(min=2, max=64)}}
    guard = captured(model, Call((torch.randn(4, 4),), {}), places, takes, ranges, grad=False)["first"].guard
    rows = guard.tensors[0].shape[0]
    assert isinstance(rows, DimRange)
    assert 2 == rows.min < rows.max <= 8


class WritingEngine:
    """Writes one file per build; refuses a submodule on demand."""

    def __init__(self, traits: EngineTraits | None = None) -> None:
        self.TRAITS = traits or EngineTraits(version="1")
        self.refused: str | None = None
        self.requests: list[BuildRequest] = []

    def build(self, request: BuildRequest) -> tuple[ArtifactFile, ...]:
        if request.candidate.label == self.refused:
            raise Infeasible("no form of it")
        self.requests.append(request)
        request.form("text", lambda folder: (folder / "made.txt").write_text(request.candidate.label) and None)
        return artifact_files(request.workspace, ["made.txt"])


@pytest.fixture
def writing() -> Any:
    one, cached = (
        WritingEngine(),
        WritingEngine(EngineTraits(version="1", cache_folder="inductor", through_dynamo=True)),
    )
    registry.register("writing", one, one)  # type: ignore[arg-type]
    registry.register("caching", cached, cached)  # type: ignore[arg-type]
    yield one
    registry.unregister("writing")
    registry.unregister("caching")


def request(folder: Path, *regions: tuple[str, str], shared: SharedForms | None = None) -> BuildRequest:
    model, call = Twice().eval(), Call((X,), {})
    candidate = Candidate(
        settings=Settings(),
        label="",
        rationale="",
        regions=tuple(Region(selector=one, settings=Settings(engine=engine)) for one, engine in regions),
        process=ProcessSettings(threads=1),
    )
    with torch.no_grad():
        guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    return BuildRequest(model, call, guard, candidate, folder, shared)


def test_every_submodule_has_a_folder_and_its_files_have_digests(writing: WritingEngine, tmp_path: Path) -> None:
    files = build(request(tmp_path, ("first", "writing"), ("second", "writing")))
    assert [file.name for file in files] == ["regions/0/0/made.txt", "regions/1/1/made.txt", "regions.json"]
    assert [*files] == [artifact_files(tmp_path, [file.name])[0] for file in files]
    assert [(part.region, part.path, part.folder) for part in read_parts(tmp_path)] == [
        (0, "first", "regions/0/0"),
        (1, "second", "regions/1/1"),
    ]
    assert [one.candidate.process.threads for one in writing.requests] == [1, 1]
    assert (tmp_path / "regions/1/1/made.txt").read_text() == "second"


def test_engines_with_a_compile_cache_share_the_candidates_folder(writing: WritingEngine, tmp_path: Path) -> None:
    build(request(tmp_path, ("first", "caching"), ("second", "writing")))
    assert [part.folder for part in read_parts(tmp_path)] == ["", "regions/1/1"]


def test_the_submodule_that_an_engine_refuses_is_named(writing: WritingEngine, tmp_path: Path) -> None:
    writing.refused = "second"
    with pytest.raises(Infeasible, match=r"^in second: no form of it$"):
        build(request(tmp_path, ("first", "writing"), ("second", "writing")))


def test_shared_forms_are_those_of_one_submodule(writing: WritingEngine, tmp_path: Path) -> None:
    """The guards of both units may be equal; the units are not."""
    for run in ("one", "two"):
        forms = SharedForms(tmp_path / "forms")
        folder = tmp_path / run
        folder.mkdir()
        build(request(folder, ("first", "writing"), ("second", "writing"), shared=forms))
        assert [(folder / f"regions/{n}/{n}/made.txt").read_text() for n in (0, 1)] == ["first", "second"]
        assert (forms.reused.wall_s > 0) is (run == "two")


def test_a_region_that_the_model_does_not_have_is_infeasible(writing: WritingEngine, tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="no submodule of Twice fits the region 'gone'"):
        build(request(tmp_path, ("gone", "writing")))


def test_what_several_engines_are_together(writing: WritingEngine, tmp_path: Path) -> None:
    both = request(tmp_path, ("first", "inductor"), ("second", "writing")).candidate
    assert engines_of(both) == ("inductor", "writing", "eager")
    found = traits_of(both)
    assert (found.compiler_at_start, found.compiler_at_build, found.through_dynamo) == (True, True, True)
    assert (found.cache_folder, found.standalone, found.plain_compile) == ("inductor", False, False)
    assert found.instruction_sets is InstructionSets.AS_COMPILED
    assert needs_compiler(both)
    assert compiled_settings(both) == Settings(engine="inductor")
    hybrid = request(tmp_path, ("first", "writing")).candidate
    assert (needs_compiler(hybrid), is_eager_only(hybrid), compiled_settings(hybrid)) == (False, False, None)
    alone = Candidate(settings=Settings(engine="inductor"), label="", rationale="")
    assert traits_of(alone) == registry.traits("inductor")
