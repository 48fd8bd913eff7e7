"""Checks of the sample project with real processes: two code trees, two environments, and what is wrong in each."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gate_history import Project

import compilot
from compilot.api import gating
from compilot.gate import checking, reporting
from compilot.gate.metrics import COUNTS
from compilot.gate.report_records import CheckReport, GateVerdict, MetricResult
from compilot.gate.sides import Side
from compilot.records import Shipment

SLOW = "        import time\n\n        time.sleep(0.002)\n"
LARGE = "    torch.ones(200_000_000)\n"  # 800 MB, for a moment
COUNTED = {count.name for count in COUNTS}
FORWARD = "        return torch.relu(self.linear(x)) + x"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The sample project, and checks that take no longer than they must."""
    made = Project(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    monkeypatch.setattr(gating, "WARM_S", 0.2)
    monkeypatch.setattr(checking, "LEAST_TIMING_S", 0.6)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    return made


@pytest.fixture
def check(project: Project, tmp_path: Path) -> Callable[..., CheckReport]:
    """A short check of the working tree."""
    numbers = iter(range(100))

    def run(**options: object) -> CheckReport:
        asked: dict[str, object] = {"arms": "eager", "budget": 10, "processes": 1, "progress": False}
        asked["out"] = tmp_path / f"run{next(numbers)}"
        return compilot.check("model.py:net", **(asked | options))  # type: ignore[arg-type]

    return run


def metric(report: CheckReport, name: str, arm: str = "eager") -> MetricResult:
    return next(one for one in report.metrics if (one.metric, one.arm) == (name, arm))


@pytest.mark.slow
@pytest.mark.measures
def test_over_a_history_the_check_is_red_at_the_bad_commit_and_only_there(
    project: Project, check: Callable[..., CheckReport]
) -> None:
    commits = [project.git("rev-parse", "HEAD")]
    project.edit(FORWARD, "        return torch.relu(self.linear(x)).add(x)")
    commits.append(project.commit("the same in other words"))
    project.edit("        return torch.relu", f"{SLOW}        return torch.relu")
    project.edit("    return Net().eval()", f"{LARGE}    return Net().eval()", "model.py")
    commits.append(project.commit("wait for nothing"))
    project.edit(SLOW, "")
    project.edit(LARGE, "", "model.py")
    commits.append(project.commit("do not wait"))
    red = {}
    for before, after in itertools.pairwise(commits):
        project.git("checkout", "-q", "--detach", after)
        report = check(base_ref=before, processes=2 if after == commits[2] else 1)  # one process has no spread
        red[after] = report.verdict.is_red
        assert metric(report, "numbers").verdict is GateVerdict.PASS
        if after == commits[2]:
            assert report.verdict is GateVerdict.SLOWER
            assert metric(report, "latency").races == 2
            assert metric(report, "memory").verdict is GateVerdict.WORSE
            assert (metric(report, "memory").change or 0.0) > 1.0
            assert report.exit_code == 1
    assert [commit for commit in commits[1:] if red[commit]] == [commits[2]]
    assert project.git("worktree", "list").count("\n") == 0  # nothing is left of the base's tree


@pytest.mark.slow
@pytest.mark.compiles
def test_breaks_recompiles_and_numbers_of_the_head_are_named(
    project: Project, check: Callable[..., CheckReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compilot.gate.reporting._examined", _no_doctor)
    (project.folder / "scale.txt").write_text("1.0")  # untracked, as weights are
    project.edit(
        "        return torch.relu",
        "        if x.sum().item() > 1e9:\n            x = x + 1\n        return torch.relu",
    )
    project.edit(
        "        return self.head(self.blocks(x))",
        "        self.calls = getattr(self, 'calls', 0) + 1\n"
        "        return self.head(self.blocks(x)) * 1.001 + self.calls * 0",
        "model.py",
    )
    report = check(base_ref="HEAD", arms="compile")
    assert report.verdict.is_red
    breaks, again = (metric(report, name, "torch.compile") for name in ("graph-breaks", "recompiles"))
    assert breaks.verdict is GateVerdict.WORSE
    assert breaks.base == 0
    assert breaks.head is not None
    assert breaks.head >= 1
    assert again.verdict is GateVerdict.WORSE
    assert again.base == 0
    numbers = metric(report, "numbers", "torch.compile")
    assert numbers.verdict is GateVerdict.WORSE
    assert "example 1" in numbers.because
    assert any("the doctor could not look" in note for note in report.notes)
    assert "uncommitted changes" in report.head.what


@pytest.mark.slow
@pytest.mark.measures
def test_a_stored_baseline_passes_the_same_model_and_finds_a_much_slower_one(
    project: Project, tmp_path: Path, check: Callable[..., CheckReport]
) -> None:
    file = tmp_path / "baseline.json"
    compilot.baseline(
        "model.py:net", output=file, arms="eager", budget=10, processes=2, out=tmp_path / "made", progress=False
    )
    same = check(baseline=file, processes=2)
    assert not same.verdict.is_red
    assert metric(same, "numbers").verdict is GateVerdict.PASS
    assert metric(same, "latency").change is not None
    project.edit("        return torch.relu", f"{SLOW}        return torch.relu")
    slower = check(baseline=file, processes=2)
    assert slower.verdict is GateVerdict.SLOWER
    assert metric(slower, "latency").races == 2
    assert metric(slower, "numbers").verdict is GateVerdict.PASS
    both = check(baseline=file, arms="eager,compile", processes=2)
    assert metric(both, "runs", "torch.compile").verdict is GateVerdict.NOT_MEASURED


@pytest.mark.slow
@pytest.mark.compiles
def test_the_doctor_looks_at_each_sides_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the head's folder is on the import path of everybody, as with an editable install."""
    sides = []
    for name, extra in (("base", ""), ("head", "        print('called')\n")):
        source = tmp_path / name / "src" / "layers"
        source.mkdir(parents=True)
        (source / "__init__.py").write_text(
            "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
            f"{extra}        return x.relu() + 1\n\n\ndef net():\n    return Net(), (torch.ones(3),)\n"
        )
        shipment = Shipment(target="layers:net", cwd=str(tmp_path / name), sys_path=(str(source.parent),))
        sides.append(Side(name, name, shipment, foreign="the other"))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path / "head" / "src"), os.environ.get("PYTHONPATH", "")])
    )
    checked = checking.Checked([], [], "Net")
    found = reporting.findings_for(checked, *sides, tmp_path / "doctor", wanted=True, tell=lambda text: None)
    assert found.notes == ()
    breaks = [one for one in found.findings if one.finding.kind == "graph-break"]
    assert [one.is_new for one in breaks] == [True]
    assert f"{tmp_path}/head/src/layers/__init__.py" in breaks[0].finding.where


