"""The child that builds or fetches for a server. Run as `python -m compilot.serve.builder JOB PARENT`.

In: a BuildJob in a private file. Out: a bundle, and a BuildResult beside it. Building: eager is opened and looked at,
then the candidates are tried one after the other as in a tune (built, compared with float64, started again from the
packed files); the first that passes is packed. Nothing is said about speed: the server judges that, on its own calls.
This is tuning plane: no module of the server imports it.
Covered: each failure is a result with its reason, and whether it may work later. Not covered: being killed (watching.py
sees that).
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError, RunDirError, StoreError, first_cause
from compilot.files import atomic
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Diagnosis,
    Evidence,
    Fingerprint,
    MachineFingerprint,
    Plan,
    PlanEntry,
    Precision,
    RunHeader,
    State,
    Trial,
    TrialLine,
    encode,
)
from compilot.serve.bounding import bound_myself
from compilot.serve.records import Bounds, BuildJob, BuildResult, Tried, decode_job
from compilot.trials.limits import Limits

TRIAL_S = 900.0  # for one candidate; bounded children take several times as long as a tune's
LIMITS = Limits(open_s=900.0, inspect_s=1800.0, build_s=TRIAL_S, check_s=900.0, warm_s=2.0)
SENTENCE = "proven correct for serving; its speed is judged by the server's own calls"
PASSING = (
    "killed by SIGKILL",
    "no working C++ compiler",
    *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM)),
)
LATER = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EAGAIN)


def main(argv: list[str]) -> int:
    """Do the job and write the result; the exit code says whether there is one."""
    job_file = Path(argv[0])
    parent, nice, cores, idle = map(int, argv[1:5])
    bound_myself(Bounds(nice=nice, one_core_from=cores, idle=bool(idle)), parent)
    job = decode_job(job_file.read_bytes())
    job_file.unlink(missing_ok=True)
    atomic.write_bytes(Path(job.result), encode(done(job)))
    return 0


def done(job: BuildJob) -> BuildResult:
    """The result of a job, whatever happens."""
    try:
        found = fetched(job) if job.url else built(job)
    except (CompilotError, OSError) as problem:
        found = BuildResult(ok=False, reason=_sentence(problem), retry=may_work_later(problem))
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return msgspec.structs.replace(found, cpu_s=sum(one.ru_utime + one.ru_stime for one in spent))


def _sentence(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, CompilotError) else first_cause(problem)


def may_work_later(problem: BaseException) -> bool:
    """Disks, stores and memory come back; a model that cannot be built does not change."""
    if isinstance(problem, StoreError | RunDirError):
        return True
    cause: BaseException | None = problem
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return isinstance(cause, OSError) and cause.errno in LATER


# ------------------------------------------------------------------------------------------------------------ fetching


def fetched(job: BuildJob) -> BuildResult:
    """The bundle of a store that fits best, where the job wants it."""
    from compilot.artifacts import store
    from compilot.artifacts.bundle import open_bundle
    from compilot.artifacts.bundle_trust import Trust

    trust = Trust(keys=job.trusted_keys, require_signature=job.require_signature)
    place = Path(job.folder) / "fetched.cpbundle"
    store.pull(job.url, place, job.machine, job.wanted, trust)
    os.replace(place, job.out)
    with open_bundle(Path(job.out), trust) as bundle:
        return BuildResult(ok=True, digest=bundle.digest, label=bundle.manifest.engine)


# ------------------------------------------------------------------------------------------------------------ building


def built(job: BuildJob) -> BuildResult:
    """Try the candidates; the first that passes is packed."""
    from compilot.progress import Observer
    from compilot.trials.local import LocalRunner
    from compilot.tuning.comparing import try_eager, try_one
    from compilot.tuning.journal import make_header
    from compilot.tuning.options import TuneOptions

    run = RunDir.make(Path(job.folder))
    assert job.shipment is not None
    tried: list[Tried] = []
    with LocalRunner(run, limits=LIMITS, observer=Observer(), judges_speed=False) as runner:
        model = runner.open(job.shipment)
        seen = runner.inspect()
        fingerprint = msgspec.structs.replace(seen.fingerprint, machine=_machine(job, seen.fingerprint))
        header = make_header(model.ref, fingerprint, TuneOptions())
        passed = None
        with run.create_journal(header) as journal:
            if seen.diagnosis.unjudgeable:
                return BuildResult(ok=False, reason=f"eager cannot be compared with: {seen.diagnosis.unjudgeable}")
            journal.append(TrialLine(trial=try_eager(runner, TRIAL_S), at_s=0.0))
            for candidate in candidates(job, seen.diagnosis):
                trial = try_one(runner, candidate, TRIAL_S)
                journal.append(TrialLine(trial=trial, at_s=0.0))
                tried.append(Tried(label=candidate.label, state=trial.state, reason=trial.reason))
                if trial.state is State.OK:
                    passed = trial
                    break
    if passed is None:
        return BuildResult(ok=False, reason=_none(job, tried), retry=any(map(passes, tried)), tried=tuple(tried))
    digest = _packed(run, job, header, passed)
    return BuildResult(ok=True, digest=digest, label=passed.candidate.label, tried=tuple(tried))


def _none(job: BuildJob, tried: list[Tried]) -> str:
    if not tried and job.twins:
        names = ", ".join(candidate.label for candidate in job.candidates)
        return f"{names} would be compiled in the server, and has no ahead-of-time form"
    if not tried:
        return "no engine whose files start without a compiler is installed; pip install 'compilot[all]'"
    return "no engine passed: " + "; ".join(f"{one.label} {one.state}, {one.reason}" for one in tried)


def passes(one: Tried) -> bool:
    """Whether a candidate failed of what the machine lacked at that time: room, memory, time, a compiler."""
    return one.state == State.TIMED_OUT or any(words in one.reason for words in PASSING)


def _machine(job: BuildJob, seen: Fingerprint) -> MachineFingerprint:
    """The server's, with the engines and the compiler that the child found."""
    return msgspec.structs.replace(seen.machine, threads=job.machine.threads, cores=job.machine.cores)


