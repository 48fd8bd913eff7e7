"""200 steps on two small real tasks: eager, the plan and float64, and a picture for docs/training.md.

    python bench/training_curves.py [--only text,images] [--budget 5m] [--steps 200] [--picture docs/training.svg]

Text: a byte-level language model on the documentation of this repository. Images: digits-like patterns made from a
seed, with noise. For each: `compilot.tune`, then the losses of eager (as it is, from weights one rounding away four
times, with another number of threads), of the plan's step and of float64, all from the same weights on the same
batches. The plan must stay within BAND times what eager's own runs are off. Its process settings are applied, and
every step must have run as the plan says: a plan that keeps eager, or a step that eager ran, stops the bench. Writes
one JSON line per task to --results/curves.jsonl; a task that is there is not run again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot import Training, apply_process
from compilot.measure.step_curve import EagerCurves, judge_band
from compilot.measure.step_reference import nudge
from compilot.records import LossCurve, Plan, ProcessSettings, Record
from compilot.runtime.process import apply_settings
from compilot.training import TrainStep
from compilot.workload.loop import Loop
from compilot.workload.steps import double_loop, in_double
from stepping import StampedLines, chosen_models, say

HERE = Path(__file__).parent
NAMES = ("text", "images")
NUDGES = 4
STEPS = 200
LENGTH, BATCH = 48, 16


class Curve(Record, frozen=True, kw_only=True):
    """One task."""

    task: str
    plan: str
    curve: LossCurve
    why: str = ""  # it left eager's band
    at: str = ""
    code: str = ""


class Bytes(nn.Module):
    """A small language model over bytes."""

    def __init__(self, size: int = 96) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(256, size), nn.Parameter(torch.zeros(LENGTH, size))
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(size, 256)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=self.places.dtype)
        return self.out(self.blocks(self.words(x) + self.places, mask=mask, is_causal=True))


def corpus() -> Tensor:
    """The documentation, as bytes."""
    pages = sorted((HERE.parent / "docs").glob("*.md"))
    return torch.tensor(list(b"\n".join(page.read_bytes() for page in pages)), dtype=torch.uint8)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def text() -> Training:
    """Predict the next byte."""
    data = corpus()

    def batch(seed: int) -> Tensor:
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,), generator=torch.Generator().manual_seed(seed))
        return torch.stack([data[s : s + LENGTH + 1] for s in starts.tolist()]).long()

    def loss(model: nn.Module, rows: Tensor) -> Tensor:
        return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    return Training(Bytes(), loss, adamw, batch, clip_norm=1.0, scheduler=one_cycle)


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS + 10)


def images() -> Training:
    """Tell ten patterns apart, through noise."""
    patterns = torch.randn(10, 1, 16, 16, generator=torch.Generator().manual_seed(1))

    def batch(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 10, (32,), generator=generator)
        return patterns[labels] + 1.5 * torch.randn(32, 1, 16, 16, generator=generator), labels

    def loss(model: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(given[0]), given[1])

    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32)),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)),
    )
    return Training(net, loss, sgd, batch)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def losses(loop: Loop, training: Training, steps: int, *, double: bool = False) -> tuple[float, ...]:
    """So many steps, each on batches of its own."""
    found, size = [], training.rules.accumulate
    for number in range(steps):
        batches = [training._batches(number * size + place) for place in range(size)]  # type: ignore[operator, misc]
        batches = [in_double(batch) for batch in batches] if double else batches
        found.append(statistics.mean(float(value) for value in loop.window(batches)))
    return tuple(found)


def task(name: str, run: Path, budget: str, steps: int) -> Curve:
    """Tune, then train every arm from the same weights."""
    import compilot

    plan = compilot.tune(f"{Path(__file__)}:{name}", budget=budget, out=run) if not run.exists() else None
    plan = plan or compilot.load_plan(run)
    refuse_eager(name, plan)
    torch.manual_seed(0)
    training = globals()[name]()
    begin = {key: value.clone() for key, value in training.model.state_dict().items()}

    def fresh(make: Any = None) -> Loop:
        training.model.load_state_dict(begin)
        return Loop(training, make)

    runs = [losses(fresh(), training, steps)]
    for seed in range(NUDGES):
        loop = fresh()
        nudge(loop, seed + 1)
        runs.append(losses(loop, training, steps))
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    runs.append(losses(fresh(), training, steps))
    torch.set_num_threads(threads)
    fresh()
    exact = losses(double_loop(training), training, steps, double=True)
    path = run / "plan.json"
    with process_of(path):
        own = fresh(lambda model, loss, optimizer: compilot.train_step(model, loss, optimizer, path, strict=True))
        planned = losses(own, training, steps)
    refuse_other_steps(own, steps)
    curve, why = judge_band(planned, EagerCurves(steps=steps, exact=exact, runs=tuple(runs)))
    return Curve(task=name, plan=str(plan), curve=curve, why=why)


def refuse_eager(name: str, plan: Plan) -> None:
    """A plan that keeps eager's step would have eager's own curve, which shows nothing."""
    if not plan.entries:
        raise SystemExit(f"{name}: the plan keeps eager ({plan.because}); delete its run, and pass a larger --budget.")


def refuse_other_steps(loop: Loop, steps: int) -> None:
    """The curve is the plan's only if every step of it ran as the plan says."""
    assert isinstance(loop.step, TrainStep)
    stats = loop.step.stats()
    wanted = steps * loop.rules.accumulate
    if (stats.batches, stats.fast, stats.steps) != (wanted, wanted, steps) or stats.optimizer_fallbacks:
        raise SystemExit(f"not every step ran as the plan says: {stats}")


