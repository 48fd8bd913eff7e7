"""`compilot tune`: options reach the pipeline, results reach the user, mistakes become one sentence."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot import packing
from compilot.artifacts.journal import Journal
from compilot.errors import EnvironmentProblem, TargetError
from compilot.packing import Packed
from compilot.records import (
    BUNDLE_SCHEMA,
    PRIOR_BY_DEFAULT,
    BatchRaceLine,
    BundleEntry,
    DynamicDim,
    Goal,
    Manifest,
    NotReached,
    Objective,
    Precision,
    ProcessSamples,
    Race,
    Weights,
)


def test_the_result_is_a_table_a_sentence_and_two_lines_of_python(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net", "--out", "here")
    assert result.exit_code == 0
    assert "► inductor freezing" in result.stdout
    assert "2.00x faster than eager (95 % 1.98-2.02" in " ".join(result.stdout.split())
    assert "import compilot\n" in result.stdout
    assert 'compilot.compile(model, "here/plan.json")' in result.stdout


def test_options_reach_the_pipeline(fake: Any, compilot: Any) -> None:
    compilot(
        *("tune", "net.py:net", "--budget", "1m30s", "--objective", "throughput", "--horizon", "1000"),
        *("--concurrency", "4"),
        *("--engines", "inductor, eager", "--max-memory", "2GiB", "--seed", "7"),
        *("--dynamic", "x:0=1..8", "--dynamic", "y:1=2..4"),
        *("--allow-precision", "int8-dynamic, bf16", "--tolerance", "0.03"),
        *("--max-compile", "1m", "--max-error", "1e-3", "--preset", "research"),
    )
    options, shipment = fake.asked["options"], fake.asked["shipment"]
    assert options.budget_s == 90.0
    assert options.goal == Goal(objective=Objective.THROUGHPUT, horizon_calls=1000, concurrency=4)
    assert options.engines == ("inductor", "eager")
    assert options.max_memory_bytes == 2 * 2**30
    assert options.allow_precision == (Precision.INT8_DYNAMIC, Precision.BF16)
    assert options.tolerance == 0.03
    assert (options.max_compile_s, options.max_error, options.preset) == (60.0, 1e-3, "research")
    assert shipment.seed == 7
    assert shipment.extra_dynamic == (
        DynamicDim(input="x", dim=0, min=1, max=8),
        DynamicDim(input="y", dim=1, min=2, max=4),
    )


@pytest.mark.parametrize(("given", "prior"), [(("--prior",), True), (("--no-prior",), False), ((), PRIOR_BY_DEFAULT)])
def test_the_learned_order_can_be_switched_on_and_off(
    fake: Any, compilot: Any, given: tuple[str, ...], prior: bool
) -> None:
    compilot("tune", "net.py:net", *given)
    assert fake.asked["options"].prior is prior


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--objective", "throughput", "--concurrency", "0"), "from 1 to 256; not 0."),
        (("--objective", "throughput", "--concurrency", "-3"), "from 1 to 256; not -3."),
        (("--objective", "throughput", "--concurrency", "257"), "from 1 to 256; not 257."),
        (("--concurrency", "4"), "choose the objective throughput"),
        (("--objective", "p99", "--concurrency", "4"), "not for p99; choose the objective throughput"),
        (("--objective", "p99", "--horizon", "9"), "the objective p99 does not look at; leave out the horizon"),
        (("--objective", "startup", "--horizon", "9"), "choose latency or throughput"),
        (("--objective", "memory", "--horizon", "9"), "choose latency or throughput"),
        (("--horizon", "0"), "at least 1; not 0."),
    ],
)
def test_goals_that_make_no_sense_are_refused_in_one_sentence_before_any_work(
    fake: Any, compilot: Any, given: tuple[str, ...], said: str
) -> None:
    result = compilot("tune", "net.py:net", *given)
    assert (result.exit_code, fake.asked) == (2, {})
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_bare_number_below_a_minute_is_taken_as_seconds_and_said_so(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net", "--budget", "5", "--out", "short")
    assert fake.asked["options"].budget_s == 5.0
    assert "note: a budget of 5 is 5 s; write 5m for minutes." in result.stderr
    for number, clear in enumerate(("60", "5s", "5m", "1m5")):
        assert "for minutes" not in compilot("tune", "net.py:net", "--budget", clear, "--out", f"clear{number}").stderr
    assert "for minutes" not in compilot("tune", "net.py:net", "--budget", "5", "--out", "quiet", "--quiet").stderr


def test_lower_precisions_are_closed_unless_they_are_asked_for(fake: Any, compilot: Any) -> None:
    compilot("tune", "net.py:net")
    assert (fake.asked["options"].allow_precision, fake.asked["options"].tolerance) == ((), None)


def test_default_run_directory_names_the_factory_and_the_time(fake: Any, compilot: Any) -> None:
    compilot("tune", "net.py:net")
    assert re.fullmatch(r"compilot-runs/net-\d{8}-\d{6}", str(fake.asked["run_dir"].relative_to(Path.cwd())))


def test_runs_of_the_same_second_have_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compilot.api import given

    class Noon(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 1, 2, 12, tzinfo=tz)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(given, "datetime", Noon)
    made = []
    for _ in range(3):
        made.append(given.default_run_dir("net"))
        made[-1].mkdir(parents=True)
    assert [path.name for path in made] == ["net-20260102-120000", "net-20260102-120000-2", "net-20260102-120000-3"]


def test_progress_goes_to_stderr_one_line_per_event(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net")
    tried = [line for line in result.stderr.splitlines() if "trying" in line]
    assert len(tried) == 5
    assert "weights become constants" in tried[2]  # why it is tried
    assert "trying" not in result.stdout


def test_quiet_says_nothing_but_the_result(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net", "--quiet")
    assert result.stderr == ""
    assert "► inductor freezing" in result.stdout


def test_json_is_the_only_thing_on_stdout(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net", "--json")
    document = json.loads(result.stdout)
    assert document["plan"]["entries"][0]["candidate"]["label"] == "inductor freezing"
    assert len(document["rows"]) == 5


@pytest.fixture
def packer(monkeypatch: pytest.MonkeyPatch, small_run: Any) -> dict[str, Any]:
    """Stands in for packing: a bundle that needs a compiler, or the error it is told to raise."""
    told: dict[str, Any] = {"raises": None}

    def pack(folders: list[Path], out: Path, options: Any, observer: Any) -> Packed:
        if told["raises"]:
            raise told["raises"]
        manifest = Manifest(
            schema=BUNDLE_SCHEMA,
            compilot="0.1.0",
            created="2026-01-02T03:04:05+00:00",
            label="Net",
            engine="inductor",
            fingerprint=small_run.header.fingerprint,
            weights=Weights.MODEL,
            entries=(BundleEntry(folder="artifacts/0", needs_compiler=True, start_s=11.0),),
            sentences=("2.00x faster than eager", "needs g++, starts in about 11 s"),
        )
        return Packed(out, manifest, 1000)

    monkeypatch.setattr(packing, "pack", pack)
    return told


def test_pack_tells_what_the_bundle_needs_after_the_result(fake: Any, compilot: Any, packer: Any) -> None:
    out = compilot("tune", "net.py:net", "--out", "one", "--pack", "net.cpbundle").stdout
    assert out.index("► inductor freezing") < out.index("net.cpbundle: Net on inductor")
    assert "needs g++, starts in about 11 s" in out
    assert "compilot.compile(model, 'net.cpbundle')" in out
    again = compilot("tune", "net.py:net", "--out", "two", "--pack", "net.cpbundle", "--json")
    document = json.loads(again.stdout)
    assert (document["bundle"]["bundle"], document["bundle"]["needs_compiler"]) == ("net.cpbundle", True)
    assert len(document["rows"]) == 5


def test_a_result_that_cannot_be_packed_is_shown_all_the_same(fake: Any, compilot: Any, packer: Any) -> None:
    packer["raises"] = EnvironmentProblem("the disk is full; make room.")
    result = compilot("tune", "net.py:net", "--pack", "net.cpbundle")
    assert result.exit_code == 2
    assert "► inductor freezing" in result.stdout
    assert "error: the disk is full" in result.stderr


def test_resume_goes_on_in_the_same_directory(fake: Any, compilot: Any, small_run: Any) -> None:
    small_run.write(Path("earlier"))
    compilot("tune", "net.py:net", "--resume", "earlier")
    assert fake.asked["run_dir"] == Path("earlier").absolute()
    assert fake.asked["resume"] is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nofile.py:net",), "no file 'nofile.py'"),
        (("net.py",), "names no factory"),
        (("./notes.txt:net",), "a target file ends in .py"),
        (("net.py:net", "--budget", "soon"), "'soon' is not a duration; write 90s"),
        (("net.py:net", "--max-memory", "lots"), "'lots' is not a size; write 8GiB"),
        (("net.py:net", "--max-compile", "long"), "'long' is not a duration; write 90s"),
        (("net.py:net", "--max-compile", "0"), "the longest cold start (max_compile) must be more than zero"),
        (("net.py:net", "--max-error", "2"), "is a relative error between 0 and 1, such as 1e-4; not 2.0"),
        (("net.py:net", "--allow-precision", "int3"), "unknown precision 'int3'; known are: bf16, fp16, int8-dynamic"),
        (("net.py:net", "--engines", "eager,onnxruntim"), "unknown engine 'onnxruntim' (did you mean 'onnxruntime'?)"),
        (("nofile.py:net", "--engines", "tensorflo"), "unknown engine 'tensorflo'"),
        (("net.py:net", "--allow-precision", "as-is"), "unknown precision 'as-is'"),
        (("net.py:net", "--tolerance", "0.1"), "a tolerance is for lower precisions only"),
        (("net.py:net", "--allow-precision", "bf16", "--tolerance", "2"), "between 0 and 1"),
        (("net.py:net", "--dynamic", "x=3"), "write NAME:DIM=MIN..MAX"),
        (("net.py:net", "--resume", "a", "--out", "b"), "leave out --out"),
        (("net.py:net", "--resume", "a"), "a holds no run to resume (no journal.jsonl)"),
        ((), "name what to tune: path/to/file.py:factory"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    fake: Any, compilot: Any, arguments: tuple[str, ...], sentence: str
) -> None:
    result = compilot("tune", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output
    assert not fake.asked


@pytest.mark.parametrize("error", [TargetError("net.py raises on import."), EnvironmentProblem("the disk is full.")])
def test_errors_from_the_worker_are_told_the_same_way(fake: Any, compilot: Any, error: Exception) -> None:
    fake.raises = error
    result = compilot("tune", "net.py:net", "--quiet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {error}\n"


@pytest.mark.parametrize(("engine", "advised"), [("onnxruntim", False), ("nothing-like-it", True)])
def test_a_package_is_to_be_installed_only_where_no_name_is_similar(
    fake: Any, compilot: Any, engine: str, advised: bool
) -> None:
    said = compilot("tune", "net.py:net", "--engines", engine).stderr
    assert f"unknown engine '{engine}'" in said
    assert ("Install the package that provides it." in said) is advised
    assert ("did you mean" in said) is not advised


def test_debug_shows_the_traceback(fake: Any, compilot: Any) -> None:
    fake.raises = TargetError("net.py raises on import.")
    result = compilot("tune", "net.py:net", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "error: net.py raises on import." in result.stderr


def test_an_error_in_json_is_a_document_too(fake: Any, compilot: Any) -> None:
    fake.raises = TargetError("net.py raises on import.")
    result = compilot("tune", "net.py:net", "--json")
    assert json.loads(result.stdout) == {"error": {"type": "TargetError", "message": "net.py raises on import."}}


def test_our_own_bug_is_named_as_such_and_is_no_red_gate(fake: Any, compilot: Any) -> None:
    fake.raises = ZeroDivisionError("division by zero")
    result = compilot("tune", "net.py:net", "--quiet")
    assert result.exit_code == 2
    assert "compilot itself failed, ZeroDivisionError: division by zero; run again with --debug" in result.stderr


@pytest.mark.parametrize("terminal", [True, False])
def test_the_result_is_said_once(
    fake: Any, compilot: Any, small_run: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("compilot.showing.is_terminal", lambda: terminal)
    missed = NotReached(not_tried=(small_run.trials[1].candidate,), more_s=50.0, budget_s=360.0)
    small_run.verdict = msgspec.structs.replace(small_run.verdict, not_reached=missed)
    result = compilot("tune", "net.py:net", "--out", "here")
    assert result.exit_code == 0, result.stderr
    assert "ok: inductor freezing" in result.stderr  # the progress is shown
    assert "decided" not in result.stderr
    said = " ".join((result.stderr + result.stdout).split())
    assert said.count("2.00x faster than eager") == 1
    assert said.lower().count("not tried, no time left") == 1
    assert said.count("compilot tune --resume here --budget 6m") == 1


@pytest.mark.parametrize(("out", "words"), [("here", "here"), ("a run", "'a run'")])
@pytest.mark.parametrize("how", [("--quiet",), ()])
def test_an_interruption_says_once_how_to_go_on(
    fake: Any, compilot: Any, out: str, words: str, how: tuple[str, ...]
) -> None:
    fake.raises = KeyboardInterrupt()
    result = compilot("tune", "net.py:net", "--out", out, *how)
    assert result.exit_code == 130
    last = f"interrupted; resume with: compilot tune net.py:net --resume {words}"
    assert [line for line in result.stderr.splitlines() if "interrupted" in line] == [last]


def test_an_interruption_before_the_journal_promises_nothing(
    fake: Any, compilot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compilot.tuning.pipeline.run", stopped)
    result = compilot("tune", "net.py:net", "--quiet")
    assert (result.exit_code, result.stderr) == (130, "interrupted; nothing was measured yet.\n")


def test_an_unknown_objective_is_refused(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net", "--objective", "fame")
    assert result.exit_code == 2
    assert "latency" in result.stderr


def test_batch_sizes_reach_the_pipeline_with_the_dimension_that_they_need(fake: Any, compilot: Any) -> None:
    assert compilot("tune", "net.py:net", "--batch-sizes", "8,1,2").exit_code == 0
    assert fake.asked["options"].batch_sizes == (1, 2, 8)
    assert fake.asked["shipment"].extra_dynamic == (DynamicDim(input="*", dim=0, min=1, max=8, widens=True),)
    assert compilot("tune", "net.py:net", "--batch-sizes", "none").exit_code == 2


def test_what_was_measured_at_batch_sizes_is_shown_below_the_table(fake: Any, compilot: Any, small_run: Any) -> None:
    eager = small_run.trials[0].candidate
    rounds = tuple((0.01, 0.01) for _ in range(8))
    race = Race(arms=(eager.id, eager.id), with_aa=True, processes=(ProcessSamples(rounds=rounds),))
    write = small_run.write

    def with_batches(run_dir: Path, **how: Any) -> Path:
        found: Path = write(run_dir, **how)
        with Journal.open(found / "journal.jsonl") as journal:
            journal.append(BatchRaceLine(batch=4, race=race))
        return found

    small_run.write = with_batches
    text = " ".join(compilot("tune", "net.py:net", "--out", "here").stdout.split())
    assert "eager: max_batch_size 4 (400 samples/s); no other size was measured." in text
    document = json.loads(compilot("tune", "net.py:net", "--out", "there", "--json", "--quiet").stdout)
    assert document["batches"]["points"][0]["samples_per_s"] == pytest.approx(400.0)
