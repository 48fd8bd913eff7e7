"""Verdict: trials and a race in, a decision with its reason and a Plan out. Pure: no torch, no processes, no files.

compare.py     two arms -> Comparison            breakeven.py  when a compile has paid for itself
finalists.py   screening -> who is raced         contenders.py, rules.py, decide.py   race -> Verdict
plan.py        Verdict -> Plan and the sentence  words.py      figures in plain words
constraints.py limits of the user's own, and who is beyond them
policies.py    sizes of a trace, costs -> ShapeChoice (shape_costs.py, buckets.py, buckets_2d.py, sizes_to_measure.py)
batch_advice.py   seconds at batch sizes -> the largest worth having, larger ones in parts
"""

from __future__ import annotations

from compilot.verdict.breakeven import break_even, break_even_in, total_time_s
from compilot.verdict.compare import compare, compare_columns
from compilot.verdict.decide import decide
from compilot.verdict.finalists import choose_finalists
from compilot.verdict.plan import honest_sentence, make_plan

__all__ = [
    "break_even",
    "break_even_in",
    "choose_finalists",
    "compare",
    "compare_columns",
    "decide",
    "honest_sentence",
    "make_plan",
    "total_time_s",
]
