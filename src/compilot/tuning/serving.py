"""A trace of many sizes: policies in place of single candidates, and a replay in place of the final.

In: a run whose search is over, the traffic of the trace, or of the batch sizes that were asked for. Out: a verdict and
the entries of its plan. The steps, each within its share of what is left: prove which sizes may be padded; time every
engine's program for all sizes over the trace, and measure what programs for one size cost with the best engines; try
torch.compile as users have it; choose policies by forecast; build them as whole plans; replay a sample of the trace
over them, in several sets of fresh processes; choose; replay the chosen one again in fresh processes, whose figures are
the plan's. Covered: engines without a program for all sizes, programs that fail, arms that are lost in a replay,
budgets that end early. Not covered: how each step works (size_costs.py, size_arms.py, verdict/).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from compilot._version import __version__
from compilot.candidates.spaces import candidates_of, space_of, usable_engines
from compilot.engines import registry
from compilot.engines.compiler_options import SIZES
from compilot.engines.eager.build import EAGER
from compilot.engines.space import fitting
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    Diagnosis,
    EngineSizes,
    Goal,
    Padding,
    Plan,
    Replay,
    ShapePolicy,
    SizesVerdict,
    State,
    Traffic,
    TrafficLine,
    Trial,
    Verdict,
)
from compilot.trials.replaying import LONGEST_WINDOW, WINDOW_S
from compilot.trials.runner import Job, Runner
from compilot.tuning.budget import CONFIRM_PROCESSES, Spending
from compilot.tuning.journal import RunJournal, now
from compilot.tuning.replays import CONFIRM, Made, ReplayPlan, replayed
from compilot.tuning.size_arms import (
    Base,
    Measured,
    Policy,
    made,
    missing_programs,
    padding_of,
    policies_to_try,
    single,
    takers,
)
from compilot.tuning.size_costs import (
    LEAST_TRIAL_S,
    MOST_DIMS,
    Curves,
    SizePrograms,
    curves,
    dynamic_cost,
    eager_cost,
    places,
    shape_costs,
    static_cost,
    telling_first,
    total_of,
    with_changes,
)
from compilot.tuning.size_engines import (
    ENGINES,
    bases_of,
    best_of_each,
    gains,
    in_process_of,
    is_sized,
    ranked_over,
    with_both_kinds,
)
from compilot.tuning.size_notes import (
    asked,
    empty_calls_note,
    goal_note,
    largest_of,
    many_sizes_note,
    may_be_cut,
    partly_padded_note,
    powers_note,
    together_note,
    told_of_leaks,
    usable_padding,
)
from compilot.verdict.policies import MAX_ENTRIES, ShapeRules, choose
from compilot.verdict.replay_confirmation import confirmed
from compilot.verdict.replay_forecast import forecast_of
from compilot.verdict.replays import Decided, decide_replay, start_share
from compilot.verdict.shape_costs import Sizes
from compilot.verdict.shape_plan import plan_for_sizes, verdict_for_sizes
from compilot.verdict.words import count, times

AFTER_SEARCH = 0.65  # of the budget: a search over engines needs few trials, programs and their replay many processes
CURVES_SHARE = 0.20  # of what is left after the search
CHANGES_SHARE = 0.25  # of the time for these, to see what a change of size costs
PROGRAMS_SHARE = 0.30  # the same, for programs that only tell what one costs
BUILDING_SHARE = 0.35  # of what is left by then, for programs of the policies that go on
PLACE_S = 1.6  # of one arm at one size: a warm-up and a few rounds
AROUND_A_TRIAL_S = 3.0  # eager's reference and its warm-up at another size
DEAR = 1.5  # times an engine's share: what the fewest of its programs may take
MOST_ARMS = 4  # policies of a replay; torch.compile as users know it comes on top
CONFIRM_SHARE = 0.35  # of what is left for replays: the chosen plan again, beside eager
REQUESTS = 256
FEWEST_REQUESTS = 48
FEWEST_CHANGES = 12  # requests that tell what a change of size costs: fewer are a matter of luck
ANSWERED = 4  # times, each of these: twice before it is timed, once to see how long it takes
MOST_PLACES = {1: 10, 2: 25}
FEWEST_PLACES = 4
ARM_START_S = 3.0  # opening the model and the plan's files, beside others
LEAST_PROGRAMS = {1: 3, 2: 4}  # the ends and the middle; the corners of a grid, without which it tells nothing


class ServedTrace(NamedTuple):
    """What the run came to."""

    verdict: Verdict
    plan: Plan
    used: tuple[str, ...]  # candidates whose files the plan needs
    last: Replay | None = None  # of the chosen plan in fresh processes, or of all arms where none was chosen


class Serving(NamedTuple):
    """A run that serves a trace."""

    runner: Runner
    journal: RunJournal
    spending: Spending
    goal: Goal
    observer: Observer
    traffic: Traffic
    diagnosis: Diagnosis

    def served(self) -> ServedTrace:
        """The whole of it."""
        self.observer.stage("proving which sizes may be padded")
        proof = self.runner.prove_padding()
        padding = usable_padding(proof, self.traffic)
        notes = [*goal_note(self.goal), *told_of_leaks(proof), *partly_padded_note(proof, self.traffic)]
        notes += together_note(self.traffic)
        notes += [] if padding is None else powers_note(self.traffic, self._max_entries)
        for note in notes:
            self.observer.note(note)
        programs = SizePrograms(self.runner, self.journal, self.traffic, self.observer)
        engines = self._measured(programs, padding)
        line = TrafficLine(
            traffic=self.traffic, proof=proof, engines=tuple(one.sizes for one in engines), notes=tuple(notes)
        )
        self.journal.served(line)
        plain, missing = self._as_users_have_it()
        arms, problems = self._arms(engines, programs, padding)
        notes += [*missing, *problems]
        arms += [one for one in plain if not is_same_program(one, arms)]
        arms, left_out = with_room(arms, self.runner.capacity.workers - 1)  # beside eager
        notes += left_out
        replay = self._replayed(arms, CONFIRM_SHARE)
        notes += [*empty_calls_note(self.traffic), *many_sizes_note(self.traffic)]
        choice = self._chosen(replay, tuple(notes))
        fresh = self._confirmed(choice, arms)
        return self._decided(choice, fresh, arms)._replace(last=fresh or replay)

    # ---------------------------------------------------------------------------------------------- what things cost

    def _measured(self, programs: SizePrograms, padding: Padding | None) -> list[Measured]:
        """The best engines' costs and what follows from them, each for itself and two together."""
        every = bases_of(list(self.journal.trials.values()))
        room = max(ENGINES, self.runner.capacity.workers - 1)  # beside eager
        dynamic = [base.dynamic for base in every if base.dynamic is not None][:room]
        share_s = max(0.0, self.spending.budget.remaining_s)
        found = self._curves(dynamic, share_s * CURVES_SHARE)
        if not found.eager:
            return []
        bases = self._best(every, found)
        each_s = share_s * PROGRAMS_SHARE / max(1, len(bases))
        sizes = [self._engine(base, found, programs, padding, each_s) for base in bases]
        measured = [Measured(own, base) for own, base in zip(sizes, bases, strict=True) if own is not None]
        return [*measured, *filter(None, (self._together(*pair) for pair in itertools.permutations(measured, 2)))]

    def _together(self, one: Measured, other: Measured) -> Measured | None:
        """Programs for one size by one engine, and behind them the other one's program for all sizes: engines that are
        fast at one size are not always those that stand changing ones. None: they cannot, or it brings nothing new.
        """
        costs = msgspec.structs.replace(one.sizes.costs, dynamic=other.sizes.costs.dynamic)
        candidate = in_process_of(one.base.candidate, other.base.candidate, self.journal.trials.values())
        if costs.static is None or costs.dynamic is None or candidate is None:
            return None
        base = Base(candidate, other.base.dynamic)
        choice = with_both_kinds(choose(asked(self.traffic), costs, self._rules(base)))
        if choice is None or not gains(choice, (one.sizes.choice, other.sizes.choice)):
            return None
        engine, label = (f"{a} + {b}" for a, b in zip(_names(one), _names(other), strict=True))
        self.observer.note(f"{label}: {choice.because} (forecast)")
        return Measured(EngineSizes(engine=engine, label=label, costs=costs, choice=choice), base)

    def _best(self, bases: Sequence[Base], found: Curves) -> list[Base]:
        """Whose programs are fastest over the trace: among changing sizes first, then at one size each."""
        demand = asked(self.traffic)
        ranked = ranked_over(demand, bases, found)
        kept = best_of_each(ranked, ranked_over(demand, bases, found._replace(change_s={})))
        eager_s = total_of(eager_cost(found), demand)
        told = [f"{base.candidate.label} {times(eager_s / own_s)}" for base, own_s in ranked if 0 < own_s < math.inf]
        if len(told) > 1:
            names = " and ".join(base.candidate.label for base in kept)
            self.observer.note(f"programs for all sizes over the trace: {', '.join(told)}; {names} go on (forecast)")
        return kept

    def _curves(self, dynamic: Sequence[Trial], share_s: float) -> Curves:
        dims = len(self.traffic.dims)
        most = int(share_s / (PLACE_S * (len(dynamic) + 2)))
        sizes = places(self.traffic, max(FEWEST_PLACES, min(most, MOST_PLACES.get(dims, FEWEST_PLACES))))
        self.observer.stage(f"timing eager and programs for all sizes at {count(len(sizes), 'size')}")
        self.runner.keep([trial.candidate.id for trial in dynamic])
        found = curves(self.runner, dynamic, sizes, self.traffic)
        each_s = ANSWERED * self._eager_request_s() * (len(dynamic) + 1)
        requests = min(FEWEST_REQUESTS, int(share_s * CHANGES_SHARE / each_s))
        if requests < FEWEST_CHANGES or not found.eager:
            return found
        self.observer.doing("answering requests of changing sizes")
        return with_changes(self.runner, dynamic, found, self.traffic, requests)

    def _engine(
        self, base: Base, found: Curves, programs: SizePrograms, padding: Padding | None, share_s: float
    ) -> EngineSizes | None:
        """One engine: programs for a few sizes tell what such a program costs, then its policies follow."""
        none = len(self.traffic.dims) > MOST_DIMS or self._is_too_dear(base, share_s)
        trials = {} if none else self._samples(base.candidate, programs, share_s)
        static = static_cost(found.eager, trials)
        dynamic = None
        if base.dynamic is not None:
            dynamic = dynamic_cost(base.dynamic, found)
        if static is None and dynamic is None:
            return None
        notes = [f"{t.candidate.label}: {t.state}, {t.reason}" for t in trials.values() if t.state is not State.OK]
        pad_s, may_pad = self._stands_padding(trials, programs, padding, notes)
        cut = may_be_cut(padding, self.traffic)
        costs = shape_costs(found, static, dynamic, pad_s=pad_s, may_pad=may_pad, may_split=cut)
        rules = self._rules(base)
        choice = choose(asked(self.traffic), costs, rules)
        if static is not None and may_pad and rules.max_entries < self._max_entries:
            notes += powers_note(self.traffic, rules.max_entries, "there is time for")
        self.observer.note(f"{base.candidate.label}: {choice.because} (forecast)")
        label, engine = base.candidate.label, base.candidate.settings.engine
        return EngineSizes(engine=engine, label=label, costs=costs, choice=choice, notes=tuple(notes))

    def _is_too_dear(self, base: Base, share_s: float) -> bool:
        """Whether the fewest programs that tell something would take far more than their share; an engine that has no
        program for all sizes has only these.
        """
        least_s = LEAST_PROGRAMS[min(len(self.traffic.dims), MOST_DIMS)] * self._program_s(base.candidate)
        return base.dynamic is not None and least_s > DEAR * share_s

    def _samples(self, base: Candidate, programs: SizePrograms, share_s: float) -> dict[Sizes, Trial]:
        """Programs for the sizes that tell most, as far as time goes; the ends of each dimension at the least."""
        begin, trials, dims = self.spending.budget.elapsed_s, dict[Sizes, Trial](), len(self.traffic.dims)
        number, least = int(share_s / self._program_s(base)), LEAST_PROGRAMS[dims]
        wanted = places(self.traffic, max(least, min(number, MOST_PLACES[dims])))
        self.observer.stage(f"building programs of {base.label} for up to {count(len(wanted), 'size')}")
        for sizes in telling_first(wanted):
            spent = self.spending.budget.elapsed_s - begin
            if len(trials) >= least and spent > share_s:
                break
            trials[sizes] = programs.built(base, sizes, self._limit_s())
            if len(trials) == least and not any(t.state is State.OK for t in trials.values()):
                break  # it has no programs for one size
        return trials

    def _program_s(self, base: Candidate) -> float:
        """How long one more program takes to try, from those that were tried."""
        own = [t for t in self.journal.trials.values() if t.candidate.settings.engine == base.settings.engine]
        sized = [t.wall_s for t in own if t.candidate.sizes] or [t.wall_s for t in own]
        return max(1.0, sum(sized) / max(1, len(sized))) + AROUND_A_TRIAL_S

    def _stands_padding(
        self, trials: dict[Sizes, Trial], programs: SizePrograms, padding: Padding | None, notes: list[str]
    ) -> tuple[float, bool]:
        """Seconds of padding a call, and whether this engine's programs may be given padded calls."""
        able = [(sizes, trial) for sizes, trial in sorted(trials.items()) if trial.state is State.OK]
        if padding is None or not able:
            return 0.0, False
        sizes, trial = able[-1]
        if (leak := programs.leak(trial, padding_of(padding, self.traffic, sizes))) is not None:
            notes.append(f"{trial.candidate.label} does not stand padding: {leak.why}")
            return 0.0, False
        return programs.pad_s[trial.candidate.id], True

    def _rules(self, base: Base) -> ShapeRules:
        """No more programs than the user allows, nor than there is time to build."""
        left_s = max(0.0, self.spending.budget.remaining_s) * BUILDING_SHARE
        there = [
            t for t in self.journal.trials.values() if t.state is State.OK and is_sized(t.candidate, base.candidate)
        ]
        affordable = len(there) + int(left_s / self._program_s(base.candidate))
        return ShapeRules(
            max_entries=max(1, min(self._max_entries, affordable)),
            horizon_calls=self.goal.horizon_calls,
            largest=largest_of(self.traffic),
            memory_bytes=self.journal.header.max_memory_bytes,
        )

    @property
    def _max_entries(self) -> int:
        """Programs that the user allows."""
        return self.journal.header.max_entries or MAX_ENTRIES

    # ------------------------------------------------------------------------------------------------------ the arms

    def _as_users_have_it(self) -> tuple[list[Made], list[str]]:
        """torch.compile in each of its ways with sizes, where it works, and why another is not compared.

        Before the policies are built: these may take all the time there is, and torch.compile is what users would have.
        """
        found, missing = list[Made](), list[str]()
        for candidate in plain_candidates(self.diagnosis, self.journal.header.engines):
            trial = self.journal.trials.get(candidate.id) or self._tried_as_is(candidate)
            if trial is None:
                missing.append(f"{candidate.label} is not compared: the budget is used")
            elif trial.state is not State.OK:
                missing.append(f"{candidate.label} is not compared: {trial.state}, {trial.reason}")
            else:
                found.append(single(trial, f"as-is-{candidate.id}", candidate.label))
        for note in missing:
            self.observer.note(note)
        return found, missing

    def _tried_as_is(self, candidate: Candidate) -> Trial | None:
        """Its trial; None: time is up."""
        if self.spending.budget.remaining_s <= 0:
            return None
        limit_s = max(LEAST_TRIAL_S, self._limit_s())
        self.observer.trying(candidate, len(self.journal.trials) + 1, limit_s)
        self.runner.submit([Job(candidate, limit_s)])
        trial = next(iter(self.runner.completed()))
        self.journal.append(trial)
        return trial

    def _arms(
        self, engines: Sequence[Measured], programs: SizePrograms, padding: Padding | None
    ) -> tuple[list[Made], list[str]]:
        """The policies that go on, as whole plans, and why others do not."""
        found, problems = list[Made](), list[str]()
        for number, policy in enumerate(policies_to_try(engines, MOST_ARMS)):
            if found and not self._affords(policy, programs):
                problems.append(f"{policy.label} was not built: the budget is used")
                continue
            one = made(policy, number, programs, self.traffic, padding, self._limit_s())
            if isinstance(one, Made):
                one = one._replace(forecast=partial(self._forecast, policy, one))
            found += [one] if isinstance(one, Made) else []
            problems += [one] if isinstance(one, str) else []
        for problem in problems:
            self.observer.note(problem)
        return found, problems

    def _forecast(self, policy: Policy, one: Made, requests: int) -> float:
        """What a replay of so many requests is expected to show."""
        requested = self.traffic.requests[:requests]
        if not requested:
            return policy.speedup
        more_s, _ = start_share(one.record, self.goal.horizon_calls)
        return forecast_of(requested, policy.engine.costs, takers(one.arm.entries, self.traffic), more_s)

    def _affords(self, policy: Policy, programs: SizePrograms) -> bool:
        missing = missing_programs(policy, programs, list(self.journal.trials))
        needed_s = len(missing) * self._program_s(policy.base.candidate)
        return needed_s <= max(0.0, self.spending.budget.remaining_s) * BUILDING_SHARE

    # ---------------------------------------------------------------------------------------------------- the replay

    def _replayed(self, arms: Sequence[Made], reserved: float = 0.0, purpose: str = "replay") -> Replay | None:
        """Set after set of fresh processes; reserved: of what is left, for later. What confirms may run over."""
        calls, budget = sum(one.count for one in self.traffic.demand), self.spending.budget
        reserve_s = max(0.0, budget.remaining_s) * reserved
        over_s = self.spending.overrun_s if purpose == CONFIRM else 0.0

        def left_s() -> float:
            return budget.remaining_s - reserve_s + over_s

        def requests(number: int) -> int:
            return self._requests(number, left_s() - over_s)  # it may run over, but is not made longer for it

        batched = bool(self.journal.header.batch_sizes)
        how = ReplayPlan(CONFIRM_PROCESSES, requests, left_s, calls, len(self.traffic.demand), purpose, batched)
        replay = replayed(self.runner, arms, how, self.observer)
        if replay is not None:
            self.journal.replayed(replay)
        return replay

    def _requests(self, arms: int, left_s: float) -> int:
        """As many as fit into what is left: each is answered by every arm, and each size twice before that."""
        set_s = max(0.0, left_s) / CONFIRM_PROCESSES - ARM_START_S * (arms + 2)
        mean_s = self._eager_request_s()
        each_s = 2 * mean_s + max(mean_s, WINDOW_S / LONGEST_WINDOW)
        return max(FEWEST_REQUESTS, min(REQUESTS, int(set_s / (each_s * (arms + 2)))))

    def _eager_request_s(self) -> float:
        return max(1e-4, self.spending.costs.eager_call_s)

    def _chosen(self, replay: Replay | None, notes: tuple[str, ...]) -> Decided:
        """What the replay says; its figures choose, and prove nothing yet."""
        if replay is not None:
            return decide_replay(replay, horizon_calls=self.goal.horizon_calls, notes=notes)
        why = "no program could be built for the sizes of the trace"
        return Decided(
            None, SizesVerdict(policy=ShapePolicy.EAGER, arm_id=EAGER.id, because=why, comparisons=(), notes=notes)
        )

    def _confirmed(self, choice: Decided, arms: Sequence[Made]) -> Replay | None:
        """The chosen plan again, beside eager and plain torch.compile; None: nothing was chosen, or all time is up."""
        if choice.arm is None or self.spending.budget.remaining_s + self.spending.overrun_s <= 0:
            return None
        wanted = {choice.arm.id, _plain_of(arms)}
        return self._replayed([one for one in arms if one.arm.id in wanted], purpose=CONFIRM)

    def _decided(self, choice: Decided, fresh: Replay | None, arms: Sequence[Made]) -> ServedTrace:
        decided = confirmed(choice, fresh, horizon_calls=self.goal.horizon_calls, enough=CONFIRM_PROCESSES)
        verdict = verdict_for_sizes(decided.verdict, decided.arm, EAGER.id, fresh)
        entries = next((m.arm.entries for m in arms if decided.arm and m.arm.id == decided.arm.id), ())
        plan = plan_for_sizes(
            verdict,
            entries,
            fresh,
            self.journal.header,
            list(self.journal.trials.values()),
            plain_id=_plain_of(arms),
            created=now(),
            version=__version__,
        )
        return ServedTrace(verdict, plan, decided.arm.candidates if decided.arm else ())

    def _limit_s(self) -> float:
        return max(0.0, self.spending.budget.remaining_s) * BUILDING_SHARE


