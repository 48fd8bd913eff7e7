"""Which graph breaks stop an export of the whole model, too: what the search is told, against torch itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from compilot.diagnose.graphs.search_hints import stops_export
from compilot.diagnose.report_records import Category, CodeFrame, GraphBreak
from compilot.workload import load_target

PROGRAMS = Path(__file__).parents[2] / "data" / "breaks"
EXPECTED = re.compile(r"# expect: graph-break (\S+)")
STOPPED = ("branch_on_data", "loop_on_data", "if_item", "range_of_item", "named_item", "int_of_tensor", "numpy_call")
UNHARMED = (
    *("printing", "log_message", "clock", "lock", "backward_hook", "item_read", "tolist_floats", "nonzero"),
    *("third_party", "generator", "environment", "asked_for", "autograd_function", "lstm"),
)


def the_break(program: Path) -> GraphBreak:
    lines = enumerate(program.read_text().splitlines(), 1)
    ((number, text, category),) = [(n, text, match[1]) for n, text in lines if (match := EXPECTED.search(text))]
    where = CodeFrame(file=str(program), line=number, function="forward", source=text.strip())
    return GraphBreak(where=where, category=Category(category), cause="", fix="")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*STOPPED, *UNHARMED])
def test_the_search_is_told_what_an_export_does(name: str) -> None:
    program = PROGRAMS / f"{name}.py"
    workload = load_target(f"{program}:broken")
    try:
        with torch.no_grad():
            torch.export.export(workload.model, workload.call.args, workload.call.kwargs, strict=False)
        stopped = False
    except Exception:
        stopped = True
    assert stopped == (name in STOPPED)
    assert stops_export(the_break(program)) == stopped
