"""`compilot charts`: the files of a run's pictures, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from compilot import charts
from compilot.errors import InputError


@pytest.fixture
def finished(small_run: Any, tmp_path: Path) -> Path:
    run: Path = small_run.write(tmp_path / "run")
    return run


def test_it_prints_the_files_that_it_wrote(compilot: Callable[..., Result], finished: Path) -> None:
    result = compilot("charts", str(finished))
    assert result.exit_code == 0
    written = [Path(line) for line in result.stdout.splitlines()]
    assert [path.name for path in written] == ["search.svg", "pareto.svg", "break-even.svg"]
    assert {path.parent for path in written} == {finished / "charts"}
    assert all(path.read_text().startswith("<svg") for path in written)
    assert "no chart 'steps': no trial says where its seconds went" in result.stderr


def test_the_document_lists_them(compilot: Callable[..., Result], finished: Path, tmp_path: Path) -> None:
    result = compilot("charts", str(finished), "--out", str(tmp_path / "out"), "--format", "html", "--json")
    document = json.loads(result.stdout)
    assert document == {
        "run_dir": str(finished),
        "format": "html",
        "files": [{"path": str(tmp_path / "out" / "charts.html"), "charts": ["search", "pareto", "break-even"]}],
        "left_out": {
            "steps": "no trial says where its seconds went",
            "boundary": "nothing is decided, or no submodule was timed",
        },
    }
    assert (tmp_path / "out" / "charts.html").is_file()


def test_a_format_that_is_none_is_refused(compilot: Callable[..., Result], finished: Path) -> None:
    result = compilot("charts", str(finished), "--format", "hmtl")
    assert result.exit_code == 2
    assert "unknown format 'hmtl' (did you mean 'html'?); known are: svg, html." in result.stderr


def test_a_folder_without_a_run_is_one_sentence(compilot: Callable[..., Result], tmp_path: Path) -> None:
    result = compilot("charts", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


def test_a_plan_leads_to_its_run(finished: Path, small_run: Any, tmp_path: Path) -> None:
    from compilot import load_plan

    made = charts(load_plan(finished / "plan.json"), out=tmp_path / "out")
    assert made.run_dir == finished
    assert made.files[0].path == tmp_path / "out" / "search.svg"


def test_a_plan_without_a_run_is_refused(small_run: Any) -> None:
    import msgspec

    with pytest.raises(InputError, match="give the directory itself"):
        charts(msgspec.structs.replace(small_run.plan, created="2026-02-03T04:05:06+00:00"))


def test_nothing_of_the_charts_is_loaded_before_they_are_drawn() -> None:
    code = "import sys, compilot, compilot.cli.main; compilot.charts; compilot.Charts; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"altair", "vl_convert", "jinja2", "torch"} & set(loaded)