# ------------------------------------------------------------------------------------------------------ small things


def with_room(arms: Sequence[Made], most: int) -> tuple[list[Made], list[str]]:
    """The arms that memory has room for at once, and who is left out: the best policy stays first, then plain
    torch.compile, then the other policies.
    """
    most = max(1, most)
    policies = [one for one in arms if one.record.policy is not None]
    plain = [one for one in arms if one.record.policy is None]
    first = [*policies[:1], *plain[:1], *policies[1:], *plain[1:]][:most]
    out = ", ".join(one.record.label for one in arms if one not in first)
    told = f"memory has room for {count(most, 'process', 'es')} beside eager, so these are not replayed: {out}"
    return [one for one in arms if one in first], [told] if out else []


def is_same_program(one: Made, arms: Sequence[Made]) -> bool:
    """Whether a policy is this single program, too."""
    return any(other.record.candidates == one.record.candidates for other in arms)


def _plain_of(arms: Sequence[Made]) -> str | None:
    """The arm that is plain torch.compile."""
    return next((one.arm.id for one in arms if one.record.policy is None), None)


def _names(one: Measured) -> tuple[str, str]:
    return one.sizes.engine, one.sizes.label


def plain_candidates(diagnosis: Diagnosis, engines: Sequence[str]) -> list[Candidate]:
    """Plain torch.compile, in each way that it has with declared sizes; none where it was not asked for."""
    name = registry.plain_compile()
    if name not in usable_engines(engines) or diagnosis.compiler_problem:
        return []
    plain = candidates_of(name, diagnosis)[:1]
    ways = [knob for knob in fitting(space_of(name, diagnosis).knobs, diagnosis) if knob.name == SIZES]
    labels = {"automatic": "torch.compile", "all": "torch.compile dynamic=True"}
    return [
        msgspec.structs.replace(
            candidate,
            settings=msgspec.structs.replace(
                candidate.settings, options={**candidate.settings.options, SIZES: str(value)}
            ),
            label=labels.get(str(value), str(value)),
            rationale="what users have without compilot",
        )
        for candidate in plain
        for knob in ways
        for value in knob.values[1:]
    ]