def candidates(job: BuildJob, diagnosis: Diagnosis) -> Iterator[Candidate]:
    """Those that were asked for, else each engine's first one, quick builds before long ones; at the server's threads.

    Generated code may hold the number of threads: it must be the server's, not the child's.
    """
    for candidate in _twins(job.candidates) if job.twins else job.candidates or _usual(diagnosis):
        process = msgspec.structs.replace(candidate.process, threads=candidate.process.threads or job.threads)
        yield msgspec.structs.replace(candidate, process=process)


def _twins(given: Iterable[Candidate]) -> Iterator[Candidate]:
    """What the same compiler makes ahead of time; other torch.compile backends have no such form."""
    from compilot.packing.twin import twin_of

    yield from (twin for candidate in given if (twin := twin_of(candidate)) is not None)


def _usual(diagnosis: Diagnosis) -> Iterator[Candidate]:
    from compilot.candidates.spaces import candidates_of, usable_engines
    from compilot.engines import registry

    alone = [name for name in usable_engines(()) if is_artifact_engine(name)]
    for name in sorted(alone, key=lambda name: registry.traits(name).build_cost):
        yield from [c for c in candidates_of(name, diagnosis) if c.settings.precision is Precision.AS_IS][:1]


def is_artifact_engine(name: str) -> bool:
    """Whether its files are everything: nothing is traced or compiled where they are loaded."""
    from compilot.engines import registry

    traits = registry.traits(name)
    return traits.standalone and not traits.compiler_at_start and not traits.through_dynamo


def _packed(run: RunDir, job: BuildJob, header: RunHeader, trial: Trial) -> str:
    """The bundle of one trial, as it was checked; its digest."""
    from compilot.packing.pack import PackOptions, pack
    from compilot.progress import Observer

    assert job.shipment is not None
    assert trial.guard is not None
    run.save_plan(plan_of(header, trial))
    run.keep_shipment(job.shipment)
    packed = pack([run.path], Path(job.out), PackOptions(twin=False), Observer())
    from compilot.artifacts.bundle import open_bundle
    from compilot.artifacts.bundle_trust import Trust

    with open_bundle(packed.path, Trust()) as bundle:
        return bundle.digest


def plan_of(header: RunHeader, trial: Trial) -> Plan:
    """One entry, with what was checked and no word about speed."""
    assert trial.guard is not None
    check = trial.check
    entry = PlanEntry(
        guard=trial.guard,
        candidate=trial.candidate,
        evidence=Evidence(
            cold_s=trial.measurement.cold_s if trial.measurement else None,
            candidates_tried=1,
            check=check.why if check else "",
            tolerance=check.tolerance if check else None,
            relative_error=check.relative_error if check else None,
        ),
        sentence=SENTENCE,
        artifacts=trial.artifacts,
        artifacts_dir=RunDir.artifacts_dir(trial.candidate.id),
        frozen_weights=trial.frozen_weights,
        weights_sha256=trial.weights_sha256,
        caveats=check.caveats if check else (),
    )
    return Plan(
        schema=PLAN_SCHEMA,
        compilot=header.compilot,
        created=header.created,
        workload=header.workload,
        fingerprint=header.fingerprint,
        because=SENTENCE,
        process=trial.candidate.process,
        entries=(entry,),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
