"""A run directory: the one place that knows the names of its files.

In: a path. Out: where each file of a run lies, whether a run is there and came to its end, and its journal, plan and
shipment opened. A directory of which somebody else could change what a run reads is refused (UntrustedPlan) before any
of it is read. Not covered: what the records mean (records.py), the files in a candidate's folder (engines).

plan.json        the plan, when there is a verdict      doctor/         what the doctor saw
journal.jsonl    every record, as it came               logs/NAME.log   what a process wrote to stderr
trials.csv       one line per candidate, written last   reference/      eager's answers
report.html      all of it to look at                   progress.json   what it does at this moment, while it runs
batches.csv      batch sizes, where they were asked for
shipment.json    how to rebuild the workload            work/ID/        a candidate's files and caches
shared/          exports that several candidates start from
payload.pkl, weights.bin   the model and inputs, where they came as live objects
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from compilot.artifacts import journal as journals
from compilot.artifacts import planfile, planfolder, shipments
from compilot.artifacts.journal import Journal
from compilot.artifacts.planfolder import Claim, Needs
from compilot.errors import ArtifactError, RunDirError
from compilot.files import atomic
from compilot.records import JournalLine, Plan, RunHeader, Shipment, Trial, TrialLine


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run; the path may be relative, and nothing need be there yet."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> RunDir:
        """The directory, there and writable, or one clear sentence why not."""
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RunDirError(f"cannot make {path}: {problem.strerror}; choose another folder.") from problem
        if not os.access(path, os.W_OK | os.X_OK):
            raise RunDirError(f"{path} cannot be written to; choose another folder.")
        atomic.sweep(path)  # what a killed run left half-written
        return cls(path)

    def __str__(self) -> str:
        return str(self.path)

    # ------------------------------------------------------------------------------------------------------ its files

    @property
    def plan(self) -> Path:
        return self.path / planfolder.PLAN_NAME

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def trials_csv(self) -> Path:
        return self.path / "trials.csv"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def batches_csv(self) -> Path:
        return self.path / "batches.csv"

    @property
    def shipment(self) -> Path:
        return self.path / shipments.FILE_NAME

    @property
    def payload(self) -> Path:
        return self.path / "payload.pkl"

    @property
    def weights(self) -> Path:
        return self.path / "weights.bin"

    @property
    def doctor(self) -> Path:
        return self.path / "doctor"

    @property
    def reference(self) -> Path:
        return self.path / "reference"

    @property
    def shared(self) -> Path:
        return self.path / "shared"

    def log(self, name: str) -> Path:
        """What a process of this name wrote to stderr."""
        return self.path / self.log_name(name)

    @staticmethod
    def log_name(name: str) -> str:
        """The same as a trial's record has it: from the run directory on."""
        return f"logs/{name}.log"

    def workspace(self, candidate_id: str) -> Path:
        """Where a candidate's files and caches lie."""
        return self.path / self.artifacts_dir(candidate_id)

    def compile_key(self, candidate_id: str) -> Path:
        """What a candidate's compile cache depends on (identity/keys.py), where its engine notes that."""
        return self.workspace(candidate_id) / "key.json"

    @staticmethod
    def artifacts_dir(candidate_id: str) -> str:
        """The same as a plan's entry has it: from the run directory on."""
        return f"work/{candidate_id}"

    # -------------------------------------------------------------------------------------------------------- its run

    @property
    def holds_run(self) -> bool:
        """Whether a run began here."""
        return self.journal.exists()

    @property
    def is_finished(self) -> bool:
        """Whether a run came to its end here: its last file is in place."""
        return self.trials_csv.exists()

    def refuse_second_run(self, instead: str | None = None) -> None:
        """Before anything is written: a directory that holds a run is resumed or left alone."""
        if self.holds_run:
            instead = instead or f"continue it with {journals.resume_command(self.path)}, or choose another folder"
            raise RunDirError(f"{self} already holds a run; {instead}.")

    def refuse_foreign(self, *others: Path) -> None:
        """UntrustedPlan if somebody else can change these files, the journal or a candidate's files."""
        workspaces = sorted(self.workspace("").glob("*"))
        planfolder.refuse_foreign(self.path, (*others, self.journal, *workspaces))

    # ----------------------------------------------------------------------------------------------------- what is in

    def create_journal(self, header: RunHeader) -> Journal:
        """Begin the run's journal."""
        return Journal.create(self.journal, header)

    def open_journal(self) -> Journal:
        """Go on with the run's journal."""
        return Journal.open(self.journal)

    def lines(self) -> list[JournalLine]:
        """Every record of the run; RunDirError where there is none, or it is damaged."""
        return journals.read(self.journal)

    def header(self) -> RunHeader:
        """What the run is about."""
        first = self.lines()[0]
        assert isinstance(first, RunHeader)  # or it would not have been read
        return first

    def last_header(self) -> RunHeader:
        """What was asked for when the run began or was last resumed; UntrustedPlan if somebody else can change it."""
        if not self.holds_run:
            raise RunDirError(f"{self} holds no run to resume (no {self.journal.name}); check the directory.")
        self.refuse_foreign()
        return [line for line in self.lines() if isinstance(line, RunHeader)][-1]

    def trials(self) -> dict[str, Trial]:
        """The last trial of each candidate, in the order of the first ones."""
        return {line.trial.candidate.id: line.trial for line in self.lines() if isinstance(line, TrialLine)}

    def save_plan(self, plan: Plan) -> None:
        """Write the plan; a reader sees the old file or the new one, whole."""
        planfile.save_plan(plan, self.plan)

    def open_plan(self) -> Plan:
        """The run's plan, for use; UntrustedPlan if somebody else can change it."""
        if not self.plan.is_file():
            raise RunDirError(f"there is no {self.plan.name} in {self}; run 'compilot tune TARGET --out {self}' first.")
        return planfolder.open_plan(self.plan)

    def read_plan(self) -> Plan | None:
        """The run's plan, to look at; None: there is none yet."""
        return planfile.load_plan(self.plan) if self.plan.exists() else None

    def keep_shipment(self, shipment: Shipment) -> None:
        """Note beside the plan how its workload is rebuilt."""
        shipments.keep_shipment(shipment, self.path)

    def open_shipment(self) -> Shipment:
        """How the run's workload is rebuilt; UntrustedPlan if somebody else can change any of it, or of the run."""
        self.refuse_foreign(self.shipment)
        shipment = shipments.read_shipment(self.path)
        planfolder.refuse_foreign(self.path, [Path(place) for place in (shipment.payload, shipment.weights) if place])
        return shipment

    def why_changed(self, trial: Trial, *, cache: str) -> str:
        """Why a trial's files are not the ones that were measured; "": they are. cache: its engine's compile cache."""
        claim = Claim(self.workspace(trial.candidate.id), trial.artifacts, Needs(cache=cache))
        if missing := planfolder.missing_file(claim):
            return f"{missing} is missing"
        try:
            planfolder.checked(claim)
        except ArtifactError as problem:
            return str(problem).partition(";")[0]
        return ""
