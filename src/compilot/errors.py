"""The trees of errors and warnings. Errors are for the user's mistakes and the environment; a failed candidate is a
Trial, not an error. Every class here can be imported from `compilot`.

CompilotError                 every error below; str() is one sentence with the next step
├── UserError                 exit code 2
│   ├── TargetError           the target cannot be loaded or returns the wrong thing
│   ├── InputError            inputs, dynamic dimensions or options that make no sense
│   │   └── ManifestError     a fleet's manifest that makes no sense: names the line and the field
│   ├── UnpicklableError      live objects that cannot be shipped to a child process
│   ├── PlanError             a plan file that cannot be read: names the field
│   │   ├── UntrustedPlan     a plan, or files beside it, that somebody else could have changed
│   │   └── ArtifactError     a file beside a plan that is not the one that was measured: names the file
│   ├── RunDirError           a run directory that cannot be written or resumed
│   ├── BundleError           a bundle that is damaged or no bundle: names the file
│   │   └── UntrustedBundle   a bundle that is not trusted
│   ├── KeyProblem            a key file that cannot be read, written or trusted
│   ├── SignatureRefused      a signature that no trusted key made, or that does not fit the data
│   └── StoreError            a store that cannot be used, or a damaged object in it
│       ├── NoneFits          a store without a bundle for this machine: names what is missing
│       └── StoreUnreachable  a store that does not answer, or not as one
├── EnvironmentProblem        exit code 2: no disk, no torch, eager itself fails
│   ├── WorkerError           a worker of ours could not start or broke the protocol
│   └── NodeLost              a machine of a cluster went away while it worked
├── StalePlan                 the plan was made for another model, machine or version: names each difference
│   └── StaleBundle           the same of a bundle
├── NoFallback                the fast path cannot take this call and the eager model was dropped
│   └── IndexOutOfRange       the same for an index that does not exist; an IndexError, too
└── ForkedAfterUse            the process was forked after a parallel call; torch's threads do not survive that

Ctrl-C is Python's own KeyboardInterrupt, and of a command exit code 130.

CompilotWarning               every warning below, and others that have no class of their own; a UserWarning
├── PlanNotUsedWarning        the plan or bundle is not used, eager answers every call: the text says why
│   └── StalePlanWarning      the same, since it was made for another model, machine or version
├── FallbackWarning           a plan is in use, but eager answered calls: wrong inputs, gradients, changed weights
└── UnprovenSpeedWarning      answers are right, but the speed was measured on another machine or with other settings
"""

from __future__ import annotations

import re
from typing import Any


class CompilotError(Exception):
    """Base class; its text is one clear sentence with the next step."""


class UserError(CompilotError):
    """The user's mistake."""


class TargetError(UserError):
    """The target cannot be loaded or returns the wrong thing."""


class InputError(UserError):
    """Inputs, dynamic dimensions or options that make no sense."""


class ManifestError(InputError):
    """A fleet's manifest that makes no sense."""


class UnpicklableError(UserError):
    """Live objects that cannot be shipped to a child process."""


class PlanError(UserError):
    """A plan file that cannot be read."""


class UntrustedPlan(PlanError):
    """A plan, or files beside it, that somebody else than this user and root could have changed."""


class ArtifactError(PlanError):
    """A file beside a plan that is not the one that was measured."""


class BundleError(UserError):
    """A bundle that is damaged, unsafe, or no bundle at all."""


class UntrustedBundle(BundleError):
    """A bundle that no trusted key signed and that others could have changed."""


class RunDirError(UserError):
    """A run directory that cannot be written or resumed."""


class KeyProblem(UserError):
    """A key file that cannot be read, written or trusted."""


class SignatureRefused(UserError):
    """A signature that no trusted key made, or that does not fit the data."""


class StoreError(UserError):
    """A store that cannot be used, or a damaged object in it."""


class NoneFits(StoreError):
    """A store that has no bundle for this machine."""


class StoreUnreachable(StoreError):
    """A store that does not answer, or not as one."""


class EnvironmentProblem(CompilotError):
    """Something outside the user's model stops the work."""


class WorkerError(EnvironmentProblem):
    """A worker process could not start or broke the protocol."""


class NodeLost(EnvironmentProblem):
    """A machine of a cluster went away; nothing that it had not finished counts."""


class StalePlan(CompilotError):
    """The plan was made for another model, machine or version."""

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.differences = differences


class StaleBundle(StalePlan):
    """The bundle was made for another model, machine or version."""


class NoFallback(CompilotError):
    """The fast path cannot take this call and there is no eager model to answer it."""


class IndexOutOfRange(NoFallback, IndexError):
    """An input holds an index that does not exist; eager would raise IndexError, but there is no eager model."""


class ForkedAfterUse(CompilotError):
    """The process was forked after a parallel call."""


class CompilotWarning(UserWarning):
    """Something works, but not as the user would expect."""


class PlanNotUsedWarning(CompilotWarning):
    """The plan or bundle is not used; eager answers every call."""


class StalePlanWarning(PlanNotUsedWarning):
    """The plan was made for another model, machine or version; eager answers instead."""


class FallbackWarning(CompilotWarning):
    """Eager answered calls that the plan should have made fast."""


class UnprovenSpeedWarning(CompilotWarning):
    """The plan is used, but its speed was measured under other conditions."""


def cannot_write(path: object, why: str | None) -> RunDirError:
    """A file of a run directory that the disk does not take; why: in the system's words."""
    return RunDirError(f"cannot write {path}: {why}; choose another folder.")


def first_cause(error: BaseException) -> str:
    """The innermost error on one line: what compilers wrap around it says less."""
    while (inner := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = inner
    if (command := getattr(error, "cmd", None)) is not None:  # subprocess.CalledProcessError
        return _failed_command(command, error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if not line.startswith(_ADVICE)), "")
    text = _fitted(text, _LONGEST_CAUSE)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failed_command(command: Any, error: BaseException) -> str:
    """What a program said when it failed, how it ended, and its command as far as there is room for it."""
    code = getattr(error, "returncode", None)
    ended = "did not end in time" if code is None else f"ended with exit code {code}"
    ended = f"was ended by signal {-code}" if code is not None and code < 0 else ended
    parts = (getattr(error, "stderr", None), getattr(error, "stdout", None))
    output = "\n".join(part.decode(errors="replace") if isinstance(part, bytes) else part for part in parts if part)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it said nothing")
    words = command if isinstance(command, str) else " ".join(map(str, command))
    ended = f"; the command {ended}: "
    said = _fitted(said, _LONGEST_SAID)
    return f"{said}{ended}{_fitted(words, _LONGEST_CAUSE - len(said) - len(ended))}"


def _fitted(text: str, room: int) -> str:
    """As it is where there is room for it; else paths by their file names alone, and the end cut off last."""
    if len(text) > room:
        text = _FOLDERS.sub(".../", text)
    return text if len(text) <= room else text[: room - 3] + "..."


# The folders of an absolute path of two or more: what is told is in the file's name and in the words around it.
_FOLDERS = re.compile(r"(?:(?<![\w.])|(?<=-[IL]))(?:[A-Za-z]:)?[/\\](?:[^\s/\\:;,'\"`<>|=]+[/\\]){2,}")
_LONGEST_SAID = 200
_ADVICE = ("Set TORCH", "You can suppress")  # torch's hints to its own developers
_LONGEST_CAUSE = 400
