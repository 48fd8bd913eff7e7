"""Do ONNX Runtime's spinning threads disturb what is timed next? One candidate alone and right after it, in one race.

    python bench/settle.py [--model resnet18] [--candidate eager] [--pairs 160] [--processes 3] [--no-contrast]

In each round the same live worker of the candidate is timed under several circumstances, in random order:
  alone              after a batch of its own (twice, so that the race has its own A/A noise and margin)
  after its twin     after a batch of another process with the same candidate: what any other process costs
  after ONNX Runtime after a batch of ONNX Runtime, whose threads spin on for tens of milliseconds, then settled
  not settled        the same without waiting until ONNX Runtime's process is idle (--no-contrast leaves it out)
Agreement: "after ONNX Runtime" is no different from "alone" within the margin. Exit code 1 where it is. Nothing else
should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import engines_arms
from compilot.measure.racing import race
from compilot.records import Comparison, Outcome, ProcessSamples, Race
from compilot.trials.child import Child
from compilot.verdict.compare import compare_columns

ALONE, TWIN, AFTER, UNSETTLED = "alone", "after its twin", "after ONNX Runtime", "not settled"


class Circumstance:
    """An arm: the candidate's worker, timed right after something else has run."""

    def __init__(self, candidate: Child, before: Child, *, settled: bool = True) -> None:
        self._candidate = candidate
        self._before = before
        self._settled = settled
        self._late = False

    def time_batch(self) -> float:
        """What comes before is not in the sample."""
        self._before.time_batch()
        self._late = self._settled and not self._before.settle()
        return self._candidate.time_batch()

    def settle(self) -> bool:
        """Wait until the candidate is idle; False: it, or what came before it, was not at the limit."""
        return self._candidate.settle() and not self._late


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        for arm in dict.fromkeys([options.candidate, "onnxruntime"]):
            built = engines_arms.build(work, options.model, arm)
            if not built.ok:
                raise SystemExit(f"{arm} cannot run {options.model}: {built.reason}")
        sets = [one_set(work, options, number) for number in range(options.processes)]
    names = (ALONE, ALONE, TWIN, AFTER, *((UNSETTLED,) if options.contrast else ()))
    whole = Race(arms=names, with_aa=True, processes=tuple(sets), purpose="bench")
    results = {names[column]: compare_columns(whole, column, 0) for column in range(2, len(names))}
    show(options, results, [s.settle_timeouts for s in sets])
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options), "rounds": [s.rounds for s in sets]}, default=str))
    sys.exit(0 if results[AFTER].outcome is Outcome.NO_DIFFERENCE else 1)


def one_set(work: Path, options: argparse.Namespace, number: int) -> ProcessSamples:
    """Fresh processes through their rounds."""
    with engines_arms.live(work, options.model, [options.candidate, options.candidate, "onnxruntime"]) as workers:
        candidate, twin, spinning = workers
        arms = [
            Circumstance(candidate, candidate),
            Circumstance(candidate, candidate),
            Circumstance(candidate, twin),
            Circumstance(candidate, spinning),
        ]
        if options.contrast:
            arms.append(Circumstance(candidate, spinning, settled=False))
        return race(arms, looks=(options.pairs,), stop=lambda _: True, seed=number)


def show(options: argparse.Namespace, results: dict[str, Comparison], timeouts: list[int]) -> None:
    first = next(iter(results.values()))
    print(
        f"{options.model}, {options.candidate}: {first.processes} processes x {first.pairs} pairs, "
        f"margin {first.margin:.1%} (A/A noise {first.aa_noise:.1%}), settle time-outs {sum(timeouts)}; "
        f"a difference of {results[AFTER].mde:.1%} would have been seen"
    )
    for name, result in results.items():
        interval = f"95 % {result.low:.3f}-{result.high:.3f}"
        print(f"  {name:20} {result.ratio:.3f}x the speed of alone ({interval}): {result.outcome}")
    agree = results[AFTER].outcome is Outcome.NO_DIFFERENCE
    print(f"verdict: measured after ONNX Runtime {'is the same as' if agree else 'DIFFERS from'} measured alone")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18", help="of engines_models.py")
    parser.add_argument("--candidate", default="eager", choices=["eager", "compile", "tuned", "openvino", "aoti"])
    parser.add_argument("--pairs", type=int, default=160)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--no-contrast", dest="contrast", action="store_false", help="leave 'not settled' out")
    parser.add_argument("--work", type=Path, help="keep built arms here; default: a temporary folder")
    parser.add_argument("--json", type=Path, help="write the raw samples here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
