"""What the search should know of an examination. In: a `DoctorReport`. Out: fields of a `Diagnosis`.

Engines that take the model as one graph export it by running its Python with stand-ins for the tensors: printing,
logging, clocks, locks, hooks and the like cut torch.compile's graph, yet do not stop an export; neither do operators
whose result has as many elements as the data say. What stops it is code that needs a tensor's value in Python, to go
one way or another, or in another library. Covered: graph breaks that stop an export, the submodules that run each
break, sizes that nobody declared. Not covered: what an engine makes of the exported graph.
"""

from __future__ import annotations

import ast
from typing import Any

from compilot.diagnose.frames import spot
from compilot.diagnose.graphs import scalar_reads
from compilot.diagnose.report_records import Category, CodeFrame, DoctorReport, GraphBreak
from compilot.records import BreakPlace

_STOPS = (Category.DATA_DEPENDENT_BRANCH, Category.NUMPY)


def search_hints(report: DoctorReport) -> dict[str, Any]:
    """Counts and places by name of their field in `Diagnosis`."""
    sizes = [one for one in report.recompiles if one.category is Category.SHAPE and not one.declared]
    return {
        "graph_breaks": len(report.breaks),
        "export_stops": sum(stops_export(one) for one in report.breaks),
        "size_recompiles": sum(one.count for one in sizes if one.dim is not None),
        "breaks": tuple(break_place(one) for one in report.breaks),
    }


def break_place(found: GraphBreak) -> BreakPlace:
    """Where in the module tree it is."""
    return BreakPlace(where=spot(found.where), modules=found.modules, stops_export=stops_export(found))


def stops_export(found: GraphBreak) -> bool:
    """True where the model cannot become one graph as it is written."""
    return found.category in _STOPS or (found.category is Category.SCALAR_READ and _needed(found.inside or found.where))


def _needed(where: CodeFrame) -> bool:
    """The number itself is needed while exporting: .item() gives a stand-in for it, int() and float() cannot."""
    statement = scalar_reads.statement_at(where)
    if statement is None or isinstance(statement, ast.Assert):  # an assertion is taken along into the graph
        return False
    converted = any(isinstance(read.func, ast.Name) for read in scalar_reads.reads(statement))
    return converted or scalar_reads.use_of(where).use in scalar_reads.DECIDES
