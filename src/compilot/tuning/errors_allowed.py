"""Can any candidate keep to the error allowed? In: what was asked for, what is known of eager. Out: a note, InputError.

Said before anything is tried. Covered: a limit that eager itself does not keep; a model without a float64 reference.
Not covered: the candidates' own errors (verdict/constraints.py).
"""

from __future__ import annotations

from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Diagnosis, RunHeader

NO_FLOAT64 = "there is no float64 reference for this model; errors are counted from eager's answers instead"


def refuse_unreachable(header: RunHeader, diagnosis: Diagnosis, observer: Observer) -> None:
    """InputError where eager itself is further from float64 than any candidate may be."""
    limit, own = header.max_error, diagnosis.eager_error
    if limit is None or diagnosis.unjudgeable is not None:
        return
    if own is None:
        observer.note(NO_FLOAT64)
    elif own > limit:
        given = f" (of the preset {header.preset}, unless you gave it)" if header.preset else ""
        raise InputError(
            f"even eager has a relative error of {own:.2g} against float64, above the error allowed, {limit:g}{given}; "
            "allow a larger one, or tune the model in a higher precision."
        )
