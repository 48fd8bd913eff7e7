"""Every command is a function: both give the same data on the same thing. Pipeline, runner, doctor, packer are fakes.

The command's JSON document is read back as the record that the function returns: what one has and the other has not
fails here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from typer.testing import Result

import compilot as public
from compilot import packing
from compilot.api import environs
from compilot.artifacts.bundle import open_bundle
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.cache import USED, bundles_folder
from compilot.artifacts.planfile import load_plan, save_plan
from compilot.artifacts.unpack import unpacked
from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.doctor import checkup
from compilot.identity.keys import key_components, save_components
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.packing.writing import publish, seal
from compilot.records import (
    BUNDLE_SCHEMA,
    BundleEntry,
    Comparison,
    DynamicDim,
    Finding,
    Fingerprint,
    MachineLoad,
    Manifest,
    Outcome,
    Shipment,
    Weights,
)

Command = Callable[..., Result]
BREAK = Finding(kind="graph-break", where="net.py:3", explanation="a print", advice="remove it", snippet="print(x)")


def printed(result: Result, code: int = 0) -> Any:
    """The JSON document of a command."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def read_back(document: Any, kind: Any) -> Any:
    """The document as the record that it was made from; strict: no field is turned into another type."""
    return msgspec.convert(document, kind, dec_hook=lambda wanted, value: wanted(value))


# ---------------------------------------------------------------------------------------- tune, results, bench, doctor


def test_tune_and_results(fake: Any, compilot: Command) -> None:
    document = printed(compilot("tune", "net.py:net", "--budget", "90s", "--out", "one", "--json"))
    asked = fake.asked
    plan = public.tune("net.py:net", budget="90s", out="two", progress=False)
    assert fake.asked["shipment"] == asked["shipment"]
    assert fake.asked["options"] == asked["options"]._replace(argv=())
    assert asked["options"].argv  # the command line is in the journal, a script's own is not
    assert read_back(document["plan"], public.Plan) == plan == public.load_plan("two/plan.json")
    found = public.results(plan)
    there = Path.cwd() / "one"
    assert read_back(document, public.Results) == msgspec.structs.replace(
        found, run_dir=there, plan_file=there / "plan.json"
    )
    assert found == public.results("two")
    assert [row["candidate"] for row in found.rows][:2] == ["eager", "inductor"]
    assert (found.verdict, found.run_dir) == (fake.small_run.verdict, Path.cwd() / "two")


def test_results_of_a_plan_without_a_home_are_refused(small_run: Any) -> None:
    stray = msgspec.structs.replace(small_run.plan, created="2026-02-02T00:00:00+00:00")
    with pytest.raises(public.InputError, match="came without a run directory"):
        public.results(stray)


def test_tune_resumes_as_the_command_does(fake: Any, compilot: Command, small_run: Any) -> None:
    for name in ("one", "two"):
        small_run.write(Path(name), finished=False)
    (Path.cwd() / "net.py").write_text("")
    target = str(Path("net.py").absolute()) + ":net"
    assert compilot("tune", target, "--resume", "one", "--seed", "3", "--quiet", "--engines", "eager").exit_code == 0
    asked = fake.asked
    public.tune(target, resume="two", seed=3, engines="eager", progress=False)
    assert fake.asked["resume"] is asked["resume"] is True
    assert fake.asked["shipment"] == asked["shipment"]
    assert fake.asked["options"] == asked["options"]._replace(argv=())
    assert fake.asked["options"].budget_s == small_run.header.budget_s
    with pytest.raises(public.InputError, match="do not give out as well"):
        public.tune(resume="two", out="three")
    with pytest.raises(public.RunDirError, match="holds no run to resume"):
        public.tune(resume="nowhere")
    with pytest.raises(public.InputError, match="name what to tune"):
        public.tune()


