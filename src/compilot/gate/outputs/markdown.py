"""A check as Markdown: for a comment on a pull request, and for the summary of a workflow. In: a report. Out: text."""

from __future__ import annotations

from compilot.gate import words
from compilot.gate.metrics import THROUGHPUT
from compilot.gate.outputs.terminal import could_see, figures
from compilot.gate.report_records import CheckReport, GateVerdict, MetricResult

MARK = "<!-- compilot check -->"  # by which a later run finds its own comment
SIGNS = {
    GateVerdict.PASS: "✅ pass",
    GateVerdict.SLOWER: "❌ **slower**",
    GateVerdict.WORSE: "❌ **worse**",
    GateVerdict.INCONCLUSIVE: "⚠️ inconclusive",
    GateVerdict.NOT_MEASURED: "not measured",
}


def markdown(report: CheckReport) -> str:
    """The verdict, the table, what is not a pass in sentences, and how it was measured."""
    lines = [MARK, f"### {SIGNS[report.verdict]}: `{_cell(report.target)}`", "", f"{_cell(report.because)}.", ""]
    lines += ["| | metric | arm | base | head | change (95 %) | could see |", "|---|---|---|---:|---:|---:|---:|"]
    lines += [_row(one) for one in report.metrics if one.verdict is not GateVerdict.NOT_MEASURED]
    open_ = [one for one in report.metrics if one.verdict is not GateVerdict.PASS and one.metric != THROUGHPUT]
    lines += ["", *(f"- {SIGNS[one.verdict]}: {one.metric} of {one.arm}: {_cell(one.because)}" for one in open_)]
    places = [p.finding for p in report.findings if p.is_new is not False]
    lines += [f"- {_cell(one.where)}: {_cell(one.explanation)} {_cell(one.advice)}" for one in places]
    notes = [note for note in report.notes if "was not measured" not in note]
    lines += ["", *(f"<sub>{_cell(note)}</sub><br>" for note in notes)]
    lines += [f"<sub>base: {_cell(report.base.what)}; head: {_cell(report.head.what)}; {_how(report)}</sub>", ""]
    return "\n".join(lines)


def _row(one: MetricResult) -> str:
    base, head = figures(one)
    cells = (SIGNS[one.verdict], one.metric, one.arm, base, head, words.changed(one), could_see(one))
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Nothing that a model's message holds may break the table or mention somebody."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return plain.replace("@", "@\u200b") if text != MARK else text


def _how(report: CheckReport) -> str:
    races = {len(one.processes) for one in report.races}
    sets = f"{max(races)} sets of fresh processes" if races else "nothing timed"
    return f"{sets}, {report.wall_s:.0f} s of a budget of {report.budget_s:.0f} s, compilot {report.compilot}"
