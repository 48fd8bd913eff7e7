"""What every engine that makes files must do, whoever wrote it: subclass EngineContract and name the engine.

In: the name of an engine that is registered or installed. Out: pytest tests of both its halves: right numbers in the
model's own structure at every declared size, results that are the caller's, files that are whole, movable and refused
when they are not, refusals with their cause. `quick = False`: an engine that compiles for long returns in every way
from one build, not from one build each. Not covered: guards and fallback, which are not the engine's business.
"""

from __future__ import annotations

import gc
import hashlib
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call, output_leaves
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest, Infeasible, LoadRequest, NotTaken
from compilot.engines.space import fitting, seeded, turned
from compilot.errors import NoFallback
from compilot.records import Candidate, Diagnosis, DynamicDim, Precision, Settings, Shapes
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.testing import contract_models as models
from compilot.testing.made import Made, left_behind, same
from compilot.testing.settings import changed, settings_now
from compilot.testing.strange_numbers import StrangeNumbers

BERT_DIMS = tuple(
    DynamicDim(input=name, dim=dim, min=1, max=top)
    for name in ("input_ids", "attention_mask")
    for dim, top in ((0, 6), (1, 40))
)
APART_DIMS = tuple(
    DynamicDim(input=name, dim=dim, min=least, max=9)
    for name in ("x", "other", "mask")
    for dim, least in ((0, 0), (1, 1))
)
SIZES = [(1, 1), (1, 2), (1, 40), (2, 1), (2, 3), (3, 5), (6, 40), (6, 1), (4, 4), (5, 9)]
SIZES += [(1, n) for n in (3, 7, 16, 33, 39)] + [(n, 8) for n in (1, 2, 3, 5, 6)]