def test_a_run_of_live_objects_goes_on_with_its_own(fake: Any, small_run: Any, compilot: Command) -> None:
    model = nn.Linear(4, 2).eval()
    fake.raises = KeyboardInterrupt()
    small_run.header = msgspec.structs.replace(small_run.header, workload=public.Workload(model, torch.ones(1, 4)).ref)
    with pytest.raises(KeyboardInterrupt):
        public.tune(model, (torch.ones(1, 4),), out="live", progress=False)
    begun, fake.raises = fake.asked["shipment"], None
    public.tune(resume="live", progress=False)
    assert fake.asked["shipment"] == begun
    assert fake.asked["resume"] is True
    assert compilot("tune", "--resume", "live", "--quiet").exit_code == 0
    assert fake.asked["shipment"] == begun
    with pytest.raises(public.InputError, match="leave out the model"):
        public.tune(model, (torch.ones(1, 4),), resume="live")
    with pytest.raises(public.InputError, match="leave out seed and dynamic"):
        public.tune(resume="live", seed=4)


def test_tune_of_live_objects_takes_a_seed(fake: Any) -> None:
    public.tune(nn.Linear(4, 2).eval(), (torch.ones(1, 4),), seed=7, out="seeded", progress=False)
    assert fake.asked["shipment"].ref.seed == 7


def test_bench(fake_runner: Any, compilot: Command, small_run: Any) -> None:
    document = printed(compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "one", "--json", "--quiet"))
    measured = public.bench("net.py:net", plans=["plan.json"], out="two", progress=False)
    assert read_back(document, public.Bench) == msgspec.structs.replace(measured, run_dir=Path.cwd() / "one")
    assert measured.sentences[1].startswith("inductor freezing (plan.json): 1.99x faster than eager")
    assert [row["candidate"] for row in measured.rows] == ["eager", "inductor", "inductor freezing"]


def test_bench_takes_live_objects_plans_and_folders(fake_runner: Any, small_run: Any, capsys: Any) -> None:
    model = nn.Linear(4, 2).eval()
    small_run.write(Path("run"))
    stray = msgspec.structs.replace(small_run.plan, created="2026-03-03T00:00:00+00:00")
    dims = [DynamicDim(input="input", dim=0, min=1, max=8)]
    measured = public.bench(model, (torch.ones(3, 4),), plans=(stray, "run"), dynamic=dims, seed=5, pairs=8, out="b")
    assert Path(fake_runner.shipment.payload).is_file()
    assert (fake_runner.shipment.ref.seed, fake_runner.shipment.ref.dynamic) == (5, tuple(dims))
    assert measured.sentences[1].startswith("inductor freezing (run): ")
    assert "trying 1: eager" in capsys.readouterr().err
    once = public.bench(model, (torch.ones(3, 4),), plans=stray, out="c", progress=False)
    assert once.sentences[1].startswith("inductor freezing (plan 1): ")
    with pytest.raises(public.InputError, match="6 to 2000 pairs"):
        public.bench(model, (torch.ones(3, 4),), pairs=5)
    with pytest.raises(public.RunDirError, match="already holds a run"):
        public.bench(model, (torch.ones(3, 4),), out="c")


def test_bench_does_not_trust_a_plan_that_others_can_change(fake_runner: Any) -> None:
    Path("plan.json").chmod(0o666)
    for plan in (public.load_plan("plan.json"), "plan.json"):
        with pytest.raises(public.UntrustedPlan, match="others may write to it"):
            public.bench("net.py:net", plans=[plan])
    assert load_plan(Path("plan.json"))  # it can be read all the same


@pytest.fixture
def own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))


def test_history_show_and_compare(compilot: Command, run_dir: Path, small_run: Any, own_list: None) -> None:
    other = small_run.write(run_dir.with_name("other"), finished=False)
    document = printed(compilot("history", "--scan", str(run_dir.parent), "--model", "net", "--limit", "0", "--json"))
    found = public.history(model="net", limit=0)
    assert read_back(document, public.History) == found
    assert {run.run_dir for run in found.runs} == {str(run_dir), str(other)}
    document = printed(compilot("show", found.runs[0].id[:8], "--json"))
    assert read_back(document, public.ShownRun) == public.show(found.runs[0].id[:8])
    document = printed(compilot("compare", str(run_dir), str(other), "--json"))
    assert read_back(document, public.ComparedRuns) == public.compare(run_dir, other)
    listed = compilot("history").stdout
    assert f"{found.runs[0].id}  2026-01-02 03:04  Net  " in listed
    assert "1.99x (1.97-2.00) inductor freezing" in listed
    shown = compilot("show", str(run_dir)).stdout
    assert "machine: Some CPU, 2 threads, torch 2.13.0, Python 3.11.2" in shown
    assert "2.00x faster than eager" in shown
    assert "not compared: the chosen candidate" in compilot("compare", str(run_dir), str(other)).stdout
    assert "no run here is about that" in compilot("history", "--model", "nobody").stdout
    assert compilot("show", "nobody").exit_code == 2


