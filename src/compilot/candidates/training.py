"""The search over ways to train: part by part, what promises most for its seconds first.

In: a diagnosis with `step`, trials. Out: candidates. First the optimizer's own ways and kept memory, which cost nothing
to build, and plain torch.compile(model), the yardstick; then what was best of the former under everything that can be
compiled; then the best so far with one more part. Each part is so measured apart, and the report says what each
brought. What a model cannot have is not asked for: one graph under gradient hooks, compiled autograd without graph
breaks, channels-last without images. Parts that save memory and cost time only where memory was asked for; bf16 only
where the user allows it and the CPU computes in it. Like the guided search it follows from the trials alone, so that a
run can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from compilot.candidates import worth
from compilot.candidates.process import threads_knob
from compilot.candidates.search import TimeLeft
from compilot.candidates.spaces import usable_engines
from compilot.candidates.step_parts import COMPILES_OPTIMIZER, CPP_WRAPPER, compiles, label_of, step_candidate
from compilot.candidates.worth import Worth
from compilot.engines import registry
from compilot.engines.arithmetic import no_arithmetic
from compilot.engines.compiler_knobs import PRODUCTS
from compilot.engines.eager.build import EAGER
from compilot.engines.space import fitting
from compilot.records import (
    Candidate,
    CompiledWay,
    Diagnosis,
    MemoryFormat,
    OptimizerWay,
    OptionValue,
    Precision,
    ProcessSettings,
    State,
    StepFacts,
    StepParts,
    Trial,
)

EAGER_TRIAL_S = 6.0  # nothing is built: a few steps, the judge, some pairs
COMPILE_TRIAL_S = 30.0
OPTIMIZER_PER_TENSOR_S = 0.12  # two minutes for a thousand parameters
MOST_COMPILED_S = 90.0  # a compiled optimizer that takes longer than this to build promises nothing
WORTH_NAMING = 0.02
SMALL_STEP_S = 0.02  # below it the Python around compiled code is worth a part of its own
MANY_BLOCKS = 1  # groups of repeated blocks that are compiled each
BUDGETS = (0.5, 0.2)  # of the activations
LIKELY_WORSE = 0.08  # tried to know what a part brings: one short look at the machine has chosen it
ALONE = 0.5  # what a compiled optimizer promises where nothing else is compiled: it must pay for the compiler alone


class Idea(NamedTuple):
    """Something that could be tried."""

    candidate: Candidate
    worth: Worth


class TrainingSearch:
    """Asks for what promises most per second."""

    def __init__(
        self,
        engines: Sequence[str] = (),
        precisions: Sequence[Precision] = (),
        *,
        horizon_calls: int | None = None,
        for_memory: bool = False,
    ) -> None:
        """for_memory: parts that save memory and cost time may be tried."""
        self._engines, self._precisions = engines, precisions
        self._horizon_calls, self._for_memory = horizon_calls, for_memory
        self._compiler = ""
        self._diagnosis = Diagnosis()
        self._told: dict[str, Trial] = {}
        self._asked: set[str] = set()

    def begin(self, diagnosis: Diagnosis) -> None:
        """What is known of the training."""
        self._diagnosis = diagnosis
        usable = [name for name in usable_engines(self._engines) if registry.traits(name).plain_compile]
        self._compiler = usable[0] if usable and diagnosis.compiler_problem is None else ""

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        """The most promising ones that fit into the time."""
        fitting = [idea.candidate for idea in self.pool() if idea.worth.seconds < budget.remaining_s]
        self._asked |= {candidate.id for candidate in fitting[:slots]}
        return fitting[:slots]

    def tell(self, trial: Trial) -> None:
        """Remember how it went."""
        self._told[trial.candidate.id] = trial
        self._asked.add(trial.candidate.id)

    def unasked(self) -> list[Candidate]:
        """What it would still ask for."""
        return [idea.candidate for idea in self.pool() if idea.worth.gain >= WORTH_NAMING]

    def next_worth(self, budget: TimeLeft) -> Worth | None:
        """Of what it would ask for now."""
        return next((idea.worth for idea in self.pool() if idea.worth.seconds < budget.remaining_s), None)

    def pool(self) -> list[Idea]:
        """Everything that could be tried now, the most promising first."""
        facts, found = self._diagnosis.step, dict[str, Idea]()
        if facts is None or self._diagnosis.unjudgeable:
            return []
        for idea in (*self._optimizers(facts), *self._compiled(facts), *self._variations(facts)):
            fresh = idea.candidate.id not in self._asked and idea.candidate.id not in found
            if fresh and not idea.candidate.is_eager and idea.worth.gain > 0.0 and self._may(idea):
                found[idea.candidate.id] = idea
        return sorted(found.values(), key=lambda idea: -idea.worth.score)

    # ------------------------------------------------------------------------------------------------ what could be

    def _optimizers(self, facts: StepFacts) -> Iterator[Idea]:
        """The optimizer's own ways under eager: worth the more, the more of a step the update is."""
        share = _share(facts.update_s, self._diagnosis.eager_call_s)
        for way in facts.ways:
            why = f"{facts.optimizer} as it is moves {facts.tensors} tensors one after the other"
            gain = {OptimizerWay.FUSED: 0.6, OptimizerWay.FOREACH: 0.3}.get(way, 0.05) * share
            made = step_candidate(why, StepParts(optimizer=way), engine=self._compiler)
            yield Idea(made, Worth(max(gain, 0.01), self._eager_s()))

    def _compiled(self, facts: StepFacts) -> Iterator[Idea]:
        """What can be compiled: the yardstick first, then everything under the best optimizer so far."""
        if not self._compiler:
            return
        plain = StepParts(compiled=CompiledWay.MODEL)
        yield self._built("what `torch.compile(model)` gives, the yardstick", plain, 0.30)
        if not self._is_told(plain):
            return
        best, process, options = self._best_way(facts), self._best_process(), self._products()
        ways = [
            (CompiledWay.MODEL, "the compiled model under the fastest optimizer", 0.25),
            (CompiledWay.WITH_LOSS, "model and loss in one program: the loss is fused, too", 0.12),
            (CompiledWay.ONE_GRAPH, "forward, loss and backward in one program; judged by its gradients", 0.15),
            (CompiledWay.REGIONS, "each repeated block compiled once: a shorter start", 0.06),
        ]
        for way, why, gain in ways:
            if self._can(way, facts):
                step = StepParts(compiled=way, optimizer=best)
                yield self._built(why, step, gain, facts.blocks[:MANY_BLOCKS], process, options)
        if options:
            why = "the same with matrix products by torch's math library: was oneDNN the better choice?"
            yield self._built(why, StepParts(compiled=CompiledWay.MODEL, optimizer=best), LIKELY_WORSE, (), process)

    def _can(self, way: CompiledWay, facts: StepFacts) -> bool:
        if way is CompiledWay.ONE_GRAPH:
            return not facts.hooks
        return way is not CompiledWay.REGIONS or bool(facts.blocks)

    def _variations(self, facts: StepFacts) -> Iterator[Idea]:
        """The best so far, and eager with its best optimizer, each with one more part."""
        for base in self._bases():
            yield from self._further(base, facts)

    def _further(self, base: Trial, facts: StepFacts) -> Iterator[Idea]:
        own, step = base.candidate, base.candidate.step
        built = compiles(step)
        if self._compiler and facts.compilable and step.optimizer not in COMPILES_OPTIMIZER:
            share = _share(facts.update_s, self._diagnosis.eager_call_s) * (1.0 if built else ALONE)
            for way, factor in ((OptimizerWay.KERNEL, 0.3), (OptimizerWay.COMPILED, 0.25)):
                why = "the optimizer as compiled code in place of its fused or foreach form"
                yield self._with_step(own, why, factor * share, optimizer=way)
        if built and step.compiled in (CompiledWay.MODEL, CompiledWay.WITH_LOSS) and self._breaks(facts):
            yield self._with_step(own, "the backward of all pieces in one program", 0.03, compiled_autograd=True)
        if built and CPP_WRAPPER not in own.settings.options:
            small = (self._diagnosis.eager_call_s or 1.0) < SMALL_STEP_S
            yield self._with_option(own, CPP_WRAPPER, "called from C++ instead of Python", 0.06 if small else 0.02)
        if self._diagnosis.has_conv and self._diagnosis.has_4d_input:
            yield self._with_format(own)
        yield from self._process(own)
        yield from self._memory(own, facts)
        yield from self._lower(own)

    def _process(self, own: Candidate) -> Iterator[Idea]:
        process = own.process
        if process.keep_memory is None:
            why = "freed memory stays in the process: activations are not mapped and unmapped at each step"
            yield self._with_process(own, why, 0.08, msgspec.structs.replace(process, keep_memory=True))
        if process.threads is None:
            for value in (one.value for one in threads_knob(self._diagnosis).variations or ()):
                if isinstance(value, int):
                    changed = msgspec.structs.replace(process, threads=value)
                    yield self._with_process(own, "less waiting of threads for each other", 0.02, changed)

    def _memory(self, own: Candidate, facts: StepFacts) -> Iterator[Idea]:
        """Less memory for more time; only where memory was asked for."""
        if not self._for_memory:
            return
        step = own.step
        if step.compiled in (CompiledWay.MODEL, CompiledWay.WITH_LOSS) and step.memory_budget is None:
            for budget in BUDGETS:
                why = f"{budget:.0%} of the activations are kept, the rest is computed again in the backward"
                yield self._with_step(own, why, 0.05, memory_budget=budget)
        if facts.blocks and not step.checkpoint and not facts.batch_norm:
            why = "the repeated blocks run once more in the backward, and keep nothing until then"
            yield self._with_step(own, why, 0.05, checkpoint=facts.blocks[0])

    def _lower(self, own: Candidate) -> Iterator[Idea]:
        able = Precision.BF16 in self._precisions and not no_arithmetic(self._diagnosis, Precision.BF16)
        if able and own.step.autocast is Precision.AS_IS:
            yield self._with_step(own, "forward and loss in bf16, as the user allows", 0.25, autocast=Precision.BF16)

    # ---------------------------------------------------------------------------------------------- making candidates

    def _built(
        self,
        why: str,
        step: StepParts,
        gain: float,
        regions: tuple[str, ...] = (),
        process: ProcessSettings = ProcessSettings(),  # noqa: B008  # frozen
        options: dict[str, OptionValue] | None = None,
    ) -> Idea:
        made = step_candidate(why, step, engine=self._compiler, regions=regions, options=options, process=process)
        return Idea(made, Worth(gain * self._unspoiled(made), self._seconds(made)))

    def _with_step(self, own: Candidate, why: str, gain: float, **what: object) -> Idea:
        step = msgspec.structs.replace(own.step, **what)
        selectors = tuple(region.selector for region in own.regions)
        made = step_candidate(
            why,
            step,
            engine=self._compiler,
            regions=selectors,
            options=own.settings.options,
            memory_format=own.settings.memory_format,
            process=own.process,
        )
        return Idea(made, Worth(gain * self._unspoiled(made), self._seconds(made)))

    def _with_option(self, own: Candidate, name: str, why: str, gain: float) -> Idea:
        settings = msgspec.structs.replace(own.settings, options={**own.settings.options, name: True})
        regions = tuple(msgspec.structs.replace(region, settings=settings) for region in own.regions)
        return self._changed(msgspec.structs.replace(own, settings=settings, regions=regions), why, gain)

    def _with_format(self, own: Candidate) -> Idea:
        settings = msgspec.structs.replace(own.settings, memory_format=MemoryFormat.CHANNELS_LAST)
        regions = tuple(msgspec.structs.replace(region, settings=settings) for region in own.regions)
        changed = msgspec.structs.replace(own, settings=settings, regions=regions)
        return self._changed(changed, "convolutions are often faster with the channels innermost", 0.08)

    def _with_process(self, own: Candidate, why: str, gain: float, process: ProcessSettings) -> Idea:
        return self._changed(msgspec.structs.replace(own, process=process), why, gain)

    def _changed(self, made: Candidate, why: str, gain: float) -> Idea:
        named = msgspec.structs.replace(made, label=label_of(made), rationale=f"the best so far: {why}")
        return Idea(named, Worth(gain * self._unspoiled(named), self._seconds(named)))

    # ----------------------------------------------------------------------------------------------- what was learned

    def _able(self) -> list[Trial]:
        able = [t for t in self._told.values() if worth.speed(t) is not None and not t.candidate.is_eager]
        return sorted(able, key=lambda trial: -(worth.speed(trial) or 0.0))

    def _bases(self) -> list[Trial]:
        """The best, and the best of the other kind: built or not; eager itself where nothing is faster."""
        able = [trial for trial in self._able() if (worth.speed(trial) or 0.0) > 0.0]
        first = able[:1]
        others = [t for t in able if first and compiles(t.candidate.step) != compiles(first[0].candidate.step)]
        eager = [t for t in self._told.values() if t.candidate.is_eager and t.state is State.OK]
        return [*first, *others[:1], *(eager if not first else [])]

    def _best_way(self, facts: StepFacts) -> OptimizerWay:
        """The fastest of the optimizer's ways that were tried under eager."""
        tried = {
            t.candidate.step.optimizer: worth.speed(t) or 0.0 for t in self._able() if _only_optimizer(t.candidate)
        }
        best = max(tried, key=lambda way: tried[way], default=OptimizerWay.AS_IS)
        return best if tried.get(best, 0.0) > 0.0 else OptimizerWay.AS_IS

    def _best_process(self) -> ProcessSettings:
        """Kept memory, where the fastest of those that compile nothing has it: it costs nothing to carry over."""
        plain = [trial for trial in self._able() if not compiles(trial.candidate.step)]
        kept = plain[0].candidate.process.keep_memory if plain else None
        return ProcessSettings(keep_memory=kept)

    def _products(self) -> dict[str, OptionValue]:
        """Matrix products by oneDNN in all that is compiled, where they are faster on this machine and did not fail."""
        tried = [t.state for t in self._told.values() if _by_onednn(t.candidate)]
        failed = bool(tried) and not {State.OK, State.PRUNED}.intersection(tried)
        return {PRODUCTS.name: True} if fitting([PRODUCTS], self._diagnosis) and not failed else {}

    def _breaks(self, facts: StepFacts) -> bool:
        return bool(self._diagnosis.graph_breaks) or bool(facts.hooks)

    def _is_told(self, step: StepParts) -> bool:
        return any(trial.candidate.step == step for trial in self._told.values())

    def _unspoiled(self, candidate: Candidate) -> float:
        """0.0 for what repeats a part that was wrong or did not work; 1.0 for all others."""
        step = candidate.step
        for trial in self._told.values():
            other = trial.candidate.step
            if trial.state in (State.OK, State.PRUNED) or other == StepParts():
                continue
            alike = _by_onednn(trial.candidate) == _by_onednn(candidate)
            alone = other.compiled is not CompiledWay.NOTHING and other.compiled is step.compiled and alike
            if (
                alone
                and other.optimizer in (step.optimizer, OptimizerWay.AS_IS)
                and other.compiled is not CompiledWay.MODEL
            ):
                return 0.0
            if other.optimizer in COMPILES_OPTIMIZER and other.optimizer is step.optimizer:
                return 0.0
        return 1.0

    def _eager_s(self) -> float:
        return EAGER_TRIAL_S + 40.0 * (self._diagnosis.eager_call_s or 0.0)

    def _seconds(self, candidate: Candidate) -> float:
        step = candidate.step
        if not compiles(step):
            return self._eager_s()
        own = [t for t in self._told.values() if compiles(t.candidate.step) and t.wall_s > 0.0]
        if (there_s := worth.start_s(candidate, registry.traits(candidate.settings.engine), own)) is not None:
            return there_s
        usual = worth.trial_s(registry.traits(candidate.settings.engine), own) if own else COMPILE_TRIAL_S
        facts = self._diagnosis.step
        tensors = facts.tensors if facts is not None else 0
        whole = step.optimizer is OptimizerWay.COMPILED
        return usual + (OPTIMIZER_PER_TENSOR_S * tensors if whole else 0.0)

    def _may(self, idea: Idea) -> bool:
        """Not what cannot be paid back within the steps that the user has in mind, nor what takes minutes to build."""
        facts, step = self._diagnosis.step, idea.candidate.step
        tensors = facts.tensors if facts is not None else 0
        if step.optimizer is OptimizerWay.COMPILED and OPTIMIZER_PER_TENSOR_S * tensors > MOST_COMPILED_S:
            return False
        if not compiles(step) or self._horizon_calls is None:
            return True
        cold_s = worth.cold_s(registry.traits(idea.candidate.settings.engine), self._told.values())
        best = max([0.0, *(worth.speed(t) or 0.0 for t in self._able()[:1])])
        call_s = self._diagnosis.eager_call_s
        return worth.pays_back(cold_s, call_s, best, idea.worth.gain, self._horizon_calls)


def _only_optimizer(candidate: Candidate) -> bool:
    plain = StepParts(optimizer=candidate.step.optimizer)
    return candidate.step == plain and candidate.settings == EAGER.settings and candidate.process == EAGER.process


def _by_onednn(candidate: Candidate) -> bool:
    return bool(candidate.settings.options.get(PRODUCTS.name))


def _share(part_s: float | None, whole_s: float | None) -> float:
    return min(1.0, part_s / whole_s) if part_s is not None and whole_s else 0.2