class _Half:
    """One half of the engine that a class names."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find

    def __get__(self, instance: Any, owner: Any) -> Any:
        """The half as the registry has it."""
        return self._find(owner.engine)


class OfferContract:
    """Tests of one engine with one of its own offers: right at every size and from several threads."""

    engine: str
    build = _Half(registry.build_half)
    load = _Half(registry.load_half)
    offered: str | None = None  # label of the offer; None: the engine's default settings
    spare: Sequence[str] = ()  # files that another one stands in for

    # ---- making ------------------------------------------------------------------------------------------------------

    @classmethod
    def make(
        cls, model: nn.Module, call: Call, folder: Path, dynamic: Sequence[DynamicDim] = (), *, concurrent: bool = True
    ) -> Made:
        shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
        guard = make_guard(model, call, dynamic=dynamic, shapes=shapes, grad=False)
        settings = cls.settings(shapes)
        candidate = Candidate(settings=settings, label=cls.engine, rationale="")
        before = settings_now()
        with left_behind(model) as traces:
            files = cls.build.build(BuildRequest(model, call, guard, candidate, folder))
        loaded = cls.load.load(LoadRequest(model, guard, settings, folder))
        traces += [f"{name}: {pair}" for name, pair in changed(before).items()]
        assert loaded.frozen_weights
        assert loaded.concurrent is concurrent
        return Made(model, guard, settings, folder, files, loaded.call, traces)

    @classmethod
    def settings(cls, shapes: Shapes) -> Settings:
        if cls.offered is None:
            return Settings(engine=cls.engine, shapes=shapes)
        offers = cls.offers(Diagnosis(dynamic=shapes is Shapes.DYNAMIC))
        return next(candidate.settings for candidate in offers if candidate.label == cls.offered)

    @classmethod
    def offers(cls, diagnosis: Diagnosis) -> list[Candidate]:
        """Its seeds in the model's own precision."""
        found = seeded(cls.engine, cls.build.space(diagnosis), diagnosis)
        return [candidate for candidate in found if candidate.settings.precision is Precision.AS_IS]

    def load_again(self, made: Made, **changes: Any) -> Any:
        request = LoadRequest(made.model, made.guard, made.settings, made.workspace)
        return self.load.load(request._replace(**changes)).call

    def why_not(self, model: nn.Module, x: torch.Tensor, folder: Path, dynamic: Sequence[DynamicDim] = ()) -> str:
        with pytest.raises(Infeasible) as refused, torch.no_grad():
            self.make(model.eval(), Call((x,), {}), folder, dynamic)
        return str(refused.value)

    @pytest.fixture(autouse=True)
    def _no_grad(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def sink(cls, tmp_path_factory: pytest.TempPathFactory) -> Made:
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp(f"{cls.engine}-sink")
        return cls.make(models.Sink().eval(), Call(*models.sink_call(0)), folder)

    @pytest.fixture(scope="class")
    @classmethod
    def bert(cls, tmp_path_factory: pytest.TempPathFactory) -> Made:
        folder = tmp_path_factory.mktemp(f"{cls.engine}-bert")
        return cls.make(models.tiny_bert(), Call(*models.bert_call(1, 8)), folder, BERT_DIMS)

    # ---- right ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_answers_as_eager_in_the_models_own_structure(self, sink: Made, seed: int) -> None:
        args, kwargs = models.sink_call(seed)
        same(sink.call(*args, **kwargs), sink.model(*args, **kwargs))

    @pytest.mark.parametrize(("batch", "length"), SIZES)
    def test_hugging_face_model_at_every_declared_size(self, bert: Made, batch: int, length: int) -> None:
        args, kwargs = models.bert_call(batch, length, seed=length)
        answer = bert.call(*args, **kwargs)
        same(answer, bert.model(*args, **kwargs))
        assert answer.last_hidden_state is answer[0]
        assert answer.hidden_states is None

    def test_kept_results_do_not_change(self, sink: Made) -> None:
        calls = [models.sink_call(seed) for seed in range(20)]
        kept = [sink.call(*args, **kwargs) for args, kwargs in calls]
        for answer, (args, kwargs) in zip(kept, calls, strict=True):
            same(answer, sink.model(*args, **kwargs))

    def test_four_threads_at_once(self, bert: Made) -> None:
        calls = [models.bert_call(batch, 5 + batch, seed=batch) for batch in (1, 2, 3, 4)]
        expected = [bert.model(*args, **kwargs) for args, kwargs in calls]
        kept: list[list[Any]] = [[] for _ in calls]

        def work(i: int) -> None:
            with torch.no_grad():
                kept[i] += [bert.call(*calls[i][0], **calls[i][1]) for _ in range(25)]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answers, want in zip(kept, expected, strict=True):
            assert len(answers) == 25
            for answer in answers:
                same(answer, want)


Ways = Callable[[str], tuple[Any, Any]]  # the way to return -> the engine's answer and eager's


class EngineContract(StrangeNumbers, OfferContract):
    """Tests of one engine."""

    quick = True
    knows_custom_operators = False
    calls_back = False  # custom operators get one call at a time

    # ---- making ------------------------------------------------------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def every(cls, tmp_path_factory: pytest.TempPathFactory) -> Made:
        """All ways to return at once, for large inputs that are not contiguous."""
        model = models.Returns("every").eval()
        for parameter in model.parameters():
            parameter.data.copy_(models.integers(*parameter.shape))  # sums of whole numbers are exact in any order
        return cls.make(model, Call((models.large(),), {}), tmp_path_factory.mktemp(f"{cls.engine}-every"))

    @pytest.fixture(scope="class")
    @classmethod
    def apart(cls, tmp_path_factory: pytest.TempPathFactory) -> Made:
        folder = tmp_path_factory.mktemp(f"{cls.engine}-apart")
        return cls.make(models.Apart().eval(), Call(models.apart_call(2, 5, 5), {}), folder, APART_DIMS)

    @pytest.fixture(scope="class")
    @classmethod
    def values(cls, tmp_path_factory: pytest.TempPathFactory) -> Made:
        folder = tmp_path_factory.mktemp(f"{cls.engine}-values")
        return cls.make(models.Values().eval(), Call((torch.randn(3, 4),), {}), folder)

    @pytest.fixture
    def ways(self, request: pytest.FixtureRequest, tmp_path: Path) -> Ways:
        """A model per way, or all ways of one model."""

        def alone(how: str) -> tuple[Any, Any]:
            model, x = models.Returns(how).eval(), torch.randn(3, 4)
            return self.make(model, Call((x,), {}), tmp_path).call(x), model(x)

        def among_others(how: str) -> tuple[Any, Any]:
            every, x = request.getfixturevalue("every"), models.large()
            return every.call(x)[how], every.model(x)[how]

        return alone if self.quick else among_others

    # ---- numbers and structure ---------------------------------------------------------------------------------------

    def test_inputs_handed_back_are_the_callers_own_objects(self, sink: Made) -> None:
        args, kwargs = models.sink_call(1)
        answer = sink.call(*args, **kwargs)
        assert answer["same"] is args[0]["ids"]
        assert answer["again"] is answer["y"]
        assert answer["pair"][1] is None

    def test_sizes_that_must_be_equal_are_not_taken_when_they_differ(self, bert: Made) -> None:
        (ids,), _ = models.bert_call(2, 8)
        _, kwargs = models.bert_call(3, 8)
        with pytest.raises(NotTaken, match="dimension 0 of kwargs"):
            bert.call(ids, **kwargs)

    def test_inputs_that_want_gradients_are_taken(self, sink: Made) -> None:
        args, kwargs = models.sink_call(1)
        args[0]["x"].requires_grad_()
        same(sink.call(*args, **kwargs), sink.model(*args, **kwargs))

    def test_default_dtype_and_inference_mode_do_not_matter(self, sink: Made) -> None:
        args, kwargs = models.sink_call(1)
        expected = sink.model(*args, **kwargs)
        torch.set_default_dtype(torch.float64)
        try:
            with torch.inference_mode():
                same(sink.call(*args, **kwargs), expected)
        finally:
            torch.set_default_dtype(torch.float32)

    # ---- results are the caller's ------------------------------------------------------------------------------------

    def test_writing_into_a_result_changes_no_later_one(self, sink: Made) -> None:
        args, kwargs = models.sink_call(3)
        expected = sink.model(*args, **kwargs)
        for leaf in output_leaves(sink.call(*args, **kwargs)):
            if isinstance(leaf.value, torch.Tensor) and leaf.path != "output['same']":
                leaf.value.zero_()
        same(sink.call(*args, **kwargs), expected)
        assert sink.model.get_buffer("table").sum() > 0

    # ---- without the model -------------------------------------------------------------------------------------------

    def test_the_weights_can_be_freed(self, sink: Made) -> None:
        model = models.Sink().eval()
        model.load_state_dict(sink.model.state_dict())
        weight = weakref.ref(model.linear.weight)
        candidate = Candidate(settings=sink.settings, label=self.engine, rationale="")
        fast = attach(model, candidate, sink.guard, sink.workspace, keep_model=False)
        del model
        gc.collect()
        assert weight() is None
        args, kwargs = models.sink_call(4)
        same(fast(*args, **kwargs), sink.model(*args, **kwargs))
        with pytest.raises(NoFallback, match="shape of"):
            fast(args[0] | {"ids": torch.arange(5)}, *args[1:], **kwargs)

    # ---- files -------------------------------------------------------------------------------------------------------

    def test_files_are_named_with_size_and_digest_and_nothing_else_is_left(self, sink: Made) -> None:
        there = {p.relative_to(sink.workspace).as_posix() for p in sink.workspace.rglob("*") if p.is_file()}
        assert {file.name for file in sink.files} == there
        for file in sink.files:
            data = (sink.workspace / file.name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size_bytes, file.sha256)

    def test_a_moved_folder_still_loads(self, sink: Made, tmp_path: Path) -> None:
        moved = shutil.copytree(sink.workspace, tmp_path / "elsewhere")
        args, kwargs = models.sink_call(1)
        same(self.load_again(sink, artifacts=moved)(*args, **kwargs), sink.model(*args, **kwargs))

    def test_files_hold_no_paths_of_this_machine(self, sink: Made) -> None:
        here = str(Path(models.__file__).parent).encode()
        assert not [f.name for f in sink.files if here in (sink.workspace / f.name).read_bytes()]

    def test_other_weights_are_refused(self, sink: Made) -> None:
        torch.manual_seed(1)
        with pytest.raises(Infeasible, match="weights are not those"):
            self.load_again(sink, model=models.Sink().eval())

    def test_missing_files_are_refused(self, sink: Made, tmp_path: Path) -> None:
        for folder in (None, tmp_path):
            with pytest.raises(Infeasible, match="missing next to the plan"):
                self.load_again(sink, artifacts=folder)

    def test_damaged_files_are_refused(self, sink: Made, tmp_path: Path) -> None:
        for file in sink.files:
            broken = shutil.copytree(sink.workspace, tmp_path / file.name)
            (broken / file.name).write_bytes(b"\0 not what it was")
            if file.name in self.spare:
                args, kwargs = models.sink_call(0)
                same(self.load_again(sink, artifacts=broken)(*args, **kwargs), sink.model(*args, **kwargs))
                continue
            with pytest.raises(Infeasible):
                self.load_again(sink, artifacts=broken)

    def test_loads_in_a_fresh_process_without_compiler_or_exporter(self, sink: Made, tmp_path: Path) -> None:
        request = (sink.guard, sink.settings, str(sink.workspace))
        args, kwargs = models.sink_call(5)
        torch.save(sink.model.state_dict(), tmp_path / "weights.pt")
        answer = run_alone(self.engine, request, tmp_path)
        torch.testing.assert_close(answer, sink.model(*args, **kwargs)["y"], rtol=1e-5, atol=1e-5)

    # ---- refusals ----------------------------------------------------------------------------------------------------

    def test_data_dependent_control_flow_is_infeasible_with_its_line(self, tmp_path: Path) -> None:
        why = self.why_not(models.Decides(), torch.randn(3, 4), tmp_path)
        assert "depends on the values of a tensor" in why
        assert models.line_of("DECIDES") in why

    def test_writes_are_infeasible(self, tmp_path: Path) -> None:
        assert "changes its buffer 'calls'" in self.why_not(models.Counts(), torch.randn(3, 4), tmp_path)
        assert "writes into its input" in self.why_not(models.Overwrites(), torch.randn(3, 4), tmp_path)

    def test_a_dimension_that_cannot_vary_is_infeasible(self, tmp_path: Path) -> None:
        dims = [DynamicDim(input="x", dim=0, min=1, max=8)]
        assert "cannot vary" in self.why_not(models.FixedBatch(), torch.randn(3, 4), tmp_path, dims)

    def test_a_custom_operator_is_called_or_infeasible_with_its_line(self, tmp_path: Path) -> None:
        model, x = models.Mystery().eval(), torch.randn(3, 4)
        if self.knows_custom_operators:
            made = self.make(model, Call((x,), {}), tmp_path, concurrent=not self.calls_back)
            same(made.call(x + 1), x * 2 + 3)
            return
        why = self.why_not(model, x, tmp_path)
        assert "mystery" in why
        assert models.line_of("MYSTERY") in why

    def test_gradients_and_train_mode_are_infeasible(self, tmp_path: Path) -> None:
        model, call = models.Returns("tensor"), Call((torch.randn(3, 4),), {})
        candidate = Candidate(settings=Settings(engine=self.engine), label="", rationale="")
        for training, grad, words in ((True, False, "train mode"), (False, True, "gradients")):
            guard = make_guard(model.train(training), call, dynamic=(), shapes=Shapes.STATIC, grad=grad)
            with pytest.raises(Infeasible, match=words):
                self.build.build(BuildRequest(model, call, guard, candidate, tmp_path))

    # ---- the build half ----------------------------------------------------------------------------------------------

    def test_offers_are_valid_distinct_and_explained(self) -> None:
        found = self.offers(Diagnosis(has_4d_input=True, has_conv=True))
        assert found
        assert len({candidate.id for candidate in found}) == len(found)
        for candidate in found:
            assert candidate.settings.engine == self.engine
            assert candidate.rationale
            assert self.build.validate(candidate.settings) is None
        assert not self.offers(Diagnosis(training=True))
        assert {c.settings.shapes for c in self.offers(Diagnosis(dynamic=True))} == {Shapes.DYNAMIC}

    def test_every_turn_of_a_knob_is_valid(self) -> None:
        for diagnosis in (Diagnosis(), Diagnosis(has_4d_input=True, has_conv=True), Diagnosis(dynamic=True)):
            space = self.build.space(diagnosis)
            for seed in seeded(self.engine, space, diagnosis):
                for knob, value in ((k, value) for k in fitting(space.knobs, diagnosis) for value in k.values):
                    assert self.build.validate(turned(seed, knob, value).settings) is None

    def test_options_it_does_not_know_are_refused(self) -> None:
        assert "no option 'wings'" in self.build.validate(Settings(engine=self.engine, options={"wings": 2}))
        assert self.build.validate(Settings(engine=self.engine, mode="max-autotune"))

    def test_says_its_version(self) -> None:
        found = self.build.available()
        assert found.ok
        assert found.version

    # ---- other models ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", models.RETURNS)
    def test_every_way_to_return(self, how: str, ways: Ways) -> None:
        same(*ways(how))

    def test_building_says_nothing_and_leaves_the_model_and_torchs_settings_alone(self, sink: Made, bert: Made) -> None:
        assert (sink.traces, bert.traces) == ([], [])

    def test_large_inputs_are_only_read_and_results_stay(self, every: Made) -> None:
        calls = [models.large() for _ in range(3)]
        before = [x.clone() for x in calls]
        kept = [every.call(x) for x in calls]
        for answer, x, copy in zip(kept, calls, before, strict=True):
            assert torch.equal(x, copy)
            same(answer, every.model(x))

    def test_sizes_that_follow_from_values(self, tmp_path: Path) -> None:
        model, x = models.Nonzero().eval(), torch.tensor([[1.0, 0, 2], [0, 0, 3]])
        made, kept = self.make(model, Call((x,), {}), tmp_path), []
        for seed in range(5):
            x = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).relu()
            kept.append((made.call(x), model(x)))
        for answer, expected in kept:
            same(answer, expected)

    def test_sizes_that_only_look_alike_are_independent(self, apart: Made) -> None:
        """All three are 5 long and declared alike; eager insists on two of them."""
        for length, other in ((5, 5), (5, 3), (2, 9), (1, 4), (9, 1)):
            args = models.apart_call(2, length, other)
            same(apart.call(*args), apart.model(*args))
        *others, mask = models.apart_call(2, 5, 5)
        with pytest.raises(NotTaken, match=r"dimension 1 of args\[2\] differs from that of args\[0\]"):
            apart.call(*others, mask[:, :4])

    @pytest.mark.parametrize("batch", [1, 0, 2, 9, 3])
    def test_a_size_from_nothing_to_the_largest(self, apart: Made, batch: int) -> None:
        for length, other in ((5, 5), (1, 1), (9, 2)):
            args = models.apart_call(batch, length, other)
            same(apart.call(*args), apart.model(*args))


