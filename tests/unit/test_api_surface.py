"""The public names, and what importing them costs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

import compilot
from compilot import api, errors
from compilot.cli.main import app
from compilot.errors import InputError, RunDirError
from compilot.records import Objective, encode
from compilot.tuning import pipeline

FUNCTIONS = {
    "apply_process",
    "baseline",
    "bench",
    "charts",
    "check",
    "check_fixes",
    "compare",
    "compile",
    "environment",
    "examine",
    "explain",
    "history",
    "load",
    "load_plan",
    "merge_traces",
    "pack",
    "pull",
    "push",
    "read_trace",
    "record",
    "reproduce",
    "results",
    "save_plan",
    "show",
    "status",
    "train_step",
    "tune",
    "ui",
    "verify",
    "why_cold",
    "write_report",
}
GROUPS = {
    "cache": {"ls", "prune", "verify"},
    "fleet": {"load_together", "run"},
    "keys": {"ls", "new", "trust"},
    "serve": {"asgi", "observe", "run", "sentinel_report"},
    "store": {"gc", "ls", "rm"},
}
RECORDS = {
    "Baseline",
    "Bench",
    "Candidate",
    "Charts",
    "CheckReport",
    "ColdCauses",
    "ComparedRuns",
    "DoctorReport",
    "Environment",
    "Explanation",
    "Fast",
    "Finding",
    "FixCheck",
    "History",
    "Observer",
    "PackedBundle",
    "Plan",
    "ProcessSettings",
    "PulledBundle",
    "PushedBundle",
    "Recorded",
    "PushedRun",
    "Reproduced",
    "Results",
    "RunEntry",
    "Settings",
    "ShownRun",
    "Stats",
    "StepStats",
    "Trace",
    "Training",
    "TrainStep",
    "Status",
    "Verified",
    "Workload",
    "WrittenReport",
}
PROBLEMS = {  # every error and warning
    name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)
}
NAMES = FUNCTIONS | GROUPS.keys() | RECORDS | PROBLEMS | {"__version__"}


def public_functions() -> dict[str, Any]:
    found = {name: getattr(compilot, name) for name in FUNCTIONS}
    return found | {
        f"{group}.{name}": getattr(getattr(compilot, group), name) for group in GROUPS for name in GROUPS[group]
    }


def test_the_public_names_are_these() -> None:
    assert set(compilot.__all__) == NAMES
    assert list(compilot.__all__) == sorted(compilot.__all__)
    assert dir(compilot) == sorted(NAMES)
    assert {"CompilotError", "StoreError", "FallbackWarning", "StalePlanWarning"} <= PROBLEMS
    functions = {name for name in compilot.__all__ if inspect.isfunction(getattr(compilot, name))}
    assert functions == FUNCTIONS
    for group, names in GROUPS.items():
        module = importlib.import_module(f"compilot.{group}")
        assert getattr(compilot, group) is module
        assert {name for name in module.__all__ if inspect.isfunction(getattr(module, name))} == names
        with pytest.raises(AttributeError, match="no attribute 'lst'"):
            module.lst  # noqa: B018


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(compilot, name) is not None


def test_the_trees_of_errors_and_warnings_are_drawn_as_they_are() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^([│ ├└─]*)(\w+)  ", errors.__doc__, re.MULTILINE)
    above: list[str] = []
    for lines, name in drawn:
        del above[len(lines) // 4 :]
        if above:
            assert issubclass(getattr(errors, name), getattr(errors, above[-1])), name
        above.append(name)
    assert {name for _, name in drawn} == PROBLEMS


def test_the_page_about_the_api_has_every_public_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|(?: `(\w+)`)? \|", page, re.MULTILINE))
    for name, above in rows.items():
        assert not above or issubclass(getattr(compilot, name), getattr(compilot, above)), name
    mentioned = set(re.findall(r"[`.](\w+)", page))
    assert PROBLEMS | FUNCTIONS | GROUPS.keys() <= mentioned
    assert RECORDS - mentioned == {
        "Candidate",
        "Fast",
        "Finding",
        "ProcessSettings",
        "Recorded",
        "Settings",
        "Stats",
    }


def test_no_public_function_shares_its_name_with_a_module_of_ours() -> None:
    ours = {module.name for place in (compilot, api) for module in pkgutil.iter_modules(place.__path__)}
    assert {"report", "doctor", "store", "whycold"} <= ours  # it would be found
    assert FUNCTIONS & ours == set()


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_every_public_function_is_documented_and_annotated(name: str) -> None:
    function = public_functions()[name]
    assert (function.__doc__ or "").strip()
    signature = inspect.signature(function)
    assert signature.return_annotation is not signature.empty
    assert [one.name for one in signature.parameters.values() if one.annotation is one.empty] == []


# The commands and their functions; and of each option that is called otherwise, the keyword that it is.
COMMANDS = {
    "baseline": "baseline",
    "bench": "bench",
    "cache ls": "cache.ls",
    "cache prune": "cache.prune",
    "cache verify": "cache.verify",
    "charts": "charts",
    "check": "check",
    "compare": "compare",
    "doctor": "examine",
    "env": "environment",
    "fleet": "fleet.run",
    "history": "history",
    "keys ls": "keys.ls",
    "keys new": "keys.new",
    "keys trust": "keys.trust",
    "pack": "pack",
    "pull": "pull",
    "push": "push",
    "reproduce": "reproduce",
    "show": "show",
    "status": "status",
    "report": "write_report",
    "store gc": "store.gc",
    "store ls": "store.ls",
    "store rm": "store.rm",
    "sentinel report": "serve.sentinel_report",
    "serve": "serve.run",
    "trace merge": "merge_traces",
    "trace show": "read_trace",
    "tune": "tune",
    "ui": "ui",
    "verify": "verify",
    "why-cold": "why_cold",
}
RENAMED = {
    "target": "model",
    "plan": "plans",
    "key": "trusted_keys",
    "quiet": "progress",
    "aa_pairs": "pairs",
    "md": "format",
    "pad": "padding",
    "open_it": "open_browser",
}
OF_THE_TERMINAL = {"json", "debug", "help"}
NOT_A_KEYWORD = {  # a browser; an exit code; `check_fixes`; `explain`; the log of a workflow
    ("check", "github"),
    ("report", "open_it"),
    ("doctor", "fail_on"),
    ("doctor", "fix_check"),
    ("tune", "explain"),
}


def commands(group: Any, before: str = "") -> dict[str, Any]:
    found = {}
    for name, one in group.commands.items():
        found |= commands(one, f"{name} ") if hasattr(one, "commands") else {before + name: one}
    return found


def test_every_command_has_a_function_and_every_option_a_keyword() -> None:
    found = commands(typer.main.get_command(app))
    assert found.keys() == COMMANDS.keys()
    missing = []
    for name, command in found.items():
        keywords = inspect.signature(public_functions()[COMMANDS[name]]).parameters
        asked = {parameter.name for parameter in command.params} - OF_THE_TERMINAL
        missing += [(name, one) for one in asked if one not in keywords and RENAMED.get(one) not in keywords]
    assert set(missing) == NOT_A_KEYWORD


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tuna'"):
        compilot.tuna  # type: ignore[attr-defined]  # noqa: B018


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(shown.split())


def test_importing_compilot_is_light() -> None:
    loaded = loaded_after("import compilot")
    assert not {"torch", "torch._inductor", "rich", "typer", "numpy", "msgspec"} & loaded


def test_the_modules_of_groups_are_light_too() -> None:
    code = "from compilot import cache, fleet, keys, store, tune; store.ls"
    assert not {"torch", "rich", "typer", "numpy", "fsspec"} & loaded_after(code)


def test_records_and_errors_need_no_torch() -> None:
    assert "torch" not in loaded_after("import compilot; compilot.Plan; compilot.PlanError; compilot.load_plan")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, small_run: Any, tmp_path: Path) -> dict[str, Any]:
    """What tune() asks of the pipeline, which is a fake here."""
    found: dict[str, Any] = {}

    def run(shipment: Any, run_dir: Path, options: Any, observer: Any, **how: Any) -> Any:
        found.update(shipment=shipment, run_dir=run_dir, options=options, observer=observer, **how)
        return pipeline.Tuned(small_run.plan, small_run.verdict, run_dir, small_run.trials)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "run", run)
    return found


def test_who_calls_tune_says_whether_ctrl_c_ends_with_a_plan(asked: dict[str, Any]) -> None:
    Path("net.py").touch()
    compilot.tune("net.py:net")
    assert asked["finish_early"] is False
    compilot.tune("net.py:net", finish_early=True)
    assert asked["finish_early"] is True


def test_tune_takes_a_live_model(asked: dict[str, Any], small_run: Any, tmp_path: Path) -> None:
    import torch

    plan = compilot.tune(torch.nn.Linear(4, 2).eval(), (torch.ones(1, 4),), budget="90s", out=tmp_path / "run")
    assert plan == small_run.plan
    assert asked["options"].budget_s == 90.0
    assert Path(asked["shipment"].payload).is_file()
    assert asked["run_dir"] == tmp_path / "run"


def test_tune_takes_a_target_without_running_it(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("raise SystemExit('the parent must not import this')\n")
    compilot.tune("net.py:net", budget=30, objective="p99", dynamic={"x": {0: (1, 8)}}, engines=["inductor"])
    assert asked["shipment"].target == f"{tmp_path / 'net.py'}:net"
    assert asked["shipment"].extra_dynamic[0].max == 8
    assert asked["options"].goal.objective is Objective.P99
    assert asked["run_dir"].parent == tmp_path / "compilot-runs"


def test_tune_takes_a_workload(asked: dict[str, Any]) -> None:
    import torch

    workload = compilot.Workload(torch.nn.Linear(4, 2).eval(), (torch.ones(3, 4),), label="Line")
    compilot.tune(workload, dynamic={"input": {0: (1, 8)}})
    assert asked["shipment"].ref.label == "Line"
    assert asked["shipment"].ref.dynamic[0].max == 8
    with pytest.raises(InputError, match="brings its own inputs"):
        compilot.tune(workload, (torch.ones(1, 4),))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget": 0}, "more than zero"),
        ({"budget": "soon"}, "not a duration"),
        ({"objective": "fame"}, "unknown objective 'fame'; known are: latency"),
        ({"objective": "lateny"}, r"unknown objective 'lateny' \(did you mean 'latency'\?\); known are: latency"),
        ({"engines": "onnxruntim"}, r"unknown engine 'onnxruntim' \(did you mean 'onnxruntime'\?\); known are: eager"),
        ({"engines": ["inductor", "openvin"]}, r"unknown engine 'openvin' \(did you mean 'openvino'"),
        ({"allow_precision": "int8"}, r"unknown precision 'int8' \(did you mean 'int8-dynamic'"),
        ({"args": (1,)}, "brings its own inputs"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    asked: dict[str, Any], tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "net.py").write_text("")
    with pytest.raises(InputError, match=sentence):
        compilot.tune("net.py:net", **options)
    assert not asked


@pytest.mark.parametrize(
    "engines", ["inductor,eager", " inductor , eager ", ["inductor", "eager"], ("inductor", "eager")]
)
def test_engines_may_be_one_text(asked: dict[str, Any], tmp_path: Path, engines: Any) -> None:
    (tmp_path / "net.py").write_text("")
    compilot.tune("net.py:net", engines=engines)
    assert asked["options"].engines == ("inductor", "eager")


def test_an_engine_that_is_not_usable_is_refused_before_the_model_is_looked_at(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from compilot.engines.openvino import build
    from compilot.engines.protocol import Availability

    monkeypatch.setattr(build, "available", lambda: Availability(ok=False, why="no package", install="pip install it"))
    with pytest.raises(InputError, match=r"engine 'openvino' is not usable here: no package[.] pip install it"):
        compilot.tune("no_such_file.py:net", engines="openvino")
    assert not asked


def test_an_earlier_run_is_not_overwritten(asked: dict[str, Any], small_run: Any, tmp_path: Path) -> None:
    import torch

    small_run.write(tmp_path / "run")
    with pytest.raises(RunDirError, match="already holds a run"):
        compilot.tune(torch.nn.Linear(4, 2), (torch.ones(1, 4),), out=tmp_path / "run")
    assert not asked


def test_a_plan_knows_its_file_and_prints_two_lines(small_run: Any, tmp_path: Path) -> None:
    other = msgspec.structs.replace(small_run.plan, created="2026-01-02T03:04:06+00:00")
    assert other.path is None
    assert "files:" not in str(other)
    compilot.save_plan(other, tmp_path / "net.json")
    plan = compilot.load_plan(tmp_path / "net.json")
    assert plan.path == tmp_path / "net.json"
    assert plan == other
    assert b"net.json" not in encode(plan)
    first, second = str(plan).splitlines()
    assert first.startswith("plan for Net: inductor freezing: ")
    assert second == f"files: {tmp_path} (net.json)"
    assert len(str(plan)) < 600 < len(repr(plan))


def test_tune_notes_where_the_plan_is(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("")
    assert compilot.tune("net.py:net", out="here").path == tmp_path / "here" / "plan.json"


def test_a_plan_that_keeps_eager_says_why_also_in_a_notebook(small_run: Any) -> None:
    plan = msgspec.structs.replace(small_run.plan, entries=(), because="1.01x & <noise>")
    assert str(plan) == "plan for Net: keep eager, because 1.01x & <noise>"
    assert plan._repr_html_() == "<b>plan for Net</b>: keep eager, because 1.01x &amp; &lt;noise&gt;"


def test_plans_are_read_and_written_by_path_or_text(small_run: Any, tmp_path: Path) -> None:
    compilot.save_plan(small_run.plan, str(tmp_path / "plan.json"))
    assert compilot.load_plan(tmp_path / "plan.json") == small_run.plan
    with pytest.raises(compilot.PlanError):
        compilot.load_plan(str(tmp_path / "none.json"))
