"""Diagnosis: what is known of a model before anything is tried, and what the doctor finds.

In: a workload. Out: a `Diagnosis` from one look at eager (`inspect`), or a `DoctorReport` from one examination in a
child process (`examination`, then `timing.times`). Rooms: `model` (the look at eager), `graphs` (graph breaks),
`recompiles`, `timing` (what bounds it, compile time). Next to them `cachemiss` (why a start was cold).
Not covered: starting that child, the report's files (`compilot.doctor`); showing them (`compilot.report`).
"""

from compilot.diagnose.model.inspection import inspect

__all__ = ["inspect"]