def test_push_of_a_run_and_history_of_a_store(compilot: Command, run_dir: Path, tmp_path: Path, own_list: None) -> None:
    store = tmp_path / "store"
    pushed = public.push(run_dir, store)
    assert not pushed.was_there
    document = printed(compilot("push", str(run_dir), str(store), "--json"))
    assert read_back(document, public.PushedRun) == msgspec.structs.replace(pushed, was_there=True)
    document = printed(compilot("history", "--store", str(store), "--json"))
    assert read_back(document, public.History) == public.history(store=store)
    document = printed(compilot("show", pushed.run.id, "--store", str(store), "--json"))
    assert read_back(document, public.ShownRun) == public.show(pushed.run.id, store=store)
    assert "was there already: run" in compilot("push", str(run_dir), str(store)).stdout


def test_reproduce(fake_runner: Any, compilot: Command, small_run: Any, own_list: None) -> None:
    run = small_run.write(Path("run").absolute())
    plan = msgspec.structs.replace(small_run.plan.entries[0].evidence, versus_eager=small_run.verdict.comparisons[0])
    entry = msgspec.structs.replace(small_run.plan.entries[0], evidence=plan)
    save_plan(msgspec.structs.replace(small_run.plan, entries=(entry,)), run / "plan.json")
    from compilot.artifacts.shipments import keep_shipment

    keep_shipment(Shipment(sys_path=(), cwd="", target="net.py:net"), run)
    document = printed(compilot("reproduce", "run", "--out", "one", "--json", "--quiet"))
    found = public.reproduce("run", out="two", progress=False)
    assert read_back(document, public.Reproduced) == msgspec.structs.replace(found, run_dir=Path.cwd() / "one")
    assert (found.result, found.rebuilt) == ("holds", "its files are not there")
    assert (
        "inductor freezing for Net: holds: claimed 1.99x (95 % 1.97-2.00), now 1.99x"
        in compilot("reproduce", "run", "-q").stdout
    )
    better = msgspec.structs.replace(small_run.verdict.comparisons[0], ratio=4.0, low=3.9, high=4.1)
    entry = msgspec.structs.replace(entry, evidence=msgspec.structs.replace(plan, versus_eager=better))
    save_plan(msgspec.structs.replace(small_run.plan, entries=(entry,)), run / "plan.json")
    failed = compilot("reproduce", "run", "-q", "--out", "three")
    assert failed.exit_code == 1
    assert "does not hold" in failed.stdout
    assert [one.state for one in public.history().runs] == ["compared"] * 4
    save_plan(msgspec.structs.replace(small_run.plan, entries=()), run / "plan.json")
    with pytest.raises(public.InputError, match="keeps eager"):
        public.reproduce("run")
    with pytest.raises(public.InputError, match="must be more than zero"):
        public.reproduce("run", budget=0)


def test_status(compilot: Command, run_dir: Path) -> None:
    document = printed(compilot("status", str(run_dir), "--json"), code=1)  # made for another CPU and torch
    found = public.status(run_dir)
    assert read_back(document, public.Status) == found
    assert not found.right
    shown = compilot("status", str(run_dir)).stdout
    assert "out of date" in shown
    assert shown.rstrip().endswith("Next: run 'compilot tune /models/net.py:net' here.")