@contextmanager
def process_of(plan: Path) -> Iterator[None]:
    """The plan's threads and memory, as a user applies them; the process's own again afterwards."""
    changed = apply_process(plan)
    try:
        yield
    finally:
        apply_settings(ProcessSettings(**{name: before for name, (before, _) in changed.items()}))


WIDE, LEFT, TOP, TALL, GAP = 400, 64, 34, 150, 60  # of one panel, in units of the picture
COLOURS = {"float64": "#777", "eager": "#4269d0", "the plan": "#ef8f2e"}
LEAST = 1e-9  # of a distance that is drawn


def picture(curves: list[Curve]) -> str:
    """Both tasks side by side: the losses, and below them how far the plan and eager are from float64, and may be."""
    panels = [panel for place, one in enumerate(curves) for panel in (_losses(one, place), _distances(one, place))]
    names = [
        f'<g transform="translate({LEFT + 110 * place} 14)"><rect y="-8" width="18" height="4" fill="{colour}"/>'
        f'<text x="24">{name}</text></g>'
        for place, (name, colour) in enumerate([*COLOURS.items(), ("allowed", "#e3e3e3")])
    ]
    wide, tall = WIDE * len(curves), TOP + 2 * (TALL + GAP)
    style = "<style>path{fill:none;stroke-width:1.5}text{font:12px sans-serif;fill:#444}line{stroke:#ddd}</style>"
    size = f'viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}"'
    back = f'<rect width="{wide}" height="{tall}" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{back}{"".join(names)}{"".join(panels)}</svg>\n'


def _losses(one: Curve, place: int) -> str:
    """Three lines that lie on one another where all is well."""
    found = one.curve
    rows = {"float64": found.exact or found.eager, "eager": found.eager, "the plan": found.losses}
    low, high = min(map(min, rows.values())), max(map(max, rows.values()))
    lines = [_line(values, low, high, COLOURS[name]) for name, values in rows.items()]
    ticks = [(low + (high - low) * part, f"{low + (high - low) * part:.2g}") for part in (0.0, 0.5, 1.0)]
    return _panel(place, 0, f"{one.task}: loss", lines, ticks, low, high, len(found.losses))


def _distances(one: Curve, place: int) -> str:
    """On a scale of powers of ten; grey is what is allowed."""
    found = one.curve
    right = found.exact or found.eager
    allowed = _logs(found.high, right)
    rows = {"eager": _logs(found.eager, right), "the plan": _logs(found.losses, right)}
    low = math.floor(min(min(values) for values in rows.values()))
    high = math.ceil(max(max(values) for values in (allowed, *rows.values())))
    area = _area(allowed, low, high)
    lines = [area, *(_line(values, low, high, COLOURS[name]) for name, values in rows.items())]
    ticks = [(float(power), f"1e{power}") for power in range(low, high + 1, max(1, (high - low) // 3))]
    return _panel(place, 1, f"{one.task}: distance from float64", lines, ticks, low, high, len(found.losses))


def _logs(values: Sequence[float], right: Sequence[float]) -> list[float]:
    return [math.log10(max(LEAST, abs(a - b))) for a, b in zip(values, right, strict=True)]


def _points(values: Sequence[float], low: float, high: float) -> list[str]:
    room, span = WIDE - LEFT - 16, (high - low) or 1.0
    last = max(1, len(values) - 1)
    return [f"{room * n / last:.1f} {TALL * (1 - (value - low) / span):.1f}" for n, value in enumerate(values)]


def _line(values: Sequence[float], low: float, high: float, colour: str) -> str:
    return f'<path d="M{" L".join(_points(values, low, high))}" stroke="{colour}"/>'


def _area(values: Sequence[float], low: float, high: float) -> str:
    points = " L".join(_points(values, low, high))
    return f'<path d="M0 {TALL} L{points} L{WIDE - LEFT - 16} {TALL}Z" style="fill:#ececec;stroke:none"/>'


def _panel(
    column: int,
    row: int,
    title: str,
    lines: Sequence[str],
    ticks: Sequence[tuple[float, str]],
    low: float,
    high: float,
    steps: int,
) -> str:
    room, span = WIDE - LEFT - 16, (high - low) or 1.0
    grid = []
    for value, text in ticks:
        y = TALL * (1 - (value - low) / span)
        grid.append(f'<line x2="{room}" y1="{y:.1f}" y2="{y:.1f}"/>')
        grid.append(f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    below = f'<text y="{TALL + 16}">step 1</text><text x="{room}" y="{TALL + 16}" text-anchor="end">{steps}</text>'
    x, y = WIDE * column + LEFT, TOP + 16 + row * (TALL + GAP)
    inside = "".join((f'<text y="-8">{title}</text>', lines[0], *grid, *lines[1:], below))
    return f'<g transform="translate({x} {y})">{inside}</g>'


def main(argv: list[str]) -> int:
    """What is not there yet; then the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only")
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--work", type=Path, default=Path("compilot-bench-training"))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "training")
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args(argv)
    journal: StampedLines[Curve] = StampedLines(asked.results / "curves.jsonl", Curve)
    for name in chosen_models(asked.only, NAMES):
        if any(line.task == name for line in journal.lines):
            continue
        say(name, "tuning and training")
        journal.append(task(name, asked.work.absolute() / "curves" / name, asked.budget, asked.steps))
    for line in journal.lines:
        last = line.curve
        told = line.why or "within eager's own band"
        say(line.task, f"{line.plan}: loss {last.losses[-1]:.4f}, eager {last.eager[-1]:.4f}: {told}")
    if asked.picture is not None:
        asked.picture.write_text(picture(journal.lines))
    return int(any(line.why for line in journal.lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