@pytest.mark.slow
@pytest.mark.compiles
def test_a_second_check_in_the_same_folder_builds_and_opens_everything_again(
    project: Project, tmp_path: Path, check: Callable[..., CheckReport]
) -> None:
    out, counted = tmp_path / "one folder", []
    for _ in range(2):
        report = check(base_ref="HEAD", arms="compile", out=out)
        assert metric(report, "numbers", "torch.compile").verdict is GateVerdict.PASS
        counted.append({one.metric: one.base for one in report.metrics if one.metric in COUNTED})
        assert {path.name for path in out.iterdir()} == {"check.json", "logs"}
    assert counted[0].keys() >= {"graph-breaks", "recompiles", "kernels", "compiler-runs", "artifact-bytes"}
    assert counted[1].keys() == counted[0].keys()  # and nothing was left out since it had been built before
    assert counted[1]["kernels"] == counted[0]["kernels"] != 0


def _no_doctor(*given: object) -> object:
    raise compilot.EnvironmentProblem("it is left out here.")


@pytest.mark.slow
def test_a_head_that_cannot_be_imported_or_dies_is_red_with_its_reason(
    project: Project, check: Callable[..., CheckReport]
) -> None:
    project.edit("from blocks import Block", "from blocks import Blocks", "model.py")
    report = check(base_ref="HEAD")
    assert report.exit_code == 1
    assert "importing model.py failed with ImportError" in metric(report, "runs").because
    project.edit("from blocks import Blocks", "import os\n\nfrom blocks import Block", "model.py")
    project.edit("        return self.head", "        os.abort()\n        return self.head", "model.py")
    report = check(base_ref="HEAD")
    assert report.verdict is GateVerdict.WORSE
    assert "the head crashed where the base works: died of SIGABRT" in metric(report, "runs").because


@pytest.mark.slow
def test_untracked_files_are_linked(project: Project, check: Callable[..., CheckReport]) -> None:
    project.edit(
        "    return Net().eval()",
        "    with open('scale.txt') as file:\n        float(file.read())\n    return Net().eval()",
        "model.py",
    )
    project.commit("reads a file")
    (project.folder / "scale.txt").write_text("1.0")
    report = check(base_ref="HEAD")
    assert report.verdict is GateVerdict.NOT_MEASURED
    assert report.exit_code == 2
    assert "as a link" in report.because
    report = check(base_ref="HEAD", link=["scale.txt"])
    assert not report.verdict.is_red
    assert metric(report, "numbers").verdict is GateVerdict.PASS


# ------------------------------------------------------------------------------------------------- another environment


def environment(folder: Path, start_up: str) -> Path:
    """A second environment of the same torch, whose start-up file does something more; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    paths = [place for place in sys.path if place.endswith("site-packages")]
    paths.append(str(Path(compilot.__file__).parents[1]))
    (packages / "borrowed.pth").write_text("\n".join(paths) + "\n")
    (packages / "sitecustomize.py").write_text(start_up)
    return folder / "bin" / "python"


PATCH = """
import sys
if any(word.endswith("arm.py") for word in getattr(sys, "orig_argv", [])):
    import time
    import torch
    plain = torch.relu
    def slow(x):
        time.sleep(0.002)
        return plain(x)
    torch.relu = {other}
