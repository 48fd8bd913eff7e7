"""What a user can do about a size that must not be padded.

In: a proof and its workload. Out: the proof with the next step in its reasons. Covered: a model that takes a mask which
the example does not give. Not covered: models that take none; they are what they are.
"""

from __future__ import annotations

import inspect

import msgspec

from compilot._tree import parameter_names
from compilot.records import PaddingLeak, PaddingProof
from compilot.workload.workload import Workload


def with_advice(proof: PaddingProof, workload: Workload) -> PaddingProof:
    """The same proof with the next step where positions may see each other for want of a mask."""
    mask = _unused_mask(workload)
    if not mask:
        return proof
    advice = f"; the model takes {mask}: give it in the example, and padding is tried with it"
    refused = [
        msgspec.structs.replace(leak, why=leak.why + advice) if not _is_rows(leak) and leak.output else leak
        for leak in proof.refused
    ]
    return msgspec.structs.replace(proof, refused=tuple(refused))


def _unused_mask(workload: Workload) -> str:
    """A mask that the model would take and the example does not give; "": there is none."""
    try:
        known = inspect.signature(workload.model.forward).parameters
    except (TypeError, ValueError):
        return ""
    given = set(parameter_names(workload.model.forward, workload.call).values())
    return next((name for name in known if "mask" in name.lower() and name not in given), "")


def _is_rows(leak: PaddingLeak) -> bool:
    return all(name.endswith(" dimension 0") for name in leak.inputs)