def test_status_of_a_bundle(make: Any, compilot: Command) -> None:
    bundle = make()
    document = printed(compilot("status", str(bundle), "--json"))
    found = public.status(bundle)
    assert read_back(document, public.Status) == found
    assert (found.kind, found.model, found.right, found.changes) == ("bundle", "Net", True, ())
    assert public.status(bundle, Net().eval()).right
    other = public.status(bundle, nn.Sequential(nn.Linear(3, 4)).eval())
    assert not other.right
    assert other.advice.startswith("pull the bundle that fits here")
    with pytest.raises(public.InputError, match="name the model's target"):
        public.status(bundle, measure=True)


class FakeDoctor:
    """Stands in for the child processes; the next examination finds what it is told to."""

    findings: tuple[Finding, ...] = ()

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def run(self, shipment: Shipment, folder: Path, tell: Any, **more: Any) -> DoctorReport:
        tell("running the model in eager")
        self.asked.append((shipment, more["shapes"]))
        return DoctorReport(
            schema=REPORT_SCHEMA, compilot="0", created="", label="Net", target=shipment.target or "",
            findings=self.findings,
        )  # fmt: skip

    def add_times(self, report: DoctorReport, *args: Any, plan: Any = None) -> DoctorReport:
        return msgspec.structs.replace(report, notes=("timed", *([plan.because] if plan else [])))


@pytest.fixture
def doctor(fake: Any, monkeypatch: pytest.MonkeyPatch) -> FakeDoctor:
    found = FakeDoctor()
    monkeypatch.setattr(checkup, "run", found.run)
    monkeypatch.setattr(checkup, "add_times", found.add_times)
    return found