_ALONE = """
import os, pickle, sys
os.environ["PATH"] = ""
sys.path[:] = {path!r}
import torch
from pathlib import Path
import importlib
from compilot.engines import registry
from compilot.engines.protocol import LoadRequest
from compilot.testing import contract_models as models

guard, settings, workspace = pickle.loads(Path({request!r}).read_bytes())
model = models.Sink().eval()
model.load_state_dict(torch.load({weights!r}))
for module in {modules!r}:
    importlib.import_module(module)  # which registers the engine
load = registry.load_half({engine!r}).load
call = load(LoadRequest(model, guard, settings, Path(workspace))).call
args, kwargs = models.sink_call(5)
with torch.no_grad():
    torch.save(call(*args, **kwargs)["y"], {answer!r})
heavy = ("torch._inductor", "torch._dynamo", "torch.onnx", "sympy", "transformers")
sys.exit("imported " + ", ".join(found) if (found := [name for name in heavy if name in sys.modules]) else 0)
"""


def run_alone(engine: str, request: Any, folder: Path) -> torch.Tensor:
    """The sink's answer to seed 5 from a process of its own; it fails when anything heavy was imported there."""
    import pickle

    (folder / "request.pickle").write_bytes(pickle.dumps(request))
    script = _ALONE.format(
        path=sys.path,
        request=str(folder / "request.pickle"),
        weights=str(folder / "weights.pt"),
        answer=str(folder / "answer.pt"),
        engine=engine,
        modules=registry.registered_modules(),
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: torch.Tensor = torch.load(folder / "answer.pt")
    return answer
