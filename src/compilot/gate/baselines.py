"""Figures of one side in a file, for a later check. In: sets of processes. Out: a `Baseline`, written and read.

Times are compared on the very machine only that made them: of two machines with the same processor one is slower.
Memory, kernels and files are compared where processor, torch and threads are alike: a compiler makes others elsewhere.
Graph breaks and recompiles are compared anywhere; answers where the weights are the same ones.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from compilot._version import __version__
from compilot.errors import InputError, cannot_write
from compilot.files import atomic
from compilot.gate.effects import HEAD_COLUMN, set_medians
from compilot.gate.races import OneSet
from compilot.gate.report_records import BASELINE_SCHEMA, Baseline, StoredAnswers
from compilot.gate.sides import HEAD, Side
from compilot.identity import isa
from compilot.records import MachineFingerprint
from compilot.trials.protocol import ArmFacts
from compilot.tuning.journal import now

OTHER_MACHINE = "another processor or torch"
MOST_ANSWER_BYTES = 1 << 20  # compressed: a file that can lie in a repository
MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
BOOT_ID = "/proc/sys/kernel/random/boot_id"  # of the kernel, which a container shares with its host
FIRST_CGROUP = "/proc/1/cgroup"
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")  # Docker; Podman
CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")  # Kubernetes; systemd-nspawn, LXC and Podman
CONTAINER_CGROUPS = ("docker", "kubepods", "containerd", "libpod", "lxc")  # where the runtime leaves no mark


def make_baseline(
    head: Side,
    sets: Sequence[OneSet],
    arms: Sequence[str],
    machine: MachineFingerprint,
    *,
    answers: Path | None,
    callers: int = 1,
) -> Baseline:
    """What a check needs later."""
    facts = {arm: tuple(f for one in sets if (f := one.facts.get(f"{HEAD} {arm}"))) for arm in arms}
    call_s = {arm: tuple(set_medians(sets, arm, HEAD_COLUMN)) for arm in arms}
    pairs = min((len(one.samples[arm].rounds) for one in sets for arm in arms if arm in one.samples), default=0)
    return Baseline(
        schema=BASELINE_SCHEMA,
        compilot=__version__,
        created=now(),
        target=head.shipment.target or "",
        label=sets[0].label,
        callers=callers,
        machine_id=machine_id(),
        machine=machine,
        commit=head.commit,
        facts={arm: found for arm, found in facts.items() if found},
        call_s={arm: found for arm, found in call_s.items() if found},
        pairs=pairs,
        answers=stored(answers, facts[arms[0]][0].weights_sha256) if answers is not None and facts[arms[0]] else None,
    )


def stored(path: Path, weights_sha256: str) -> StoredAnswers | None:
    """A file of answers as text; None: it is too large."""
    data = zlib.compress(path.read_bytes(), 9)
    if len(data) > MOST_ANSWER_BYTES:
        return None
    return StoredAnswers(data=base64.b64encode(data).decode(), weights_sha256=weights_sha256)


def unpacked(answers: StoredAnswers, path: Path) -> Path:
    """The file again."""
    path.write_bytes(zlib.decompress(base64.b64decode(answers.data)))
    return path


def write_baseline(baseline: Baseline, path: Path) -> None:
    """The file, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n")
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem


def read_baseline(path: Path) -> Baseline:
    """A baseline from its file; InputError names what is wrong with it."""
    again = "make it again with 'compilot baseline TARGET -o FILE'"
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}; {again}.") from problem
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != BASELINE_SCHEMA:
            raise InputError(f"{path} has schema {schema}, this version reads {BASELINE_SCHEMA}; {again}.")
        return msgspec.json.decode(data, type=Baseline)
    except msgspec.DecodeError as problem:
        raise InputError(f"{path} is no baseline: {problem}; {again}.") from problem


class _Head(msgspec.Struct):
    schema: int


def machine_id() -> str:
    """A digest of what is another one on other machines; it names nothing.

    Host name and machine id; containers may have both from their image, so there the host's boot counts as well: a
    baseline is good until the host starts again. Virtual machines that are copies with the same name cannot be told
    apart.
    """
    parts = [platform.node(), platform.machine(), str(os.cpu_count())]
    parts += [text for place in MACHINE_IDS if (text := _text(place))][:1]
    if _in_container():
        parts.append(_text(BOOT_ID))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _in_container() -> bool:
    """Whether this process has the files of an image; what each runtime leaves there."""
    marked = any(Path(place).exists() for place in CONTAINER_FILES)
    named = any(name in os.environ for name in CONTAINER_VARIABLES)
    return marked or named or any(word in _text(FIRST_CGROUP) for word in CONTAINER_CGROUPS)


def _text(place: str) -> str:
    """What a file of the system says; "": nothing, or there is none."""
    try:
        return Path(place).read_text(errors="replace").strip()
    except OSError:
        return ""


def why_no_times(baseline: Baseline, machine: MachineFingerprint) -> str:
    """Why stored times say nothing here; "": they do."""
    if baseline.machine_id != machine_id():
        return "the baseline was measured on another machine, so times are not compared"
    for name in ("torch", "python", "threads", "cpu_model"):
        was, is_ = getattr(baseline.machine, name), getattr(machine, name)
        if was != is_:
            return f"the baseline was measured with {name} {was}, here it is {is_}, so times are not compared"
    return ""


def why_no_costs(baseline: Baseline, machine: MachineFingerprint) -> str:
    """Why stored memory, kernels and sizes of files say nothing here; "": they do."""
    for name in ("torch", "threads"):
        was, is_ = getattr(baseline.machine, name), getattr(machine, name)
        if was != is_:
            return f"{OTHER_MACHINE} than the baseline's: {name} was {was}, here it is {is_}"
    if changed := isa.changed(baseline.machine.cpu_isa, machine.cpu_isa):
        return (
            f"{OTHER_MACHINE} than the baseline's: {', '.join(sorted(changed)[: isa.MOST_NAMED])} on one of them only"
        )
    return ""


def why_other_work(baseline: Baseline, target: str, callers: int) -> str:
    """Why stored latencies are of something else; "": as far as is known before a race, they are not."""
    was, is_ = (_short(one) for one in (baseline.target, target))
    if was != is_:
        return f"the baseline is of {was}, so it is not the same work; make it again with 'compilot baseline'"
    if baseline.callers != callers:
        counts = f"{baseline.callers} at once, here it is {callers}"
        return f"the baseline was called by {counts}, so it is not the same work; give the same concurrency"
    return ""


def why_other_inputs(baseline: Baseline, arm: str, head: ArmFacts) -> str:
    """The same for an arm's example inputs, once it has run."""
    stored = baseline.facts.get(arm, ())
    if not stored or stored[0].inputs == head.inputs:
        return ""
    changed = f"{stored[0].inputs or 'none'} before, {head.inputs or 'none'} now"
    return f"the example inputs are others, so it is not the same work: {changed}"


def _short(target: str) -> str:
    place, _, factory = target.rpartition(":")
    return f"{Path(place).name if place.endswith('.py') else place}:{factory}"