"""


@pytest.mark.slow
@pytest.mark.measures
@pytest.mark.parametrize(
    ("other", "name", "verdict"),
    [
        ("slow", "latency", GateVerdict.SLOWER),
        ("torch.abs", "numbers", GateVerdict.WORSE),  # another answer, and no more work than before
    ],
)
def test_a_new_environment_is_compared_with_the_old_one(
    project: Project, tmp_path: Path, other: str, name: str, verdict: GateVerdict
) -> None:
    new = environment(tmp_path / "new", PATCH.format(other=other))
    script = f"""
import json, sys
import compilot, msgspec
from compilot.api import gating
from compilot.gate import checking
gating.WARM_S, checking.LEAST_TIMING_S = 0.2, 0.6
report = compilot.check("model.py:net", old_python={sys.executable!r}, arms="eager", budget=10, processes=1,
                        out={str(tmp_path / "run")!r}, progress=False)
sys.stdout.write(msgspec.json.encode(report).decode())
"""
    done = subprocess.run(
        [str(new), "-c", script], capture_output=True, text=True, cwd=project.folder, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
    import msgspec

    report = msgspec.json.decode(done.stdout, type=CheckReport)
    assert report.base.what.startswith("torch 2.")
    assert metric(report, name).verdict is verdict
    unharmed = "numbers" if name == "latency" else "latency"
    assert not metric(report, unharmed).verdict.is_red


# --------------------------------------------------------------------------------------------- where people work

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.compiles
def test_the_plugin_runs_in_a_project_of_its_own(project: Project) -> None:
    plugin = ["-p", "compilot.testing.pytest_plugin"] if not _has_entry_point() else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *plugin, "tests"]
    command += ["--compilot-pairs", "6", "--compilot-processes", "1"]
    places = (str(project.folder), str(Path(compilot.__file__).parents[1]))  # the very code that is tested here
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    _keep_eager(project.folder / "run")
    done = subprocess.run(command, capture_output=True, text=True, cwd=project.folder, env=env, check=False)
    assert "3 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "Breaks has 1 graph break:" in done.stdout
    assert "Counts has 1 recompile:" in done.stdout
    lines = (project.folder / "tests" / "test_model.py").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if ".item()" in line)
    assert f"test_model.py:{number}" in done.stdout
    assert "the answers differ: " in done.stdout


def _keep_eager(run: Path) -> None:
    """A run whose plan keeps the sample model as it is."""
    from making_runs import make_run

    run.mkdir()
    make_run(run, None, "model.py:net", (torch.nn.Linear(1, 1), (torch.ones(1),), {}))


def _has_entry_point() -> bool:
    from importlib.metadata import entry_points

    return any(one.value == "compilot.testing.pytest_plugin" for one in entry_points(group="pytest11"))


@pytest.mark.slow
def test_the_actions_script_runs_in_a_project_of_its_own(project: Project, tmp_path: Path) -> None:
    project.edit("from blocks import Block", "from blocks import Blocks", "model.py")
    output, summary = tmp_path / "output", tmp_path / "summary"
    env = {
        **os.environ,
        "COMPILOT_PYTHON": sys.executable,
        "COMPILOT_TARGET": "model.py:net",
        "COMPILOT_BASE_REF": "HEAD",
        "COMPILOT_BUDGET": "10s",
        "COMPILOT_ARMS": "eager",
        "COMPILOT_ALLOW": "kernels\nmemory\n",
        "COMPILOT_ARGS": "--processes\n1",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    script = ["bash", str(ROOT / "action" / "check.sh")]
    done = subprocess.run(script, capture_output=True, text=True, cwd=project.folder, env=env, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    told = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert told["verdict"] == "worse"
    assert told.keys() == {"verdict", "markdown", "junit", "report"}  # no SARIF was asked for
    assert all(Path(told[name]).is_file() for name in ("markdown", "junit", "report"))
    assert "ImportError" in summary.read_text()
    assert "::error title=compilot%3A runs of eager::" in done.stderr
    nothing = subprocess.run(
        script, capture_output=True, text=True, cwd=project.folder, env={**env, "COMPILOT_BASE_REF": ""}, check=False
    )
    assert nothing.returncode == 2
    assert "set base-ref or baseline" in nothing.stderr


def test_the_action_hands_every_input_to_its_script_as_a_variable() -> None:
    text, script = (ROOT / "action.yml").read_text(), (ROOT / "action" / "check.sh").read_text()
    runs = [line for line in text.splitlines() if line.strip().startswith("run:")]
    assert runs
    assert not any("${{" in line for line in runs)  # or an input could be a command
    given = {line.split(":")[0].strip() for line in text.splitlines() if line.strip().startswith("COMPILOT_")}
    assert all(f"${{{name}" in script or f"${name}" in script for name in given)
    key = subprocess.run(
        [sys.executable, str(ROOT / "action" / "fingerprint.py")], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split("=")[0] for line in key.splitlines()} == {"key", "header"}