def test_examine(doctor: FakeDoctor, compilot: Command, run_dir: Path) -> None:
    doctor.findings = (BREAK,)
    options = ("--seed", "3", "--dynamic", "x:0=1..4", "--plan", str(run_dir), "--out", "one")
    document = printed(compilot("doctor", "net.py:net", *options, "--json", "-q"))
    dims = [DynamicDim(input="x", dim=0, min=1, max=4)]
    report = public.examine("net.py:net", seed=3, dynamic=dims, plan=run_dir, out="two", html="p.html", progress=False)
    assert read_back(document["report"], public.DoctorReport) == report
    assert doctor.asked[0] == doctor.asked[1]
    assert doctor.asked[0][0].seed == 3
    assert "2.00x faster than eager" in report.notes  # the plan went along
    for name in ("report.json", "report.html"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    assert Path("p.html").read_bytes() == Path("two/report.html").read_bytes()
    assert "timed" not in public.examine("net.py:net", quick=True, progress=False).notes


def test_check_fixes(doctor: FakeDoctor, compilot: Command) -> None:
    doctor.findings = (BREAK,)
    before = public.examine("net.py:net", out="kept", progress=False)
    doctor.findings = ()
    now = public.examine("net.py:net", progress=False)
    document = printed(compilot("doctor", "net.py:net", "--fix-check", "--out", "kept", "--json", "-q"))
    check = public.check_fixes(before, now)
    assert read_back(document["fix_check"], public.FixCheck) == check == public.check_fixes(before, "kept")
    assert check.gone == (BREAK,)


def test_examine_of_live_objects_shows_its_steps(doctor: FakeDoctor, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(4, 2).eval()
    public.examine(model, (torch.ones(1, 4),), seed=9)
    assert capsys.readouterr().err == "running the model in eager\n"
    shipment = doctor.asked[0][0]
    assert shipment.ref.seed == 9
    assert not Path(shipment.payload).exists()  # it was written to a folder that is gone
    public.examine(model, (torch.ones(1, 4),), progress=False)
    assert capsys.readouterr().err == ""


def test_what_examine_cannot_do_is_said(doctor: FakeDoctor, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(public.InputError, match="need the folder of the report; give out"):
        public.examine("net.py:net", tlparse=True)
    monkeypatch.setenv("PATH", str(run_dir))
    with pytest.warns(public.CompilotWarning, match="tlparse is not installed") as caught:
        public.examine("net.py:net", tlparse=True, out="here", progress=False)
    assert caught[0].filename == __file__
    (run_dir / "plan.json").chmod(0o666)
    for plan in (run_dir, public.load_plan(run_dir / "plan.json")):
        with pytest.raises(public.UntrustedPlan):
            public.examine("net.py:net", plan=plan)


# ------------------------------------------------------------------------------------------------ environment, why-cold


class QuietRunner:
    """A compiler that works, and a machine that does not differ from itself."""

    def try_compiler(self) -> Any:
        from compilot.trials.protocol import ToolchainReady

        return ToolchainReady(wall_s=7.25)


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    from contextlib import nullcontext
    from types import SimpleNamespace

    from compilot.trials import load

    figures = {"ratio": 1.0, "low": 0.9, "high": 1.1, "margin": 0.01, "mde": 0.01, "aa_noise": 0.01}
    found = Comparison(
        candidate_id="eager", baseline_id="eager", outcome=Outcome.NO_DIFFERENCE, pairs=40, processes=1, **figures
    )
    monkeypatch.setattr(environs, "_runner", lambda: nullcontext(QuietRunner()))
    monkeypatch.setattr(load, "LoadLook", lambda: SimpleNamespace(result=lambda: MachineLoad(others=1.5, cores=2)))
    monkeypatch.setattr(environs, "_measured_noise", lambda runner, pairs: msgspec.structs.replace(found, pairs=pairs))
    return found


def test_environment(quiet_machine: Comparison, compilot: Command, capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(compilot("env", "--json", "--aa-pairs", "8"))
    found = public.environment(pairs=8)
    assert read_back(document, public.Environment) == found
    assert (found.machine, found.aa) == (machine_fingerprint(), msgspec.structs.replace(quiet_machine, pairs=8))
    assert found.toolchain.first_compile_s == 7.25
    assert found.engines["eager"].ok
    assert found.load is not None
    assert (found.load.busy, found.load.others) == (True, 1.5)
    assert "trying the C++ compiler" in capsys.readouterr().err
    assert public.environment(noise=False, progress=False).aa is None
    assert printed(compilot("env", "--json", "--no-noise"))["aa"] is None
    assert capsys.readouterr().err == ""
    with pytest.raises(public.InputError, match="6 to 2000 pairs"):
        public.environment(pairs=1)


def test_why_cold(compilot: Command, tmp_path: Path, small_run: Any) -> None:
    first = key_components(cache_dir=tmp_path / "cache")
    more = msgspec.structs.replace(first.machine, threads=first.machine.threads + 1)
    save_components(first, tmp_path / "a.json")
    save_components(msgspec.structs.replace(first, machine=more), tmp_path / "b.json")
    document = printed(compilot("why-cold", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"))
    found = public.why_cold(tmp_path / "a.json", str(tmp_path / "b.json"))
    assert read_back(document, public.ColdCauses) == found
    assert [cause.component for cause in found.causes] == ["threads"]
    save_plan(msgspec.structs.replace(small_run.plan, entries=()), tmp_path / "plan.json")
    never = public.why_cold(tmp_path)
    assert read_back(printed(compilot("why-cold", str(tmp_path), "--json")), public.ColdCauses) == never
    assert never.answer is not None
    assert "no start is cold" in never.answer
    with pytest.raises(public.InputError, match="cannot read"):
        public.why_cold(tmp_path / "none.json")


# --------------------------------------------------------------------------------- pack, verify, push, pull, the groups


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 3))


@pytest.fixture
def make(small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes small real bundles for this machine; configuration, cache and packer are not the user's."""
    monkeypatch.chdir(tmp_path)
    for variable in ("COMPILOT_CONFIG", "COMPILOT_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.delenv("COMPILOT_TRUSTED_KEYS", raising=False)
    fingerprint = Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(Net().eval()))

    def pack(runs: list[Path], out: Path, options: packing.PackOptions, observer: Any) -> packing.Packed:
        observer.stage("writing the bundle")
        staged = tmp_path / f"staged-{out.name}"
        staged.mkdir()
        save_plan(small_run.plan, staged / "plan.json")
        bare = Manifest(
            schema=BUNDLE_SCHEMA,
            compilot="0.1",
            created=f"2026-01-01T00:00:0{len(runs)}+00:00",
            label="Net",
            engine="eager",
            fingerprint=fingerprint,
            weights=Weights.MODEL,
            entries=(BundleEntry(folder="", start_s=0.5),),
            sentences=("2.00x faster",),
        )
        manifest = seal(staged, bare, options.key)
        publish(staged, out, as_folder=options.folder)
        return packing.Packed(out, manifest, 1000)

    def bundle(name: str = "net", **options: Any) -> Path:
        return pack(
            [Path("run")], tmp_path / f"{name}.cpbundle", packing.PackOptions(**options), public.Observer()
        ).path

    monkeypatch.setattr(packing, "pack", pack)
    return bundle


def test_pack(make: Any, compilot: Command, run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(compilot("pack", str(run_dir), "-o", "one.cpbundle", "--json", "-q"))
    packed = public.pack(run_dir, "two.cpbundle")
    assert read_back(document, public.PackedBundle) == msgspec.structs.replace(packed, bundle=Path("one.cpbundle"))
    assert packed.start_s == (0.5,)
    assert "writing the bundle" in capsys.readouterr().err
    from_plan = public.pack(public.load_plan(run_dir / "plan.json"), "three.cpbundle", folder=True, progress=False)
    assert Path("three.cpbundle").is_dir()
    assert capsys.readouterr().err == ""
    assert from_plan.model == "Net"
    with pytest.raises(public.InputError, match="at least one run directory"):
        public.pack([], "none.cpbundle")


def test_tune_packs(make: Any, fake: Any) -> None:
    plan = public.tune("net.py:net", out="one", pack="net.cpbundle", progress=False)
    assert plan.path == Path.cwd() / "one" / "plan.json"
    assert public.verify("net.cpbundle").ok


def test_verify(make: Any, compilot: Command) -> None:
    bundle = make()
    document = printed(compilot("verify", str(bundle), "--json"))
    found = public.verify(bundle)
    assert read_back(document, public.Verified) == found
    assert found.ok
    assert found.trusted_by is not None
    assert found.trusted_by.startswith("not signed; nobody but this user")
    strict = public.verify(str(bundle), require_signature=True)
    refused = printed(compilot("verify", str(bundle), "--require-signature", "--json"), code=1)
    assert read_back(refused, public.Verified) == strict
    assert not strict.ok
    assert strict.refused is not None
    with pytest.raises(public.BundleError, match="there is no bundle at"):
        public.verify("none.cpbundle")
    with pytest.raises(public.InputError, match="needs the public key"):
        public.verify(bundle, openssf_signature="x.sig")


def test_verify_takes_keys(make: Any, tmp_path: Path) -> None:
    key = public.keys.new(tmp_path / "release")
    bundle = make("signed", key=tmp_path / "release")
    assert "is not trusted" in (public.verify(bundle).refused or "")
    assert public.verify(bundle, trusted_keys=[key.public or ""]).trusted_by == (
        f"signed with trusted key {key.key_id}"
    )


def test_push_and_pull(make: Any, compilot: Command) -> None:
    bundle = make()
    pushed = public.push(bundle, "store")
    assert not pushed.was_there
    document = printed(compilot("push", str(bundle), "store", "--json"))
    assert document.pop("model_id") == pushed.model_id
    assert read_back(document, public.PushedBundle) == msgspec.structs.replace(pushed, was_there=True)
    Path("out").mkdir()
    pulled = public.pull("store", "out", model=Net().eval())
    assert pulled.path.read_bytes() == bundle.read_bytes()
    assert (pulled.fetched_bytes, pulled.signed_by) == (bundle.stat().st_size, None)
    document = printed(compilot("pull", "store", "-o", "out", "--model", "Net", "--json"))
    document.pop("model_id")
    again = public.pull("store", "out", model="Net")
    assert read_back(document, public.PulledBundle) == again
    assert again.fetched_bytes == 0
    with pytest.raises(public.UntrustedBundle, match="a signature is required"):
        public.pull("store", "out", require_signature=True)
    with pytest.raises(public.NoneFits, match="no bundle of that model"):
        public.pull("store", "out", model="Other")


def without_ids(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "model_id"} for one in documents]


def test_the_functions_of_stores(make: Any, compilot: Command, tmp_path: Path) -> None:
    kinds = tuple[public.store.StoreEntry, ...]
    public.keys.new("release")
    pushed = [public.push(make("plain"), "store"), public.push(make("signed", key=Path("release")), "store")]
    listed = public.store.ls(tmp_path / "store")
    assert read_back(without_ids(printed(compilot("store", "ls", "store", "--json"))), kinds) == listed.entries
    assert {entry.sha256 for entry in listed.entries} == {entry.sha256 for entry in pushed}
    assert listed.problems == ()
    gone = public.store.rm("store", pushed[0].sha256[:12])
    assert [gone] == [entry for entry in listed.entries if entry.sha256 == pushed[0].sha256]
    left = public.store.ls("store").entries
    removed = printed(compilot("store", "rm", "store", "Net", "--json"))
    assert read_back(without_ids([removed]), kinds) == left
    assert public.store.ls("store").entries == ()
    with pytest.raises(public.InputError, match="has no bundle 'Net'"):
        public.store.rm("store", "Net")


def test_cleaning_up_a_store(make: Any, compilot: Command) -> None:
    for name in ("old", "new"):
        public.push(make(name, folder=False, key=None if name == "old" else public.keys.new("k").private), "store")
    listed = public.store.ls("store")
    would = public.store.gc("store", keep=1, dry_run=True)
    document = printed(compilot("store", "gc", "store", "--keep", "1", "--dry-run", "--json"))
    assert read_back(document, tuple[public.store.Garbage, ...]) == would
    assert len(would) == 2  # an entry and its object
    assert public.store.ls("store") == listed
    assert public.store.gc("store", keep=1) == would
    assert len(public.store.ls("store").entries) == 1
    assert public.store.gc("store", verify=True) == ()
    with pytest.raises(public.InputError, match="at least 1"):
        public.store.gc("store", keep=0)


@pytest.fixture
def cached(make: Any) -> Path:
    """The cache with one unpacked bundle, unused for a day."""
    with open_bundle(make(), Trust()) as opened:
        place = unpacked(opened)
    del opened
    yesterday = time.time() - 86400
    os.utime(place / USED, (yesterday, yesterday))
    return place


def test_the_functions_of_the_cache(cached: Path, compilot: Command) -> None:
    for name in ("ls", "verify"):
        found = getattr(public.cache, name)()
        assert read_back(printed(compilot("cache", name, "--json")), list[public.cache.CacheEntry]) == [*found]
        assert [(entry.path, entry.label, entry.state) for entry in found] == [(cached, "Net", "ready")]
    stays = public.cache.prune("1GiB")
    assert (stays.removed, stays.stay) == ((), ())
    assert printed(compilot("cache", "prune", "--json")) == []
    (cached / "plan.json").chmod(0o600)
    (cached / "plan.json").write_text("{}")
    assert [entry.state for entry in public.cache.verify()] == ["damaged"]
    assert compilot("cache", "verify").exit_code == 1


def test_pruning_says_what_stays(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE_LIMIT", "0")
    pruned = public.cache.prune()  # this process still uses it
    assert (pruned.removed, pruned.stay) == ((), ("in use",))
    assert [entry.in_use for entry in public.cache.ls()] == [True]
    assert bundles_folder() == cached.parent


def test_the_functions_of_keys(make: Any, compilot: Command) -> None:
    made = printed(compilot("keys", "new", "one", "--json"))
    assert (made["private"], made["public"]) == ("one", "one.pub")
    assert read_back(made, public.keys.Key).key_id
    key = public.keys.new("two")
    assert (key.private, key.public) == (Path("two"), Path("two.pub"))
    with pytest.raises(public.KeyProblem, match="never overwritten"):
        public.keys.new("two")
    trusted = public.keys.trust("two.pub")
    assert read_back(printed(compilot("keys", "trust", "two.pub", "--json")), public.keys.Key) == trusted
    assert trusted.key_id == key.key_id
    assert public.keys.ls() == (trusted,)
    assert read_back(printed(compilot("keys", "ls", "--json")), list[public.keys.Key]) == [trusted]
    with pytest.raises(public.KeyProblem, match="give the public one"):
        public.keys.trust("two")
